//! The kernel's links.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use fib_sync::{InterfaceAddress, Link, Tunnel};
use ipnet::IpNet;

use crate::render::TUNNEL_DEVICES;

/// The kernel's links, by index and by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    by_index: BTreeMap<u32, Link>,
    by_name: BTreeMap<String, u32>,
    /// With prefix lengths: the kernel holds an address once for each of them.
    addresses: BTreeMap<u32, BTreeSet<IpNet>>,
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

    /// Records an address of a link. Returns the name of the link if it is known.
    pub(super) fn put_address(&mut self, at: &InterfaceAddress) -> Option<&str> {
        let held = self.addresses.entry(at.interface).or_default();
        held.insert(at.address);
        self.name(at.interface)
    }

    /// Records that a link has lost an address. Returns the name of the link if it is known.
    pub(super) fn remove_address(&mut self, at: &InterfaceAddress) -> Option<&str> {
        if let Some(held) = self.addresses.get_mut(&at.interface) {
            held.remove(&at.address);
        }
        self.name(at.interface)
    }

    /// Forgets the addresses of a link that was removed.
    pub(super) fn remove_addresses(&mut self, index: u32) {
        self.addresses.remove(&index);
    }

    /// Returns the addresses of a link; `None` if no link has the name.
    pub(super) fn addresses(&self, name: &str) -> Option<BTreeSet<IpAddr>> {
        let index = self.by_name.get(name)?;
        let held = self.addresses.get(index).into_iter().flatten();
        Some(held.map(IpNet::addr).collect())
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

    /// Returns the tunnel devices that may be the fabric's, by name.
    pub(super) fn tunnels(&self) -> BTreeMap<String, Tunnel> {
        let devices = TUNNEL_DEVICES.into_iter();
        let tunnel = |name: &str| Some((name.to_owned(), self.named(name)?.tunnel?));
        devices.filter_map(tunnel).collect()
    }

    /// Returns the name of a link.
    pub(super) fn name(&self, index: u32) -> Option<&str> {
        self.at(index).map(|link| link.name.as_str())
    }

    /// Returns the index of a link that can carry traffic.
    pub(super) fn up(&self, name: &str) -> Option<u32> {
        let link = self.named(name).filter(|link| is_up(link));
        link.map(|link| link.index)
    }
}

/// Returns whether a link can carry traffic: administratively up, and with carrier.
pub(super) const fn is_up(link: &Link) -> bool {
    link.up && link.running
}
