//! Felix's counts with the names of Calico's metrics.

use serde::{Deserialize, Serialize};

/// The values of Calico's metrics of Felix, as far as they exist; each field has the metric's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FelixFigures {
    /// Workload endpoints of this host.
    pub active_local_endpoints: u64,
    /// Policies that apply to an endpoint of this host.
    pub active_local_policies: u64,
    /// Selectors of rules that apply to an endpoint of this host.
    pub active_local_selectors: u64,
    /// Changes of the datastore that were processed since the start.
    pub calc_graph_updates_processed: u64,
    /// HostEndpoints in the datastore.
    pub cluster_num_host_endpoints: u64,
    /// Nodes in the datastore with an address.
    pub cluster_num_hosts: u64,
    /// Policies in the datastore.
    pub cluster_num_policies: u64,
    /// Profiles in the datastore.
    pub cluster_num_profiles: u64,
    /// Tiers in the datastore.
    pub cluster_num_tiers: u64,
    /// Workload endpoints in the datastore.
    pub cluster_num_workload_endpoints: u64,
    /// Changes that the kernel rejected, and that are tried again, since the start.
    pub int_dataplane_failures: u64,
    /// Sets of addresses of selectors, services and pools, IPv4 and IPv6.
    pub ipsets_calico: [u64; 2],
    /// Chains of the packet filter.
    pub nft_chains: u64,
    /// Its rules.
    pub nft_rules: u64,
    /// Its sets and maps.
    pub nft_sets: u64,
    /// 1: waiting for a datastore that is ready, 2: reading it, 3: in sync.
    pub resync_state: u64,
    /// Full reads of the datastore that were begun since the start.
    pub resyncs_started: u64,
    /// Interfaces over which endpoints have routes.
    pub route_table_num_ifaces: u64,
}
