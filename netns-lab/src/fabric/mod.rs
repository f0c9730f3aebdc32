//! A routed fabric in a lab: nodes with workloads, route reflectors, one underlay.
//!
//! [`Plan`] assigns names and addresses (pure), [`config`] writes the daemons' configuration files
//! (pure), and [`Fabric`] builds the hosts, links and processes.

mod build;
pub mod config;
mod plan;
mod table;
mod workload;

pub use build::{Daemon, Fabric, Machine, Programs};
pub use plan::{Bgp, MachinePlan, Place, Plan, STORE_PORT, Shape, ShapeError};
pub use table::{Lacking, Owners, missing_routes};
pub use workload::Workload;
