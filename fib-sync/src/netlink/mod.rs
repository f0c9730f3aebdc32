//! The driver for Linux: routes, links and addresses over `NETLINK_ROUTE`.
//!
//! Two sockets. One carries requests and their answers: writes go out in batches of one `send`
//! with sequence numbers of our own and an acknowledgement asked of the last message only, so that
//! refused routes are found by their numbers and the last answer is the barrier; dumps use the
//! kernel's strict checking, which lets it filter by table and owner. The other follows
//! notifications with a large receive buffer and a socket filter that leaves out those our own
//! writes caused.
//!
//! No type of a netlink crate is part of the public interface.
//!
//! What the kernel does not offer, and this driver therefore cannot: comparing before replacing. If
//! another program puts a route of the same key in front of ours (`ip route prepend`) between our
//! last look and our replace, the kernel replaces theirs.

mod apply;
mod dump;
mod fib;
mod job;
mod parse;
mod raw;
mod socket;
mod watch;

pub use self::fib::{NetlinkConfig, NetlinkFib};
pub use self::socket::OpenError;
