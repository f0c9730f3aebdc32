//! Access to the kernel: nftables, neighbor entries, settings, bandwidth, connection tracking. Routes go
//! through `fib-sync`. Everything acts in the network namespace of the calling thread.

pub mod conntrack;
mod cutting;
mod encode;
mod expression;
mod filter;
mod follow;
mod frames;
mod host;
mod listing;
mod neighbors;
mod offload;
mod record;
mod rules;
mod shaper;
mod sockets;
mod solicited;
mod stateful;
mod statement;
pub mod sysctl;
mod tracked;
mod tunnels;
mod ways;

pub use host::{HostError, LinuxHost};
pub use neighbors::Neighbors;
pub use netlink::Refused;
pub use rules::{Effort, Rules, RulesError};
pub use sysctl::Sysctl;
