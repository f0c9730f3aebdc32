//! What a node does beside its sessions: routes of its own, and which learned ones its kernel gets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_model::{EncapsulationMode, IpPoolSpec, LoadBalancerAggregation, Network};
use ipnet::IpNet;

use crate::export::is_vxlan;
use crate::own::Own;
use crate::priority::Priorities;

/// The label of nodes that announce no services, when it is `true`.
const NO_SERVICES: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// What a node does beside its sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duties {
    /// Blocks of addresses that belong to the node.
    pub blocks: BTreeSet<IpNet>,
    /// Ranges of services, which every node announces.
    pub services: BTreeSet<IpNet>,
    /// Hosts that are reached by a gateway: peers that say so.
    pub gateways: BTreeMap<IpAddr, IpAddr>,
    /// Which learned routes the kernel gets.
    pub programming: Programming,
}

/// Which learned routes the kernel gets, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programming {
    /// Ranges of services: whoever has a route to one answers for it.
    pub services: Vec<IpNet>,
    /// Nodes that Felix has a WireGuard route to.
    pub wireguard: BTreeSet<IpAddr>,
    /// Pools, and the way into each.
    pub pools: Vec<(IpNet, Way)>,
    /// The normal metrics, where metrics and LOCAL_PREF are made of each other ([`degree_of`],
    /// [`metric_of`]); without a store they are not.
    ///
    /// [`degree_of`]: crate::degree_of
    /// [`metric_of`]: crate::metric_of
    pub priorities: Option<Priorities>,
}

/// How packets to a learned destination go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the next hop.
    Direct,
    /// To the next hop in an IP-in-IP tunnel, unless it is within this net.
    Tunnel {
        /// The node's own IPv4 subnet, where pools tunnel between subnets only: IP-in-IP is IPv4's.
        unless_within: Option<IpNet>,
    },
    /// As somebody else has it: no route of ours.
    Theirs,
}

impl Programming {
    /// The way to a destination by a next hop: [`Way::Direct`], a tunnel for sure, or not at all.
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

/// What the store says of the node's duties.
pub(crate) fn duties(own: &Own<'_>) -> Duties {
    let blocks = own.view.blocks.iter();
    let blocks = blocks.filter(|(host, _)| *host == own.host.name);
    let ranges = services(own);
    Duties {
        blocks: blocks.map(|(_, block)| *block).collect(),
        programming: Programming {
            services: ranges.iter().copied().collect(),
            wireguard: wireguard(own),
            pools: pools(own),
            priorities: Some(Priorities {
                v4: own.cluster.route_priority(false),
                v6: own.cluster.route_priority(true),
            }),
        },
        services: ranges,
        gateways: gateways(own),
    }
}

/// Whether a range has more than one address: a single one is announced by those that serve it.
pub(crate) fn is_range(net: &IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len()
}

fn services(own: &Own<'_>) -> BTreeSet<IpNet> {
    if own
        .node
        .labels
        .get(NO_SERVICES)
        .is_some_and(|label| label == "true")
    {
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

/// The nodes that Felix has WireGuard routes to, if we are one of those that have WireGuard.
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

/// The way into each pool. One that could not be read may be Felix's.
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

/// Peers of this node that say by which gateway they are reached.
fn gateways(own: &Own<'_>) -> BTreeMap<IpAddr, IpAddr> {
    let peerings = crate::explicit::of_node_itself(own);
    peerings
        .filter_map(|(_, of)| Some((of.spec.peer_ip?.address, of.spec.reachable_by?)))
        .collect()
}
