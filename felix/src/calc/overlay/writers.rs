//! The writers of routes to other nodes: `programClusterRoutes` of FelixConfiguration and of
//! BGPConfiguration. Each prefix has one writer.

use calico_model::{ClusterRoutes, Kind};

use super::super::types::Problem;

/// The name under which the problem of a pair is kept: no node has it.
pub(super) const NAME: &str = "";

/// Default of the routes that the BGP daemons install (as in Calico).
pub(super) const BGP: ClusterRoutes = ClusterRoutes::EnabledNoEncapOnly;

/// Returns whether each route to other nodes has one writer. These are the pairs that Calico supports.
pub(super) const fn fit(felix: ClusterRoutes, bgp: ClusterRoutes) -> bool {
    use ClusterRoutes::{Disabled, Enabled, EnabledIpipOnly, EnabledNoEncapOnly};
    matches!(
        (felix, bgp),
        (EnabledIpipOnly, EnabledNoEncapOnly)
            | (EnabledNoEncapOnly, EnabledIpipOnly)
            | (Enabled, Disabled)
            | (Disabled, Enabled)
    )
}

/// Returns the problem of settings with which a route has two writers or none.
pub(super) fn problem(felix: ClusterRoutes, bgp: ClusterRoutes) -> Option<Problem> {
    if fit(felix, bgp) {
        return None;
    }
    let key = format!("{}default", Kind::FelixConfiguration.prefix());
    let reason = format!(
        "{felix} does not fit programClusterRoutes {bgp} of BGPConfiguration default: Felix installs \
         no routes of pools with an ipipMode or without encapsulation"
    );
    Some(Problem::new(key, "spec.programClusterRoutes", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_names_both_values_and_the_pools_without_routes() {
        let (felix, bgp) = (ClusterRoutes::EnabledIpipOnly, ClusterRoutes::Enabled);
        let Problem { reason, .. } = problem(felix, bgp).unwrap();
        for part in ["EnabledIPIPOnly does not fit", "Enabled of", "an ipipMode"] {
            assert!(reason.contains(part), "{reason}");
        }
        assert!(problem(felix, BGP).is_none());
    }
}
