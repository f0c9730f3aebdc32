//! The agent as a value: its inputs are the datastore's values, the kernel's events and the host's
//! answers, its outputs are routes and commands.
//!
//! Nothing in here does I/O, waits, or reads a clock: routes are output as commands of `fib-sync`,
//! everything else as [`HostCommand`]. A simulator runs the same value with an in-memory kernel and
//! host.
//!
//! [`Agent`] holds parts that own their state: `trust` decides which data may be applied; `rules`,
//! `routes`, `interfaces`, `bandwidth`, `neighbors`, `overlay` and `router` hold the issued commands and their outcomes;
//! `discovery` holds missing interfaces and endpoints. `docs/design/felix-agent.md` explains the
//! design.

mod agenda;
mod answers;
mod bandwidth;
mod config;
mod connections;
mod core;
mod cutting;
mod discovery;
mod host;
mod interfaces;
mod ipip;
mod links;
mod neighbors;
mod offload;
mod overlay;
pub(crate) mod retry;
mod router;
mod routes;
mod rules;
#[cfg(test)]
mod tests;
mod trust;
mod view;

pub use crate::explain::{Connection, Wanted};
pub use config::AgentConfig;
pub use core::Agent;
pub use host::{
    Checked, Configured, Failed, Forwarding, GATEWAY_IPV4, GATEWAY_IPV6, HostCommand, HostEvent,
    Neighbor, TunnelEntry,
};
pub use view::{EndpointView, Waiting};
