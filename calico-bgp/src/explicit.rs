//! Peers by BGPPeers: of all nodes, of selected nodes, of one node, and the reverse sides of these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bgp_proto::Asn;
use calico_model::{BgpPeerSpec, Kind, SourceAddress};

use crate::fault::Fault;
use crate::fields;
use crate::own::{Own, key_of};
use crate::peer::{Origin, Want, waits_for};
use crate::view::{self, Node};

/// Returns this node's peers by BGPPeers in order of precedence: BGPPeers of all nodes, then those
/// of selected nodes, then the reverse sides of BGPPeers of other nodes that select this one.
pub(crate) fn wants<'v>(own: &Own<'v>, faults: &mut Vec<Fault>) -> Wants<'v> {
    let mut wants = Wants::default();
    for (name, stored) in of_node_itself(own) {
        let peering = Peering::forward(name, stored);
        let found = forward(own, &stored.spec, peering.origin());
        take(own, peering, found, &mut wants, faults);
    }
    let stored = own.view.peers.iter();
    for (name, stored) in stored.filter(|(_, stored)| stored.spec.reverses()) {
        let found = reverse(own, &stored.spec);
        take(
            own,
            Peering::reverse(name, stored),
            found,
            &mut wants,
            faults,
        );
    }
    wants
}

/// Returns the peers at these addresses that these BGPPeers formerly selected, with today's
/// configuration. Peers whose session is impossible because a password is missing are added to `without_key`.
pub(crate) fn at<'v, 'b>(
    own: &Own<'v>,
    before: impl Iterator<Item = (IpAddr, &'b str)>,
    without_key: &mut BTreeSet<IpAddr>,
) -> Vec<Want<'v>> {
    let mut wants = Wants::default();
    for (remote, by) in before {
        let Some((name, stored)) = own.view.peers.get_key_value(by) else {
            continue; // No resource configures it today.
        };
        let spec = &stored.spec;
        let Some((of, node)) = own.node_at(remote).filter(|_| spec.peer_selector.is_some()) else {
            continue;
        };
        let peering = match has(spec, &own.host.name, own.node) {
            true => Peering::forward(name, stored),
            false => Peering::reverse(name, stored),
        };
        let found = of_node(own, peering.origin(), of, node, |address| address == remote);
        take(own, peering, found, &mut wants, &mut Vec::new());
    }
    without_key.append(&mut wants.without_key);
    wants.all
}

/// A BGPPeer, seen from one of its sides.
#[derive(Clone, Copy)]
struct Peering<'v> {
    name: &'v str,
    stored: &'v view::Peering,
    /// Whether this node is the side that is selected as the peer.
    reversed: bool,
}

impl<'v> Peering<'v> {
    const fn forward(name: &'v str, stored: &'v view::Peering) -> Self {
        let reversed = false;
        Self {
            name,
            stored,
            reversed,
        }
    }

    const fn reverse(name: &'v str, stored: &'v view::Peering) -> Self {
        let reversed = true;
        Self {
            name,
            stored,
            reversed,
        }
    }

    fn origin(self) -> Origin {
        match !self.reversed && self.stored.spec.is_global() {
            true => Origin::Global,
            false => Origin::Node,
        }
    }

    /// Returns the origin of its peers, as text for operators.
    fn description(self) -> String {
        let name = self.name;
        match self.reversed {
            true => format!("the other side of BGPPeer {name}"),
            false => format!("BGPPeer {name}"),
        }
    }
}

/// Peers in the order in which they were found, each address once.
#[derive(Default)]
pub(crate) struct Wants<'v> {
    pub(crate) all: Vec<Want<'v>>,
    /// The port that is dialed at each address.
    ports: BTreeMap<IpAddr, u16>,
    /// Addresses without a possible session, because a password is missing.
    pub(crate) without_key: BTreeSet<IpAddr>,
}

/// Returns the BGPPeers of this node: those of all nodes first.
pub(crate) fn of_node_itself<'v>(
    own: &Own<'v>,
) -> impl Iterator<Item = (&'v str, &'v view::Peering)> {
    let (name, node) = (&*own.host.name, own.node);
    let view = own.view;
    let pass = move |global: bool| {
        let all = view
            .peers
            .iter()
            .map(|(name, stored)| (name.as_str(), stored));
        all.filter(move |(_, stored)| stored.spec.is_global() == global)
    };
    let some = pass(false).filter(move |(_, stored)| has(&stored.spec, name, node));
    pass(true).chain(some)
}

/// Returns whether a BGPPeer applies to a node.
fn has(spec: &BgpPeerSpec, name: &str, node: &Node) -> bool {
    match &spec.node_selector {
        Some(selector) => selector.matches(&node.labels),
        None => spec.node.is_empty() || spec.node == name,
    }
}

/// Returns the peers that a BGPPeer gives this node.
fn forward<'v>(own: &Own<'v>, spec: &'v BgpPeerSpec, origin: Origin) -> Vec<Want<'v>> {
    if let Some(selector) = &spec.peer_selector {
        let nodes = own.view.nodes.iter();
        let selected = nodes.filter(|(_, node)| selector.matches(&node.labels));
        return selected
            .flat_map(|(name, node)| of_node(own, origin, name, node, |_| true))
            .collect();
    }
    let Some(peer) = spec.peer_ip else {
        return Vec::new();
    };
    let asn = spec.remote_as().map_or(own.asn, |asn| Asn(asn.0));
    let mut want = Want {
        asn,
        local_asn: spec.local_as().map_or(own.asn, |asn| Asn(asn.0)),
        ..Want::new(own, origin, peer.address)
    };
    if let Some((name, node)) = own.node_at(peer.address) {
        want.host = Some(node);
        let (is_node_as, listens) = (own.asn_of(node) == asn, own.port_of(name));
        if is_node_as {
            want.port = listens;
        }
        // Another AS or port is another speaker at the node's address.
        let is_node_port = peer.port.map_or(want.port, u16::from) == listens;
        want.is_plain_node = is_node_as && is_node_port && !own.reflects(name, node);
        let local = own.node.address_beside(peer.address);
        want.passive =
            origin == Origin::Global && local.is_some_and(|local| waits_for(local, peer.address));
    }
    want.port = peer.port.map_or(want.port, u16::from);
    vec![want]
}

/// Returns the nodes that have this node as a peer, if the BGPPeer configures both sides.
fn reverse<'v>(own: &Own<'v>, spec: &'v BgpPeerSpec) -> Vec<Want<'v>> {
    let of_family = match (&spec.peer_selector, spec.peer_ip) {
        (Some(selector), _) if selector.matches(&own.node.labels) => None,
        (None, Some(peer)) if own.node.addresses().any(|own| own == peer.address) => {
            let asn = spec.remote_as().map(|asn| Asn(asn.0));
            let listens = own.port_of(&own.host.name);
            let port = peer.port.map_or(listens, u16::from);
            let cluster = Asn(own.cluster.cluster_as().0);
            if asn.unwrap_or(cluster) != own.asn || port != listens {
                return Vec::new();
            }
            Some(peer.address.is_ipv4())
        }
        _ => return Vec::new(),
    };
    let nodes = own.view.nodes.iter();
    let peers = nodes.filter(|(name, node)| has(spec, name, node));
    let wanted = |address: IpAddr| of_family.is_none_or(|v4| v4 == address.is_ipv4());
    peers
        .flat_map(|(name, node)| of_node(own, Origin::Node, name, node, wanted))
        .collect()
}

/// Returns the addresses of a node with which a session is possible.
fn of_node<'v>(
    own: &Own<'v>,
    origin: Origin,
    name: &str,
    node: &'v Node,
    wanted: impl Fn(IpAddr) -> bool,
) -> Vec<Want<'v>> {
    let addresses = node.addresses().filter(|address| wanted(*address));
    let reached = addresses.filter(|address| own.node.address_beside(*address).is_some());
    reached
        .map(|remote| Want::of_node(own, origin, (name, node), remote))
        .collect()
}

/// Reports a node that a BGPPeer declares to pass on routes of other nodes: it is validated as a node.
fn transit_node(own: &Own<'_>, peering: &Peering<'_>, found: &[Want<'_>]) -> Option<Fault> {
    let annotation = fields::TRANSIT;
    let text = peering.stored.annotations.get(annotation)?;
    if peering.reversed || text != "true" {
        return None;
    }
    let (name, _) = found.iter().find_map(|want| own.node_at(want.remote))?;
    let field = format!("metadata.annotations[{annotation}]");
    let reason =
        format!("the peer is node {name}: only a route reflector passes on routes of other nodes");
    Some(Fault::new(
        key_of(Kind::BgpPeer, peering.name),
        field,
        reason,
    ))
}

/// Adds the peers of a BGPPeer, except this node itself and addresses that are already there.
fn take<'v>(
    own: &Own<'v>,
    peering: Peering<'v>,
    found: Vec<Want<'v>>,
    wants: &mut Wants<'v>,
    faults: &mut Vec<Fault>,
) {
    let Peering { name, stored, .. } = peering;
    let spec = &stored.spec;
    let key = || key_of(Kind::BgpPeer, name);
    let ourselves = |want: &Want<'_>| own.node.addresses().any(|at| at == want.remote);
    // A BGPPeer of several nodes may have the address of one of them; one of this node alone may not.
    if let Some(want) = found.iter().find(|want| ourselves(want))
        && spec.peer_ip.is_some()
        && spec.node == own.host.name
        && !peering.reversed
    {
        let address = want.remote;
        let reason = format!("{address} is an address of this node, which is no peer of itself");
        faults.push(Fault::new(key(), "spec.peerIP", reason));
    }
    let found: Vec<Want<'v>> = found.into_iter().filter(|want| !ourselves(want)).collect();
    if found.is_empty() {
        return;
    }
    if let Some(fault) = transit_node(own, &peering, &found) {
        faults.push(fault);
    }
    let given = spec.password.as_ref();
    let keys = match given.map(|given| own.keys(given)).transpose() {
        Ok(keys) => keys,
        Err(reason) => {
            faults.push(Fault::new(key(), "spec.password", reason));
            wants
                .without_key
                .extend(found.iter().map(|want| want.remote));
            return;
        }
    };
    for mut want in found {
        if let Some(port) = wants.ports.get(&want.remote) {
            if *port != want.port {
                let reason = format!("{} is a peer already, at another port", want.remote);
                faults.push(Fault::new(key(), "spec.peerIP", reason));
            }
            continue;
        }
        if spec.source() == SourceAddress::None {
            want.source = None;
        }
        want.peering = Some(stored);
        want.by = Some(name);
        want.filters = &spec.filters;
        want.from = peering.description();
        want.selected = spec.peer_selector.is_some().then_some(name);
        want.selects_us = peering.reversed;
        want.keys.clone_from(&keys);
        wants.ports.insert(want.remote, want.port);
        wants.all.push(want);
    }
}
