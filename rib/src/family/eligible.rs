//! Evaluation whether a path of a peer with certain attributes may take part in the decision
//! process.

use core::net::IpAddr;

use bgp_proto::{Asn, Family, Net, Prefix};

use crate::attributes::{AttrId, times};
use crate::eligible::Ineligible;
use crate::origin::ReceivedPath;
use crate::peer::{PeerId, PeerInfo};
use crate::role::Role;
use crate::shared::Shared;

/// Returns the reason, if any, that holds as long as a path has these attributes. It reads the
/// stored ranks of the set, not the set itself, which would have to be unpacked.
pub(crate) fn evaluate(shared: &Shared, set: AttrId, peer: &PeerInfo) -> Option<Ineligible> {
    let config = &shared.config;
    let ranks = shared.interner.ranks(set);
    // RFC 9774 §3: treated as withdrawn.
    if ranks.has_as_set && !peer.as_path.allow_as_sets {
        return Some(Ineligible::AsSet);
    }
    // RFC 4271 §6.3, RFC 7606 §7.2: treated as withdrawn. A path that begins with a set has no
    // first AS.
    let is_enforced = peer.as_path.enforce_first_as && peer.role == Role::External;
    if is_enforced && ranks.neighbor_as != peer.asn {
        return Some(Ineligible::FirstAs);
    }
    let length_max = peer.as_path.length_max;
    if length_max != 0 && ranks.as_path_length > length_max {
        return Some(Ineligible::AsPathTooLong);
    }
    // RFC 4271 §9.1.2; inside an AS the number must not be in the path either.
    if ranks.own_as > peer.as_path.own_as_max || has_session_as(shared, set, peer) {
        return Some(Ineligible::AsLoop);
    }
    // RFC 4456 §8. Reflectors that keep one copy of octets for many clients do send a client its
    // own routes: this is not an error and is not counted.
    if ranks.originator != 0 && ranks.originator == u32::from(config.router_id) {
        return Some(Ineligible::OwnOriginator);
    }
    let mut clusters = shared.interner.cluster_list(set);
    if clusters.any(|id| config.cluster_ids.contains(&id)) {
        return Some(Ineligible::ClusterLoop);
    }
    let next_hop = shared.next_hops.address(ranks.next_hop)?;
    if peer.local == Some(next_hop) {
        return Some(Ineligible::OwnNextHop);
    }
    // A peer on this machine has local addresses, too: they lead to it.
    if next_hop == peer.address || config.own_addresses.contains(&peer.address) {
        return None;
    }
    if config.own_addresses.contains(&next_hop) {
        return Some(Ineligible::OwnNextHop);
    }
    is_off_link(peer, next_hop).then_some(Ineligible::NextHopOffLink)
}

/// Returns whether a next hop other than the peer's own address lies outside all subnets of the
/// peer's link. If the link has no subnet, this applies to every such next hop. RFC 4271 §5.1.3, §6.3
fn is_off_link(peer: &PeerInfo, next_hop: IpAddr) -> bool {
    // A link-local address is on the link of its session.
    let is_link_local = matches!(next_hop, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let on_link = |subnets: &[Prefix]| subnets.iter().any(|subnet| subnet.contains(next_hop));
    !is_link_local && (peer.link.as_deref()).is_some_and(|subnets| !on_link(subnets))
}

/// Returns whether the local AS number of the session, if it differs from the speaker's, is in the
/// AS_PATH more often than allowed: a route that was advertised with this number has come back.
fn has_session_as(shared: &Shared, set: AttrId, peer: &PeerInfo) -> bool {
    peer.local_asn != shared.config.local_asn
        && times(&shared.interner.get(set).as_path, peer.local_asn) > peer.as_path.own_as_max
}

/// Returns whether the origin of a path is confirmed, which it always is without a check.
pub(crate) fn is_confirmed(
    shared: &Shared,
    (peer, info): (PeerId, &PeerInfo),
    (family, net, path_id): (Family, Net<'_>, u32),
    received: AttrId,
) -> bool {
    let Some(check) = &shared.origin_check else {
        return true;
    };
    let ranks = shared.interner.ranks(received);
    check.confirms(&ReceivedPath {
        family,
        net,
        peer,
        address: info.address,
        path_id,
        next_hop: shared.next_hops.address(ranks.next_hop),
        has_originator_id: ranks.originator != 0,
        rules: info.origin,
        origin_as: match info.origin.is_transit {
            true => origin_as(shared, received, info),
            false => None,
        },
    })
}

/// Returns the AS in which a path originates. An empty AS_PATH is one of the local AS, as in RFC 6811
/// §2.
fn origin_as(shared: &Shared, set: AttrId, peer: &PeerInfo) -> Option<Asn> {
    let path = shared.interner.get(set).as_path;
    match path.is_empty() {
        true => peer.role.is_internal().then_some(peer.local_asn),
        false => path.origin_as(),
    }
}
