//! The BGP daemon of every host, as a library with a thin `main`.
//!
//! It announces the routes that Felix or another program has added to the kernel for this host's
//! workloads, and installs the routes learned from its BGP neighbors in the kernel. [`Node`]
//! connects the two: a value without I/O or clock that the simulator runs against a simulated
//! kernel, and the driver [`Kernel`] against the real one. [`bgp_daemon`] implements the parts that
//! all BGP daemons share.

mod client;
mod config;
mod duty;
mod kernel;
pub mod limits;
#[cfg(test)]
mod mistakes;
mod node;
mod protocol;
mod report;

pub use client::Client;
pub use config::{Config, KernelConfig, KernelSection, MultipathWeights, NexthopUse, OnExit};
pub use duty::Writer;
pub use kernel::{Kernel, KernelError};
pub use node::{Node, Tables};
