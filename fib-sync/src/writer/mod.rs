//! Writes for a process that may not write: the pure half.
//!
//! The process with the reconciler has no privilege. It sends its writes as octets (`codec`) to
//! another process, which compares each with its [`Bounds`] and with the keys of its own routes
//! ([`Gate`]), then requests it from the kernel. So a process that an attacker has taken over alters
//! only routes of its own protocol, table and metrics.

mod codec;
mod gate;
#[cfg(test)]
mod tests;

pub use self::codec::{Outcomes, Writes};
pub use self::gate::{Bounds, Gate};
