//! The records of the datastore, and the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bgp_proto::{Asn, Prefix};
use calico_model::{
    ANNOUNCEMENTS_PREFIX, AffinityOwner, BgpConfigurationSpec, BlockAffinity, DEFAULT_AS_NUMBER,
    DEFAULT_CONFIGURATION, IpPoolSpec, IpamKey, Key, Kind, NodeSpec, ResourceKey, ServiceRoutes,
    ServiceRoutesKey,
};
use ipnet::IpNet;
use rib::PrefixRange;
use ring::digest::{Context, SHA256};

use super::announced::Announced;
use super::endpoints::{Endpoints, Held, KeyHash, NodeId};
use super::input;
use super::nodes::{Nodes, Properties};
use super::ranges::Ranges;
use super::route::{Affected, Neighbor, Origin, Owner, ReceivedRoute};
use crate::fault::Fault;
use crate::view::{field, read};

/// The node of ranges that belong to no node.
const NO_NODE: NodeId = 0;

/// The records of the datastore about the origin of routes. An invalid value keeps the record of
/// the last valid one.
#[derive(Clone, Debug)]
pub struct OriginIndex {
    seed: u64,
    nodes: Nodes,
    endpoints: Endpoints,
    blocks: Ranges,
    grants: Ranges,
    /// The same by the AS in the Node.
    grants_by_asn: BTreeMap<Option<Asn>, Ranges>,
    services: Ranges,
    announced: Announced,
    pools: BTreeMap<String, Prefix>,
    cluster_asn: Asn,
}

impl OriginIndex {
    /// Returns an index without records. The seed is that of the hash of endpoints' keys; no result
    /// depends on it.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            nodes: Nodes::default(),
            endpoints: Endpoints::default(),
            blocks: Ranges::default(),
            grants: Ranges::default(),
            grants_by_asn: BTreeMap::new(),
            services: Ranges::default(),
            announced: Announced::default(),
            pools: BTreeMap::new(),
            cluster_asn: Asn(DEFAULT_AS_NUMBER.0),
        }
    }

    /// Returns the key prefixes of the records about nodes and ranges, which are few.
    pub fn prefixes_of_nodes() -> Vec<String> {
        let kinds = [Kind::Node, Kind::BgpConfiguration, Kind::IpPool];
        kinds.map(Kind::prefix).into()
    }

    /// Returns the key prefixes of the records about workloads. A speaker with sessions to route
    /// reflectors only does not need them.
    pub fn prefixes_of_workloads() -> Vec<String> {
        vec![
            Kind::WorkloadEndpoint.prefix(),
            IpamKey::HOSTS.to_owned(),
            ANNOUNCEMENTS_PREFIX.to_owned(),
        ]
    }

    /// Returns the neighbor with this session address.
    pub fn neighbor_at(&self, address: IpAddr) -> Neighbor<'_> {
        let id = self.nodes.with_session(address);
        let Some(node) = id.and_then(|id| self.nodes.get(id)) else {
            return Neighbor::Other;
        };
        let properties = node.properties.as_ref();
        match properties.is_some_and(|properties| properties.reflects) {
            true => Neighbor::Reflector(&node.name),
            false => Neighbor::Node(&node.name),
        }
    }

    /// Applies a key's new value or its deletion, and returns the routes to evaluate again. Keys
    /// without records change nothing.
    ///
    /// # Errors
    ///
    /// The value is invalid; the record of the last valid one stays.
    pub fn take(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<Affected, Fault> {
        let mut affected = Affected::default();
        let text = String::from_utf8_lossy(key);
        if let Ok(key) = text.parse::<ServiceRoutesKey>() {
            let routes = value.map(ServiceRoutes::parse).transpose();
            let routes = routes.map_err(|error| {
                Fault::new(&*text, field(error.field), error.source.to_string())
            })?;
            self.announce(key.node, routes, &mut affected);
            return Ok(affected);
        }
        match text.parse() {
            Ok(Key::Resource(name)) => self.resource(&text, &name, value, &mut affected)?,
            Ok(Key::Ipam(IpamKey::Affinity { owner, block })) => {
                let parsed = value.map(BlockAffinity::parse).transpose();
                let parsed = parsed.map_err(|error| {
                    Fault::new(&*text, field(error.field), error.source.to_string())
                })?;
                let is_held = parsed.is_some_and(|affinity| affinity.is_announced());
                if let AffinityOwner::Host(host) = owner {
                    self.block(&host, block, is_held, &mut affected);
                }
            }
            _ => {}
        }
        Ok(affected)
    }

    fn resource(
        &mut self,
        key: &str,
        name: &ResourceKey,
        value: Option<&[u8]>,
        affected: &mut Affected,
    ) -> Result<(), Fault> {
        match name.kind() {
            Kind::WorkloadEndpoint => {
                let endpoint = value.map(|octets| input::endpoint(key, octets));
                self.endpoint(key, endpoint.transpose()?.flatten(), affected);
            }
            Kind::Node => {
                let node = value.map(|octets| read::<NodeSpec>(key, octets));
                let node = node.transpose()?;
                let properties = node.map(|node| input::properties(key, &node));
                self.node(name.name(), properties.transpose()?, affected);
            }
            Kind::BgpConfiguration if name.name() == DEFAULT_CONFIGURATION => {
                let settings = value.map(|octets| read::<BgpConfigurationSpec>(key, octets));
                let settings = settings.transpose()?.map(|resource| resource.spec);
                self.settings(&settings.unwrap_or_default(), affected);
            }
            Kind::IpPool => {
                let pool = value.map(|octets| read::<IpPoolSpec>(key, octets));
                let range = pool.transpose()?.and_then(|pool| pool.spec.cidr);
                self.pool(name.name(), range.map(|range| range.0.into()), affected);
            }
            _ => {}
        }
        Ok(())
    }

    fn endpoint(&mut self, key: &str, new: Option<input::Endpoint>, affected: &mut Affected) {
        let key = self.hash(key);
        let former = self.endpoints.get(key);
        let new = new.map(|(node, addresses)| Held {
            node: self.nodes.intern(&node),
            addresses,
        });
        if former == new {
            return;
        }
        self.endpoints.replace(key, former.as_ref(), new.as_ref());
        for (_, address) in pairs(former.as_ref()).symmetric_difference(&pairs(new.as_ref())) {
            self.affect_address(*address, affected);
        }
        let [new, former] = [new, former].map(|held| held.map(|held| held.node));
        self.count(new, former, affected);
    }

    fn block(&mut self, host: &str, block: IpNet, is_held: bool, affected: &mut Affected) {
        let id = self.nodes.intern(host);
        let block = Prefix::from(block);
        let changed = match is_held {
            true => self.blocks.insert(block, id),
            false => self.blocks.remove(block, id),
        };
        if changed {
            affected.ranges.insert(PrefixRange::inside(block));
            self.count(is_held.then_some(id), (!is_held).then_some(id), affected);
        }
        self.nodes.release(id);
    }

    /// Counts a block or an endpoint of a node that gets it, and of one that loses it.
    fn count(&mut self, new: Option<NodeId>, former: Option<NodeId>, affected: &mut Affected) {
        // Whether a reflector is also a host depends on it.
        if let Some(id) = new
            && self.nodes.hold(id)
        {
            affected.nodes.insert(self.nodes.name(id).to_owned());
        }
        if let Some(id) = former {
            if self.nodes.drop_holding(id) {
                affected.nodes.insert(self.nodes.name(id).to_owned());
            }
            self.nodes.release(id);
        }
    }

    fn node(&mut self, name: &str, new: Option<Properties>, affected: &mut Affected) {
        let id = self.nodes.intern(name);
        let former = self.nodes.set(id, new.clone());
        if former != new {
            affected.transit |= former.is_some() != new.is_some();
            affected.nodes.insert(name.to_owned());
            let (old, new) = (former.unwrap_or_default(), new.unwrap_or_default());
            for address in old.addresses.symmetric_difference(&new.addresses) {
                self.affect_address(*address, affected);
            }
            for (address, length) in old.networks.symmetric_difference(&new.networks) {
                let lengths = length.saturating_add(1)..=host(*address).len();
                let parts = lengths.filter_map(|length| Prefix::new(*address, length));
                affected.ranges.extend(parts.map(PrefixRange::equal));
            }
            for grant in old.grants.symmetric_difference(&new.grants) {
                affected.ranges.insert(PrefixRange::inside(*grant));
            }
            self.replace_grants(id, &old, &new);
            affected.transit |= old.asn != new.asn;
        }
        self.nodes.release(id);
    }

    fn replace_grants(&mut self, id: NodeId, old: &Properties, new: &Properties) {
        for grant in &old.grants {
            self.grants.remove(*grant, id);
            if let Some(of_asn) = self.grants_by_asn.get_mut(&old.asn) {
                of_asn.remove(*grant, id);
            }
        }
        self.grants_by_asn.retain(|_, grants| !grants.is_empty());
        for grant in &new.grants {
            self.grants.insert(*grant, id);
            let of_asn = self.grants_by_asn.entry(new.asn).or_default();
            of_asn.insert(*grant, id);
        }
    }

    fn settings(&mut self, settings: &BgpConfigurationSpec, affected: &mut Affected) {
        let lists = [
            &settings.service_cluster_ips,
            &settings.service_external_ips,
            &settings.service_load_balancer_ips,
        ];
        let ranges = lists.into_iter().flatten();
        let new: BTreeSet<Prefix> = ranges.map(|range| range.cidr.0.into()).collect();
        let old: BTreeSet<Prefix> = self.services.all().collect();
        for range in old.symmetric_difference(&new) {
            affected.ranges.insert(PrefixRange::inside(*range));
        }
        for range in &old {
            self.services.remove(*range, NO_NODE);
        }
        for range in &new {
            self.services.insert(*range, NO_NODE);
        }
        let asn = Asn(settings.cluster_as().0);
        affected.transit |= std::mem::replace(&mut self.cluster_asn, asn) != asn;
    }

    /// Replaces the routes of services of a node.
    fn announce(&mut self, node: String, new: Option<ServiceRoutes>, affected: &mut Affected) {
        let was_used = self.announced.is_used();
        let new = new.map(|new| {
            let routes = new.routes.iter();
            routes.map(|route| host(route.address)).collect()
        });
        for prefix in self.announced.set(node, new) {
            affected.ranges.insert(PrefixRange::equal(prefix));
        }
        if was_used != self.announced.is_used() {
            let ranges = self.services.all().map(PrefixRange::inside);
            affected.ranges.extend(ranges);
        }
    }

    fn pool(&mut self, name: &str, range: Option<Prefix>, affected: &mut Affected) {
        let former = match range {
            Some(range) => self.pools.insert(name.to_owned(), range),
            None => self.pools.remove(name),
        };
        if former != range {
            let ranges = former.into_iter().chain(range);
            affected.ranges.extend(ranges.map(PrefixRange::inside));
        }
    }

    /// Adds the routes that depend on the holders of an address: its own, and those of the prefixes
    /// around it inside a block, a service range or a grant.
    fn affect_address(&self, address: IpAddr, affected: &mut Affected) {
        let host = host(address);
        let ranges = [&self.blocks, &self.services, &self.grants].into_iter();
        let shortest = ranges
            .filter_map(|ranges| ranges.shortest_around(host))
            .min();
        let shortest = shortest.map_or(host.len(), |length| length.saturating_add(1));
        let lengths = shortest.min(host.len())..=host.len();
        let prefixes = lengths.filter_map(|length| Prefix::new(address, length));
        affected.ranges.extend(prefixes.map(PrefixRange::equal));
    }

    /// Returns what the records contain about a route.
    pub fn origin(&self, neighbor: Neighbor<'_>, route: &ReceivedRoute) -> Origin<'_> {
        match neighbor {
            Neighbor::Node(name) => self.of_node(name, route),
            Neighbor::Reflector(_) if route.has_originator_id => Origin::Confirmed,
            Neighbor::Reflector(name) => {
                let node = self.nodes.find(name).and_then(|id| self.nodes.get(id));
                match node.is_some_and(|node| node.holdings > 0) {
                    true => self.of_node(name, route),
                    false => Origin::Confirmed,
                }
            }
            Neighbor::Other => self.of_other(route.prefix),
            Neighbor::Transit { origin } => match self.of_other(route.prefix) {
                Origin::Conflict(_) if self.is_of_node_in(origin, route.prefix) => {
                    Origin::Confirmed
                }
                found => found,
            },
        }
    }

    fn of_node(&self, name: &str, route: &ReceivedRoute) -> Origin<'_> {
        let id = self.nodes.find(name);
        let has =
            |address: &IpAddr| id.is_some_and(|id| self.nodes.at(*address).any(|of| of == id));
        match (id, route.next_hop.as_ref().is_some_and(has)) {
            (Some(id), true) => self.holder(id, route.prefix),
            _ => Origin::NextHop,
        }
    }

    /// Returns whether a node holds a prefix.
    fn holder(&self, id: NodeId, prefix: Prefix) -> Origin<'_> {
        let is_own = |(_, of): &(Prefix, NodeId)| *of == id;
        let is_range = |range: Prefix| range == prefix;
        let mut holders = self.holders(prefix);
        if holders.any(|of| of == id) || self.nodes.grants(id, prefix).any(is_range) {
            return Origin::Confirmed;
        }
        if let Some(origin) = self.of_service(id, prefix) {
            return origin;
        }
        let services = self.services.around(prefix);
        let own = services.chain(self.blocks.around(prefix).filter(is_own));
        let mut own = own.map(|(range, _)| range).peekable();
        let is_inside = own.peek().is_some() || self.is_inside_grant(id, prefix);
        if own.any(is_range) {
            return Origin::Confirmed;
        }
        if is_inside {
            return match self.first_in_prefix(prefix, Some(id)) {
                None => Origin::Confirmed,
                Some(at) => self.conflict(self.holders(host(at)).filter(|of| *of != id)),
            };
        }
        match self.conflict(self.holders(prefix)) {
            Origin::Unknown => self.conflict(self.holders_of_block_around(prefix)),
            found => found,
        }
    }

    /// Returns whether a node announces a part of a service range; `None` for other prefixes, and
    /// without a controller, which lists the addresses that each node announces.
    fn of_service(&self, id: NodeId, prefix: Prefix) -> Option<Origin<'_>> {
        let mut around = self.services.around(prefix).peekable();
        let is_part = around.peek().is_some()
            && (prefix == host(prefix.addr()) || around.all(|(range, _)| range != prefix));
        if !is_part || !self.announced.is_used() {
            return None;
        }
        match self.announced.has(self.nodes.name(id), prefix) {
            true => Some(Origin::Confirmed),
            false => Some(Origin::Conflict(Owner::Services)),
        }
    }

    /// Returns whether a prefix is inside a grant of a node, and inside no block of another node.
    fn is_inside_grant(&self, id: NodeId, prefix: Prefix) -> bool {
        let is_granted = self.nodes.grants(id, prefix).next().is_some();
        is_granted && self.blocks.around(prefix).all(|(_, of)| of == id)
    }

    /// Returns the first of these nodes by name as the owner of a record.
    fn conflict(&self, ids: impl Iterator<Item = NodeId>) -> Origin<'_> {
        let names = ids.map(|id| self.nodes.name(id));
        names
            .min()
            .map_or(Origin::Unknown, |name| Origin::Conflict(Owner::Node(name)))
    }

    /// Returns the nodes that hold an address, as endpoint or as their own.
    fn holders(&self, prefix: Prefix) -> impl Iterator<Item = NodeId> + '_ {
        let address = (prefix == host(prefix.addr())).then(|| prefix.addr());
        let addresses = address.into_iter();
        addresses.flat_map(move |at| self.endpoints.at(at).chain(self.nodes.at(at)))
    }

    /// Returns the nodes of the longest block around a prefix.
    fn holders_of_block_around(&self, prefix: Prefix) -> impl Iterator<Item = NodeId> + '_ {
        let longest = self.blocks.around(prefix).next();
        let around = self.blocks.around(prefix);
        let around = around.filter(move |(block, _)| longest.is_some_and(|(at, _)| at == *block));
        around.map(|(_, id)| id)
    }

    /// Returns the lowest address in a prefix that a node holds, other than `except`.
    fn first_in_prefix(&self, prefix: Prefix, except: Option<NodeId>) -> Option<IpAddr> {
        let endpoint = self.endpoints.first_in_prefix(prefix, except);
        let node = self.nodes.first_in_prefix(prefix, except);
        endpoint.into_iter().chain(node).min()
    }

    /// Returns whether a neighbor that is no node may announce a prefix.
    fn of_other(&self, prefix: Prefix) -> Origin<'_> {
        // A part of the network of nodes has precedence over the connected network; the network
        // itself and aggregates have not.
        let of_part = self.nodes.in_part_of_network(prefix);
        let at = (prefix == host(prefix.addr())).then(|| self.nodes.at(prefix.addr()));
        let ids = at.into_iter().flatten().chain(of_part);
        if let found @ Origin::Conflict(_) = self.conflict(ids) {
            return found;
        }
        if self.services.around(prefix).next().is_some() {
            return Origin::Conflict(Owner::Services);
        }
        let mut pools = self.pools.iter();
        let pool =
            pools.find(|(_, pool)| pool.len() <= prefix.len() && pool.contains(prefix.addr()));
        pool.map_or(Origin::Confirmed, |(name, _)| {
            Origin::Conflict(Owner::Pool(name))
        })
    }

    /// Returns whether the records confirm a prefix for any node of an AS. The work does not depend
    /// on the number of nodes, because a switch chooses the prefixes.
    fn is_of_node_in(&self, asn: Asn, prefix: Prefix) -> bool {
        let is_in = |id: NodeId| {
            let node = self.nodes.get(id);
            let properties = node.and_then(|node| node.properties.as_ref());
            properties.is_some_and(|node| node.asn.unwrap_or(self.cluster_asn) == asn)
        };
        let holders = self.holders(prefix);
        let blocks = self.blocks.around(prefix).map(|(_, id)| id);
        // Every node has the service ranges, and many may have the same grant. One of them stands
        // for the others, except for the only one with an address in the prefix.
        let is_service = self.services.around(prefix).next().is_some();
        let by_default = (asn == self.cluster_asn).then_some(None);
        let any = [Some(Some(asn)), by_default].into_iter().flatten();
        let any = any.flat_map(|asn| {
            let grants = self.grants_by_asn.get(&asn);
            let longest = grants.and_then(|grants| grants.around(prefix).next());
            let service = is_service.then(|| self.nodes.first_in(asn)).flatten();
            longest.map(|(_, id)| id).into_iter().chain(service)
        });
        let first = self.first_in_prefix(prefix, None);
        let firsts = first.into_iter().flat_map(|at| self.holders(host(at)));
        let announcers = self.announced.nodes(prefix);
        let announcers = announcers.filter_map(|node| self.nodes.find(node));
        let candidates = holders.chain(blocks).chain(any).chain(firsts);
        let mut candidates = candidates.chain(announcers);
        candidates.any(|id| is_in(id) && self.holder(id, prefix) == Origin::Confirmed)
    }

    /// Returns the hash of an endpoint's key.
    fn hash(&self, key: &str) -> KeyHash {
        let mut context = Context::new(&SHA256);
        context.update(&self.seed.to_be_bytes());
        context.update(key.as_bytes());
        let digest = context.finish();
        let [a, b, c, d, e, f, g, h] = digest.as_ref().first_chunk().copied().unwrap_or_default();
        [
            u32::from_be_bytes([a, b, c, d]),
            u32::from_be_bytes([e, f, g, h]),
        ]
    }
}

/// Returns the prefix of one address.
fn host(address: IpAddr) -> Prefix {
    IpNet::from(address).into()
}

/// Returns the addresses of an endpoint, each with the node.
fn pairs(held: Option<&Held>) -> BTreeSet<(NodeId, IpAddr)> {
    let held = held.into_iter();
    let pairs = held.flat_map(|held| held.addresses.iter().map(|at| (held.node, *at)));
    pairs.collect()
}
