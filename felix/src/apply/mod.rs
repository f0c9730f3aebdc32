//! Access to the kernel: nftables, neighbor entries, settings, connection tracking. Routes go
//! through `fib-sync`. Everything acts in the network namespace of the calling thread.

pub mod conntrack;
mod encode;
mod expression;
mod host;
mod neighbors;
mod record;
mod rules;
mod solicited;
pub mod sysctl;

pub use host::{HostError, LinuxHost};
pub use neighbors::Neighbors;
pub use netlink::Refused;
pub use rules::{Rules, RulesError};
pub use sysctl::Sysctl;
