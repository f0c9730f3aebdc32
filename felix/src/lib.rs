//! Felix, the agent of every host: programs the workload endpoints that the datastore holds for
//! this host into its kernel.
//!
//! * [`calc`]: computes the host's desired state from stored values. Pure.
//! * [`render`]: the packet filter as a typed ruleset, its text, and differences. Pure.
//! * [`agent`]: decides the next commands, without carrying them out. Pure; a simulator runs it.
//! * [`apply`]: nftables, neighbor entries, kernel settings, connection tracking.
//! * `status`: decides the reports into the datastore, and their times. Pure.
//! * `endpoint_files`: status files for plugins of this host.
//! * `bgp_files`: the ports of this host's BGP daemons.
//! * `explain`: the verdict of the calculated rules on a packet. Pure.
//! * `flows`: the flow log of this host.
//! * `health`: whether Felix is alive and the host programmed.
//! * `rotation`: the order in which the daemon serves its inputs. Pure.
//! * [`config`] and [`daemon`]: the program around it.
//!
//! Felix fails closed: traffic that is not known to be allowed is dropped. Rules are in effect
//! before a route leads to an interface, and stay in effect when the agent dies.

pub mod agent;
pub mod apply;
mod bgp_files;
pub mod calc;
mod clock;
pub mod config;
pub mod daemon;
mod datastore_address;
mod endpoint_files;
mod events;
mod explain;
mod flows;
mod health;
pub mod limits;
mod listener;
pub mod render;
pub mod report;
mod rotation;
mod status;
pub mod store;
mod work;
