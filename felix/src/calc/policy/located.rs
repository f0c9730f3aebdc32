//! The endpoints of other hosts and the network sets by their addresses. It exists only while the flow
//! log is on, because it has an entry for each endpoint of the fabric.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use calico_model::Kind;
use ipnet::IpNet;

/// The kinds of network sets. Of two with the same network, the first kind is found.
const SETS: [Kind; 2] = [Kind::NetworkSet, Kind::GlobalNetworkSet];

#[derive(Clone, Debug)]
pub(in crate::calc) struct Located {
    workloads: String,
    /// The prefixes of the keys of sets.
    sets: [String; 2],
    endpoints: BTreeSet<(IpAddr, Arc<str>)>,
    nets: BTreeSet<(IpNet, Arc<str>)>,
    /// The number of networks with a length, of IPv6 or not.
    lengths: BTreeMap<(bool, u8), usize>,
}

impl Default for Located {
    fn default() -> Self {
        Self {
            workloads: Kind::WorkloadEndpoint.prefix(),
            sets: SETS.map(Kind::prefix),
            endpoints: BTreeSet::new(),
            nets: BTreeSet::new(),
            lengths: BTreeMap::new(),
        }
    }
}

impl Located {
    /// Adds the addresses of an endpoint of another host or of a network set.
    pub(super) fn add(&mut self, key: &Arc<str>, addresses: &[IpNet]) {
        if key.starts_with(&self.workloads) {
            let addresses = addresses.iter().map(|net| (net.addr(), Arc::clone(key)));
            self.endpoints.extend(addresses);
        } else if self.sets.iter().any(|prefix| key.starts_with(prefix)) {
            for net in addresses.iter().map(IpNet::trunc) {
                if self.nets.insert((net, Arc::clone(key))) {
                    *self.lengths.entry(length(net)).or_default() += 1;
                }
            }
        }
    }

    /// Removes these addresses.
    pub(super) fn remove(&mut self, key: &Arc<str>, addresses: &[IpNet]) {
        for net in addresses {
            self.endpoints.remove(&(net.addr(), Arc::clone(key)));
            let net = net.trunc();
            if !self.nets.remove(&(net, Arc::clone(key))) {
                continue;
            }
            if let Some(count) = self.lengths.get_mut(&length(net)) {
                *count -= 1;
                if *count == 0 {
                    self.lengths.remove(&length(net));
                }
            }
        }
    }

    /// Returns the key of the endpoint with an address, the first one of several.
    pub(in crate::calc) fn endpoint(&self, address: IpAddr) -> Option<&str> {
        let from = (address, Arc::from(""));
        let (found, key) = self.endpoints.range(from..).next()?;
        (*found == address).then_some(&**key)
    }

    /// Returns kind and name of the network set with the most specific network around an address.
    pub(in crate::calc) fn set(&self, address: IpAddr) -> Option<String> {
        let is_v6 = address.is_ipv6();
        let lengths = self.lengths.range((is_v6, 0)..=(is_v6, u8::MAX));
        lengths.rev().find_map(|((_, length), _)| {
            let net = IpNet::new(address, *length).ok()?.trunc();
            SETS.iter().zip(&self.sets).find_map(|(kind, prefix)| {
                let from = (net, Arc::from(&**prefix));
                let mut later = self.nets.range((Bound::Included(from), Bound::Unbounded));
                let (found, key) = later.next()?;
                let name = key.strip_prefix(&**prefix).filter(|_| *found == net)?;
                Some(format!("{} {name}", kind.name()))
            })
        })
    }
}

fn length(net: IpNet) -> (bool, u8) {
    (matches!(net, IpNet::V6(_)), net.prefix_len())
}
