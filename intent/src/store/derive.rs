//! From what is known of the store to what a node's daemon is to do.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use bgp_proto::{Asn, ClusterId, FamilySet, RouterId};
use bgp_speaker::SpeakerConfig;
use model::{Kind, ResourceKey};
use rib::NextHops;

use super::fault::Fault;
use super::mesh;
use super::reflectors::{self, Wish};
use super::view::{Node, View};
use crate::check::Intent;
use crate::file::listen_default;
use crate::limits::{BGP_PORT, REFLECTORS};

/// The AS of a cluster that does not say.
const CLUSTER_ASN: Asn = Asn(64512);

/// Which node this is, and what its machine decides itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The node's name in the store.
    pub name: String,
    /// The tables of the speaker.
    pub families: FamilySet,
    /// Equal paths that a prefix may use at once.
    pub multipath_max: u16,
    /// How next hops are looked up.
    pub next_hops: NextHops,
    /// How long the choice of routes waits at most after a restart of ours (RFC 4724 §4.1).
    pub restart_wait: Duration,
    /// Whether its daemon is one of the fabric's reflectors.
    pub reflects: bool,
}

/// What the daemon of a node is to do.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The speaker; `None` while the store does not say enough to be one.
    pub intent: Option<Intent>,
    /// Which of its peers come and go with the fabric.
    pub chosen: Chosen,
    /// What a reflector has to say of itself.
    pub wish: Option<Wish>,
    /// What in the store is not done, and why.
    pub faults: Vec<Fault>,
}

/// Which of the peers of a configuration come and go with the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The addresses of the peers that the mesh or the choice of reflectors has put there.
    pub peers: BTreeSet<IpAddr>,
    /// The addresses of all hosts that there are: whoever is not among them is gone for good.
    pub hosts: BTreeSet<IpAddr>,
}

/// What the node itself is.
#[derive(Debug)]
pub(super) struct Own<'v> {
    pub(super) host: &'v Host,
    pub(super) node: &'v Node,
    /// Its AS.
    pub(super) asn: Asn,
    pub(super) router_id: RouterId,
    pub(super) view: &'v View,
}

impl Own<'_> {
    /// The AS of a node.
    pub(super) fn asn_of(&self, node: &Node) -> Asn {
        node.asn.unwrap_or(CLUSTER_ASN)
    }

    /// The port on which a node listens.
    pub(super) fn port_of(&self, _name: &str) -> u16 {
        BGP_PORT
    }
}

/// Works out what the daemon of `host` is to do.
pub fn derive(view: &View, host: &Host) -> Derived {
    let mut derived = Derived {
        intent: None,
        chosen: Chosen::default(),
        wish: None,
        faults: view.faults().cloned().collect(),
    };
    match own(view, host) {
        Ok(own) => fill(&own, &mut derived),
        Err(fault) => derived.faults.push(fault),
    }
    derived
}

fn fill(own: &Own<'_>, derived: &mut Derived) {
    derived.wish = own.host.reflects.then(|| reflectors::wish(own));
    let cluster_id = match &derived.wish {
        None => own.node.cluster_id,
        Some(wish) => match wish.cluster.certain() {
            Some(id) => Some(id),
            None => return, // It is being claimed.
        },
    };
    let intent = intent(own, cluster_id.map(ClusterId));
    derived.chosen = Chosen {
        peers: intent
            .speaker
            .peers
            .iter()
            .map(|peer| peer.remote)
            .collect(),
        hosts: hosts(own.view),
    };
    derived.intent = Some(intent);
}

fn hosts(view: &View) -> BTreeSet<IpAddr> {
    let nodes = view.nodes.values().flat_map(Node::addresses);
    let reflectors = view.fleet.all().flat_map(|(_, said)| said.addresses());
    nodes.chain(reflectors).collect()
}

/// The node itself; fails if the store does not have it, or it cannot speak BGP.
fn own<'v>(view: &'v View, host: &'v Host) -> Result<Own<'v>, Fault> {
    let key = ResourceKey::new(Kind::Node, None, &host.name)
        .map(|key| key.to_string())
        .map_err(|error| Fault::new(&*host.name, "hostname", error.to_string()))?;
    let node = view
        .nodes
        .get(&host.name)
        .ok_or_else(|| Fault::new(&*key, "", "this node is not in the store"))?;
    let router_id = match node.v4.map(|network| network.address()) {
        Some(IpAddr::V4(address)) => address,
        _ => {
            let reason = "without an address this node has no router id";
            return Err(Fault::new(key, "spec.bgp.ipv4Address", reason));
        }
    };
    let own = Own {
        host,
        node,
        asn: Asn(0),
        router_id: RouterId(router_id),
        view,
    };
    Ok(Own {
        asn: own.asn_of(node),
        ..own
    })
}

fn intent(own: &Own<'_>, cluster_id: Option<ClusterId>) -> Intent {
    let node = own.node;
    let mut peers = mesh::peers(own);
    let mut ranges = Vec::new();
    if own.host.reflects {
        peers.extend(reflectors::of_fellows(own));
        ranges.extend(reflectors::clients(own));
    } else {
        peers.extend(reflectors::of_client(own, REFLECTORS));
    }
    let speaker = SpeakerConfig {
        local_asn: own.asn,
        router_id: own.router_id,
        cluster_id,
        families: own.host.families,
        multipath_max: own.host.multipath_max,
        next_hops: own.host.next_hops,
        own_next_hop_v4: node.v4.and_then(|network| match network.address() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }),
        own_next_hop_v6: node.v6.and_then(|network| match network.address() {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        }),
        peers,
        ranges,
    };
    Intent {
        speaker,
        listen: listen_default(own.port_of(&own.host.name)),
        restart_wait: own.host.restart_wait,
        notes: Vec::new(),
    }
}
