//! Paths of the tables, compared with the records.

use std::net::IpAddr;

use bgp_io::bgp_proto::{Asn, Attributes, NextHop};
use bgp_io::bgp_speaker::PeerConfig;
use bgp_io::rib::{Ineligible, OriginMode, PeerId, Role, RouteView};
use calico_bgp::validation::{Neighbor, Origin, Owner, ReceivedRoute};

use super::records::{Known, Records};

/// A path in use, or one that the tables have rejected.
pub(super) struct Seen {
    pub(super) peer: PeerId,
    pub(super) path_id: u32,
    pub(super) next_hop: Option<IpAddr>,
    pub(super) has_originator_id: bool,
    /// The last AS of its AS_PATH.
    last_as: Option<Asn>,
    has_empty_as_path: bool,
}

impl Seen {
    pub(super) fn new(peer: PeerId, path_id: u32, attributes: &Attributes) -> Self {
        Self {
            peer,
            path_id,
            next_hop: match attributes.next_hop {
                Some(NextHop::V4(address)) => Some(address.into()),
                Some(NextHop::V6 { global, .. }) => Some(global.into()),
                _ => None,
            },
            has_originator_id: attributes.originator_id.is_some(),
            last_as: attributes.as_path.origin_as(),
            has_empty_as_path: attributes.as_path.is_empty(),
        }
    }

    /// Returns the AS in which the path originates, as the tables do.
    pub(super) fn origin_as(&self, peer: &PeerConfig) -> Option<Asn> {
        let is_internal = peer.role != Role::External;
        match self.has_empty_as_path {
            true => is_internal.then_some(peer.session.local_asn),
            false => self.last_as,
        }
    }
}

/// Returns the paths in use, and those that the tables have rejected.
pub(super) fn seen(view: &RouteView<'_>) -> Vec<Seen> {
    let is_rejected = |reason: Option<Ineligible>| reason == Some(Ineligible::Unconfirmed);
    let used = view.paths.iter();
    let used = used.filter(|path| path.best || path.multipath || is_rejected(path.ineligible));
    used.map(|path| Seen::new(path.peer, path.path_id, &path.received))
        .collect()
}

/// Returns why the records do not confirm a route of a neighbor with this mode.
pub(super) fn suspicion(
    records: &Records,
    (neighbor, mode): (Neighbor<'_>, OriginMode),
    route: &ReceivedRoute,
) -> Option<String> {
    let is_transit = matches!(neighbor, Neighbor::Transit { .. });
    let needs_workloads = is_transit || matches!(neighbor, Neighbor::Node(_));
    if records.known() == Known::All || !needs_workloads {
        return reason(records.origin(neighbor, route));
    }
    let is_confirmed = || records.origin(Neighbor::Other, route) == Origin::Confirmed;
    let waits = mode == OriginMode::Enforce && !(is_transit && is_confirmed());
    waits.then(|| "the records are not read yet".to_owned())
}

/// Returns why a route is not confirmed.
fn reason(origin: Origin<'_>) -> Option<String> {
    Some(match origin {
        Origin::Confirmed => return None,
        Origin::Unknown => "no record of the node".to_owned(),
        Origin::NextHop => "the next hop is not the node's".to_owned(),
        Origin::Conflict(Owner::Node(name)) => format!("a record of node {name}"),
        Origin::Conflict(Owner::Pool(name)) => format!("in the pool {name}"),
        Origin::Conflict(Owner::Services) => "in a service range".to_owned(),
    })
}
