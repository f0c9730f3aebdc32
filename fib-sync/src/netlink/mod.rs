//! The driver for Linux: routes, links and addresses over `NETLINK_ROUTE`.
//!
//! Two sockets. One carries requests and their answers: writes go out in batches of one `send` with
//! sequence numbers of the driver and an acknowledgment requested for the last message only, so
//! that refused routes are found by their numbers and the last answer is the barrier; dumps use the
//! kernel's strict checking, which lets it filter by table and owner. The other follows
//! notifications with a large receive buffer and a socket filter that drops the notifications
//! caused by the driver's own writes.
//!
//! The kernel carries out route requests within the system call that sends them. Large batches are
//! therefore sent by a thread, and the next one is handed over before the outcomes of the last one
//! are returned. So the caller's work on these outcomes overlaps with the kernel's work on the next
//! batch.
//!
//! A process without `CAP_NET_ADMIN` reads and follows routes in the same way. Its writes go as one
//! message to a process with the capability ([`RouteWriter`]), which compares them with its bounds.
//!
//! No type of a netlink crate is part of the public interface.
//!
//! The kernel cannot compare before it replaces. Therefore all notifications are read right before
//! a batch is sent, and a replace of a key that they report as changed is not sent. The remaining
//! race is the time of one system call, in which another program would have to take over the same
//! key.

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
mod writer;

pub use self::fib::{NetlinkConfig, NetlinkFib};
pub use self::socket::OpenError;
pub use self::writer::RouteWriter;
