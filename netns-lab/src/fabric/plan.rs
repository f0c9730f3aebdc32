//! Names and addresses of a fabric.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::limits::{
    NODES_MAX, REFLECTORS_MAX, REFLECTORS_OF_NODE, STORE_MEMBERS_MAX, WORKLOADS_PER_NODE_MAX,
};

/// The port of the store, that of etcd.
pub const STORE_PORT: u16 = 2379;

/// The size and kind of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Nodes; at most [`NODES_MAX`].
    pub nodes: u16,
    /// Route reflectors; at most [`REFLECTORS_MAX`]. Not used by a mesh.
    pub reflectors: u16,
    /// Initial number of workloads per node.
    pub workloads_per_node: u16,
    /// The nodes form a full mesh, without reflectors.
    pub mesh: bool,
}

/// The source of the BGP configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bgp {
    /// The daemons' files: every node has a session with every reflector, over IPv4.
    #[default]
    Files,
    /// The datastore: a node chooses its reflectors, and two peers have a session for each family.
    Store,
}

/// All data of a fabric that is known before it is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The requested shape.
    pub shape: Shape,
    /// The AS of all machines.
    pub asn: u32,
    /// The source of the BGP configuration.
    pub bgp: Bgp,
    /// Further lines at the top of the reflectors' files, with [`Bgp::Store`].
    pub reflector_keys: String,
    /// Further lines of every neighbor and range in the files of the BGP daemons, with [`Bgp::Files`].
    pub neighbor_keys: String,
    /// Further lines at the top of the files of Felix.
    pub felix_keys: String,
    /// `rr1`, `rr2`, …
    pub reflectors: Vec<MachinePlan>,
    /// `node1`, `node2`, …
    pub nodes: Vec<MachinePlan>,
    /// The machines of the store's members: `fabric`, where the underlay's bridge is, then `store2`, …
    pub stores: Vec<MachinePlan>,
    /// `w1`, `w2`, …, with their initial nodes.
    pub workloads: Vec<(Place, String)>,
}

/// Index into [`Plan::nodes`].
pub type Place = usize;

/// One machine on the underlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachinePlan {
    /// Its name and host name.
    pub name: String,
    /// Its IPv4 address on the underlay; also its BGP identifier.
    pub v4: Ipv4Addr,
    /// Its IPv6 address on the underlay.
    pub v6: Ipv6Addr,
    /// The MAC address of its link to the underlay.
    pub mac: [u8; 6],
}

/// Why no plan exists for a [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Invalid number of nodes.
    #[error("{0} nodes: a fabric has 1 to {NODES_MAX}")]
    Nodes(u16),
    /// Invalid number of reflectors.
    #[error("{0} reflectors: a fabric has 1 to {REFLECTORS_MAX} (or none, with --mesh)")]
    Reflectors(u16),
    /// Invalid number of workloads.
    #[error("{0} workloads a node: there may be 0 to {WORKLOADS_PER_NODE_MAX}")]
    Workloads(u16),
    /// Invalid number of store members.
    #[error("{0} members of the store: there are 1 to {STORE_MEMBERS_MAX}")]
    Members(u16),
}

impl Plan {
    /// Returns the plan of a fabric.
    ///
    /// # Errors
    ///
    /// If the shape needs more addresses than available, or no route could cross the fabric.
    pub fn new(shape: Shape) -> Result<Self, ShapeError> {
        if !(1..=NODES_MAX).contains(&shape.nodes) {
            return Err(ShapeError::Nodes(shape.nodes));
        }
        if !shape.mesh && !(1..=REFLECTORS_MAX).contains(&shape.reflectors) {
            return Err(ShapeError::Reflectors(shape.reflectors));
        }
        if shape.workloads_per_node > WORKLOADS_PER_NODE_MAX {
            return Err(ShapeError::Workloads(shape.workloads_per_node));
        }
        let reflectors = if shape.mesh { 0 } else { shape.reflectors };
        let nodes = usize::from(shape.nodes);
        let workloads = nodes * usize::from(shape.workloads_per_node);
        Ok(Self {
            shape,
            asn: 64512,
            bgp: Bgp::default(),
            reflector_keys: String::new(),
            neighbor_keys: String::new(),
            felix_keys: String::new(),
            reflectors: (1..=reflectors)
                .map(|j| MachinePlan::new(format!("rr{j}"), j))
                .collect(),
            nodes: (1..=shape.nodes)
                .map(|i| MachinePlan::new(format!("node{i}"), NODES_BASE + i))
                .collect(),
            stores: vec![MachinePlan::new("fabric".to_owned(), STORE_HOST)],
            workloads: (0..workloads)
                .map(|k| {
                    (
                        k / usize::from(shape.workloads_per_node),
                        format!("w{}", k + 1),
                    )
                })
                .collect(),
        })
    }

    /// Returns the same fabric with this many members of the store.
    ///
    /// # Errors
    ///
    /// If there are not enough addresses.
    pub fn with_store_members(mut self, members: u16) -> Result<Self, ShapeError> {
        if !(1..=STORE_MEMBERS_MAX).contains(&members) {
            return Err(ShapeError::Members(members));
        }
        let more = (2..=members).map(|i| MachinePlan::new(format!("store{i}"), STORE_HOST + 1 - i));
        self.stores.truncate(1);
        self.stores.extend(more);
        Ok(self)
    }

    /// Returns the same fabric, with BGP configured by the datastore.
    #[must_use]
    pub const fn with_bgp_from_store(mut self) -> Self {
        self.bgp = Bgp::Store;
        self
    }

    /// Returns the machine with the store, or its first member.
    pub fn store(&self) -> MachinePlan {
        MachinePlan::new("fabric".to_owned(), STORE_HOST)
    }

    /// Returns the address on which the store, or its first member, listens.
    pub fn store_address(&self) -> SocketAddr {
        SocketAddr::from((self.store().v4, STORE_PORT))
    }

    /// Returns the addresses on which the store's members listen.
    pub fn store_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let stores = self.stores.iter();
        stores.map(|store| SocketAddr::from((store.v4, STORE_PORT)))
    }

    /// Returns these addresses as URLs for clients of etcd.
    pub fn store_urls(&self) -> Vec<String> {
        let addresses = self.store_addresses();
        addresses
            .map(|address| format!("http://{address}"))
            .collect()
    }

    /// Returns the prefix of all nodes' IPv4 addresses.
    pub fn underlay_v4(&self) -> IpNet {
        IpNet::V4(Ipv4Net::new_assert(
            Ipv4Addr::new(10, 0, 0, 0),
            UNDERLAY_V4_LENGTH,
        ))
    }

    /// Returns the peers in a node's file: all reflectors, or all other nodes.
    pub fn peers_of(&self, node: Place) -> Vec<&MachinePlan> {
        if !self.shape.mesh {
            return self.reflectors.iter().collect();
        }
        let others = self.nodes.iter().enumerate().filter(|(i, _)| *i != node);
        others.map(|(_, machine)| machine).collect()
    }

    /// Returns the number of sessions between two peers.
    const fn sessions_of_pair(&self) -> usize {
        match self.bgp {
            Bgp::Files => 1,
            Bgp::Store => 2,
        }
    }

    /// Returns the number of BGP sessions of a node when all are up.
    pub fn sessions_of_node(&self) -> usize {
        let peers = match (self.shape.mesh, self.bgp) {
            (true, _) => self.nodes.len().saturating_sub(1),
            (false, Bgp::Files) => self.reflectors.len(),
            (false, Bgp::Store) => self.reflectors.len().min(REFLECTORS_OF_NODE),
        };
        peers * self.sessions_of_pair()
    }

    /// Returns the number of BGP sessions of a reflector with the others.
    pub fn sessions_of_reflector(&self) -> usize {
        self.reflectors.len().saturating_sub(1) * self.sessions_of_pair()
    }

    /// Returns the number of BGP sessions when all are up (each counted once).
    pub fn sessions(&self) -> usize {
        let with_nodes = self.nodes.len() * self.sessions_of_node();
        let among_reflectors = self.reflectors.len() * self.sessions_of_reflector() / 2;
        match self.shape.mesh {
            true => with_nodes / 2,
            false => with_nodes + among_reflectors,
        }
    }
}

impl MachinePlan {
    fn new(name: String, number: u16) -> Self {
        let octet = u8::try_from(number).unwrap_or(u8::MAX);
        // The IPv6 address resembles the IPv4 one: fd00::11 for 10.0.0.11.
        let digits = u16::from_str_radix(&number.to_string(), 16).unwrap_or(u16::MAX);
        let v4 = Ipv4Addr::new(10, 0, 0, octet);
        let last = if number == STORE_HOST { 0xfe } else { digits };
        let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
        Self {
            name,
            v4,
            v6,
            mac: [0x02, 0x0a, 0, 0, 0, octet],
        }
    }

    /// Returns its IPv4 address with the underlay's prefix length.
    pub fn net_v4(&self) -> IpNet {
        IpNet::V4(Ipv4Net::new_assert(self.v4, UNDERLAY_V4_LENGTH))
    }

    /// Returns its IPv6 address with the underlay's prefix length.
    pub fn net_v6(&self) -> IpNet {
        IpNet::V6(Ipv6Net::new_assert(self.v6, UNDERLAY_V6_LENGTH))
    }
}

const NODES_BASE: u16 = 10;
const STORE_HOST: u16 = 254;
const UNDERLAY_V4_LENGTH: u8 = 24;
const UNDERLAY_V6_LENGTH: u8 = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn shape(nodes: u16, reflectors: u16, mesh: bool) -> Shape {
        Shape {
            nodes,
            reflectors,
            workloads_per_node: 2,
            mesh,
        }
    }

    #[test]
    fn the_largest_plan_names_and_addresses_everyone_differently() {
        let plan = Plan::new(shape(NODES_MAX, REFLECTORS_MAX, false)).unwrap();
        let plan = plan.with_store_members(STORE_MEMBERS_MAX).unwrap();
        let mut machines = plan.nodes.clone();
        machines.extend(plan.reflectors.clone());
        machines.extend(plan.stores.clone());
        let names: BTreeSet<_> = machines.iter().map(|m| &m.name).collect();
        let v4: BTreeSet<_> = machines.iter().map(|m| m.v4).collect();
        let v6: BTreeSet<_> = machines.iter().map(|m| m.v6).collect();
        assert_eq!((names.len(), v4.len(), v6.len()), (253, 253, 253));
        assert!(
            v4.iter()
                .all(|a| plan.underlay_v4().contains(&std::net::IpAddr::V4(*a)))
        );
        let workloads: BTreeSet<_> = plan.workloads.iter().map(|(_, name)| name).collect();
        assert_eq!(workloads.len(), 2 * usize::from(NODES_MAX));
    }

    #[test]
    fn addresses_are_as_documented() {
        let plan = Plan::new(shape(4, 2, false)).unwrap();
        assert_eq!(plan.nodes[0].net_v4().to_string(), "10.0.0.11/24");
        assert_eq!(plan.nodes[0].net_v6().to_string(), "fd00::11/64");
        assert_eq!(plan.reflectors[1].net_v6().to_string(), "fd00::2/64");
        assert_eq!(plan.store().net_v6().to_string(), "fd00::fe/64");
        assert_eq!(plan.store_address().to_string(), "10.0.0.254:2379");
        let three = plan.clone().with_store_members(3).unwrap();
        let addresses = three.store_addresses().map(|address| address.to_string());
        assert_eq!(
            addresses.collect::<Vec<_>>(),
            ["10.0.0.254:2379", "10.0.0.253:2379", "10.0.0.252:2379"]
        );
        let (place, last) = plan.workloads.last().unwrap();
        assert_eq!((*place, last.as_str()), (3, "w8"));
    }

    #[test]
    fn sessions_are_counted_once() {
        assert_eq!(Plan::new(shape(4, 2, false)).unwrap().sessions(), 9);
        assert_eq!(Plan::new(shape(4, 0, true)).unwrap().sessions(), 6);
        assert_eq!(Plan::new(shape(1, 1, false)).unwrap().sessions(), 1);
        for (nodes, reflectors, mesh, sessions) in [
            (4, 2, false, 18),
            (4, 3, false, 22),
            (4, 0, true, 12),
            (1, 1, false, 2),
        ] {
            let plan = Plan::new(shape(nodes, reflectors, mesh)).unwrap();
            let plan = plan.with_bgp_from_store();
            assert_eq!(plan.sessions(), sessions, "{nodes} {reflectors} {mesh}");
        }
    }

    #[test]
    fn a_shape_without_room_or_without_a_way_is_refused() {
        assert_eq!(Plan::new(shape(0, 1, false)), Err(ShapeError::Nodes(0)));
        assert_eq!(Plan::new(shape(241, 1, false)), Err(ShapeError::Nodes(241)));
        assert_eq!(
            Plan::new(shape(2, 0, false)),
            Err(ShapeError::Reflectors(0))
        );
        let mesh = Plan::new(shape(2, 0, true)).unwrap();
        assert_eq!(mesh.with_store_members(4), Err(ShapeError::Members(4)));
    }
}
