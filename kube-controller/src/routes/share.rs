//! The choice of the routes of a node within its limits. No namespace displaces the routes of others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use calico_model::{ServiceName, ServiceRoute};

use crate::limits::{ROUTE_COST_MIN, ROUTES_OCTETS_MAX, ROUTES_OCTETS_OF_NAMESPACE_MAX};

/// A route that a node may announce.
pub(super) struct Candidate<'s> {
    pub(super) route: ServiceRoute,
    /// All services with its address.
    pub(super) services: BTreeSet<&'s ServiceName>,
    /// Whether all nodes announce a range around it. It only has other attributes.
    pub(super) is_optional: bool,
}

/// The routes of a node.
#[derive(Default)]
pub(super) struct Chosen<'s> {
    /// Its announced routes, by address.
    pub(super) routes: Vec<ServiceRoute>,
    /// The number of those left out.
    pub(super) beyond: usize,
    /// The services with a route that is left out.
    pub(super) left_out: BTreeSet<&'s ServiceName>,
}

/// Returns the share of the limits that a route uses, in octets.
pub(super) fn cost(route: &ServiceRoute) -> usize {
    let octets = serde_json::to_vec(route).map_or(0, |text| text.len() + 1);
    octets.max(ROUTE_COST_MIN)
}

/// Chooses among routes in the order of their addresses. In each step, the namespace with the lowest
/// costs so far gets its next route. Optional routes are chosen after all others.
pub(super) fn choose(candidates: Vec<Candidate<'_>>) -> Chosen<'_> {
    let costs: Vec<usize> = candidates.iter().map(|one| cost(&one.route)).collect();
    let mut chosen = Chosen::default();
    if costs.iter().sum::<usize>() <= ROUTES_OCTETS_OF_NAMESPACE_MAX {
        chosen.routes = candidates.into_iter().map(|one| one.route).collect();
        return chosen;
    }
    let taken = taken(&candidates, &costs);
    for (candidate, is_taken) in candidates.into_iter().zip(taken) {
        match is_taken {
            true => chosen.routes.push(candidate.route),
            false => {
                chosen.beyond += 1;
                chosen.left_out.extend(candidate.services);
            }
        }
    }
    chosen
}

/// Returns for each route whether it is chosen.
fn taken(candidates: &[Candidate<'_>], costs: &[usize]) -> Vec<bool> {
    let mut taken = vec![false; candidates.len()];
    let mut total = 0;
    let mut spent: BTreeMap<&str, usize> = BTreeMap::new();
    for is_optional in [false, true] {
        let mut queues: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
        for (at, candidate) in candidates.iter().enumerate() {
            let names = candidate.services.iter();
            let namespaces: BTreeSet<&str> = names.map(|name| name.namespace.as_str()).collect();
            for namespace in namespaces {
                if candidate.is_optional == is_optional {
                    queues.entry(namespace).or_default().push_back(at);
                }
            }
        }
        let costs_of = |namespace| spent.get(namespace).copied().unwrap_or_default();
        let first = queues.keys().map(|name| Reverse((costs_of(*name), *name)));
        let mut next: BinaryHeap<_> = first.collect();
        while let Some(Reverse((mut so_far, namespace))) = next.pop() {
            let Some(at) = queues.get_mut(namespace).and_then(VecDeque::pop_front) else {
                spent.insert(namespace, so_far);
                continue;
            };
            // A shared address may have been chosen for another namespace.
            let fits = so_far + costs[at] <= ROUTES_OCTETS_OF_NAMESPACE_MAX
                && total + costs[at] <= ROUTES_OCTETS_MAX;
            if !taken[at] && fits {
                taken[at] = true;
                so_far += costs[at];
                total += costs[at];
            }
            next.push(Reverse((so_far, namespace)));
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::limits::{ROUTES_OF_NAMESPACE_MAX, ROUTES_OF_NODE_MAX};

    /// Returns the number of chosen routes of each namespace. Each namespace has `count` services with an
    /// address each, and `octets` more in each route.
    fn counts(of: &[(&str, usize, usize, bool)]) -> Vec<usize> {
        let names = of.iter().map(|(namespace, count, ..)| {
            let name = |at: usize| ServiceName {
                namespace: (*namespace).to_owned(),
                name: format!("s{at}"),
            };
            (0..*count).map(name).collect::<Vec<_>>()
        });
        let names: Vec<Vec<ServiceName>> = names.collect();
        let mut candidates = Vec::new();
        for ((_, _, octets, is_optional), names) in of.iter().zip(&names) {
            for name in names {
                let at = u32::try_from(candidates.len()).expect("few");
                let peers = (*octets > 0).then(|| "p".repeat(*octets));
                candidates.push(Candidate {
                    route: ServiceRoute {
                        address: IpAddr::V4(Ipv4Addr::from(at)),
                        communities: BTreeSet::new(),
                        med: None,
                        peers: peers.into_iter().collect(),
                        services: vec![name.to_string()],
                    },
                    services: BTreeSet::from([name]),
                    is_optional: *is_optional,
                });
            }
        }
        let all = candidates.len();
        let chosen = choose(candidates);
        assert_eq!(chosen.routes.len() + chosen.beyond, all);
        assert_eq!(chosen.left_out.len(), chosen.beyond);
        let total: usize = chosen.routes.iter().map(cost).sum();
        assert!(total <= ROUTES_OCTETS_MAX && chosen.routes.len() <= ROUTES_OF_NODE_MAX);
        assert!(chosen.routes.is_sorted_by_key(|route| route.address));
        let of_namespace = |namespace: &str| {
            let start = format!("{namespace}/");
            let routes = chosen.routes.iter();
            routes
                .filter(|route| route.services[0].starts_with(&start))
                .count()
        };
        of.iter()
            .map(|(namespace, ..)| of_namespace(namespace))
            .collect()
    }

    #[test]
    fn limits_are_shared_by_the_namespaces() {
        let many = ROUTES_OF_NODE_MAX + 3;
        assert_eq!(counts(&[("a", 1000, 0, false)]), [1000]);
        assert_eq!(counts(&[("a", many, 0, false)]), [ROUTES_OF_NAMESPACE_MAX]);
        // The others get the unused part.
        let of = [
            ("a", many, 0, false),
            ("b", many, 0, false),
            ("c", many, 0, false),
            ("d", many, 0, false),
            ("prod", 200, 0, false),
        ];
        assert_eq!(counts(&of), [974, 974, 974, 974, 200]);
    }

    #[test]
    fn long_routes_use_the_share_of_their_namespace() {
        let many = 20_000 / 16;
        let of = [
            ("a", many, 10_000, false),
            ("b", many, 10_000, false),
            ("c", many, 10_000, false),
            ("d", many, 10_000, false),
            ("prod", 800, 0, false),
        ];
        let found = counts(&of);
        assert_eq!(found[4], 800);
        assert!(found[..4].iter().all(|count| *count <= 16), "{found:?}");
    }

    #[test]
    fn optional_routes_are_chosen_last() {
        let of = [
            ("a", 1024, 0, true),
            ("b", 1024, 0, true),
            ("c", 1024, 0, true),
            ("d", 1024, 0, true),
            ("prod", 1000, 0, false),
        ];
        assert_eq!(counts(&of), [774, 774, 774, 774, 1000]);
    }
}
