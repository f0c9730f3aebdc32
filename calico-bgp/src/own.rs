//! The node itself: its properties, and the parts of the datastore that the derivation reads
//! repeatedly.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use bgp_config::{Host, SessionKeys};
use bgp_proto::{Asn, ClusterId, RouterId};
use bgp_speaker::Password;
use calico_model::{BgpConfigurationSpec, BgpPassword, DEFAULT_CONFIGURATION, Kind, ResourceKey};
use ring::digest::{SHA256, digest};

use crate::fabric_bfd::FabricBfd;
use crate::fault::Fault;
use crate::view::{Node, View};

/// Passwords, by the name of a secret and the key within it.
pub type Secrets = BTreeMap<(String, String), Password>;

/// The properties of the node, and the whole view.
#[derive(Debug)]
pub(crate) struct Own<'v> {
    pub(crate) host: &'v Host,
    pub(crate) node: &'v Node,
    /// Its AS.
    pub(crate) asn: Asn,
    pub(crate) router_id: RouterId,
    /// Its cluster ID as a route reflector.
    pub(crate) cluster_id: Option<ClusterId>,
    pub(crate) view: &'v View,
    pub(crate) secrets: &'v Secrets,
    /// The settings of the cluster, and those of this node.
    pub(crate) cluster: &'v BgpConfigurationSpec,
    pub(crate) settings: Option<&'v BgpConfigurationSpec>,
    /// Whether the sessions that the fabric determines have BFD.
    pub(crate) bfd: FabricBfd,
}

/// Returns the key of a cluster-wide resource, for faults.
pub(crate) fn key_of(kind: Kind, name: &str) -> String {
    ResourceKey::new(kind, None, name).map_or_else(|_| name.to_owned(), |key| key.to_string())
}

/// Returns the BGP identifier of a node: its IPv4 address, or else the one that Calico's nodes
/// derive from the name: the first octets of its SHA-256, limited to values below the multicast
/// addresses.
fn router_id(name: &str, node: &Node) -> RouterId {
    if let Some(IpAddr::V4(address)) = node.v4.map(|network| network.address()) {
        return RouterId(address);
    }
    let hash = digest(&SHA256, name.as_bytes());
    let [first, b, c, d] = hash.as_ref().first_chunk().copied().unwrap_or_default();
    let first = if first > 223 { first - 32 } else { first };
    RouterId(Ipv4Addr::new(first, b, c, d))
}

/// Returns a fault for settings that exist but were never valid. They may disable the mesh, or set
/// its password: the defaults must not replace them.
fn unknown_settings(view: &View, name: &str) -> Option<Fault> {
    let key = key_of(Kind::BgpConfiguration, name);
    let unknown = view.is_faulty(&key) && !view.configurations.contains_key(name);
    let reason = "no valid value yet: this node opens no BGP session before there is one";
    unknown.then(|| Fault::new(key, "", reason))
}

impl<'v> Own<'v> {
    /// Finds the node of this host; fails if it is missing in the datastore, if it cannot run BGP,
    /// or if its settings are unknown.
    pub(crate) fn find(
        view: &'v View,
        host: &'v Host,
        secrets: &'v Secrets,
        cluster: &'v BgpConfigurationSpec,
    ) -> Result<Self, Fault> {
        let key = key_of(Kind::Node, &host.name);
        let node = view
            .nodes
            .get(&host.name)
            .ok_or_else(|| Fault::new(&*key, "", "this node is not in the store"))?;
        if node.addresses().next().is_none() {
            let reason = "without an address of either family this node cannot speak BGP";
            return Err(Fault::new(key, "spec.bgp.ipv4Address", reason));
        }
        let of_node = format!("node.{}", host.name);
        for name in [DEFAULT_CONFIGURATION, &of_node] {
            if let Some(fault) = unknown_settings(view, name) {
                return Err(fault);
            }
        }
        let settings = view.configurations.get(&of_node);
        Ok(Self {
            host,
            node,
            asn: node.asn.unwrap_or_else(|| Asn(cluster.cluster_as().0)),
            router_id: router_id(&host.name, node),
            cluster_id: node.cluster_id.map(ClusterId),
            view,
            secrets,
            cluster,
            settings: settings.map(|settings| &settings.spec),
            bfd: FabricBfd::of(view, &host.name),
        })
    }

    /// Returns the AS of a node.
    pub(crate) fn asn_of(&self, node: &Node) -> Asn {
        node.asn.unwrap_or_else(|| Asn(self.cluster.cluster_as().0))
    }

    /// Returns the port on which a node listens.
    pub(crate) fn port_of(&self, name: &str) -> u16 {
        let of_node = self.view.configurations.get(&format!("node.{name}"));
        let port = of_node.and_then(|settings| settings.spec.own_port());
        port.unwrap_or_else(|| self.cluster.port())
    }

    /// Returns whether a node is a route reflector.
    pub(crate) fn reflects(&self, name: &str, node: &Node) -> bool {
        self.view.reflects(name, node)
    }

    /// Returns the node with this address.
    pub(crate) fn node_at(&self, address: IpAddr) -> Option<(&'v str, &'v Node)> {
        let mut nodes = self.view.nodes.iter();
        let found = nodes.find(|(_, node)| node.addresses().any(|at| at == address));
        found.map(|(name, node)| (name.as_str(), node))
    }

    /// Returns the keys that the datastore refers to. Fails with the reason if they cannot be read.
    pub(crate) fn keys(&self, given: &BgpPassword) -> Result<SessionKeys, String> {
        let Some(secret) = &given.secret_key_ref else {
            return Err("no secret is named".to_owned());
        };
        let at = (secret.name.clone(), secret.key.clone());
        let keys = match self.secrets.get(&at) {
            Some(content) => SessionKeys::read(content),
            None => Err("is not there: the session stays down".to_owned()),
        };
        keys.map_err(|reason| format!("the secret {}/{} {reason}", secret.name, secret.key))
    }

    /// Returns the keys of the sessions that the fabric determines: those of the mesh, and those
    /// with its reflectors. Fails if a password is configured and cannot be read.
    pub(crate) fn fabric_keys(&self) -> Result<Option<SessionKeys>, Fault> {
        let given = self.cluster.node_mesh_password.as_ref();
        let keys = given.map(|given| self.keys(given)).transpose();
        keys.map_err(|reason| {
            let key = key_of(Kind::BgpConfiguration, DEFAULT_CONFIGURATION);
            Fault::new(key, "spec.nodeMeshPassword", reason)
        })
    }

    /// Returns the settings of the cluster; the defaults if the datastore has none.
    pub(crate) fn cluster_of(view: &View) -> BgpConfigurationSpec {
        let cluster = view.configurations.get(DEFAULT_CONFIGURATION);
        cluster
            .map(|settings| settings.spec.clone())
            .unwrap_or_default()
    }
}
