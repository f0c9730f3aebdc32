//! The agent as a value: the store's values and the kernel's events in, writes and routes out.
//!
//! Nothing in here does I/O or reads a clock: routes go out as commands of `fib-sync`, everything
//! else through the [`Host`] port. A simulator runs the same value beside an in-memory kernel.

mod core;
mod discovery;
mod host;
mod interface;
pub(crate) mod retry;
mod state;
mod steps;
#[cfg(test)]
mod tests;

pub use core::{Agent, AgentConfig};
pub use host::{Failed, Host};
pub use state::{EndpointView, Waiting};
