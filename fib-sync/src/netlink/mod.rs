//! The driver for Linux: routes, links and addresses over `NETLINK_ROUTE`.
//!
//! Two sockets. One carries requests and their answers: writes go out in batches of one `send`
//! with sequence numbers of our own and an acknowledgement asked of the last message only, so that
//! refused routes are found by their numbers and the last answer is the barrier; dumps use the
//! kernel's strict checking, which lets it filter by table and owner. The other follows
//! notifications with a large receive buffer and a socket filter that leaves out those our own
//! writes caused.
//!
//! The kernel carries out route requests within the system call that sends them. Large batches are
//! therefore sent by a thread, and the next one is handed over before the outcomes of the last one
//! are told: what the caller does with these, and what it asks for next, costs no time of its own.
//!
//! No type of a netlink crate is part of the public interface.
//!
//! The kernel cannot compare before it replaces. Notifications are therefore read to the last one
//! right before a batch goes out, and a replace of what they tell of is not sent. What remains is
//! the time of one system call in which another program would have to take over the very key.

mod apply;
mod dump;
mod fib;
mod job;
mod parse;
mod queue;
mod raw;
mod socket;
#[cfg(test)]
mod tests;
mod watch;

pub use self::fib::{NetlinkConfig, NetlinkFib};
pub use self::socket::OpenError;
