//! All data of address management, read together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_model::{
    AffinityOwner, AllocationAttribute, AllocationBlock, BlockAffinity, ClusterInformationSpec,
    EndpointName, IPAM_PREFIX, IpamConfig, IpamHandle, IpamKey, Key, Kind, NodeSpec, ParseError,
    Resource, Spec, WorkloadEndpointSpec,
};
use calico_store::{KeyRange, Listing, Revision};
use ipnet::IpNet;

use crate::block::Block;
use crate::catalog::Pools;
use crate::error::IpamError;
use crate::store::Ipam;
use crate::time::Time;

/// Blocks, affinities and handles, and the nodes and endpoints that use them.
#[derive(Debug, Clone)]
pub struct Inventory {
    /// The time of the reading.
    pub at: Time,
    /// Whether the datastore may be applied: `datastoreReady` is true, and the datastore has not
    /// just been emptied.
    pub ready: bool,
    /// The ClusterInformation, and its revision.
    pub information: Option<(ClusterInformationSpec, Revision)>,
    /// The IPAM configuration.
    pub config: IpamConfig,
    /// Pools and reservations.
    pub pools: Pools,
    /// The blocks.
    pub blocks: BTreeMap<IpNet, Block>,
    /// The affinities.
    pub affinities: BTreeMap<(AffinityOwner, IpNet), BlockAffinity>,
    /// The handles.
    pub handles: BTreeMap<String, IpamHandle>,
    /// Hosts with an IPAM host key.
    pub hosts: BTreeSet<String>,
    /// The existing nodes.
    pub nodes: BTreeSet<String>,
    /// Users of each address: endpoints, and nodes for their tunnels.
    pub users: BTreeMap<IpAddr, BTreeSet<String>>,
    /// The nodes of endpoints, as named in the endpoints.
    pub busy: BTreeSet<String>,
    /// Keys that cannot be parsed, and the errors.
    pub unreadable: Vec<(String, String)>,
    /// Nodes with endpoints that cannot be parsed; `None` if these nodes cannot be determined.
    pub obscure: Option<BTreeSet<String>>,
    /// The readable workload endpoints.
    pub(crate) placed: Vec<Placed>,
    written: BTreeMap<IpamKey, Revision>,
}

/// A workload endpoint, as far as it concerns its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Placed {
    /// Namespace and name.
    pub(crate) endpoint: String,
    pub(crate) name: String,
    /// Its `spec.node`.
    pub(crate) node: String,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Placed {
    fn new(namespace: &str, name: &str, spec: &WorkloadEndpointSpec) -> Self {
        let addresses = spec.ip_networks.iter().map(|network| network.address());
        Self {
            endpoint: format!("{namespace}/{name}"),
            name: name.to_owned(),
            node: spec.node.clone(),
            addresses: addresses.collect(),
        }
    }
}

/// The known use of an allocated address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// Used by an endpoint, or by a tunnel of a node.
    Used,
    /// Reserved for a use without an endpoint: a tunnel not yet set up, a plugin that writes no
    /// endpoints, Windows, a load balancer, an allocation without attributes.
    Kept,
    /// Allocated on an existing node, but no endpoint uses it.
    NoEndpoint,
    /// Allocated on a deleted node.
    NodeGone,
}

/// The attribute with the node on which an address was allocated.
pub const NODE: &str = "node";
/// The attribute with the use of an address that is not for a workload.
pub const TYPE: &str = "type";

/// Uses of addresses of nodes.
const TUNNELS: [&str; 5] = [
    "ipipTunnelAddress",
    "vxlanTunnelAddress",
    "vxlanV6TunnelAddress",
    "wireguardTunnelAddress",
    "wireguardV6TunnelAddress",
];

/// Use of an address that the IPAM plugin assigned for another plugin, which writes no endpoints.
pub const OTHER_PLUGIN: &str = "plugin:";

impl Inventory {
    /// Returns the revision of a key; zero if it does not exist.
    pub(crate) fn written(&self, key: &IpamKey) -> Revision {
        self.written.get(key).copied().unwrap_or_default()
    }

    /// Returns the `clusterGUID` of the datastore; empty if it has none.
    pub fn cluster_guid(&self) -> &str {
        let information = self.information.as_ref();
        information.map_or("", |(information, _)| &information.cluster_guid)
    }

    /// Returns the revision of a handle; zero if it does not exist.
    pub fn handle_written(&self, handle: &str) -> Revision {
        self.written(&IpamKey::Handle(handle.to_owned()))
    }

    /// Returns whether a node is certainly deleted, with all its endpoints.
    pub(crate) fn is_gone(&self, node: &str) -> bool {
        let obscure = self.obscure.as_ref();
        let seen = obscure.is_some_and(|nodes| !nodes.contains(node));
        seen && !self.nodes.contains(node) && !self.busy.contains(node)
    }

    /// Returns the known use of an allocated address, from the attributes in its block.
    pub fn use_of(&self, block: &Block, address: IpAddr, known: &AllocationAttribute) -> Use {
        if self.users.contains_key(&address) {
            return Use::Used;
        }
        let of_host = !matches!(block.owner(), Some(AffinityOwner::Virtual(_)));
        let (node, kind) = (known.active_owner.get(NODE), known.active_owner.get(TYPE));
        let is_checkable = kind
            .is_none_or(|kind| TUNNELS.contains(&kind.as_str()) || kind.starts_with(OTHER_PLUGIN));
        let (Some(node), true) = (node, of_host && is_checkable) else {
            return Use::Kept;
        };
        let obscure = self.obscure.as_ref();
        if obscure.is_none_or(|nodes| nodes.contains(node)) {
            return Use::Kept;
        }
        match (self.nodes.contains(node), kind) {
            (false, _) => Use::NodeGone,
            (true, Some(_)) => Use::Kept,
            (true, None) => Use::NoEndpoint,
        }
    }

    fn of(at: Time) -> Self {
        Self {
            at,
            ready: true,
            information: None,
            config: IpamConfig::default(),
            pools: Pools::default(),
            blocks: BTreeMap::new(),
            affinities: BTreeMap::new(),
            handles: BTreeMap::new(),
            hosts: BTreeSet::new(),
            nodes: BTreeSet::new(),
            users: BTreeMap::new(),
            busy: BTreeSet::new(),
            unreadable: Vec::new(),
            obscure: Some(BTreeSet::new()),
            placed: Vec::new(),
            written: BTreeMap::new(),
        }
    }

    fn own_keys(&mut self, listing: Listing) {
        for found in listing.items {
            let text = String::from_utf8_lossy(&found.key).into_owned();
            let Ok(key) = text.parse::<IpamKey>() else {
                continue;
            };
            self.written.insert(key.clone(), found.mod_revision);
            if let Err(why) = self.own_value(key, &found.value) {
                self.unreadable.push((text, why));
            }
        }
    }

    fn own_value(&mut self, key: IpamKey, value: &[u8]) -> Result<(), String> {
        let to_text = |error: ParseError| error.to_string();
        match key {
            IpamKey::Block(cidr) => {
                let block = AllocationBlock::parse(value).map_err(to_text)?;
                let block = Block::stored(block).map_err(|fault| fault.to_string())?;
                self.blocks.insert(cidr, block);
            }
            IpamKey::Affinity { owner, block } => {
                let affinity = BlockAffinity::parse(value).map_err(to_text)?;
                self.affinities.insert((owner, block), affinity);
            }
            IpamKey::Handle(id) => {
                let handle = IpamHandle::parse(value).map_err(to_text)?;
                self.handles.insert(id, handle);
            }
            IpamKey::Host(name) => {
                self.hosts.insert(name);
            }
            IpamKey::Config => self.config = IpamConfig::parse(value).map_err(to_text)?,
        }
        Ok(())
    }

    /// Returns the readable resources with their names.
    fn resources<S: Spec>(&mut self, listing: &Listing) -> Vec<(String, Option<Resource<S>>)> {
        let mut found = Vec::new();
        for item in &listing.items {
            let text = String::from_utf8_lossy(&item.key).into_owned();
            let Ok(Key::Resource(key)) = text.parse::<Key>() else {
                continue;
            };
            let resource = Resource::parse(&item.value);
            if let Err(error) = &resource {
                self.unreadable.push((text, error.to_string()));
            }
            found.push((key.name().to_owned(), resource.ok()));
        }
        found
    }

    fn endpoints(&mut self, listing: &Listing) {
        for (name, endpoint) in self.resources::<WorkloadEndpointSpec>(listing) {
            let parts = name.parse::<EndpointName>().ok();
            let node = parts.map(|parts| parts.node().to_owned());
            let Some(endpoint) = endpoint else {
                self.obscure = self.obscure.take().zip(node).map(|(mut nodes, node)| {
                    nodes.insert(node);
                    nodes
                });
                continue;
            };
            self.busy.extend(node);
            self.busy.insert(endpoint.spec.node.clone());
            let namespace = &endpoint.metadata.namespace;
            let user = format!("Workload({namespace}/{name})");
            self.placed
                .push(Placed::new(namespace, &name, &endpoint.spec));
            for network in &endpoint.spec.ip_networks {
                self.uses(network.address(), &user);
            }
        }
    }

    fn all_nodes(&mut self, listing: &Listing) {
        for (name, node) in self.resources::<NodeSpec>(listing) {
            let user = format!("Node({name})");
            let tunnels = node.iter().flat_map(|node| node.spec.tunnel_addresses());
            for address in tunnels {
                self.uses(address, &user);
            }
            self.nodes.insert(name);
        }
    }

    fn information(&mut self, listing: &Listing) {
        let found = self.resources::<ClusterInformationSpec>(listing);
        for ((name, information), item) in found.into_iter().zip(&listing.items) {
            if name == "default" {
                self.information =
                    information.map(|information| (information.spec, item.mod_revision));
            }
        }
    }

    fn uses(&mut self, address: IpAddr, user: &str) {
        let users = self.users.entry(address).or_default();
        users.insert(user.to_owned());
    }
}

impl Ipam<'_> {
    /// Reads everything. Users of addresses are read after the allocations, so that every user that
    /// was written by the time its allocation was read is seen.
    pub async fn inventory(&self) -> Result<Inventory, IpamError> {
        let mut inventory = Inventory::of(self.now());
        let list = async |prefix: String| self.store.list(KeyRange::prefix(prefix)).await;
        inventory.own_keys(list(IPAM_PREFIX.to_owned()).await?);
        inventory.pools = self.pools().await?;
        inventory.all_nodes(&list(Kind::Node.prefix()).await?);
        inventory.endpoints(&list(Kind::WorkloadEndpoint.prefix()).await?);
        inventory.information(&list(Kind::ClusterInformation.prefix()).await?);
        // A datastore without nodes, but with blocks of hosts, is being restored.
        let emptied = inventory.nodes.is_empty() && !inventory.blocks.is_empty();
        let information = inventory.information.as_ref();
        inventory.ready =
            !emptied && information.is_some_and(|(information, _)| information.is_ready());
        Ok(inventory)
    }
}
