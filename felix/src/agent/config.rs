//! What an agent is configured with at its start.

use std::time::Duration;

use calico_model::FelixConfigurationSpec;
use ipnet::IpNet;

use crate::limits::INTERFACE_PATIENCE;

/// The settings of an agent that it starts with.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// This host's name in the store.
    pub hostname: String,
    /// What this host itself says of settings; it goes before what is stored.
    pub settings: FelixConfigurationSpec,
    /// Sources that may reach control ports of the fabric.
    pub control_port_exceptions: Vec<IpNet>,
    /// Traffic of the host to its own workloads meets their policies.
    pub police_host_traffic: bool,
    /// `rtm_protocol` of endpoint routes.
    pub route_protocol: u8,
    /// Metric of endpoint routes, in both families; lower than that of routes from elsewhere.
    pub endpoint_metric: u32,
    /// Routing table of endpoint routes.
    pub table: u32,
    /// How often the routing table is read although nothing suggests a difference.
    pub route_refresh: Duration,
    /// How long an endpoint's interface may take to come before the endpoint is an error.
    pub interface_patience: Duration,
}

impl AgentConfig {
    /// Protocol 80 and metric 256 in the main table, the store's settings.
    pub fn new(hostname: impl Into<String>) -> Self {
        Self {
            hostname: hostname.into(),
            settings: FelixConfigurationSpec::default(),
            control_port_exceptions: Vec::new(),
            police_host_traffic: false,
            route_protocol: 80,
            endpoint_metric: 256,
            table: fib_sync::TABLE_MAIN,
            route_refresh: Duration::from_secs(90),
            interface_patience: INTERFACE_PATIENCE,
        }
    }
}
