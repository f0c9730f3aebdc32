//! The addresses of the machine: which next hops are local, and which are on a peer's link.

use alloc::{collections::BTreeSet, string::String, vec::Vec};
use core::net::IpAddr;

use bgp_proto::Prefix;
use rib::Role;

use crate::{keys::PeerConfig, speaker::Speaker};

/// An address of one of the machine's interfaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct InterfaceAddress {
    /// The name of the interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// The length of the subnet's prefix, in bits.
    pub prefix_len: u8,
}

impl InterfaceAddress {
    /// Returns an address of this interface with the length of its subnet's prefix.
    #[must_use]
    pub fn new(interface: impl Into<String>, address: IpAddr, prefix_len: u8) -> Self {
        Self {
            interface: interface.into(),
            address,
            prefix_len,
        }
    }
}

impl InterfaceAddress {
    fn subnet(&self) -> Option<Prefix> {
        Prefix::new(self.address, self.prefix_len)
    }

    /// Returns whether the address is link-local. Such an address may exist on any number of links,
    /// and each interface has one: it identifies neither the owner of a next hop nor a peer's link.
    fn is_link_local(&self) -> bool {
        matches!(self.address, IpAddr::V6(v6) if v6.is_unicast_link_local())
    }
}

impl Speaker {
    /// Sets all addresses of the machine; call it whenever they may have changed. Received routes
    /// are evaluated again: a next hop must not be a local address, and that of an external peer
    /// one hop away must be its own address or on its link (RFC 4271 §5.1.3 and §6.3). Without this
    /// call, or without an address, neither is checked.
    pub fn set_addresses(&mut self, mut addresses: Vec<InterfaceAddress>) {
        addresses.retain(|one| !one.is_link_local());
        addresses.sort();
        if self.addresses == addresses {
            return;
        }
        let own = addresses.iter().map(|one| one.address).collect();
        self.addresses = addresses;
        self.rib.set_own_addresses(own);
        for id in self.roster.ids() {
            let Some(peer) = self.roster.get(id) else {
                continue;
            };
            let link = self.link_of(&peer.config);
            self.rib.change_peer(id, |info| info.link = link);
        }
    }

    /// Returns the subnets of the link to a peer: those of each interface that has the peer's
    /// address in one of its subnets. There are none if no local subnet contains the peer: only its
    /// own address is then known to be on the link. `None` if next hops are not checked: for
    /// internal peers, and for peers that may be several hops away.
    pub(crate) fn link_of(&self, peer: &PeerConfig) -> Option<Vec<Prefix>> {
        let hops = peer.ttl_security_hops.unwrap_or(1);
        let is_one_hop = peer.role == Role::External && !peer.multihop && hops == 1;
        if !is_one_hop || self.addresses.is_empty() {
            return None;
        }
        let leads = |one: &&InterfaceAddress| {
            let subnet = one.subnet();
            subnet.is_some_and(|subnet| subnet.contains(peer.remote))
        };
        let interfaces: BTreeSet<&str> = (self.addresses.iter().filter(leads))
            .map(|one| one.interface.as_str())
            .collect();
        let on_link = self.addresses.iter();
        let on_link = on_link.filter(|one| interfaces.contains(one.interface.as_str()));
        Some(on_link.filter_map(InterfaceAddress::subnet).collect())
    }
}
