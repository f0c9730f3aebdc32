//! The BGP daemon of every host, as a library with a thin `main`.
//!
//! It announces what Felix (or whoever) put into the kernel for this host's workloads, and puts
//! into the kernel what it learns from its BGP neighbours. Between the two stands [`Node`]: a value
//! without I/O or clock that the simulator runs against a simulated kernel, and [`run`] against the
//! real one, in a `select!` loop of one task that owns sockets, kernel and control socket alike.

mod config;
mod daemon;
pub mod limits;
mod log;
mod node;
mod reload;
mod report;
mod run;

pub use config::{CONTROL_DEFAULT, Config, KernelConfig, KernelSection, OnExit};
pub use daemon::Daemon;
pub use node::{Node, Tables};
pub use run::{Failure, run};
