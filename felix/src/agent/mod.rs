//! The agent as a value: the store's values, the kernel's events and the host's answers in; routes and
//! commands out.
//!
//! Nothing in here does I/O, waits, or reads a clock: routes go out as commands of `fib-sync`, everything
//! else as [`HostCommand`]. A simulator runs the same value beside an in-memory kernel and host.
//!
//! [`Agent`] holds parts that own their state: `trust` what may be applied, `rules`, `routes`,
//! `interfaces`, `neighbors` and `router` what was ordered and what became of it, `discovery`
//! what is missing. `docs/design/felix-agent.md` has the reasons.

mod agenda;
mod config;
mod core;
mod discovery;
mod host;
mod interfaces;
mod links;
mod neighbors;
pub(crate) mod retry;
mod router;
mod routes;
mod rules;
#[cfg(test)]
mod tests;
mod trust;
mod view;

pub use config::AgentConfig;
pub use core::Agent;
pub use host::{Checked, Failed, GATEWAY_IPV4, GATEWAY_IPV6, HostCommand, HostEvent, Neighbour};
pub use view::{EndpointView, Waiting};
