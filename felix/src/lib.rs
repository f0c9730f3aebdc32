//! Felix, the agent of every host: puts the workload endpoints that the store holds for this host
//! into its kernel.
//!
//! * [`calc`]: from the store's values to the state the host should be in. Pure.
//! * [`render`]: the packet filter as a typed ruleset, its text, and differences. Pure.
//! * [`agent`]: what is to be done next, without doing it. Pure; a simulator runs it.
//! * [`apply`]: nftables, neighbor entries, kernel settings, connection tracking.
//! * `status`: what is reported into the store, and when. Pure.
//! * `endpoint_files`: what plugins of this host are told, in files.
//! * [`config`] and [`daemon`]: the program around it.
//!
//! Fail closed: what is not known to be allowed does not pass. Rules are in force before a route
//! leads to an interface, and stay in force when the agent dies.

pub mod agent;
pub mod apply;
pub mod calc;
pub mod config;
pub mod daemon;
mod datastore_address;
mod endpoint_files;
mod events;
pub mod limits;
pub mod render;
pub mod report;
mod status;
pub mod store;
