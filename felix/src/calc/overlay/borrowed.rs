//! Addresses of remote endpoints that are not in a block of their node: each needs a route of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

/// Such addresses. There are few: a node borrows an address if no block is left.
#[derive(Clone, Debug, Default)]
pub(super) struct Borrowed {
    /// By key of the endpoint: its node, and its addresses.
    endpoints: BTreeMap<String, (String, Vec<IpAddr>)>,
    /// Keys of the endpoints with an address, each with its node. Of several, the first counts.
    holders: BTreeMap<IpAddr, BTreeMap<String, String>>,
}

impl Borrowed {
    /// Records the addresses of an endpoint. Returns those of which the route may change.
    pub(super) fn put(
        &mut self,
        key: &str,
        found: Option<(String, Vec<IpAddr>)>,
    ) -> BTreeSet<IpNet> {
        let mut changed = BTreeSet::new();
        if self.endpoints.get(key) == found.as_ref() {
            return changed;
        }
        if let Some((_, addresses)) = self.endpoints.remove(key) {
            for address in addresses {
                changed.insert(IpNet::from(address));
                if let Some(holders) = self.holders.get_mut(&address) {
                    holders.remove(key);
                    if holders.is_empty() {
                        self.holders.remove(&address);
                    }
                }
            }
        }
        if let Some((node, addresses)) = found {
            for address in &addresses {
                changed.insert(IpNet::from(*address));
                let holders = self.holders.entry(*address).or_default();
                holders.insert(key.to_owned(), node.clone());
            }
            self.endpoints.insert(key.to_owned(), (node, addresses));
        }
        changed
    }

    /// Removes all addresses, and returns them.
    pub(super) fn clear(&mut self) -> BTreeSet<IpNet> {
        self.endpoints.clear();
        let all = std::mem::take(&mut self.holders).into_keys();
        all.map(IpNet::from).collect()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = IpNet> {
        self.holders.keys().copied().map(IpNet::from)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &String> {
        self.endpoints.keys()
    }

    /// Returns the node with an address.
    pub(super) fn node_of(&self, address: IpAddr) -> Option<&str> {
        let holders = self.holders.get(&address)?;
        holders.values().next().map(String::as_str)
    }

    /// Returns the addresses of a node.
    pub(super) fn of_node(&self, node: &str) -> impl Iterator<Item = IpNet> {
        let endpoints = self.endpoints.values().filter(move |(on, _)| on == node);
        endpoints.flat_map(|(_, addresses)| addresses.iter().copied().map(IpNet::from))
    }
}
