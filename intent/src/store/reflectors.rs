//! Peers between reflectors and their clients.

use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::{Asn, Community, Prefix};
use bgp_speaker::{PeerConfig, RangeConfig};
use ipnet::IpNet;
use model::{AsNumber, ReflectorState, Registration};
use rib::{Edit, Outcome, Policy, Role, Rules, Term, Then};

use super::derive::Own;
use super::peer::{Origin, Want, waits_for};
use super::view::Node;
use crate::limits::BGP_PORT;
use crate::placement::{Candidate, choose};

/// The label of a node that names what it shares its fate with.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The label of a reflector's node that says how large a share of the clients it takes.
pub const WEIGHT_LABEL: &str = "cambric.io/reflector-weight";

/// What a reflector has to say of itself in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// All but the cluster id, which is that of [`cluster`](Self::cluster).
    pub registration: Registration,
    /// Under which cluster id.
    pub cluster: ClusterWish,
}

/// Which cluster id a reflector would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterWish {
    /// The one that the operator gave it, perhaps together with others.
    Given(Ipv4Addr),
    /// One of its own: the one that it holds already, or else the first that is free.
    Own {
        /// Its BGP identifier, which it asks for first.
        router_id: Ipv4Addr,
        /// The one that it holds, as far as is known.
        held: Option<Ipv4Addr>,
    },
}

impl ClusterWish {
    /// The cluster id that is certain already.
    pub(super) const fn certain(self) -> Option<Ipv4Addr> {
        match self {
            Self::Given(id) => Some(id),
            Self::Own { held, .. } => held,
        }
    }
}

/// What a reflector says of itself.
pub(super) fn wish(own: &Own<'_>) -> Wish {
    let label = |name: &str| own.node.labels.get(name);
    let weight = label(WEIGHT_LABEL).and_then(|text| text.parse().ok());
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
        zone: label(ZONE_LABEL).cloned().unwrap_or_default(),
        weight: weight.unwrap_or(model::REFLECTOR_WEIGHT_DEFAULT),
        state: match fleet.drains(&own.host.name) {
            true => ReflectorState::Draining,
            false => ReflectorState::Active,
        },
        clients: 0,
        unknown: Default::default(),
    };
    let cluster = match own.node.cluster_id {
        Some(id) => ClusterWish::Given(id),
        None => ClusterWish::Own {
            router_id: own.router_id.0,
            held: fleet.cluster_of(&own.host.name),
        },
    };
    Wish {
        registration,
        cluster,
    }
}

/// The sessions of a client with the reflectors that it has chosen. It dials, they wait.
pub(super) fn of_client(own: &Own<'_>, count: usize) -> Vec<PeerConfig> {
    let eligible = own.view.fleet.eligible();
    let candidates = eligible.iter().map(|(name, said)| Candidate {
        name,
        zone: &said.zone,
        weight: said.weight,
    });
    let chosen = choose(&own.host.name, candidates, count);
    let chosen = eligible.iter().filter(|(name, _)| chosen.contains(name));
    let wants = chosen.flat_map(|(_, said)| with(own, said, |_, _| false));
    wants.map(|want| want.peer(own)).collect()
}

/// The sessions of a reflector with the others.
pub(super) fn of_fellows(own: &Own<'_>) -> Vec<PeerConfig> {
    let all = own.view.fleet.all();
    let others =
        all.filter(|(name, said)| *name != own.host.name && said.state != ReflectorState::Drained);
    let wants = others.flat_map(|(_, said)| with(own, said, waits_for));
    let drains = own.view.fleet.drains(&own.host.name);
    let peers = wants.map(|want| want.peer(own));
    peers.map(|peer| farewell(peer, drains)).collect()
}

/// Whom a reflector accepts as its client: the addresses of all nodes that are no reflectors.
pub(super) fn clients(own: &Own<'_>) -> Vec<RangeConfig> {
    let drains = own.view.fleet.drains(&own.host.name);
    let nodes = own.view.nodes.iter();
    let nodes = nodes.filter(|(name, node)| is_client(own, name, node));
    let ranges = nodes.flat_map(|(name, node)| {
        let addresses = node.addresses();
        addresses.filter_map(move |remote| {
            let local = own.node.address_beside(remote)?;
            let asn = own.asn_of(node);
            let want = reflector_want(remote, BGP_PORT, asn, local, true);
            let mut template = farewell(want.peer(own), drains);
            if template.role == Role::Internal {
                template.role = Role::Client;
            }
            Some(RangeConfig {
                name: name.clone(),
                prefix: Prefix::from(IpNet::from(remote)),
                limit: 1,
                template,
            })
        })
    });
    ranges.collect()
}

fn is_client(own: &Own<'_>, name: &str, node: &Node) -> bool {
    node.cluster_id.is_none() && !own.view.fleet.has(name) && name != own.host.name
}

/// A session for each address of a reflector that we have an address beside.
fn with(own: &Own<'_>, said: &Registration, passive: fn(IpAddr, IpAddr) -> bool) -> Vec<Want> {
    let addresses = said.addresses().filter_map(|remote| {
        let local = own.node.address_beside(remote)?;
        let port = said.port.unwrap_or(BGP_PORT);
        let asn = Asn(said.as_number.0);
        Some(reflector_want(
            remote,
            port,
            asn,
            local,
            passive(local, remote),
        ))
    });
    addresses.collect()
}

fn reflector_want(remote: IpAddr, port: u16, asn: Asn, local: IpAddr, passive: bool) -> Want {
    Want {
        origin: Origin::Reflector,
        remote,
        port,
        asn,
        source: Some(local),
        passive,
    }
}

/// What a reflector that is about to go tells of every route (RFC 8326 §4.2): whoever knows the
/// community prefers others, and who does not sees it in the preference.
fn farewell(peer: PeerConfig, drains: bool) -> PeerConfig {
    if !drains {
        return peer;
    }
    let term = Term {
        name: "farewell".to_owned(),
        when: Vec::new(),
        edit: vec![
            Edit::AddCommunity(Community::GRACEFUL_SHUTDOWN),
            Edit::SetLocalPref(0),
        ],
        then: Then::Accept,
    };
    let rules = Rules {
        name: "graceful-shutdown".to_owned(),
        terms: vec![term],
        otherwise: Outcome::Accept,
    };
    PeerConfig {
        export: Policy::from(rules),
        ..peer
    }
}
