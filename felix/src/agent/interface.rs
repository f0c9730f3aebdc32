//! Interfaces that endpoints want, and what was done to them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fib_sync::{Instant, Link};

use super::retry::Retry;
use crate::apply::Neighbour;

/// The kernel's links, by index and by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    by_index: BTreeMap<u32, Link>,
    by_name: BTreeMap<String, u32>,
}

impl Links {
    pub(super) fn put(&mut self, link: &Link) {
        self.remove(link.index);
        self.by_name.insert(link.name.clone(), link.index);
        self.by_index.insert(link.index, link.clone());
    }

    pub(super) fn remove(&mut self, index: u32) {
        if let Some(old) = self.by_index.remove(&index)
            && self.by_name.get(&old.name) == Some(&index)
        {
            self.by_name.remove(&old.name);
        }
    }

    pub(super) fn named(&self, name: &str) -> Option<&Link> {
        self.by_name
            .get(name)
            .and_then(|index| self.by_index.get(index))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub(super) fn at(&self, index: u32) -> Option<&Link> {
        self.by_index.get(&index)
    }
}

/// Whether traffic can pass a link: administratively up, and with carrier.
pub(super) const fn is_up(link: &Link) -> bool {
    link.up && link.running
}

/// What was done to an interface, as long as it has this index and stays up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The link's index.
    pub(super) index: u32,
    /// Settings and addresses.
    pub(super) configured: Retry,
    /// It was never configured yet.
    pub(super) fresh: bool,
    /// Whether it was set up for IPv6.
    pub(super) ipv6: bool,
    /// When the settings are looked at again.
    pub(super) refresh: Instant,
}

/// Permanent neighbour entries: wanted, and made.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    /// Entries that the kernel holds, as far as we know.
    pub(super) made: BTreeMap<(u32, IpAddr), Neighbour>,
    /// Entries that were refused.
    pub(super) refused: BTreeMap<(u32, IpAddr), (Neighbour, Retry)>,
}

impl Entries {
    /// An interface is gone or down, and its entries with it.
    pub(super) fn drop_interface(&mut self, index: u32) {
        self.made.retain(|(interface, _), _| *interface != index);
        self.refused.retain(|(interface, _), _| *interface != index);
    }

    /// The next time that something is to be tried again.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.refused
            .values()
            .filter_map(|(_, retry)| retry.timeout())
            .min()
    }
}
