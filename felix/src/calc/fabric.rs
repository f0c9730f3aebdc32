//! What belongs to the fabric itself, as far as the packet filter closes it to workloads: nodes,
//! the ports of BGP, BGP peers, registered reflectors, and the datastore.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use calico_model::{BGP_PORT, BgpConfigurationSpec, BgpPeerSpec, NodeSpec, Registration};
use ipnet::IpNet;

use crate::render::{Control, TCP};

/// Nodes, BGP ports, BGP peers and reflectors of the store, by key, and what this host's configuration adds.
#[derive(Clone, Debug, Default)]
pub(super) struct Fabric {
    nodes: BTreeMap<String, BTreeSet<IpAddr>>,
    ports: BTreeMap<String, u16>,
    peers: BTreeMap<String, (IpAddr, u16)>,
    reflectors: BTreeMap<String, BTreeSet<(IpAddr, u16)>>,
    datastore: BTreeSet<SocketAddr>,
    exceptions: Vec<IpNet>,
}

impl Fabric {
    /// Takes a node. Returns whether anything is different.
    pub(super) fn node(&mut self, key: &str, spec: Option<&NodeSpec>) -> bool {
        let addresses = spec.map(addresses).filter(|found| !found.is_empty());
        put(&mut self.nodes, key, addresses)
    }

    /// Takes BGP settings, of the cluster or of a node. Those of another name are no BGP daemon's.
    pub(super) fn settings(
        &mut self,
        key: &str,
        name: &str,
        spec: Option<&BgpConfigurationSpec>,
    ) -> bool {
        let is_read = name == "default" || name.starts_with("node.");
        let port = spec.filter(|_| is_read).and_then(|spec| spec.listen_port);
        put(&mut self.ports, key, port)
    }

    /// Takes a BGP peer. One without a port of its own is reached at the port of BGP.
    pub(super) fn peer(&mut self, key: &str, spec: Option<&BgpPeerSpec>) -> bool {
        let peer = spec.and_then(|spec| spec.peer_ip);
        let peer = peer.map(|at| (at.address, at.port.map_or(BGP_PORT, Into::into)));
        put(&mut self.peers, key, peer)
    }

    /// Takes a registered reflector. One without a port of its own is reached at the port of BGP.
    pub(super) fn reflector(&mut self, key: &str, registration: Option<&Registration>) -> bool {
        let services = registration.map(|registration| {
            let v4 = registration.ipv4_address.map(IpAddr::from);
            let v6 = registration.ipv6_address.map(IpAddr::from);
            let port = registration.port.unwrap_or(BGP_PORT);
            let both = v4.into_iter().chain(v6);
            both.map(|address| (address, port)).collect()
        });
        put(&mut self.reflectors, key, services)
    }

    /// Takes the addresses at which this host finds the datastore.
    pub(super) fn datastore(&mut self, at: BTreeSet<SocketAddr>) -> bool {
        let different = self.datastore != at;
        self.datastore = at;
        different
    }

    /// Takes the sources that may reach control ports.
    pub(super) fn exceptions(&mut self, sources: Vec<IpNet>) {
        self.exceptions = sources;
    }

    /// All of it. A datastore on a loopback address, or on the unspecified one, is one of the host
    /// itself; where hosts are alike others have theirs, so its port is closed on all nodes. One on a
    /// node may answer at every address of that node, also at those that no Node has.
    pub(super) fn control(&self, tunnel_sources: Vec<IpNet>) -> Control {
        let ports = self.ports.values().copied().chain([BGP_PORT]);
        let nodes: BTreeSet<IpAddr> = self.nodes.values().flatten().copied().collect();
        let is_own = |at: IpAddr| at.is_loopback() || at.is_unspecified();
        let store = || {
            self.datastore
                .iter()
                .map(|at| (at.ip().to_canonical(), at.port()))
        };
        let on_nodes = store().filter(|(at, _)| is_own(*at) || nodes.contains(at));
        let node_ports = on_nodes.map(|(_, port)| port).collect();
        let store = store().filter(|(at, _)| !is_own(*at));
        let reflectors = self.reflectors.values().flatten();
        let peers = self.peers.values().chain(reflectors).copied();
        Control {
            ports: ports.map(|port| (TCP, port)).collect(),
            node_ports,
            nodes,
            services: peers.chain(store).collect(),
            exceptions: self.exceptions.clone(),
            tunnel_sources,
        }
    }
}

/// Puts a value, or takes it out. Returns whether anything is different.
fn put<T: PartialEq>(all: &mut BTreeMap<String, T>, key: &str, value: Option<T>) -> bool {
    if all.get(key) == value.as_ref() {
        return false;
    }
    match value {
        Some(value) => all.insert(key.to_owned(), value),
        None => all.remove(key),
    };
    true
}

/// Every address of a node: of BGP, of its tunnels, and those that were found on it.
fn addresses(spec: &NodeSpec) -> BTreeSet<IpAddr> {
    let bgp = spec.bgp.iter();
    let bgp = bgp.flat_map(|bgp| [bgp.ipv4_address, bgp.ipv6_address]);
    let bgp = bgp.flatten().map(|network| network.address());
    let listed = spec.addresses.iter().filter_map(|one| {
        let text = one.address.split('/').next()?;
        text.parse().ok()
    });
    let interfaces = spec.interfaces.iter();
    let interfaces = interfaces.flat_map(|interface| interface.addresses.iter().copied());
    let all = bgp.chain(listed).chain(interfaces);
    all.chain(spec.tunnel_addresses()).collect()
}
