//! The BGP daemon of every host, as a library with a thin `main`.
//!
//! It announces what Felix (or whoever) put into the kernel for this host's workloads, and puts
//! into the kernel what it learns from its BGP neighbours. Between the two stands [`Node`]: a value
//! without I/O or clock that the simulator runs against a simulated kernel, and [`Client`] against
//! the real one. What all BGP daemons do is [`bgp_daemon`]'s.

mod client;
mod config;
pub mod limits;
mod log;
mod node;
mod protocol;
mod report;

pub use client::{Client, KernelError};
pub use config::{Config, KernelConfig, KernelSection, OnExit};
pub use node::{Node, Tables};
