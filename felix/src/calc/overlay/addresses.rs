//! The endpoints of other hosts, by address, while a pool uses VXLAN: a changed block concerns only the
//! endpoints in it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use ipnet::IpNet;

use crate::work;

/// Addresses of endpoints, with the keys of the endpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses(BTreeSet<(IpAddr, Arc<str>)>);

impl Addresses {
    /// Adds the addresses of an endpoint.
    pub(super) fn add(&mut self, key: &Arc<str>, addresses: &[IpNet]) {
        let pairs = addresses.iter().map(|net| (net.addr(), Arc::clone(key)));
        self.0.extend(pairs);
    }

    /// Removes the addresses of an endpoint.
    pub(super) fn remove(&mut self, key: &Arc<str>, addresses: &[IpNet]) {
        for net in addresses {
            self.0.remove(&(net.addr(), Arc::clone(key)));
        }
    }

    /// Removes all addresses.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the keys of the endpoints with an address in a prefix.
    pub(super) fn inside(&self, net: IpNet) -> impl Iterator<Item = &Arc<str>> {
        let from = (net.network(), Arc::from(""));
        let last = net.broadcast();
        let pairs = self.0.range((Bound::Included(from), Bound::Unbounded));
        let inside = pairs.take_while(move |(address, _)| *address <= last);
        inside.map(|(_, key)| {
            work::count(1);
            key
        })
    }
}
