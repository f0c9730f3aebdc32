//! What must be true, one file each.
//!
//! [`foreign`] always holds. The others hold at rest: when nothing goes wrong any more and what
//! has gone wrong is over.

pub mod empty;
pub mod fib;
pub mod foreign;
pub mod forwarding;
pub mod idle;
pub mod sent;
pub mod sessions;
pub mod withdrawn;
