//! The overlay of this host: its devices, the tunnel ends of other nodes, and the routes to the
//! blocks of VXLAN pools, and of others that the settings assign to Felix. A change of one node or block costs as much as its own routes.

mod addresses;
mod borrowed;
mod ends;
mod ipip;
#[cfg(test)]
mod tests;
mod types;
mod writers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use calico_model::{
    AffinityOwner, ClusterRoutes, EncapsulationMode, EndpointName, IpamKey, Kind, NodeSpec,
};
use ipnet::IpNet;

use self::addresses::Addresses;
use self::borrowed::Borrowed;
use self::ends::{Ends, NodeEnds};
pub use self::types::{
    DeviceState, IpipDevice, IpipState, Overlay, OverlayTouched, TunnelDevice, TunnelEnd, Way,
};
use super::pattern::Pattern;
use super::policy::Index;
use super::pools::Pools;
use super::settings::OverlaySettings;
use super::types::Problem;
use crate::render::{Family, VXLAN_DEVICES};

/// The stored values that the overlay follows from.
#[derive(Clone, Debug, Default)]
pub(super) struct OverlayInputs {
    ends: Ends,
    /// Owners of blocks, including former ones that still claim them.
    owners: BTreeMap<IpNet, BTreeSet<String>>,
    blocks: BTreeMap<String, BTreeSet<IpNet>>,
    /// Endpoints of other hosts.
    addresses: Addresses,
    borrowed: Borrowed,
    /// The problems of nodes, by name.
    problems: BTreeMap<String, BTreeSet<Problem>>,
    /// The problems of affinities, by block.
    block_problems: BTreeMap<IpNet, BTreeSet<Problem>>,
    /// The routes that the BGP daemons install; `None`: their default.
    bgp: Option<ClusterRoutes>,
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
    /// Their former and present addresses.
    addresses: BTreeSet<IpAddr>,
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
    /// The interfaces whose MTU counts.
    pub(super) uplinks: Option<&'a Pattern>,
    /// Felix installs the routes of pools without encapsulation.
    pub(super) no_encap: bool,
    /// Felix installs the routes of pools with IP in IP.
    pub(super) ipip: bool,
    pub(super) ipv6: bool,
}

impl Around<'_> {
    /// Returns whether hosts of the fabric send packets of a family to each other in VXLAN.
    fn uses_vxlan(&self, family: Family) -> bool {
        match (family, self.settings.enabled) {
            (Family::V4, Some(enabled)) => enabled,
            _ => self.pools.use_vxlan_of(family),
        }
    }

    /// Returns whether Felix installs routes to the blocks of any pool.
    fn has_routes(&self) -> bool {
        self.no_encap
            || (self.ipip && self.uses_ipip())
            || Family::ALL
                .into_iter()
                .any(|family| self.uses_vxlan(family))
    }

    /// Returns whether Felix installs routes to a block or an address.
    fn routes_to(&self, net: IpNet) -> bool {
        match self.pools.vxlan_mode_of(net) {
            EncapsulationMode::Never if self.pools.is_plain(net) => self.no_encap,
            EncapsulationMode::Never => self.ipip_mode_of(net) != EncapsulationMode::Never,
            _ => self.uses_vxlan(Family::of(net.addr())),
        }
    }
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
        if changed {
            self.news.blocks.insert(block);
        }
    }

    /// Records the routes that the BGP daemons install.
    pub(super) fn bgp_routes(&mut self, routes: Option<ClusterRoutes>) {
        self.is_computed &= self.bgp == routes;
        self.bgp = routes;
    }

    /// Returns whether Felix installs the routes of pools without encapsulation: the settings of Felix
    /// and of the BGP daemons fit, so that each prefix has one writer.
    pub(super) fn no_encap(&self, felix: ClusterRoutes) -> bool {
        felix.no_encap() && writers::fit(felix, self.bgp())
    }

    fn bgp(&self) -> ClusterRoutes {
        self.bgp.unwrap_or(writers::BGP)
    }

    /// Records that an endpoint of another host is removed, or will change.
    pub(super) fn endpoint_left(&mut self, former: Option<(&Arc<str>, &[IpNet])>) {
        if let Some((key, addresses)) = former {
            self.addresses.remove(key, addresses);
            let addresses = addresses.iter().map(IpNet::addr);
            self.news.addresses.extend(addresses);
        }
    }

    /// Records that an endpoint of another host has changed.
    pub(super) fn endpoint(&mut self, key: &str, present: Option<(&Arc<str>, &[IpNet])>) {
        self.news.endpoints.insert(key.to_owned());
        if let Some((key, addresses)) = present {
            self.addresses.add(key, addresses);
            let addresses = addresses.iter().map(IpNet::addr);
            self.news.addresses.extend(addresses);
        }
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
        let mut problems = self.exchange_problems(around, all, &news.nodes);
        problems.extend(self.exchange_block_problems(around, all, &news.blocks));
        let mut touched = OverlayTouched::default();
        if all {
            let (devices, ipip) = (self.devices(around), self.ipip(around));
            touched.devices = overlay.devices != devices || overlay.ipip != ipip;
            (overlay.devices, overlay.ipip) = (devices, ipip);
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
        nets.extend(self.rescan(around, all, news));
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
            nodes.extend([around.hostname.to_owned(), writers::NAME.to_owned()]);
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
        if node == writers::NAME {
            let felix = around.settings.cluster_routes;
            return writers::problem(felix, self.bgp()).into_iter().collect();
        }
        let key = format!("{}{node}", Kind::Node.prefix());
        let used = Family::ALL.into_iter();
        let used = used.filter(|family| around.uses_vxlan(*family));
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
        .chain(self.ipip_problem(around, node))
        .collect()
    }

    /// Updates the problems of affinities of blocks in VXLAN pools.
    fn exchange_block_problems(
        &mut self,
        around: Around<'_>,
        all: bool,
        blocks: &BTreeSet<IpNet>,
    ) -> Vec<[BTreeSet<Problem>; 2]> {
        let mut blocks = blocks.clone();
        if all {
            blocks.extend(self.owners.keys().chain(self.block_problems.keys()));
        }
        let mut changed = Vec::new();
        for block in blocks {
            let found = self.problems_of_block(around, block);
            let before = match found.is_empty() {
                true => self.block_problems.remove(&block),
                false => self.block_problems.insert(block, found.clone()),
            };
            let before = before.unwrap_or_default();
            if before != found {
                changed.push([before, found]);
            }
        }
        changed
    }

    /// Returns the problems of affinities that have no effect.
    fn problems_of_block(&self, around: Around<'_>, block: IpNet) -> BTreeSet<Problem> {
        let pools = around.pools;
        let owners = self.owners.get(&block);
        let (Some(owners), Some(size)) = (owners, pools.block_size_of(block)) else {
            return BTreeSet::new();
        };
        if !around.routes_to(block) {
            return BTreeSet::new();
        }
        let owner = self.owner(around, block);
        let others = owners.iter().filter(|other| Some(other.as_str()) != owner);
        let problems = others.filter_map(|other| {
            let reason = match owner {
                Some(owner) => {
                    format!("node {owner} has the same block: its packets go to {owner}")
                }
                None if around.settings.by_workload => return None,
                None => format!("the pool has blocks of /{size}: the affinity has no effect"),
            };
            let owner = AffinityOwner::Host(other.clone());
            let key = IpamKey::Affinity { owner, block }.to_string();
            Some(Problem::new(key, "", reason))
        });
        problems.collect()
    }

    /// Looks for addresses outside the blocks of their node among the changed endpoints, and those in
    /// changed blocks. Returns the addresses of which the routes may have changed.
    fn rescan(&mut self, around: Around<'_>, all: bool, news: News) -> BTreeSet<IpNet> {
        if !around.has_routes() {
            self.addresses.clear();
            return self.borrowed.clear();
        }
        let mut keys = news.endpoints;
        if all {
            self.addresses.clear();
            for (key, addresses) in around.index.remote_endpoints() {
                self.addresses.add(key, addresses);
                keys.insert(key.to_string());
            }
            keys.extend(self.borrowed.keys().cloned());
        }
        // An endpoint of the block's own node has precedence over others with its address.
        let addresses = news.addresses.into_iter().map(IpNet::from);
        for net in news.blocks.into_iter().chain(addresses) {
            keys.extend(self.addresses.inside(net).map(ToString::to_string));
        }
        let mut used = BTreeMap::new();
        let mut changed = BTreeSet::new();
        for key in keys {
            let found = self.outside_of(around, &key, &mut used);
            changed.extend(self.borrowed.put(&key, found));
        }
        changed
    }

    /// Returns the node of an endpoint, and those of its addresses that are in a block of another
    /// node, or in none. An address that an endpoint of the block's own node has is none of them.
    /// `used` has the results for addresses that were looked at before.
    fn outside_of(
        &self,
        around: Around<'_>,
        key: &str,
        used: &mut BTreeMap<IpAddr, bool>,
    ) -> Option<(String, Vec<IpAddr>)> {
        let (_, addresses) = around.index.remote_endpoint(key)?;
        let name = name_in(key)?;
        let node = name.node();
        let addresses = addresses.iter().map(IpNet::addr);
        let outside = addresses.filter(|address| {
            if !around.routes_to(IpNet::from(*address)) {
                return false;
            }
            let Some(owner) = self.covering_owner(around, *address) else {
                return true;
            };
            let is_used = || self.is_used_on(owner, *address);
            owner != node && !*used.entry(*address).or_insert_with(is_used)
        });
        let outside = outside.collect::<Vec<_>>();
        (!outside.is_empty()).then(|| (node.to_owned(), outside))
    }

    /// Returns whether an endpoint of another node has an address.
    fn is_used_on(&self, node: &str, address: IpAddr) -> bool {
        let mut keys = self.addresses.inside(IpNet::from(address));
        keys.any(|key| name_in(key).is_some_and(|name| name.node() == node))
    }

    fn devices(&self, around: Around<'_>) -> BTreeMap<Family, DeviceState> {
        let all = Family::ALL.into_iter().zip(VXLAN_DEVICES);
        all.map(|(family, name)| (family, self.device(around, family, name)))
            .collect()
    }

    fn device(&self, around: Around<'_>, family: Family, name: &'static str) -> DeviceState {
        let vni = around.settings.vni;
        let is_used = around.uses_vxlan(family) && (family == Family::V4 || around.ipv6);
        if !is_used && around.settings.enabled == Some(true) {
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
            uplinks: around.uplinks.cloned(),
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
        if is_off || !around.routes_to(net) {
            return None;
        }
        let is_plain = mode == EncapsulationMode::Never;
        let is_host = net.prefix_len() == net.max_prefix_len();
        let owner = self.owner(around, net);
        if let Some(owner) = owner {
            return match owner == around.hostname {
                // An endpoint has the route to a block of one address.
                // bgp-client installs the blackholes of other pools than those with VXLAN.
                true => (!is_host && !is_plain).then_some(Way::Blackhole),
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
        if node == around.hostname || self.covering_owner(around, address) == Some(node) {
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
        let ipip = around.ipip_mode_of(net);
        let is_ipip = ipip != EncapsulationMode::Never;
        let mode = if is_ipip { ipip } else { mode };
        if mode != EncapsulationMode::Always
            && let Some(own) = self.ends.of(around.hostname, family)
            && let (Some(near), Some(far)) = (own.node, far.node)
            && near.trunc().contains(&far.addr())
        {
            return Some(Way::Direct(far.addr()));
        }
        if is_ipip {
            return self.ipip_end(around, node).map(Way::Ipip);
        }
        if mode == EncapsulationMode::Never {
            return None;
        }
        let (address, _) = far.tunnel?;
        let is_known = self.ends.holder(address, around.hostname) == Some(node)
            && overlay.ends.contains_key(&address);
        is_known.then_some(Way::Tunnel(address))
    }

    /// Returns the owner of exactly this block, if it has the size of its pool's blocks. If a block has
    /// several, this host is preferred, and then the first name.
    fn owner(&self, around: Around<'_>, block: IpNet) -> Option<&str> {
        let is_block = around.pools.block_size_of(block) == Some(block.prefix_len());
        if !is_block || around.settings.by_workload {
            return None;
        }
        let owners = self.owners.get(&block)?;
        let own = owners.get(around.hostname);
        own.or_else(|| owners.first()).map(String::as_str)
    }

    /// Returns the owner of the block with this address.
    fn covering_owner(&self, around: Around<'_>, address: IpAddr) -> Option<&str> {
        let size = around.pools.block_size_of(IpNet::from(address))?;
        let block = IpNet::new(address, size).ok()?.trunc();
        self.owner(around, block)
    }
}

/// Returns the name of an endpoint from its key. The role of etcd for one node can write names of that
/// node only, but any value.
fn name_in(key: &str) -> Option<EndpointName> {
    key.rsplit('/').next()?.parse().ok()
}
