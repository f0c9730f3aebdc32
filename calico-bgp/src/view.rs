//! The current state of the datastore: the last valid value of every key.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp_proto::Asn;
use calico_model::{
    ANNOUNCEMENTS_PREFIX, AffinityOwner, BfdConfigurationSpec, BgpConfigurationSpec, BgpFilterSpec,
    BgpPeerSpec, BlockAffinity, FABRIC_PREFIX, FabricKey, FabricKeyError, IpPoolSpec, IpamKey, Key,
    Kind, Network, NodeSpec, Resource, ResourceKey, SecretKeyRef, ServiceRoutes, ServiceRoutesKey,
    Spec,
};
use ipnet::IpNet;
use serde::Deserialize;

use crate::fault::Fault;
use crate::fields::is_own;
use crate::fleet::Fleet;
use crate::reflectors::REFLECTORS_ANNOTATION;

/// The annotation of a BGPConfiguration that sets whether the sessions which the fabric determines have
/// BFD.
pub const FABRIC_BFD_ANNOTATION: &str = "cambric.io/fabric-bfd";

/// The last valid value of every key that is relevant to one node, and the faults of the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) configurations: BTreeMap<String, Settings>,
    pub(crate) peers: BTreeMap<String, Peering>,
    pub(crate) filters: BTreeMap<String, Filter>,
    pub(crate) bfd: BTreeMap<String, BfdConfiguration>,
    pub(crate) pools: BTreeMap<String, Pool>,
    /// The ranges of pools that were never valid otherwise, by their keys.
    pub(crate) closed_pools: BTreeMap<String, IpNet>,
    /// Blocks of addresses, with the names of their hosts.
    pub(crate) blocks: BTreeSet<(String, IpNet)>,
    pub(crate) fleet: Fleet,
    /// The routes of services that the node announces; `None` if no controller has written them.
    pub(crate) service_routes: Option<ServiceRoutes>,
    /// The key of these routes.
    service_routes_key: String,
    faults: BTreeMap<String, Fault>,
}

/// Resources of which only the spec is used.
macro_rules! specs {
    ($($(#[$doc:meta])* $name:ident $spec:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub(crate) struct $name(pub(crate) $spec);

            impl From<Resource<$spec>> for $name {
                fn from(resource: Resource<$spec>) -> Self {
                    Self(resource.spec)
                }
            }
        )*
    };
}

specs! {
    /// Import and export rules of peers.
    Filter BgpFilterSpec;
    /// Timers of BFD.
    BfdConfiguration BfdConfigurationSpec;
    /// A range of workload addresses.
    Pool IpPoolSpec;
}

/// A BGPPeer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peering {
    pub(crate) spec: BgpPeerSpec,
    /// Its annotations with Cambric's prefix.
    pub(crate) annotations: BTreeMap<String, String>,
}

impl From<Resource<BgpPeerSpec>> for Peering {
    fn from(resource: Resource<BgpPeerSpec>) -> Self {
        let annotations = resource.metadata.annotations.into_iter();
        Self {
            spec: resource.spec,
            annotations: annotations.filter(|(name, _)| is_own(name)).collect(),
        }
    }
}

/// BGP settings of the cluster or of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) spec: BgpConfigurationSpec,
    /// How many reflectors nodes peer with, as the unparsed text.
    pub(crate) reflectors: Option<String>,
    /// Whether the sessions that the fabric determines have BFD, as the unparsed text.
    pub(crate) bfd: Option<String>,
}

impl From<Resource<BgpConfigurationSpec>> for Settings {
    fn from(mut resource: Resource<BgpConfigurationSpec>) -> Self {
        let annotations = &mut resource.metadata.annotations;
        Self {
            reflectors: annotations.remove(REFLECTORS_ANNOTATION),
            bfd: annotations.remove(FABRIC_BFD_ANNOTATION),
            spec: resource.spec,
        }
    }
}

/// A host with its BGP properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its IPv4 address, with the mask of its subnet.
    pub v4: Option<Network>,
    /// Its IPv6 address, with the mask of its subnet.
    pub v6: Option<Network>,
    /// Its AS, if it differs from the cluster's.
    pub asn: Option<Asn>,
    /// Its cluster ID, if it is a route reflector.
    pub cluster_id: Option<Ipv4Addr>,
    /// The IPv4 address of its WireGuard device, if it has one.
    pub wireguard_v4: Option<Ipv4Addr>,
    /// The IPv6 address of its WireGuard device, if it has one.
    pub wireguard_v6: Option<Ipv6Addr>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl Node {
    /// Returns its addresses, IPv4 first.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let networks = [self.v4, self.v6].into_iter().flatten();
        networks.map(|network| network.address())
    }

    /// Returns its address of the same family as `other`.
    pub(crate) fn address_beside(&self, other: IpAddr) -> Option<IpAddr> {
        self.addresses()
            .find(|address| address.is_ipv4() == other.is_ipv4())
    }
}

impl From<Resource<NodeSpec>> for Node {
    fn from(resource: Resource<NodeSpec>) -> Self {
        let bgp = resource.spec.bgp.unwrap_or_default();
        let wireguard = resource.spec.wireguard.unwrap_or_default();
        Self {
            v4: bgp.ipv4_address,
            v6: bgp.ipv6_address,
            asn: bgp.as_number.map(|asn| Asn(asn.0)),
            cluster_id: bgp.route_reflector_cluster_id,
            wireguard_v4: wireguard.interface_ipv4_address,
            wireguard_v6: wireguard.interface_ipv6_address,
            labels: resource.metadata.labels,
        }
    }
}

impl View {
    /// Creates the empty view of the node of this name.
    pub fn of(node: &str) -> Self {
        Self {
            fleet: Fleet::of(node),
            service_routes_key: ServiceRoutesKey::of(node).to_string(),
            ..Self::default()
        }
    }

    /// Returns the key prefixes that are relevant to the node of this name.
    pub fn prefixes(node: &str) -> Vec<String> {
        let kinds = [
            Kind::Node,
            Kind::BgpConfiguration,
            Kind::BgpPeer,
            Kind::BgpFilter,
            Kind::BfdConfiguration,
            Kind::IpPool,
        ];
        let own = AffinityOwner::Host(node.to_owned());
        let own = IpamKey::affinities_prefix(&own);
        let services = ServiceRoutesKey::prefix(node);
        let others = [own, services, FABRIC_PREFIX.to_owned()];
        kinds.map(Kind::prefix).into_iter().chain(others).collect()
    }

    /// Returns the fabric's reflectors.
    pub const fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Returns the fabric's reflectors mutably, for a caller with more information than the
    /// datastore.
    pub const fn fleet_mut(&mut self) -> &mut Fleet {
        &mut self.fleet
    }

    /// Applies a key's new value or its deletion. Returns whether anything in the view changes. An
    /// invalid value keeps the last valid one in effect.
    pub fn take(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        let text = String::from_utf8_lossy(key);
        if text.starts_with(FABRIC_PREFIX) {
            return self.take_fabric(&text, value);
        }
        if text.starts_with(ANNOUNCEMENTS_PREFIX) {
            // Keys of other nodes, and other keys of a later version, are not this node's.
            return text == self.service_routes_key && self.take_service_routes(&text, value);
        }
        let faults = &mut self.faults;
        match text.parse() {
            Ok(Key::Resource(name)) => match name.kind() {
                Kind::Node => put(&mut self.nodes, faults, &name, value),
                Kind::BgpConfiguration => put(&mut self.configurations, faults, &name, value),
                Kind::BgpPeer => put(&mut self.peers, faults, &name, value),
                Kind::BgpFilter => put(&mut self.filters, faults, &name, value),
                Kind::BfdConfiguration => put(&mut self.bfd, faults, &name, value),
                Kind::IpPool => {
                    let changed = put(&mut self.pools, faults, &name, value);
                    self.close(&name, value) || changed
                }
                _ => false,
            },
            Ok(Key::Ipam(IpamKey::Affinity { owner, block })) => match owner {
                AffinityOwner::Host(host) => self.affinity(&text, host, block, value),
                AffinityOwner::Virtual(_) => false,
            },
            Ok(_) => false,
            Err(error) => {
                let fault = Fault::new(text.clone(), "", error.to_string());
                set(faults, &text, value.map(|_| fault))
            }
        }
    }

    /// Keeps the range of a pool that is invalid and was never valid.
    fn close(&mut self, name: &ResourceKey, value: Option<&[u8]>) -> bool {
        let key = name.to_string();
        let closed = self.is_faulty(&key) && !self.pools.contains_key(name.name());
        let range = value.filter(|_| closed).and_then(range_of);
        set(&mut self.closed_pools, &key, range)
    }

    /// Applies a value of Cambric's own keys.
    fn take_fabric(&mut self, text: &str, value: Option<&[u8]>) -> bool {
        let fault = match text.parse() {
            Ok(key) => match self.fleet.take(key, value) {
                Ok(changed) => return self.faults.remove(text).is_some() || changed,
                Err(error) => Fault::new(text, field(error.field), error.source.to_string()),
            },
            // Possibly of another version: no fault.
            Err(FabricKeyError::Foreign) => return false,
            // No configuration depends on reports.
            Err(_) if text.starts_with(FabricKey::DRAIN_REPORTS) => return false,
            Err(error) => Fault::new(text, "", error.to_string()),
        };
        set(&mut self.faults, text, value.map(|_| fault))
    }

    /// Applies the routes of services of this node. An invalid value keeps the last valid one.
    fn take_service_routes(&mut self, key: &str, value: Option<&[u8]>) -> bool {
        match value.map(ServiceRoutes::parse).transpose() {
            Ok(routes) => {
                let healed = self.faults.remove(key).is_some();
                let before = std::mem::replace(&mut self.service_routes, routes);
                before != self.service_routes || healed
            }
            Err(error) => {
                let fault = Fault::new(key, field(error.field), error.source.to_string());
                set(&mut self.faults, key, Some(fault))
            }
        }
    }

    fn affinity(&mut self, key: &str, host: String, block: IpNet, value: Option<&[u8]>) -> bool {
        match value.map(BlockAffinity::parse).transpose() {
            Ok(affinity) => {
                let healed = self.faults.remove(key).is_some();
                let at = (host, block);
                let changed = match affinity.is_some_and(|affinity| affinity.is_announced()) {
                    true => self.blocks.insert(at),
                    false => self.blocks.remove(&at),
                };
                changed || healed
            }
            Err(error) => {
                let fault = Fault::new(key, field(error.field), error.source.to_string());
                set(&mut self.faults, key, Some(fault))
            }
        }
    }

    /// Returns the secrets that BGPPeers and settings refer to.
    pub fn secrets(&self) -> BTreeSet<SecretKeyRef> {
        let peers = self
            .peers
            .values()
            .filter_map(|peer| peer.spec.password.as_ref());
        let all = self.configurations.values();
        let mesh = all.filter_map(|settings| settings.spec.node_mesh_password.as_ref());
        let given = peers.chain(mesh);
        given
            .filter_map(|given| given.secret_key_ref.clone())
            .collect()
    }

    /// Returns whether a node is a route reflector.
    pub(crate) fn reflects(&self, name: &str, node: &Node) -> bool {
        node.cluster_id.is_some() || self.fleet.has(name)
    }

    /// Returns whether the current value of a key is invalid.
    pub(crate) fn is_faulty(&self, key: &str) -> bool {
        self.faults.contains_key(key)
    }

    /// Returns the faults of the current values.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.faults.values()
    }
}

/// Replaces or removes a resource.
fn put<S: Spec, T: From<Resource<S>> + PartialEq>(
    all: &mut BTreeMap<String, T>,
    faults: &mut BTreeMap<String, Fault>,
    key: &ResourceKey,
    value: Option<&[u8]>,
) -> bool {
    let at = key.to_string();
    match value.map(|octets| read::<S>(&at, octets)).transpose() {
        Ok(read) => {
            let healed = faults.remove(&at).is_some();
            set(all, key.name(), read.map(T::from)) || healed
        }
        Err(fault) => set(faults, &at, Some(fault)),
    }
}

/// Returns the range of a pool, whatever its other fields are.
fn range_of(octets: &[u8]) -> Option<IpNet> {
    #[derive(Deserialize)]
    struct Pool {
        spec: Range,
    }
    #[derive(Deserialize)]
    struct Range {
        cidr: Network,
    }
    let pool: Pool = serde_json::from_slice(octets).ok()?;
    Some(pool.spec.cidr.0.trunc())
}

/// Returns the path of a field; empty for the whole value.
pub(crate) fn field(path: String) -> String {
    match path.as_str() {
        "." | "?" => String::new(),
        _ => path,
    }
}

/// Parses a whole resource, or returns its fault.
pub(crate) fn read<S: Spec>(key: &str, octets: &[u8]) -> Result<Resource<S>, Fault> {
    let resource: Resource<S> = Resource::parse(octets)
        .map_err(|error| Fault::new(key, field(error.field), error.source.to_string()))?;
    match resource
        .spec
        .validate(&resource.metadata)
        .into_iter()
        .next()
    {
        None => Ok(resource),
        Some(fault) => Err(Fault::new(key, fault.field, fault.problem.to_string())),
    }
}

/// Sets or removes an entry; returns whether that changes anything.
pub(crate) fn set<T: PartialEq>(
    map: &mut BTreeMap<String, T>,
    key: &str,
    value: Option<T>,
) -> bool {
    match value {
        None => map.remove(key).is_some(),
        Some(value) if map.get(key) == Some(&value) => false,
        Some(value) => {
            map.insert(key.to_owned(), value);
            true
        }
    }
}
