//! Peers between reflectors and their clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bgp_config::limits::{BGP_PORT, REFLECTORS_MAX};
use bgp_proto::Asn;
use calico_model::{AsNumber, DEFAULT_CONFIGURATION, Kind, ReflectorState, Registration};

use crate::cluster::ClusterWish;
use crate::fault::Fault;
use crate::limits::REFLECTORS;
use crate::own::{Own, key_of};
use crate::peer::{Origin, Want, waits_for};
use crate::placement::{Candidate, choose};
use crate::view::View;

/// The label of a node that names its failure domain.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The label of a reflector's node that sets its share of the clients.
pub const WEIGHT_LABEL: &str = "cambric.io/reflector-weight";

/// The annotation of a BGPConfiguration that sets how many reflectors a node peers with.
pub const REFLECTORS_ANNOTATION: &str = "cambric.io/reflectors-per-node";

/// The registration that a reflector wants to write into the datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// All fields except the cluster ID, which [`cluster`](Self::cluster) determines.
    pub registration: Registration,
    /// The wanted cluster ID.
    pub cluster: ClusterWish,
}

/// Returns the registration that a reflector wants.
pub(crate) fn wish(own: &Own<'_>) -> Wish {
    let zone = own.node.labels.get(ZONE_LABEL);
    let address = |ipv6: bool| {
        let mut addresses = own.node.addresses();
        addresses.find(|address| address.is_ipv6() == ipv6)
    };
    let port = own.port_of(&own.host.name);
    let fleet = &own.view.fleet;
    let registration = Registration {
        as_number: AsNumber(own.asn.0),
        ipv4_address: match address(false) {
            Some(IpAddr::V4(address)) => Some(address),
            _ => None,
        },
        ipv6_address: match address(true) {
            Some(IpAddr::V6(address)) => Some(address),
            _ => None,
        },
        port: (port != BGP_PORT).then_some(port),
        cluster_id: Ipv4Addr::UNSPECIFIED,
        zone: zone.cloned().unwrap_or_default(),
        weight: weight(own).unwrap_or(calico_model::REFLECTOR_WEIGHT_DEFAULT),
        state: match fleet.drains(&own.host.name) {
            true => ReflectorState::Draining,
            false => ReflectorState::Active,
        },
        clients: 0,
        unknown: Default::default(),
    };
    Wish {
        registration,
        cluster: ClusterWish::of(own),
    }
}

/// Returns the share of the clients from the label, if it is a number.
fn weight(own: &Own<'_>) -> Option<u32> {
    own.node.labels.get(WEIGHT_LABEL)?.parse().ok()
}

/// Returns a fault if a label of its node is invalid.
pub(crate) fn fault(own: &Own<'_>) -> Option<Fault> {
    let text = own.node.labels.get(WEIGHT_LABEL)?;
    weight(own).is_none().then(|| {
        let reason = format!(
            "\"{text}\" is no whole number from 0 to {}: the weight is {}",
            u32::MAX,
            calico_model::REFLECTOR_WEIGHT_DEFAULT
        );
        let field = format!("metadata.labels[{WEIGHT_LABEL}]");
        Fault::new(key_of(Kind::Node, &own.host.name), field, reason)
    })
}

/// Returns the sessions that follow from the choice of reflectors: of a reflector with the other
/// reflectors, of a client with its chosen ones. `alone` states that the client has no other peers.
pub(crate) fn wants<'v>(own: &Own<'v>, alone: bool, faults: &mut Vec<Fault>) -> Vec<Want<'v>> {
    match own.host.reflects {
        true => of_other_reflectors(own),
        false => of_client(own, count(own, faults), alone),
    }
}

/// Returns how many reflectors a client peers with: its file has precedence over the datastore's
/// setting for the node, and that over the setting for all nodes.
fn count(own: &Own<'_>, faults: &mut Vec<Fault>) -> usize {
    match own.host.reflectors {
        Some(count) => count,
        None => count_of(own.view, &own.host.name, faults),
    }
}

/// Returns the same for any node, from the datastore alone.
pub(crate) fn count_of(view: &View, node: &str, faults: &mut Vec<Fault>) -> usize {
    let of_node = format!("node.{node}");
    for name in [&*of_node, DEFAULT_CONFIGURATION] {
        let settings = view.configurations.get(name);
        let Some(text) = settings.and_then(|settings| settings.reflectors.as_ref()) else {
            continue;
        };
        let count = text.parse().ok();
        match count.filter(|count| (1..=REFLECTORS_MAX).contains(count)) {
            Some(count) => return count,
            None => faults.push(Fault::new(
                key_of(Kind::BgpConfiguration, name),
                format!("metadata.annotations[{REFLECTORS_ANNOTATION}]"),
                format!("\"{text}\" is no whole number from 1 to {REFLECTORS_MAX}"),
            )),
        }
    }
    REFLECTORS
}

/// Returns the sessions of a client with its chosen reflectors. The client dials, reflectors are
/// passive.
///
/// It chooses separately for IPv4 and for IPv6, each among the reflectors reachable over that
/// family: the same ones if all have both families.
fn of_client<'v>(own: &Own<'v>, count: usize, alone: bool) -> Vec<Want<'v>> {
    let eligible = own.view.fleet.eligible(alone);
    let families: [fn(&IpAddr) -> bool; 2] = [IpAddr::is_ipv4, IpAddr::is_ipv6];
    let sessions = families.into_iter().flat_map(|is_of_family| {
        let reached = eligible.iter().map(|(name, registration)| {
            let mut wants = with(own, name, registration, |_, _| false);
            wants.retain(|want| is_of_family(&want.remote));
            (*name, *registration, wants)
        });
        let reached: Vec<_> = reached.filter(|(_, _, wants)| !wants.is_empty()).collect();
        let candidates = reached.iter().map(|(name, registration, _)| Candidate {
            name,
            zone: &registration.zone,
            weight: registration.weight,
        });
        let chosen = choose(&own.host.name, candidates, count);
        let chosen = reached
            .into_iter()
            .filter(move |(name, _, _)| chosen.contains(name));
        chosen.flat_map(|(_, _, wants)| wants)
    });
    sessions.collect()
}

/// Returns the sessions with reflectors at these addresses, wanted or not.
pub(crate) fn at<'v>(own: &Own<'v>, addresses: &BTreeSet<IpAddr>) -> Vec<Want<'v>> {
    let passive = match own.host.reflects {
        true => waits_for,
        false => |_, _| false,
    };
    let all = own.view.fleet.all();
    let others = all.filter(|(name, _)| *name != own.host.name);
    others
        .flat_map(|(name, registration)| with(own, name, registration, passive))
        .filter(|want| addresses.contains(&want.remote))
        .collect()
}

/// Returns the sessions of a reflector with the other reflectors.
fn of_other_reflectors<'v>(own: &Own<'v>) -> Vec<Want<'v>> {
    let all = own.view.fleet.all();
    let others = all.filter(|(name, registration)| {
        *name != own.host.name && registration.state != ReflectorState::Drained
    });
    others
        .flat_map(|(name, registration)| with(own, name, registration, waits_for))
        .collect()
}

/// Returns the addresses of all other reflectors, of the fabric's own and of external ones, with
/// their cluster IDs.
pub(crate) fn others(own: &Own<'_>) -> BTreeMap<IpAddr, Ipv4Addr> {
    let nodes = own.view.nodes.iter();
    let nodes = nodes.filter(|(name, _)| **name != own.host.name);
    let given = nodes.filter_map(|(_, node)| Some((node.cluster_id?, node)));
    let given = given.flat_map(|(id, node)| node.addresses().map(move |at| (at, id)));
    let fleet = own.view.fleet.all();
    let fleet = fleet.filter(|(name, _)| *name != own.host.name);
    let registration = fleet.flat_map(|(_, registration)| {
        registration
            .addresses()
            .map(|at| (at, registration.cluster_id))
    });
    given.chain(registration).collect()
}

/// Returns a session for each address of a reflector for which this node has an address of the same
/// family. The AS is that of the reflector's node, which the reflector itself follows; the AS in
/// its registration may be outdated for a moment.
fn with<'v>(
    own: &Own<'v>,
    name: &str,
    registration: &Registration,
    passive: fn(IpAddr, IpAddr) -> bool,
) -> Vec<Want<'v>> {
    let node = own.view.nodes.get(name);
    let asn = node.map_or(Asn(registration.as_number.0), |node| own.asn_of(node));
    let addresses = registration.addresses().filter_map(|remote| {
        let local = own.node.address_beside(remote)?;
        let port = registration.port.unwrap_or(BGP_PORT);
        let passive = passive(local, remote);
        Some(Want {
            host: node,
            ..reflector_want(own, remote, port, asn, local, passive)
        })
    });
    addresses.collect()
}

pub(crate) fn reflector_want<'v>(
    own: &Own<'v>,
    remote: IpAddr,
    port: u16,
    asn: Asn,
    local: IpAddr,
    passive: bool,
) -> Want<'v> {
    Want {
        port,
        asn,
        source: Some(local),
        passive,
        ..Want::new(own, Origin::Reflector, remote)
    }
}
