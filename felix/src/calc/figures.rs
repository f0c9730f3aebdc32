//! The stored values in numbers, for metrics.

use calico_model::Kind;
use daemon_common::report::FelixFigures;

use super::calculator::Calculator;

impl Calculator {
    /// Returns the numbers that the stored values have.
    pub(crate) fn figures(&self) -> FelixFigures {
        let count = |number: usize| number as u64;
        let members = |kind: Kind| count(self.index.members_below(&kind.prefix()));
        let policies = self.index.lists_in_use();
        let policies = policies.filter(|key| self.policies.contains_key(*key));
        FelixFigures {
            active_local_endpoints: count(self.desired.endpoints.len()),
            active_local_policies: count(policies.count()),
            active_local_selectors: count(self.index.selectors_in_use()),
            cluster_num_host_endpoints: members(Kind::HostEndpoint),
            cluster_num_hosts: count(self.fabric.nodes_with_addresses()),
            cluster_num_policies: count(self.policies.len()),
            cluster_num_profiles: count(self.profiles.len()),
            cluster_num_tiers: count(self.tiers.count()),
            cluster_num_workload_endpoints: members(Kind::WorkloadEndpoint),
            route_table_num_ifaces: count(self.desired.interfaces.len()),
            ..FelixFigures::default()
        }
    }
}
