//! The tunnel ends of nodes. Two nodes may not have the same address or Ethernet address of a tunnel
//! device: packets to one would reach the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use calico_model::{Mac, Network, NodeAddress, NodeSpec};
use ipnet::IpNet;
use sha1::{Digest, Sha1};

use super::TunnelEnd;
use crate::calc::types::Problem;
use crate::render::Family;

/// The first octet of generated Ethernet addresses, as in Calico: locally administered, of one device.
const GENERATED: u8 = 0x66;
/// The type of a node's address in its cluster.
const INTERNAL: &str = "InternalIP";

/// The addresses of a node, in both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeEnds {
    families: [NodeEnd; 2],
    /// The address of its device for IP in IP.
    ipip: Option<Ipv4Addr>,
}

/// The addresses of a node in one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeEnd {
    /// The address of the node with its subnet.
    pub(super) node: Option<IpNet>,
    /// Address and Ethernet address of its tunnel device.
    pub(super) tunnel: Option<(IpAddr, Mac)>,
}

impl NodeEnds {
    /// Returns the ends of a node, and the problem of a value that is not applied.
    pub(super) fn of(key: &str, name: &str, spec: &NodeSpec) -> (Self, Option<Problem>) {
        let bgp = spec.bgp.as_ref();
        let mut problem = None;
        let mut tunnel = |address: Option<IpAddr>, mac: Option<Mac>, field: &str| {
            let address = address?;
            let mac = mac.unwrap_or_else(|| generated(name, address.is_ipv6()));
            if !is_unicast(mac) {
                let reason = format!("{mac} is not the address of one device");
                problem = Some(Problem::new(key, field, reason));
                return None;
            }
            Some((address, mac))
        };
        let v4 = NodeEnd {
            node: address(bgp.and_then(|bgp| bgp.ipv4_address), spec, Family::V4),
            tunnel: tunnel(
                spec.ipv4_vxlan_tunnel_addr.map(IpAddr::V4),
                spec.vxlan_tunnel_mac_addr,
                "spec.vxlanTunnelMACAddr",
            ),
        };
        let v6 = NodeEnd {
            node: address(bgp.and_then(|bgp| bgp.ipv6_address), spec, Family::V6),
            tunnel: tunnel(
                spec.ipv6_vxlan_tunnel_addr.map(IpAddr::V6),
                spec.vxlan_tunnel_mac_addr_v6,
                "spec.vxlanTunnelMACAddrV6",
            ),
        };
        let ends = Self {
            families: [v4, v6],
            ipip: bgp.and_then(|bgp| bgp.ipv4_ipip_tunnel_addr),
        };
        (ends, problem)
    }

    const fn in_family(&self, family: Family) -> &NodeEnd {
        let [v4, v6] = &self.families;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }
}

/// Returns the address of a node: the one of BGP, else its first address of the cluster.
fn address(bgp: Option<Network>, spec: &NodeSpec, family: Family) -> Option<IpNet> {
    let parsed = |one: &NodeAddress| {
        let network: Network = one.address.parse().ok()?;
        Some(network.0)
    };
    let listed = spec.addresses.iter().filter(|one| one.source == INTERNAL);
    let listed = listed.filter_map(parsed);
    let mut all = bgp.map(|network| network.0).into_iter().chain(listed);
    all.find(|net| Family::of(net.addr()) == family)
}

/// Returns the Ethernet address of a node's device without a stored one, as Calico derives it from the
/// name of the node.
fn generated(node: &str, ipv6: bool) -> Mac {
    let mut hash = Sha1::new();
    hash.update(node.as_bytes());
    hash.update(if ipv6 { b"-v6".as_slice() } else { b"" });
    let digest: [u8; 20] = hash.finalize().into();
    let [a, b, c, d, e, ..] = digest;
    Mac([GENERATED, a, b, c, d, e])
}

/// Returns whether an Ethernet address can be that of one device.
fn is_unicast(mac: Mac) -> bool {
    let [first, ..] = mac.0;
    first & 1 == 0 && mac.0 != [0; 6]
}

/// The ends of all nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    nodes: BTreeMap<String, NodeEnds>,
    /// Nodes with an address of a tunnel device.
    addresses: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Nodes with an Ethernet address of a tunnel device, by family.
    macs: BTreeMap<(Family, Mac), BTreeSet<String>>,
    /// Addresses that nodes had before.
    former: BTreeSet<IpAddr>,
}

impl Ends {
    /// Records the ends of a node. Returns the nodes of which the end may have changed.
    pub(super) fn put(&mut self, name: &str, ends: Option<NodeEnds>) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        if self.nodes.get(name) == ends.as_ref() {
            return changed;
        }
        changed.insert(name.to_owned());
        if let Some(old) = self.nodes.remove(name) {
            self.exchange(name, &old, false, &mut changed);
        }
        if let Some(new) = ends {
            self.exchange(name, &new, true, &mut changed);
            self.nodes.insert(name.to_owned(), new);
        }
        changed
    }

    fn exchange(
        &mut self,
        name: &str,
        ends: &NodeEnds,
        adds: bool,
        changed: &mut BTreeSet<String>,
    ) {
        for family in Family::ALL {
            let Some((address, mac)) = ends.in_family(family).tunnel else {
                continue;
            };
            if !adds {
                self.former.insert(address);
            }
            alter(&mut self.addresses, address, name, adds, changed);
            alter(&mut self.macs, (family, mac), name, adds, changed);
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    pub(super) const fn addresses(&self) -> &BTreeMap<IpAddr, BTreeSet<String>> {
        &self.addresses
    }

    /// Returns the addresses of a node's tunnel devices.
    pub(super) fn addresses_of(&self, node: &str) -> Vec<IpAddr> {
        let ends = Family::ALL.map(|family| self.of(node, family).and_then(|end| end.tunnel));
        ends.into_iter()
            .flatten()
            .map(|(address, _)| address)
            .collect()
    }

    /// Returns the addresses that nodes had before the last call.
    pub(super) fn take_former(&mut self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.former)
    }

    pub(super) fn of(&self, node: &str, family: Family) -> Option<&NodeEnd> {
        self.nodes.get(node).map(|ends| ends.in_family(family))
    }

    /// Returns the address of a node's device for IP in IP.
    pub(super) fn ipip_of(&self, node: &str) -> Option<Ipv4Addr> {
        self.nodes.get(node)?.ipip
    }

    /// Returns the node that an address of a tunnel device belongs to: of several, this host, and
    /// then the first.
    pub(super) fn holder(&self, address: IpAddr, hostname: &str) -> Option<&str> {
        first(self.addresses.get(&address)?, hostname)
    }

    /// Returns the tunnel end of a node, if it is complete, and no other node has its Ethernet
    /// address.
    pub(super) fn end(&self, node: &str, family: Family, hostname: &str) -> Option<TunnelEnd> {
        let end = self.of(node, family)?;
        let (_, mac) = end.tunnel?;
        let is_own = first(self.macs.get(&(family, mac))?, hostname) == Some(node);
        let node = end.node?.addr();
        is_own.then_some(TunnelEnd { mac, node })
    }

    /// Returns the first field of a node with an address, or an Ethernet address, that belongs to
    /// another node, and that node.
    pub(super) fn conflict(
        &self,
        node: &str,
        family: Family,
        hostname: &str,
    ) -> Option<(&'static str, &str)> {
        let (address, mac) = self.of(node, family)?.tunnel?;
        let fields = match family {
            Family::V4 => ["spec.ipv4VXLANTunnelAddr", "spec.vxlanTunnelMACAddr"],
            Family::V6 => ["spec.ipv6VXLANTunnelAddr", "spec.vxlanTunnelMACAddrV6"],
        };
        let holders = [self.addresses.get(&address), self.macs.get(&(family, mac))];
        let holders = fields.into_iter().zip(holders);
        let mut holders =
            holders.filter_map(|(field, names)| Some((field, first(names?, hostname)?)));
        holders.find(|(_, holder)| *holder != node)
    }
}

fn first<'a>(names: &'a BTreeSet<String>, hostname: &str) -> Option<&'a str> {
    let own = names.get(hostname);
    own.or_else(|| names.first()).map(String::as_str)
}

/// Adds a name to the holders of a key, or removes it. All of its holders may have changed.
fn alter<K: Ord + Copy>(
    all: &mut BTreeMap<K, BTreeSet<String>>,
    key: K,
    name: &str,
    adds: bool,
    changed: &mut BTreeSet<String>,
) {
    let names = all.entry(key).or_default();
    match adds {
        true => names.insert(name.to_owned()),
        false => names.remove(name),
    };
    changed.extend(names.iter().cloned());
    if names.is_empty() {
        all.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_address_of_a_vxlan_device_is_calicos() {
        // The digests come from sha1sum.
        let text = |ipv6| generated("n1", ipv6).to_string();
        assert_eq!(text(false), "66:40:b3:ea:b6:3f");
        assert_eq!(text(true), "66:46:32:55:72:28");
        assert!(is_unicast(generated("n1", false)));
        assert!(!is_unicast(Mac([0; 6])) && !is_unicast(Mac([1, 0, 0, 0, 0, 1])));
    }
}
