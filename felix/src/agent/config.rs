//! The start configuration of an agent.

use std::net::SocketAddr;
use std::time::Duration;

use calico_model::FelixConfigurationSpec;
use ipnet::IpNet;

use crate::limits::INTERFACE_PATIENCE;
use crate::render::Budgets;

/// The start configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// This host's name in the datastore.
    pub hostname: String,
    /// Settings of this host; they override stored ones.
    pub settings: FelixConfigurationSpec,
    /// Sources that may reach control ports of the fabric.
    pub control_port_exceptions: Vec<IpNet>,
    /// Policies also apply to traffic from the host to its own workloads.
    pub police_host_traffic: bool,
    /// The address for scrapers in the file, whose port is closed to workloads.
    pub metrics: Option<SocketAddr>,
    /// The budgets of each workload.
    pub budgets: Budgets,
    /// The bit of the connection mark of connections that a changed policy forbids; without it, policies
    /// apply to new connections only.
    pub cut_mark: Option<u32>,
    /// `rtm_protocol` of endpoint routes.
    pub route_protocol: u8,
    /// Routing table of endpoint routes.
    pub table: u32,
    /// Time until an endpoint without its interface counts as an error.
    pub interface_patience: Duration,
}

impl AgentConfig {
    /// Returns the default: protocol 80 in the main table, settings from the datastore.
    pub fn new(hostname: impl Into<String>) -> Self {
        Self {
            hostname: hostname.into(),
            settings: FelixConfigurationSpec::default(),
            control_port_exceptions: Vec::new(),
            police_host_traffic: false,
            metrics: None,
            budgets: Budgets::default(),
            cut_mark: None,
            route_protocol: 80,
            table: fib_sync::TABLE_MAIN,
            interface_patience: INTERFACE_PATIENCE,
        }
    }
}
