//! Compares the kernel routes of a fabric with the expected ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::plan::{MachinePlan, Place, Plan};
use crate::KernelRoute;

/// The node of each workload prefix.
pub type Owners = BTreeMap<IpNet, Place>;

/// A difference between a kernel's routes and the expected ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// No route to a workload.
    Absent(IpNet),
    /// The preferred route to a workload leads to another node.
    Elsewhere {
        /// The workload.
        net: IpNet,
        /// The gateways of the preferred route; empty if it is on a link.
        gateways: Vec<IpAddr>,
    },
    /// A route to a workload that was deleted, or that is now local or remote only.
    Stale(IpNet),
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(net) => write!(f, "no route to {net}"),
            Self::Stale(net) => write!(f, "a left-over route to {net}"),
            Self::Elsewhere { net, gateways } if gateways.is_empty() => {
                write!(f, "{net} goes to a link of its own")
            }
            Self::Elsewhere { net, gateways } => write!(f, "{net} goes via {gateways:?}"),
        }
    }
}

/// Returns the differences between `routes`, the main table of the node at `here`, and the expected
/// routes. Expected is that every packet for a workload is forwarded to the node that owns it: over
/// a link at the owner, via the owner's underlay address everywhere else. The longest match counts,
/// even that of a block's route. A second route to a workload is a difference, and so is a route to
/// a prefix without a workload. `workloads` holds the prefixes of all workloads; other routes are
/// ignored.
pub fn missing_routes(
    plan: &Plan,
    here: Place,
    owners: &Owners,
    workloads: &[IpNet],
    routes: &[KernelRoute],
) -> Vec<Lacking> {
    let ours = |net: &IpNet| workloads.iter().any(|all| all.contains(net));
    let mut held: BTreeMap<IpNet, Vec<&KernelRoute>> = BTreeMap::new();
    for route in routes.iter().filter(|route| ours(&route.net)) {
        held.entry(route.net).or_default().push(route);
    }
    let lengths: BTreeSet<u8> = held.keys().map(IpNet::prefix_len).collect();
    let mut lacking = Vec::new();
    for (net, owner) in owners {
        let found = longest_match(&held, &lengths, *net);
        let best = found.iter().min_by_key(|route| route.metric);
        let Some(best) = best.filter(|route| route.unicast) else {
            lacking.push(Lacking::Absent(*net));
            continue;
        };
        let gateways: Vec<IpAddr> = best.hops.iter().filter_map(|hop| hop.gateway).collect();
        let wanted = (*owner != here).then(|| plan.nodes.get(*owner)).flatten();
        let wanted = wanted.map(|node| gateway_of(node, net));
        if gateways != wanted.into_iter().collect::<Vec<_>>() {
            lacking.push(Lacking::Elsewhere {
                net: *net,
                gateways,
            });
        } else if best.net == *net && found.len() > 1 {
            lacking.push(Lacking::Stale(*net));
        }
    }
    let is_left = |(net, found): &(&IpNet, &Vec<&KernelRoute>)| {
        let forwards = found.iter().any(|route| route.unicast);
        forwards && is_address(net) && !owners.contains_key(*net)
    };
    let left = held.iter().filter(is_left);
    lacking.extend(left.map(|(net, _)| Lacking::Stale(*net)));
    lacking
}

/// Returns the routes of the longest prefix that contains `net`; `lengths` are those of all
/// prefixes held.
fn longest_match<'h, 'r>(
    held: &'h BTreeMap<IpNet, Vec<&'r KernelRoute>>,
    lengths: &BTreeSet<u8>,
    net: IpNet,
) -> &'h [&'r KernelRoute] {
    let lengths = lengths.range(..=net.prefix_len()).rev();
    let nets = lengths.filter_map(|length| Some(IpNet::new(net.addr(), *length).ok()?.trunc()));
    let mut found = nets.filter_map(|net| held.get(&net));
    found.next().map_or(&[], Vec::as_slice)
}

fn is_address(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

const fn gateway_of(node: &MachinePlan, net: &IpNet) -> IpAddr {
    match net {
        IpNet::V4(_) => IpAddr::V4(node.v4),
        IpNet::V6(_) => IpAddr::V6(node.v6),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Shape;
    use super::*;
    use crate::{Hop, MAIN_TABLE};

    fn route(net: &str, metric: u32, gateway: Option<&str>) -> KernelRoute {
        let gateway = gateway.map(|g| g.parse().unwrap());
        KernelRoute {
            net: net.parse().unwrap(),
            table: MAIN_TABLE,
            metric,
            protocol: 80,
            unicast: true,
            hops: vec![Hop {
                gateway,
                link: Some(2),
            }],
        }
    }

    fn check(routes: &[KernelRoute]) -> Vec<Lacking> {
        let shape = Shape {
            nodes: 2,
            reflectors: 1,
            workloads_per_node: 1,
            mesh: false,
        };
        let plan = Plan::new(shape).unwrap();
        let owners: Owners = [
            ("10.65.0.1/32".parse().unwrap(), 0),
            ("fd65::2/128".parse().unwrap(), 1),
        ]
        .into();
        let all = [
            "10.65.0.0/16".parse().unwrap(),
            "fd65::/64".parse().unwrap(),
        ];
        missing_routes(&plan, 0, &owners, &all, routes)
    }

    #[test]
    fn all_there_and_nothing_else() {
        let good = [
            route("10.65.0.1/32", 256, None),
            route("fd65::2/128", 1024, Some("fd00::12")),
            route("10.0.0.0/24", 0, None),
        ];
        assert_eq!(check(&good), []);
    }

    #[test]
    fn absent_misdirected_and_stale_routes_are_distinguished() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let bad = [
            route("10.65.0.1/32", 1024, Some("10.0.0.12")),
            route("10.65.0.9/32", 1024, Some("10.0.0.12")),
        ];
        let found = check(&bad);
        assert_eq!(
            found,
            [
                Lacking::Elsewhere {
                    net: net("10.65.0.1/32"),
                    gateways: vec!["10.0.0.12".parse().unwrap()]
                },
                Lacking::Absent(net("fd65::2/128")),
                Lacking::Stale(net("10.65.0.9/32")),
            ]
        );
    }

    fn blackhole(net: &str) -> KernelRoute {
        KernelRoute {
            unicast: false,
            hops: Vec::new(),
            ..route(net, 1024, None)
        }
    }

    #[test]
    fn routes_of_blocks_lead_to_their_workloads() {
        let good = [
            blackhole("10.65.0.0/26"),
            route("10.65.0.1/32", 256, None),
            route("fd65::/122", 1024, Some("fd00::12")),
            route("10.65.7.0/26", 1024, Some("10.0.0.12")),
        ];
        assert_eq!(check(&good), []);
    }

    #[test]
    fn block_of_the_wrong_node_or_without_a_workload_is_lacking() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let bad = [
            blackhole("10.65.0.0/26"),
            route("fd65::/122", 1024, Some("fd00::13")),
            route("fd65::/64", 1024, Some("fd00::12")),
        ];
        assert_eq!(
            check(&bad),
            [
                Lacking::Absent(net("10.65.0.1/32")),
                Lacking::Elsewhere {
                    net: net("fd65::2/128"),
                    gateways: vec!["fd00::13".parse().unwrap()]
                },
            ]
        );
    }

    #[test]
    fn a_second_route_of_higher_metric_is_a_left_over() {
        let routes = [
            route("10.65.0.1/32", 256, None),
            route("10.65.0.1/32", 1024, Some("10.0.0.12")),
            route("fd65::2/128", 1024, Some("fd00::12")),
        ];
        assert_eq!(
            check(&routes),
            [Lacking::Stale("10.65.0.1/32".parse().unwrap())]
        );
    }
}
