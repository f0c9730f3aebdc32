//! The addresses and ports of the fabric itself that the packet filter closes to workloads: nodes,
//! the ports of BGP, BGP peers, registered reflectors, and the datastore.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use calico_model::{BGP_PORT, BgpConfigurationSpec, BgpPeerSpec, NodeSpec, Registration};
use ipnet::IpNet;

use crate::render::{Control, TCP, UDP};

/// The UDP ports of BFD: for neighbors on a link (RFC 5881 §4), and behind routers (RFC 5883 §5).
const BFD_PORTS: [u16; 2] = [3784, 4784];

/// The BGP ports in the files of this host's BGP daemons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BgpPorts {
    /// Ports of this host: those on which a daemon listens, and those of `[guard]`.
    pub ports: BTreeSet<u16>,
    /// Addresses and ports of neighbors.
    pub neighbors: BTreeSet<SocketAddr>,
    /// A file has not been readable since the start of Felix, so ports are missing.
    pub incomplete: bool,
}

/// Nodes, BGP ports, BGP peers and reflectors in the datastore, by key, and additions of this
/// host's configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Fabric {
    nodes: BTreeMap<String, BTreeSet<IpAddr>>,
    ports: BTreeMap<String, u16>,
    /// Ranges of services.
    services: BTreeMap<String, Vec<IpNet>>,
    peers: BTreeMap<String, (IpAddr, u16)>,
    reflectors: BTreeMap<String, BTreeSet<(IpAddr, u16)>>,
    datastore: BTreeSet<SocketAddr>,
    files: BgpPorts,
    /// The address for scrapers in the file of this host.
    scraped: Option<SocketAddr>,
    exceptions: Vec<IpNet>,
}

impl Fabric {
    /// Records a node. Returns whether anything changed.
    pub(super) fn node(&mut self, key: &str, spec: Option<&NodeSpec>) -> bool {
        let addresses = spec.map(addresses).filter(|found| !found.is_empty());
        put(&mut self.nodes, key, addresses)
    }

    /// Returns the number of nodes with an address.
    pub(super) fn nodes_with_addresses(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the addresses of the node with this key.
    pub(super) fn addresses_of(&self, key: &str) -> impl Iterator<Item = IpAddr> + use<'_> {
        self.nodes.get(key).into_iter().flatten().copied()
    }

    /// Returns the addresses of all nodes, by key.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&String, &BTreeSet<IpAddr>)> {
        self.nodes.iter()
    }

    /// Records BGP settings of the cluster or of a node. Settings with another name belong to no
    /// BGP daemon.
    pub(super) fn settings(
        &mut self,
        key: &str,
        name: &str,
        spec: Option<&BgpConfigurationSpec>,
    ) -> bool {
        let is_read = name == "default" || name.starts_with("node.");
        let port = spec.filter(|_| is_read).and_then(|spec| spec.listen_port);
        let services = spec.filter(|_| name == "default").map(services);
        let is_other = put(&mut self.services, key, services);
        put(&mut self.ports, key, port) || is_other
    }

    /// Returns the ranges of services.
    pub(super) fn service_ranges(&self) -> Vec<IpNet> {
        self.services.values().flatten().copied().collect()
    }

    /// Records a BGP peer. The default of its port is the port of BGP.
    pub(super) fn peer(&mut self, key: &str, spec: Option<&BgpPeerSpec>) -> bool {
        let peer = spec.and_then(|spec| spec.peer_ip);
        let peer = peer.map(|at| (at.address, at.port.map_or(BGP_PORT, Into::into)));
        put(&mut self.peers, key, peer)
    }

    /// Records a registered reflector. The default of its port is the port of BGP.
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

    /// Records the addresses of the datastore, as this host resolves them.
    pub(super) fn datastore(&mut self, at: BTreeSet<SocketAddr>) -> bool {
        let different = self.datastore != at;
        self.datastore = at;
        different
    }

    /// Records the ports in the files of this host's BGP daemons.
    pub(super) fn files(&mut self, files: BgpPorts) -> bool {
        let different = self.files != files;
        self.files = files;
        different
    }

    /// Records the address for scrapers in the file of this host.
    pub(super) fn scraped_at(&mut self, at: Option<SocketAddr>) -> bool {
        let different = self.scraped != at;
        self.scraped = at;
        different
    }

    /// Records the sources that may reach control ports.
    pub(super) fn exceptions(&mut self, sources: Vec<IpNet>) {
        self.exceptions = sources;
    }

    /// Returns the whole. A datastore or a neighbor of a file on a loopback address, or on the
    /// unspecified one, runs on the host itself. Other hosts with the same configuration run
    /// theirs, so its port is closed on all nodes. One on a node may answer at every address of
    /// that node, including addresses that no Node resource has.
    pub(super) fn control(&self, tunnel_sources: Vec<IpNet>) -> Control {
        let ports = self.ports.values().copied().chain([BGP_PORT]);
        let reflectors = self.reflectors.values().flatten();
        let peers = self.peers.values().chain(reflectors).copied();
        let bfd = BFD_PORTS.map(|port| (UDP, port));
        let mut control = Control {
            ports: ports.map(|port| (TCP, port)).chain(bfd).collect(),
            nodes: self.nodes.values().flatten().copied().collect(),
            services: peers.collect(),
            exceptions: self.exceptions.clone(),
            tunnel_sources,
            ..Control::default()
        };
        self.close_local(&mut control);
        control
    }

    /// Adds the facts that need no content of the datastore: the ports in the files of
    /// its BGP daemons, and the addresses of the datastore.
    pub(super) fn close_local(&self, control: &mut Control) {
        let files = &self.files;
        control.host_is_closed = files.incomplete;
        let ports = files.ports.iter().map(|port| (TCP, *port));
        control.ports.extend(ports);
        // Other hosts have the same configuration. No packet of a workload reaches a loopback address.
        let scraped = self.scraped.filter(|at| !at.ip().is_loopback());
        control.node_ports.extend(scraped.map(|at| at.port()));
        for at in self.datastore.iter().chain(&files.neighbors) {
            let (address, port) = (at.ip().to_canonical(), at.port());
            let is_own = address.is_loopback() || address.is_unspecified();
            let is_on_nodes = is_own || control.nodes.contains(&address);
            if is_on_nodes && !control.ports.contains(&(TCP, port)) {
                control.node_ports.insert(port);
            }
            if !is_own {
                control.services.insert((address, port));
            }
        }
    }
}

/// Puts or removes a value. Returns whether anything changed.
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

/// Returns the ranges of services.
fn services(spec: &BgpConfigurationSpec) -> Vec<IpNet> {
    let all = [
        &spec.service_cluster_ips,
        &spec.service_external_ips,
        &spec.service_load_balancer_ips,
    ];
    all.into_iter()
        .flatten()
        .map(|block| block.cidr.0.trunc())
        .collect()
}

/// Returns every address of a node: of BGP, of its tunnels, and those detected on it.
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
