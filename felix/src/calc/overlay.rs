//! The VXLAN overlay of this host: its devices, the tunnel ends of other nodes, and the routes to the
//! blocks of VXLAN pools. A change of one node or block costs as much as its own routes.

mod borrowed;
mod ends;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_model::{EncapsulationMode, EndpointName, Kind, Mac, NodeSpec};
use ipnet::IpNet;

use self::borrowed::Borrowed;
use self::ends::{Ends, NodeEnds};
use super::policy::Index;
use super::pools::Pools;
use super::settings::OverlaySettings;
use super::types::Problem;
use crate::render::{Family, VXLAN_DEVICES};

/// The VXLAN overlay that this host needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// The device of each family.
    pub devices: BTreeMap<Family, DeviceState>,
    /// Tunnel ends of other nodes, by the address of their tunnel device.
    pub ends: BTreeMap<IpAddr, TunnelEnd>,
    /// Routes to blocks of VXLAN pools, and to addresses outside the blocks of their node.
    pub routes: BTreeMap<IpNet, Way>,
}

/// The device that a family needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// No pool of the family uses VXLAN: a device of an earlier run is removed.
    Unused {
        /// The VXLAN network identifier of such a device.
        vni: u32,
    },
    /// VXLAN is in use, but no pool of the family uses it. A device of any program stays.
    Idle,
    /// A pool uses VXLAN, but the Node of this host lacks this field. A device of an earlier run stays.
    Lacks(&'static str),
    /// The device.
    Wanted(TunnelDevice),
}

/// A VXLAN device of this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelDevice {
    /// Its name.
    pub name: &'static str,
    /// Its VXLAN network identifier.
    pub vni: u32,
    /// The UDP port.
    pub port: u16,
    /// The source address of its packets.
    pub local: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its own address, with which this host sends into the overlay.
    pub address: IpAddr,
    /// Its MTU; `None`: the one of the uplinks without the octets of the encapsulation.
    pub mtu: Option<u32>,
}

/// The tunnel end of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelEnd {
    /// The Ethernet address of its tunnel device.
    pub mac: Mac,
    /// The address of the node.
    pub node: IpAddr,
}

/// How packets to a prefix are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Through the tunnel device to the tunnel end with this address.
    Tunnel(IpAddr),
    /// To the node with this address, which is in a subnet of this one.
    Direct(IpAddr),
    /// Nowhere: an address of an own block that has no endpoint does not exist.
    Blackhole,
}

/// The changed parts of an overlay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlayTouched {
    /// The devices.
    pub devices: bool,
    /// Tunnel ends.
    pub ends: BTreeSet<IpAddr>,
    /// Routes.
    pub routes: BTreeSet<IpNet>,
}

/// The stored values that the overlay follows from.
#[derive(Clone, Debug, Default)]
pub(super) struct OverlayInputs {
    ends: Ends,
    /// Owners of blocks, including former ones that still claim them.
    owners: BTreeMap<IpNet, BTreeSet<String>>,
    blocks: BTreeMap<String, BTreeSet<IpNet>>,
    /// Number of blocks of each prefix length.
    lengths: BTreeMap<u8, usize>,
    borrowed: Borrowed,
    /// The problems of nodes, by name.
    problems: BTreeMap<String, BTreeSet<Problem>>,
    /// An overlay has been computed.
    is_computed: bool,
    news: News,
}

#[derive(Clone, Debug, Default)]
struct News {
    /// Nodes with other values.
    nodes: BTreeSet<String>,
    blocks: BTreeSet<IpNet>,
    /// Keys of endpoints of other hosts.
    endpoints: BTreeSet<String>,
}

/// The state that the overlay depends on beside its own inputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub(super) hostname: &'a str,
    pub(super) pools: &'a Pools,
    /// The endpoints of all hosts.
    pub(super) index: &'a Index,
    pub(super) settings: OverlaySettings,
    pub(super) port: u16,
    /// VXLAN is in use, whatever the pools are.
    pub(super) forced: bool,
    pub(super) ipv6: bool,
}

impl OverlayInputs {
    /// Records a node. Returns the problem of a value that is not applied.
    pub(super) fn node(
        &mut self,
        key: &str,
        name: &str,
        spec: Option<&NodeSpec>,
    ) -> Result<(), Problem> {
        let (ends, problem) = match spec {
            Some(spec) => {
                let (ends, problem) = NodeEnds::of(key, name, spec);
                (Some(ends), problem)
            }
            None => (None, None),
        };
        self.news.nodes.extend(self.ends.put(name, ends));
        problem.map_or(Ok(()), Err)
    }

    /// Records whether a block has affinity to a host.
    pub(super) fn affinity(&mut self, block: IpNet, host: &str, has: bool) {
        let was_known = self.owners.contains_key(&block);
        let owners = self.owners.entry(block).or_default();
        let blocks = self.blocks.entry(host.to_owned()).or_default();
        let changed = match has {
            true => {
                blocks.insert(block);
                owners.insert(host.to_owned())
            }
            false => {
                blocks.remove(&block);
                owners.remove(host)
            }
        };
        if owners.is_empty() {
            self.owners.remove(&block);
        }
        if blocks.is_empty() {
            self.blocks.remove(host);
        }
        let count = self.lengths.entry(block.prefix_len()).or_default();
        match (was_known, self.owners.contains_key(&block)) {
            (false, true) => *count += 1,
            (true, false) => *count = count.saturating_sub(1),
            _ => {}
        }
        if *count == 0 {
            self.lengths.remove(&block.prefix_len());
        }
        if changed {
            self.news.blocks.insert(block);
        }
    }

    /// Records that an endpoint of another host has changed.
    pub(super) fn endpoint(&mut self, key: &str) {
        self.news.endpoints.insert(key.to_owned());
    }

    /// Returns whether anything was recorded that is not computed yet.
    pub(super) fn has_news(&self) -> bool {
        let news = &self.news;
        let all = [
            news.nodes.is_empty(),
            news.blocks.is_empty(),
            news.endpoints.is_empty(),
        ];
        !self.is_computed || all.contains(&false)
    }

    /// Updates an overlay, everything of it if `all`. Returns the changed parts, and the previous and
    /// present problems of each node where they differ.
    pub(super) fn recompute(
        &mut self,
        around: Around<'_>,
        all: bool,
        overlay: &mut Overlay,
    ) -> (OverlayTouched, Vec<[BTreeSet<Problem>; 2]>) {
        let news = std::mem::take(&mut self.news);
        let was_computed = std::mem::replace(&mut self.is_computed, true);
        let all = all || !was_computed || news.nodes.contains(around.hostname);
        let problems = self.exchange_problems(around, all, &news.nodes);
        let mut touched = OverlayTouched::default();
        if all {
            let devices = self.devices(around);
            touched.devices = overlay.devices != devices;
            overlay.devices = devices;
        }
        let mut ends = self.ends.take_former();
        let mut nets: BTreeSet<IpNet> = BTreeSet::new();
        if all {
            ends.extend(overlay.ends.keys().chain(self.ends.addresses().keys()));
            nets.extend(overlay.routes.keys().chain(self.owners.keys()));
            nets.extend(self.borrowed.addresses());
        } else {
            for node in &news.nodes {
                ends.extend(self.ends.addresses_of(node));
                nets.extend(self.blocks.get(node).into_iter().flatten());
                nets.extend(self.borrowed.of_node(node));
            }
            for block in &news.blocks {
                nets.insert(*block);
                let range = block.network()..=block.broadcast();
                let inside = self.ends.addresses().range(range);
                nets.extend(inside.map(|(address, _)| IpNet::from(*address)));
            }
        }
        nets.extend(ends.iter().map(|address| IpNet::from(*address)));
        nets.extend(self.rescan(around, all, news.blocks, news.endpoints));
        for address in ends {
            let end = self.end_at(around, address);
            let old = match end {
                Some(end) => overlay.ends.insert(address, end),
                None => overlay.ends.remove(&address),
            };
            if old != end {
                touched.ends.insert(address);
            }
        }
        for net in nets {
            let way = self.way(around, net, overlay);
            let old = match way {
                Some(way) => overlay.routes.insert(net, way),
                None => overlay.routes.remove(&net),
            };
            if old != way {
                touched.routes.insert(net);
            }
        }
        (touched, problems)
    }

    /// Updates the problems of nodes: equal addresses of two nodes, and missing ones of this node.
    fn exchange_problems(
        &mut self,
        around: Around<'_>,
        all: bool,
        nodes: &BTreeSet<String>,
    ) -> Vec<[BTreeSet<Problem>; 2]> {
        let mut nodes = nodes.clone();
        if all {
            nodes.extend(self.ends.names().chain(self.problems.keys()).cloned());
            nodes.insert(around.hostname.to_owned());
        }
        let mut changed = Vec::new();
        for node in nodes {
            let found = self.problems_of(around, &node);
            let before = match found.is_empty() {
                true => self.problems.remove(&node),
                false => self.problems.insert(node, found.clone()),
            };
            let before = before.unwrap_or_default();
            if before != found {
                changed.push([before, found]);
            }
        }
        changed
    }

    fn problems_of(&self, around: Around<'_>, node: &str) -> BTreeSet<Problem> {
        let key = format!("{}{node}", Kind::Node.prefix());
        let used = Family::ALL.into_iter();
        let used = used.filter(|family| around.pools.use_vxlan_of(*family));
        used.filter_map(|family| {
            if let Some((field, other)) = self.ends.conflict(node, family, around.hostname) {
                let reason = format!("node {other} has the same: no route leads to {node}");
                return Some(Problem::new(&key, field, reason));
            }
            if node != around.hostname {
                return None;
            }
            let DeviceState::Lacks(field) = self.device(around, family, "") else {
                return None;
            };
            let reason = "is missing: this host has no VXLAN device for the pools with a vxlanMode";
            Some(Problem::new(&key, field, reason))
        })
        .collect()
    }

    /// Looks for addresses outside the blocks of their node among the changed endpoints, and those in
    /// changed blocks. Returns the addresses of which the routes may have changed.
    fn rescan(
        &mut self,
        around: Around<'_>,
        all: bool,
        blocks: BTreeSet<IpNet>,
        mut keys: BTreeSet<String>,
    ) -> BTreeSet<IpNet> {
        let is_used = Family::ALL
            .into_iter()
            .any(|family| around.pools.use_vxlan_of(family));
        if !is_used {
            return self.borrowed.clear();
        }
        if all || !blocks.is_empty() {
            let is_inside = |net: &IpNet| all || blocks.iter().any(|block| block.contains(net));
            let inside = around.index.remote_endpoints();
            let inside = inside.filter(|(_, addresses)| addresses.iter().any(is_inside));
            keys.extend(inside.map(|(key, _)| key.to_owned()));
            keys.extend(self.borrowed.keys().cloned());
        }
        let mut changed = BTreeSet::new();
        for key in keys {
            let found = self.outside_of(around, &key);
            changed.extend(self.borrowed.put(&key, found));
        }
        changed
    }

    /// Returns the node of an endpoint, and those of its addresses that are in a block of another
    /// node, or in none.
    fn outside_of(&self, around: Around<'_>, key: &str) -> Option<(String, Vec<IpAddr>)> {
        let addresses = around.index.remote_endpoint(key)?;
        // A role of etcd for one node can write names of that node only, but any value.
        let name: EndpointName = key.rsplit('/').next()?.parse().ok()?;
        let node = name.node();
        let addresses = addresses.iter().map(IpNet::addr);
        let outside = addresses
            .filter(|address| {
                around.pools.vxlan_mode_of(IpNet::from(*address)) != EncapsulationMode::Never
                    && self.covering_owner(*address, around.hostname) != Some(node)
            })
            .collect::<Vec<_>>();
        (!outside.is_empty()).then(|| (node.to_owned(), outside))
    }

    fn devices(&self, around: Around<'_>) -> BTreeMap<Family, DeviceState> {
        let all = Family::ALL.into_iter().zip(VXLAN_DEVICES);
        all.map(|(family, name)| (family, self.device(around, family, name)))
            .collect()
    }

    fn device(&self, around: Around<'_>, family: Family, name: &'static str) -> DeviceState {
        let vni = around.settings.vni;
        let is_used = around.pools.use_vxlan_of(family) && (family == Family::V4 || around.ipv6);
        if !is_used && around.forced {
            return DeviceState::Idle;
        }
        if !is_used {
            return DeviceState::Unused { vni };
        }
        let (lacks_node, lacks_tunnel) = match family {
            Family::V4 => ("spec.bgp.ipv4Address", "spec.ipv4VXLANTunnelAddr"),
            Family::V6 => ("spec.bgp.ipv6Address", "spec.ipv6VXLANTunnelAddr"),
        };
        let own = self.ends.of(around.hostname, family);
        let Some(local) = own.and_then(|own| own.node) else {
            return DeviceState::Lacks(lacks_node);
        };
        let Some((address, mac)) = own.and_then(|own| own.tunnel) else {
            return DeviceState::Lacks(lacks_tunnel);
        };
        DeviceState::Wanted(TunnelDevice {
            name,
            vni,
            port: around.port,
            local: local.addr(),
            mac,
            address,
            mtu: around.settings.mtu(family),
        })
    }

    /// Returns the tunnel end of another node with this address, if this host has the device for it.
    fn end_at(&self, around: Around<'_>, address: IpAddr) -> Option<TunnelEnd> {
        let family = Family::of(address);
        if !matches!(self.device(around, family, ""), DeviceState::Wanted(_)) {
            return None;
        }
        let node = self.ends.holder(address, around.hostname)?;
        if node == around.hostname {
            return None;
        }
        self.ends.end(node, family, around.hostname)
    }

    /// Returns the route to a block, to an address that is not in a block of its node, or to such an
    /// address of a tunnel device.
    fn way(&self, around: Around<'_>, net: IpNet, overlay: &Overlay) -> Option<Way> {
        let mode = around.pools.vxlan_mode_of(net);
        let is_off = matches!(net, IpNet::V6(_)) && !around.ipv6;
        if is_off || mode == EncapsulationMode::Never {
            return None;
        }
        let is_host = net.prefix_len() == net.max_prefix_len();
        let owner = self.owner(net, around.hostname);
        if let Some(owner) = owner {
            return match owner == around.hostname {
                // An endpoint has the route to a block of one address.
                true => (!is_host).then_some(Way::Blackhole),
                false => self.way_to(around, owner, net, mode, overlay),
            };
        }
        if !is_host {
            return None;
        }
        let address = net.addr();
        let tunnel = overlay
            .ends
            .contains_key(&address)
            .then(|| self.ends.holder(address, around.hostname))
            .flatten();
        let node = tunnel.or_else(|| self.borrowed.node_of(address))?;
        // Its block leads there.
        if node == around.hostname || self.covering_owner(address, around.hostname) == Some(node) {
            return None;
        }
        self.way_to(around, node, net, mode, overlay)
    }

    fn way_to(
        &self,
        around: Around<'_>,
        node: &str,
        net: IpNet,
        mode: EncapsulationMode,
        overlay: &Overlay,
    ) -> Option<Way> {
        let family = Family::of(net.addr());
        let far = self.ends.of(node, family)?;
        if mode == EncapsulationMode::CrossSubnet
            && let Some(own) = self.ends.of(around.hostname, family)
            && let (Some(near), Some(far)) = (own.node, far.node)
            && near.trunc().contains(&far.addr())
        {
            return Some(Way::Direct(far.addr()));
        }
        let (address, _) = far.tunnel?;
        let is_known = self.ends.holder(address, around.hostname) == Some(node)
            && overlay.ends.contains_key(&address);
        is_known.then_some(Way::Tunnel(address))
    }

    /// Returns the owner of exactly this block. If a block has several, this host is preferred, and
    /// then the first name.
    fn owner(&self, block: IpNet, hostname: &str) -> Option<&str> {
        let owners = self.owners.get(&block)?;
        let own = owners.get(hostname);
        own.or_else(|| owners.first()).map(String::as_str)
    }

    /// Returns the owner of the block with this address.
    fn covering_owner(&self, address: IpAddr, hostname: &str) -> Option<&str> {
        let mut lengths = self.lengths.keys().rev();
        lengths.find_map(|length| {
            let block = IpNet::new(address, *length).ok()?.trunc();
            self.owner(block, hostname)
        })
    }
}
