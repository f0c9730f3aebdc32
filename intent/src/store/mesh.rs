//! The mesh of all nodes.

use bgp_speaker::PeerConfig;

use super::derive::Own;
use super::peer::{Origin, Want, waits_for};
use super::view::Node;

/// A peer for each address of each other node, unless either of us is a route reflector.
pub(super) fn peers(own: &Own<'_>) -> Vec<PeerConfig> {
    let reflects = |name: &str, node: &Node| node.cluster_id.is_some() || own.view.fleet.has(name);
    if own.host.reflects || reflects(&own.host.name, own.node) {
        return Vec::new();
    }
    let others = own.view.nodes.iter();
    let others = others.filter(|(name, node)| !reflects(name, node));
    let pairs = others.flat_map(|(name, node)| {
        let addresses = node.addresses();
        addresses.filter_map(move |remote| {
            let local = own.node.address_beside(remote)?;
            (remote != local).then(|| Want {
                origin: Origin::Mesh,
                remote,
                port: own.port_of(name),
                asn: own.asn_of(node),
                source: Some(local),
                passive: waits_for(local, remote),
            })
        })
    });
    pairs.map(|want| want.peer(own)).collect()
}
