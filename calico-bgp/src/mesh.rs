//! The full mesh of all nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::own::Own;
use crate::peer::{Origin, Want, waits_for};
use crate::view::Node;

/// Returns a peer for each address of each other node, unless one of the two nodes is a route
/// reflector.
pub(crate) fn wants<'v>(own: &Own<'v>) -> Vec<Want<'v>> {
    if !own.cluster.mesh() || own.host.reflects || own.reflects(&own.host.name, own.node) {
        return Vec::new();
    }
    of(own, |name, node, _| !own.reflects(name, node))
}

/// Returns the same for former mesh peers at these addresses.
pub(crate) fn at<'v>(own: &Own<'v>, addresses: &BTreeSet<IpAddr>) -> Vec<Want<'v>> {
    of(own, |_, _, remote| addresses.contains(&remote))
}

fn of<'v>(own: &Own<'v>, wanted: impl Fn(&str, &Node, IpAddr) -> bool) -> Vec<Want<'v>> {
    let restart_time_s = own.cluster.node_mesh_max_restart_time;
    let restart_time_s = restart_time_s.map(crate::fields::restart_time);
    let others = own.view.nodes.iter();
    let pairs = others.flat_map(|(name, node)| {
        let addresses = node.addresses();
        addresses.filter_map(move |remote| {
            let local = own.node.address_beside(remote)?;
            (remote != local).then_some((name, node, remote, local))
        })
    });
    pairs
        .filter(|(name, node, remote, _)| wanted(name, node, *remote))
        .map(|(name, node, remote, local)| Want {
            passive: waits_for(local, remote),
            restart_time_s,
            ..Want::of_node(own, Origin::Mesh, (name, node), remote)
        })
        .collect()
}
