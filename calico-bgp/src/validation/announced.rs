//! The addresses of services that each node announces.

use std::collections::{BTreeMap, BTreeSet};

use bgp_proto::Prefix;

/// The addresses of services that each node announces, as the controller of Kubernetes lists them.
#[derive(Clone, Debug, Default)]
pub(super) struct Announced {
    by_node: BTreeMap<String, BTreeSet<Prefix>>,
    nodes: BTreeMap<Prefix, BTreeSet<String>>,
}

impl Announced {
    /// Returns whether a controller lists addresses. A node without a list then announces none.
    pub(super) fn is_used(&self) -> bool {
        !self.by_node.is_empty()
    }

    /// Replaces the list of a node, and returns the addresses that are new or left out.
    pub(super) fn set(&mut self, node: String, new: Option<BTreeSet<Prefix>>) -> Vec<Prefix> {
        let before = self.by_node.remove(&node).unwrap_or_default();
        let after = new.clone().unwrap_or_default();
        for prefix in before.difference(&after) {
            if let Some(nodes) = self.nodes.get_mut(prefix) {
                nodes.remove(&node);
                if nodes.is_empty() {
                    self.nodes.remove(prefix);
                }
            }
        }
        for prefix in after.difference(&before) {
            let nodes = self.nodes.entry(*prefix).or_default();
            nodes.insert(node.clone());
        }
        if let Some(new) = new {
            self.by_node.insert(node, new);
        }
        before.symmetric_difference(&after).copied().collect()
    }

    /// Returns whether a node announces an address.
    pub(super) fn has(&self, node: &str, prefix: Prefix) -> bool {
        let of_node = self.by_node.get(node);
        of_node.is_some_and(|all| all.contains(&prefix))
    }

    /// Returns the nodes that announce an address.
    pub(super) fn nodes(&self, prefix: Prefix) -> impl Iterator<Item = &str> {
        let nodes = self.nodes.get(&prefix).into_iter().flatten();
        nodes.map(String::as_str)
    }
}
