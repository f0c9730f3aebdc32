//! The routes of services of each node: an incremental computation over services, endpoints, nodes and
//! the reports of Felix.

mod share;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_kubernetes::{
    Announced, COMMUNITIES_MAX, KubeNode, Outcome, PEERS_MAX, Placed, RouteAttributes,
    ServiceRanges, announced,
};
use calico_model::{
    BgpConfigurationSpec, CommunityValue, NodeSpec, Resource, ServiceName, ServiceRoute,
    ServiceRoutes, ServiceRoutesKey,
};
use calico_store::Revision;

use crate::kinds::Watched;
use crate::limits::{ROUTES_OCTETS_OF_NAMESPACE_MAX, SERVICES_OF_ROUTE_MAX};
use crate::object::{ObjectId, Wanted};
use crate::objects::{Completeness, Objects};
use crate::plan::Change;
use crate::stored::{Stored, Value};
use share::{Candidate, Chosen, choose, cost};

/// The label of nodes that announce no services if its value is `true`.
const EXCLUDED_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The kinds that routes depend on.
const KINDS: [Watched; 3] = [Watched::Service, Watched::EndpointSlice, Watched::Node];

/// Services by the address that a node announces for them.
type ByAddress = BTreeMap<IpAddr, BTreeSet<ServiceName>>;

/// A service, as it was computed last.
#[derive(Debug, Default, PartialEq)]
struct Computed {
    attributes: RouteAttributes,
    addresses: BTreeMap<IpAddr, Announced>,
}

/// A Node of the datastore.
#[derive(Debug, Default)]
struct StoredNode {
    spec: NodeSpec,
    is_excluded: bool,
}

/// The routes of services of each node.
#[derive(Debug, Default)]
pub struct Routes {
    ranges: ServiceRanges,
    stored: BTreeMap<String, StoredNode>,
    /// The nodes of the API server: their names in the datastore.
    names: BTreeMap<String, String>,
    /// The nodes of the datastore that the API server has, and whether they may announce.
    nodes: BTreeMap<String, bool>,
    services: BTreeMap<ServiceName, Computed>,
    everywhere: ByAddress,
    by_node: BTreeMap<String, ByAddress>,
    /// The services with an endpoint of a pod.
    of_pod: BTreeMap<ObjectId, BTreeSet<ServiceName>>,
    pods_of: BTreeMap<ServiceName, BTreeSet<ObjectId>>,
    /// The services to compute again.
    changed: BTreeSet<ServiceName>,
    /// Whether all services and nodes are to be computed again.
    is_all_changed: bool,
    /// Whether all were computed once.
    is_computed: bool,
    /// The number of routes that are left out, by node.
    beyond: BTreeMap<String, usize>,
    /// The services of these routes.
    left_out: BTreeSet<ServiceName>,
}

impl Routes {
    /// Applies BGPConfiguration `default`. An unreadable one keeps the last ranges.
    pub fn set_ranges(&mut self, value: Option<&[u8]>) {
        let parsed = value.map(Resource::<BgpConfigurationSpec>::parse);
        let ranges = match parsed.transpose() {
            Ok(parsed) => parsed.map(|parsed| ServiceRanges::from(&parsed.spec)),
            Err(_) => return,
        };
        let ranges = ranges.unwrap_or_default();
        self.is_all_changed |= self.ranges != ranges;
        self.ranges = ranges;
    }

    /// Applies a Node of the datastore. An unreadable one keeps the last value.
    pub fn set_node(&mut self, name: &str, value: Option<&[u8]>) {
        let parsed = value.map(Resource::<NodeSpec>::parse);
        let node = match parsed.transpose() {
            Ok(parsed) => parsed.map(|parsed| StoredNode {
                is_excluded: is_excluded(&parsed.metadata.labels),
                spec: NodeSpec {
                    orch_refs: parsed.spec.orch_refs,
                    ..NodeSpec::default()
                },
            }),
            Err(_) => return,
        };
        let before = self.stored.get(name);
        let is_equal = match (before, &node) {
            (None, None) => true,
            (Some(before), Some(node)) => {
                before.is_excluded == node.is_excluded
                    && before.spec.orch_refs == node.spec.orch_refs
            }
            _ => false,
        };
        self.is_all_changed |= !is_equal;
        match node {
            Some(node) => drop(self.stored.insert(name.to_owned(), node)),
            None => drop(self.stored.remove(name)),
        }
    }

    /// Marks the services with an endpoint of a pod.
    pub fn touch_pod(&mut self, pod: &ObjectId) {
        let services = self.of_pod.get(pod).into_iter().flatten();
        self.changed.extend(services.cloned());
    }

    /// Marks a service.
    pub fn touch_service(&mut self, service: ServiceName) {
        self.changed.insert(service);
    }

    /// Marks everything.
    pub const fn touch_all(&mut self) {
        self.is_all_changed = true;
    }

    /// Returns whether anything is to be computed.
    pub fn is_due(&self) -> bool {
        self.is_all_changed || !self.changed.is_empty() || !self.is_computed
    }

    /// Computes what has changed. Returns the nodes with keys to compare. Nothing is computed before the
    /// lists of all kinds are complete.
    pub fn compute(&mut self, objects: &Objects, stored: &Stored) -> BTreeSet<String> {
        let is_known = |watched: &Watched| objects.completeness(*watched) != Completeness::Unknown;
        if !self.is_due() || !KINDS.iter().all(is_known) {
            return BTreeSet::new();
        }
        let mut touched = BTreeSet::new();
        if std::mem::take(&mut self.is_all_changed) || !self.is_computed {
            self.is_computed = true;
            touched.extend(self.nodes.keys().cloned());
            self.set_nodes(objects);
            touched.extend(self.stored.keys().cloned());
            self.changed.extend(self.services.keys().cloned());
            self.changed.extend(objects.services());
        }
        for name in std::mem::take(&mut self.changed) {
            self.compute_one(&name, objects, stored, &mut touched);
        }
        touched
    }

    /// Assigns the nodes of the API server to those of the datastore.
    fn set_nodes(&mut self, objects: &Objects) {
        self.names.clear();
        self.nodes.clear();
        for (name, stored) in &self.stored {
            if let Some(node) = kube_node(name, &stored.spec, objects) {
                let may = !stored.is_excluded && !is_excluded(&node.labels);
                self.names.insert(node.name.clone(), name.clone());
                self.nodes.insert(name.clone(), may);
            }
        }
    }

    fn compute_one(
        &mut self,
        name: &ServiceName,
        objects: &Objects,
        stored: &Stored,
        touched: &mut BTreeSet<String>,
    ) {
        let endpoints = self.endpoints(name, objects, stored);
        let service = objects.service(name);
        let next = service.map(|service| Computed {
            attributes: service.attributes.clone().unwrap_or_default(),
            addresses: announced(service, &endpoints, &self.ranges),
        });
        if self.services.get(name) == next.as_ref() {
            return;
        }
        if let Some(before) = self.services.remove(name) {
            self.count(name, &before, false, touched);
        }
        if let Some(next) = next {
            self.count(name, &next, true, touched);
            self.services.insert(name.clone(), next);
        }
    }

    /// Adds the addresses of a service to those of nodes, or removes them.
    fn count(
        &mut self,
        name: &ServiceName,
        computed: &Computed,
        is_added: bool,
        touched: &mut BTreeSet<String>,
    ) {
        for (address, announced) in &computed.addresses {
            match announced {
                Announced::Nowhere(_) => {}
                Announced::Everywhere => {
                    touched.extend(self.nodes.keys().cloned());
                    set(&mut self.everywhere, *address, name, is_added);
                }
                Announced::Nodes(nodes) => {
                    for node in nodes {
                        touched.insert(node.clone());
                        let of_node = self.by_node.entry(node.clone()).or_default();
                        set(of_node, *address, name, is_added);
                        if of_node.is_empty() {
                            self.by_node.remove(node);
                        }
                    }
                }
            }
        }
    }

    /// Returns the endpoints of a service, and remembers their pods.
    fn endpoints(&mut self, name: &ServiceName, objects: &Objects, stored: &Stored) -> Vec<Placed> {
        for pod in self.pods_of.remove(name).unwrap_or_default() {
            if let Some(services) = self.of_pod.get_mut(&pod) {
                services.remove(name);
                if services.is_empty() {
                    self.of_pod.remove(&pod);
                }
            }
        }
        let mut all = Vec::new();
        for slice in objects.slices(name) {
            let Some(is_ipv6) = slice.is_ipv6 else {
                continue;
            };
            for endpoint in &slice.endpoints {
                let pod = endpoint.pod.clone();
                let pod = pod.map(|(namespace, name)| ObjectId { namespace, name });
                let node = self.names.get(&endpoint.node).cloned();
                let is_up = match (&node, &pod) {
                    (Some(node), Some(pod)) => is_up(node, pod, objects, stored),
                    _ => true,
                };
                if let Some(pod) = pod {
                    let services = self.of_pod.entry(pod.clone()).or_default();
                    services.insert(name.clone());
                    self.pods_of.entry(name.clone()).or_default().insert(pod);
                }
                all.push(Placed {
                    node,
                    is_ipv6,
                    readiness: endpoint.readiness,
                    is_up,
                });
            }
        }
        all
    }

    /// Returns the routes of a node within its limits.
    fn of(&self, node: &str) -> Chosen<'_> {
        let none = ByAddress::new();
        let own = self.by_node.get(node);
        let is_own = |address: &IpAddr| own.is_some_and(|own| own.contains_key(address));
        let addresses = self.everywhere.keys();
        let addresses: BTreeSet<IpAddr> = addresses
            .chain(own.unwrap_or(&none).keys())
            .copied()
            .collect();
        let candidates = addresses.into_iter().map(|address| {
            let services = [Some(&self.everywhere), own].into_iter().flatten();
            let services = services.filter_map(|all| all.get(&address)).flatten();
            let services: BTreeSet<&ServiceName> = services.collect();
            Candidate {
                route: self.route(address, &services),
                services,
                is_optional: !is_own(&address) && self.ranges.has_range_around(address),
            }
        });
        choose(candidates.collect())
    }

    fn route(&self, address: IpAddr, services: &BTreeSet<&ServiceName>) -> ServiceRoute {
        let attributes = services.iter().filter_map(|name| self.services.get(*name));
        let attributes: Vec<_> = attributes.map(|computed| &computed.attributes).collect();
        let is_restricted = attributes.iter().all(|one| !one.peers.is_empty());
        let peers = attributes.iter().filter(|_| is_restricted);
        let peers: BTreeSet<String> = peers.flat_map(|one| one.peers.iter().cloned()).collect();
        ServiceRoute {
            address,
            communities: communities(&attributes),
            med: attributes.iter().filter_map(|one| one.med).min(),
            peers: peers.into_iter().take(PEERS_MAX).collect(),
            services: services
                .iter()
                .take(SERVICES_OF_ROUTE_MAX)
                .map(ToString::to_string)
                .collect(),
        }
    }

    /// Plans the key of a node. `is_held`: whether missing objects may be lost ones; the routes of their
    /// services then stay.
    pub fn plan(
        &self,
        key: &ServiceRoutesKey,
        found: Option<&Value>,
        objects: &Objects,
        is_held: bool,
    ) -> Change {
        if !self.is_computed {
            return Change::Nothing;
        }
        let Some(may) = self.nodes.get(&key.node) else {
            return match found {
                Some(found) => Change::Delete {
                    was: found.revision,
                },
                None => Change::Nothing,
            };
        };
        let mut next = match may {
            true => ServiceRoutes {
                routes: self.of(&key.node).routes,
            },
            false => ServiceRoutes::default(),
        };
        let parsed = found.and_then(|found| ServiceRoutes::parse(&found.octets).ok());
        if is_held && let Some(parsed) = &parsed {
            keep_missing(&mut next, parsed, objects);
        }
        let is_unused = found.is_none() && next.routes.is_empty() && self.ranges.is_empty();
        match is_unused || parsed.as_ref() == Some(&next) {
            true => Change::Nothing,
            false => Change::Put {
                octets: next.encode().into(),
                was: found.map_or(Revision::ZERO, |found| found.revision),
            },
        }
    }

    /// Returns whether the API server has a node of the datastore.
    pub fn has_node(&self, node: &str, objects: &Objects) -> bool {
        let stored = self.stored.get(node);
        stored.is_some_and(|stored| kube_node(node, &stored.spec, objects).is_some())
    }

    /// Returns the nodes of the datastore that the API server has, and whether they may announce.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, bool)> {
        self.nodes.iter().map(|(node, may)| (node.as_str(), *may))
    }

    /// Returns the computed services, each address with the nodes that announce it.
    pub fn services(&self) -> impl Iterator<Item = (&ServiceName, &BTreeMap<IpAddr, Announced>)> {
        let all = self.services.iter();
        all.map(|(name, computed)| (name, &computed.addresses))
    }

    /// Looks for routes that are left out. Returns the services for which that has changed.
    pub fn look_beyond(&mut self) -> BTreeSet<ServiceName> {
        let mut beyond = BTreeMap::new();
        let mut left_out = BTreeSet::new();
        let cost_of = |all: &ByAddress| {
            let routes = all.iter();
            let routes = routes.map(|(at, services)| self.route(*at, &services.iter().collect()));
            routes.map(|route| cost(&route)).sum::<usize>()
        };
        let everywhere = cost_of(&self.everywhere);
        for (node, _) in self.nodes().filter(|(_, may)| *may) {
            let own = self.by_node.get(node).map_or(0, cost_of);
            // So few always fit.
            if everywhere + own <= ROUTES_OCTETS_OF_NAMESPACE_MAX {
                continue;
            }
            let chosen = self.of(node);
            if chosen.beyond > 0 {
                beyond.insert(node.to_owned(), chosen.beyond);
                left_out.extend(chosen.left_out.into_iter().cloned());
            }
        }
        let changed = left_out.symmetric_difference(&self.left_out).cloned();
        let changed = changed.collect();
        (self.beyond, self.left_out) = (beyond, left_out);
        changed
    }

    /// Returns whether a node announces not all addresses of a service, because of its limits.
    pub fn is_left_out(&self, service: &ServiceName) -> bool {
        self.left_out.contains(service)
    }

    /// Returns the nodes with more routes than the limits, with the numbers of those left out.
    pub fn beyond(&self) -> impl Iterator<Item = (&str, usize)> {
        let all = self.beyond.iter();
        all.map(|(node, beyond)| (node.as_str(), *beyond))
    }
}

/// Joins the communities of services. If there are too many, the well-known ones stay (RFC 1997): they
/// restrict a route.
fn communities(attributes: &[&RouteAttributes]) -> BTreeSet<CommunityValue> {
    let all = attributes.iter().flat_map(|one| one.communities.iter());
    let is_known =
        |community: &CommunityValue| matches!(community, CommunityValue::Standard(0xffff, _));
    let mut all: Vec<CommunityValue> = all.copied().collect();
    all.sort_by_key(|community| (!is_known(community), *community));
    all.dedup();
    all.into_iter().take(COMMUNITIES_MAX).collect()
}

/// Returns the node of the API server that a node of the datastore is.
fn kube_node<'o>(name: &str, spec: &NodeSpec, objects: &'o Objects) -> Option<&'o KubeNode> {
    let references = spec.orch_refs.iter();
    let names = references.map(|reference| reference.node_name.as_str());
    let mut nodes = names.chain([name]);
    nodes.find_map(|of| objects.node(of).filter(|node| node.is(name, spec)))
}

/// Keeps the routes whose services all lack their object, or all of its slices.
fn keep_missing(next: &mut ServiceRoutes, stored: &ServiceRoutes, objects: &Objects) {
    let is_missing = |name: &String| {
        let Some((namespace, name)) = name.split_once('/') else {
            return true;
        };
        let name = ServiceName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        objects.service(&name).is_none() || objects.slices(&name).next().is_none()
    };
    for route in &stored.routes {
        let has = next.routes.iter().any(|one| one.address == route.address);
        if !has && route.services.iter().all(is_missing) {
            next.routes.push(route.clone());
        }
    }
    next.routes.sort_by_key(|route| route.address);
}

/// Returns whether Felix reports a pod as up. Pods in the network of the host have no endpoint.
fn is_up(node: &str, pod: &ObjectId, objects: &Objects, stored: &Stored) -> bool {
    let reports = stored.reports();
    let object = objects.get(Watched::Pod, pod);
    let is_on_host = object.is_some_and(|object| object.outcome == Outcome::<Wanted>::Absent);
    let is_known = objects.completeness(Watched::Pod) == Completeness::Complete;
    !is_known || is_on_host || !reports.has(node) || reports.is_up(node, pod)
}

fn is_excluded(labels: &BTreeMap<String, String>) -> bool {
    labels
        .get(EXCLUDED_LABEL)
        .is_some_and(|value| value == "true")
}

fn set(all: &mut ByAddress, address: IpAddr, name: &ServiceName, is_added: bool) {
    let services = all.entry(address).or_default();
    match is_added {
        true => drop(services.insert(name.clone())),
        false => drop(services.remove(name)),
    }
    if services.is_empty() {
        all.remove(&address);
    }
}

#[cfg(test)]
mod tests;
