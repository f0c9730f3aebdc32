//! The stored values in numbers, for metrics.

use calico_model::Kind;
use daemon_common::report::FelixFigures;

use super::calculator::Calculator;

impl Calculator {
    /// Returns the numbers that the stored values have.
    pub(crate) fn figures(&self) -> FelixFigures {
        let count = |number: usize| number as u64;
        // The cost of a scrape does not depend on the number of endpoints.
        let members = self.index.counts();
        let policies = self.index.lists_in_use_except(&Kind::Profile.prefix());
        FelixFigures {
            active_local_endpoints: count(self.desired.endpoints.len()),
            active_local_policies: count(policies),
            active_local_selectors: count(self.index.selectors_in_use()),
            cluster_num_host_endpoints: count(members.hosts),
            cluster_num_hosts: count(self.fabric.nodes_with_addresses()),
            cluster_num_policies: count(self.policies.len()),
            cluster_num_profiles: count(self.profiles.len()),
            cluster_num_tiers: count(self.tiers.count()),
            cluster_num_workload_endpoints: count(members.workloads),
            route_table_num_ifaces: count(self.desired.interfaces.len()),
            ..FelixFigures::default()
        }
    }
}
