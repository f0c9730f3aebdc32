//! The nodes that records name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bgp_proto::{Asn, Prefix};

use super::endpoints::NodeId;
use super::work;

/// The properties of a Node resource that origin validation uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Properties {
    /// The addresses of its BGP sessions.
    pub(super) sessions: BTreeSet<IpAddr>,
    /// The addresses of its BGP sessions, each with the length of its network.
    pub(super) networks: BTreeSet<(IpAddr, u8)>,
    /// All its addresses: of sessions, of tunnels, and others.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Prefixes that the operator grants to it.
    pub(super) grants: BTreeSet<Prefix>,
    /// Its AS, if it differs from the cluster's.
    pub(super) asn: Option<Asn>,
    /// Whether the operator designates it as a route reflector.
    pub(super) reflects: bool,
}

/// A node with at least one record.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) name: String,
    /// `None` if only other resources name the node.
    pub(super) properties: Option<Properties>,
    /// How many blocks and endpoints it has.
    pub(super) holdings: usize,
}

/// All nodes with records, by number. The number of a node without records is used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    ids: BTreeMap<String, NodeId>,
    all: Vec<Node>,
    free: Vec<NodeId>,
    addresses: BTreeSet<(IpAddr, NodeId)>,
    sessions: BTreeSet<(IpAddr, NodeId)>,
    /// The addresses of BGP sessions by the length of their network.
    by_length: BTreeMap<u8, BTreeSet<(IpAddr, NodeId)>>,
    /// The nodes with a Node resource, by its AS.
    by_asn: BTreeSet<(Option<Asn>, NodeId)>,
}

impl Nodes {
    /// Returns the number of a node that has records.
    pub(super) fn find(&self, name: &str) -> Option<NodeId> {
        work::count();
        self.ids.get(name).copied()
    }

    /// Returns a node.
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        work::count();
        self.all.get(usize::try_from(id).ok()?)
    }

    /// Returns the name of a node.
    pub(super) fn name(&self, id: NodeId) -> &str {
        self.get(id).map_or("", |node| &node.name)
    }

    /// Returns the nodes with this address, also of a tunnel.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = NodeId> + '_ {
        let range = (address, 0)..=(address, NodeId::MAX);
        self.addresses.range(range).map(|(_, id)| *id)
    }

    /// Returns the lowest address in a prefix that a node has, other than `except`.
    pub(super) fn first_in_prefix(&self, prefix: Prefix, except: Option<NodeId>) -> Option<IpAddr> {
        let addresses = self.addresses.range((prefix.addr(), 0)..);
        addresses
            .take_while(|(at, _)| prefix.contains(*at))
            .find_map(|(at, id)| (Some(*id) != except).then_some(*at))
    }

    /// Returns the nodes with the lowest session address of which the network is shorter than
    /// `prefix`, and which is in `prefix`.
    pub(super) fn in_part_of_network(&self, prefix: Prefix) -> impl Iterator<Item = NodeId> + '_ {
        let shorter = self.by_length.range(..prefix.len()).map(|(_, all)| all);
        let firsts = shorter
            .clone()
            .filter_map(|all| all.range((prefix.addr(), 0)..).next());
        let inside = firsts.map(|(at, _)| *at).filter(|at| prefix.contains(*at));
        let first = inside.min().into_iter();
        first.flat_map(move |at| {
            let range = (at, 0)..=(at, NodeId::MAX);
            let found = shorter
                .clone()
                .flat_map(move |all| all.range(range.clone()));
            found.map(|(_, id)| *id)
        })
    }

    /// Returns the node with this session address; of several ones, the first by name.
    pub(super) fn with_session(&self, address: IpAddr) -> Option<NodeId> {
        let range = (address, 0)..=(address, NodeId::MAX);
        let ids = self.sessions.range(range).map(|(_, id)| *id);
        ids.min_by_key(|id| self.name(*id))
    }

    /// Returns the prefixes granted to a node that equal or contain `prefix`.
    pub(super) fn grants(&self, id: NodeId, prefix: Prefix) -> impl Iterator<Item = Prefix> + '_ {
        let properties = self.get(id).and_then(|node| node.properties.as_ref());
        let all = properties.into_iter().flat_map(|node| &node.grants);
        all.filter(move |grant| grant.len() <= prefix.len() && grant.contains(prefix.addr()))
            .copied()
    }

    /// Returns one of the nodes with this AS in their Node; `None` stands for the cluster's AS.
    pub(super) fn first_in(&self, asn: Option<Asn>) -> Option<NodeId> {
        let range = (asn, 0)..=(asn, NodeId::MAX);
        self.by_asn.range(range).next().map(|(_, id)| *id)
    }

    /// Returns the number of a node, new or known. [`release`](Self::release) it after the change
    /// that needs it.
    pub(super) fn intern(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.find(name) {
            return id;
        }
        let node = Node {
            name: name.to_owned(),
            ..Node::default()
        };
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.all.push(Node::default());
                NodeId::try_from(self.all.len() - 1).unwrap_or(NodeId::MAX)
            }
        };
        self.ids.insert(name.to_owned(), id);
        if let Some(place) = self.get_mut(id) {
            *place = node;
        }
        id
    }

    /// Removes a node that has no record any more. A number that is free stays free once, or two
    /// nodes would get it.
    pub(super) fn release(&mut self, id: NodeId) {
        let is_taken = |node: &&Node| self.find(&node.name) == Some(id);
        let Some(node) = self.get(id).filter(is_taken) else {
            return;
        };
        if node.properties.is_none() && node.holdings == 0 {
            let name = node.name.clone();
            self.ids.remove(&name);
            if let Some(place) = self.get_mut(id) {
                *place = Node::default();
            }
            self.free.push(id);
        }
    }

    /// Counts another block or endpoint of a node; returns whether it is the first.
    pub(super) fn hold(&mut self, id: NodeId) -> bool {
        let node = self.get_mut(id);
        node.is_some_and(|node| {
            node.holdings += 1;
            node.holdings == 1
        })
    }

    /// Counts a block or endpoint less; returns whether it was the last.
    pub(super) fn drop_holding(&mut self, id: NodeId) -> bool {
        let node = self.get_mut(id);
        node.is_some_and(|node| {
            node.holdings = node.holdings.saturating_sub(1);
            node.holdings == 0
        })
    }

    /// Replaces the properties of a node; returns the former ones.
    pub(super) fn set(&mut self, id: NodeId, properties: Option<Properties>) -> Option<Properties> {
        let former = self.get_mut(id)?.properties.take();
        if let Some(former) = &former {
            self.by_asn.remove(&(former.asn, id));
            for address in &former.addresses {
                self.addresses.remove(&(*address, id));
            }
            for address in &former.sessions {
                self.sessions.remove(&(*address, id));
            }
            for (address, length) in &former.networks {
                if let Some(all) = self.by_length.get_mut(length) {
                    all.remove(&(*address, id));
                }
            }
        }
        if let Some(new) = &properties {
            self.by_asn.insert((new.asn, id));
            self.addresses
                .extend(new.addresses.iter().map(|at| (*at, id)));
            self.sessions
                .extend(new.sessions.iter().map(|at| (*at, id)));
            for (address, length) in &new.networks {
                let all = self.by_length.entry(*length).or_default();
                all.insert((*address, id));
            }
        }
        self.get_mut(id)?.properties = properties;
        former
    }

    fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.all.get_mut(usize::try_from(id).ok()?)
    }
}
