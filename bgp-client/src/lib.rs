//! The BGP daemon of every host, as a library with a thin `main`.
//!
//! It announces what Felix (or whoever) put into the kernel for this host's workloads, and puts
//! into the kernel what it learns from its BGP neighbours. Between the two stands [`Node`]: a value
//! without I/O or clock that the simulator runs against a simulated kernel, and the driver
//! [`Kernel`] against the real one. What all BGP daemons do is [`bgp_daemon`]'s.

mod client;
mod config;
mod kernel;
pub mod limits;
mod log;
mod node;
mod protocol;
mod report;

pub use client::Client;
pub use config::{Config, KernelConfig, KernelSection, OnExit};
pub use kernel::{Kernel, KernelError};
pub use node::{Node, Tables};
