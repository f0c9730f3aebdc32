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
         routes of VXLAN pools only"
    );
    Some(Problem::new(key, "spec.programClusterRoutes", reason))
}
