//! The duties of a node beside its sessions: routes that it originates, and which learned routes
//! its kernel gets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bgp_proto::{Community, LargeCommunity};
use calico_model::{
    BgpConfigurationSpec, CommunityValue, EncapsulationMode, IpPoolSpec, LoadBalancerAggregation,
    Network, ServiceRoute,
};
use ipnet::IpNet;

use crate::bfd;
use crate::bfd_timers::BfdTimers;
use crate::export::is_vxlan;
use crate::filter::{large, standard};
use crate::own::Own;
use crate::priority::Priorities;

/// The label of nodes that do not announce services if its value is `true`.
const NO_SERVICES: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The duties of a node beside its sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duties {
    /// Blocks of addresses that belong to the node, except those of VXLAN pools, which are Felix's.
    pub blocks: BTreeSet<IpNet>,
    /// Service ranges, which every node announces.
    pub services: BTreeSet<IpNet>,
    /// Single addresses of services, which this node announces as long as the controller of
    /// Kubernetes lists them.
    pub service_routes: BTreeMap<IpNet, ServiceAttributes>,
    /// The pools of workloads: those that are not of load balancers alone.
    pub pools: BTreeSet<IpNet>,
    /// Peers that are reached through a gateway, as their BGPPeer configures it.
    pub gateways: BTreeMap<IpAddr, IpAddr>,
    /// Selection of the learned routes that the kernel gets.
    pub programming: Programming,
    /// The timers of BFD by interface: the first match counts. Without one, those of the peer count.
    pub bfd_timers: Vec<BfdTimers>,
    /// The time of the request to drain this node, if there is one. A reflector is drained by its
    /// registration.
    pub drain: Option<String>,
}

/// The attributes of the route to an address of services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAttributes {
    /// Its communities (RFC 1997).
    pub communities: Vec<Community>,
    /// Its large communities (RFC 8092).
    pub large_communities: Vec<LargeCommunity>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// The names of the BGPPeers that receive it; without names, all.
    pub peers: BTreeSet<String>,
}

impl From<&ServiceRoute> for ServiceAttributes {
    fn from(route: &ServiceRoute) -> Self {
        let mut attributes = Self {
            med: route.med,
            peers: route.peers.clone(),
            ..Self::default()
        };
        for community in &route.communities {
            match *community {
                CommunityValue::Standard(high, low) => {
                    attributes.communities.push(standard(high, low));
                }
                CommunityValue::Large(global, first, second) => {
                    let community = large(global, first, second);
                    attributes.large_communities.push(community);
                }
            }
        }
        attributes
    }
}

impl Duties {
    /// Returns the ranges of workload addresses: own blocks and the pools of workloads.
    pub fn workloads(&self) -> BTreeSet<IpNet> {
        self.blocks.union(&self.pools).copied().collect()
    }
}

/// Selection of the learned routes that the kernel gets, and how they are programmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programming {
    /// Service ranges: a host with a route to one of them answers for it.
    pub services: Vec<IpNet>,
    /// Nodes to which Felix programs WireGuard routes.
    pub wireguard: BTreeSet<IpAddr>,
    /// Pools, and how each is reached.
    pub pools: Vec<(IpNet, Way)>,
    /// The normal metrics, from which LOCAL_PREF is derived and vice versa ([`degree_of`],
    /// [`metric_of`]); `None` without a datastore.
    ///
    /// [`degree_of`]: crate::degree_of
    /// [`metric_of`]: crate::metric_of
    pub priorities: Option<Priorities>,
}

/// How packets to a learned destination are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the next hop.
    Direct,
    /// To the next hop in an IP-in-IP tunnel, unless the next hop is within this subnet.
    Tunnel {
        /// The node's own IPv4 subnet, for pools with `CrossSubnet`: IP-in-IP exists for IPv4 only.
        unless_within: Option<IpNet>,
    },
    /// By another program's route; this daemon programs none.
    Theirs,
}

impl Programming {
    /// Returns how a destination is reached through a next hop: directly, in a tunnel, or by
    /// another program's route.
    pub fn way(&self, net: IpNet, next_hop: IpAddr) -> Way {
        if self.services.iter().any(|range| range.contains(&net)) {
            return Way::Theirs;
        }
        if self.wireguard.contains(&next_hop) {
            return Way::Theirs;
        }
        let pool = self.pools.iter().find(|(pool, _)| pool.contains(&net));
        match pool {
            None => Way::Direct,
            Some((
                _,
                Way::Tunnel {
                    unless_within: Some(own),
                },
            )) if own.contains(&next_hop) => Way::Direct,
            Some((_, way)) => *way,
        }
    }
}

/// Returns the node's duties according to the datastore.
pub(crate) fn duties(own: &Own<'_>) -> Duties {
    let blocks = own.view.blocks.iter();
    let blocks = blocks.filter(|(host, _)| *host == own.host.name);
    let blocks = blocks.filter(|(_, block)| !is_in_vxlan_pool(own, block));
    let ranges = services(own);
    Duties {
        blocks: blocks.map(|(_, block)| *block).collect(),
        bfd_timers: bfd::timers(own),
        programming: Programming {
            services: match own.view.service_routes.is_some() && !is_excluded(own) {
                // The nodes translate all of these addresses.
                true => service_ranges(own.cluster).collect(),
                false => ranges.iter().copied().collect(),
            },
            wireguard: wireguard(own),
            pools: pools(own),
            priorities: Some(Priorities {
                v4: own.cluster.route_priority(false),
                v6: own.cluster.route_priority(true),
            }),
        },
        services: ranges,
        service_routes: service_routes(own),
        pools: workload_pools(own),
        gateways: gateways(own),
        drain: drain(own),
    }
}

fn drain(own: &Own<'_>) -> Option<String> {
    let since = own.view.fleet.drain_since(&own.host.name)?;
    (!own.host.reflects).then(|| since.to_owned())
}

/// Returns whether a block is in a pool with VXLAN. Of overlapping pools, the smallest counts.
fn is_in_vxlan_pool(own: &Own<'_>, block: &IpNet) -> bool {
    let pools = own.view.pools.values();
    let pools = pools.filter_map(|pool| Some((pool.0.cidr?.0.trunc(), &pool.0)));
    let pools = pools.filter(|(range, _)| range.contains(block));
    let pool = pools.max_by_key(|(range, _)| range.prefix_len());
    pool.is_some_and(|(_, pool)| is_vxlan(pool))
}

/// Returns whether a range has more than one address: the controller of Kubernetes selects the nodes
/// that announce a single address.
pub(crate) fn is_range(net: &IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len()
}

/// Returns whether the node announces no services.
fn is_excluded(own: &Own<'_>) -> bool {
    let label = own.node.labels.get(NO_SERVICES);
    label.is_some_and(|label| label == "true")
}

/// Returns all ranges of services, also single addresses.
pub(crate) fn service_ranges(cluster: &BgpConfigurationSpec) -> impl Iterator<Item = IpNet> {
    let lists = [
        cluster.service_cluster_ips.as_slice(),
        cluster.service_external_ips.as_slice(),
        cluster.service_load_balancer_ips.as_slice(),
    ];
    let ranges = lists.into_iter().flatten();
    ranges.map(|range| range.cidr.0.trunc())
}

/// Returns the single addresses of services that the node announces.
fn service_routes(own: &Own<'_>) -> BTreeMap<IpNet, ServiceAttributes> {
    let routes = own.view.service_routes.iter().filter(|_| !is_excluded(own));
    let routes = routes.flat_map(|routes| &routes.routes);
    let is_listed = |net: &IpNet| service_ranges(own.cluster).any(|range| range.contains(net));
    routes
        .map(|route| (IpNet::from(route.address), route.into()))
        .filter(|(net, _)| is_listed(net))
        .collect()
}

/// Returns the pools that workloads have addresses from. The range of an invalid pool may be one.
fn workload_pools(own: &Own<'_>) -> BTreeSet<IpNet> {
    let pools = own.view.pools.values().map(|pool| &pool.0);
    let is_balancer = |pool: &&IpPoolSpec| {
        let uses = &pool.allowed_uses;
        !uses.is_empty() && uses.iter().all(|one| one == "LoadBalancer")
    };
    let pools = pools.filter(|pool| !is_balancer(pool));
    let pools = pools.filter_map(|pool| Some(pool.cidr?.0.trunc()));
    let closed = own.view.closed_pools.values().copied();
    pools.chain(closed).collect()
}

fn services(own: &Own<'_>) -> BTreeSet<IpNet> {
    if is_excluded(own) {
        return BTreeSet::new();
    }
    let cluster = own.cluster;
    let aggregation = cluster
        .service_load_balancer_aggregation
        .unwrap_or_default();
    let balanced = match aggregation {
        LoadBalancerAggregation::Enabled => cluster.service_load_balancer_ips.as_slice(),
        LoadBalancerAggregation::Disabled => &[],
    };
    let lists = [
        cluster.service_cluster_ips.as_slice(),
        cluster.service_external_ips.as_slice(),
        balanced,
    ];
    let ranges = lists
        .into_iter()
        .flatten()
        .map(|range| range.cidr.0.trunc());
    ranges.filter(is_range).collect()
}

/// Returns the nodes to which Felix has WireGuard routes, if this node has WireGuard, too.
fn wireguard(own: &Own<'_>) -> BTreeSet<IpAddr> {
    let nodes = own.view.nodes.iter();
    let others = nodes.filter(|(name, _)| **name != own.host.name);
    let address = |network: Option<Network>| network.map(|network| network.address());
    let v4 = others
        .clone()
        .filter(|(_, node)| node.wireguard_v4.is_some());
    let v4 = v4.filter_map(|(_, node)| address(node.v4));
    let v6 = others.filter(|(_, node)| node.wireguard_v6.is_some());
    let v6 = v6.filter_map(|(_, node)| address(node.v6));
    let v4 = v4.filter(|_| own.node.wireguard_v4.is_some());
    v4.chain(v6.filter(|_| own.node.wireguard_v6.is_some()))
        .collect()
}

/// Returns how each pool is reached. An invalid pool may be Felix's.
fn pools(own: &Own<'_>) -> Vec<(IpNet, Way)> {
    let pools = own.view.pools.values();
    let pools = pools.filter_map(|pool| Some((pool.0.cidr?.0.trunc(), way(own, &pool.0))));
    let closed = own.view.closed_pools.values();
    pools
        .chain(closed.map(|range| (*range, Way::Theirs)))
        .collect()
}

fn way(own: &Own<'_>, pool: &IpPoolSpec) -> Way {
    let programs = own.cluster.programs();
    let subnet = own.node.v4.map(|network| network.0.trunc());
    match pool.ipip_mode {
        _ if is_vxlan(pool) => Way::Theirs,
        EncapsulationMode::Never if programs.no_encap() => Way::Direct,
        EncapsulationMode::Always if programs.ipip() => Way::Tunnel {
            unless_within: None,
        },
        EncapsulationMode::CrossSubnet if programs.ipip() => Way::Tunnel {
            unless_within: subnet,
        },
        _ => Way::Theirs,
    }
}

/// Returns the peers of this node that are reached through a gateway.
fn gateways(own: &Own<'_>) -> BTreeMap<IpAddr, IpAddr> {
    let peerings = crate::explicit::of_node_itself(own);
    peerings
        .filter_map(|(_, of)| Some((of.spec.peer_ip?.address, of.spec.reachable_by?)))
        .collect()
}
