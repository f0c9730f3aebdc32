//! The decision about routes to the addresses of services.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use calico_model::{BgpConfigurationSpec, LoadBalancerAggregation};
use ipnet::IpNet;

use crate::balanced::{KubeService, Readiness, TrafficPolicy};

/// The ranges of services in BGPConfiguration `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRanges {
    cluster: Vec<IpNet>,
    external: Vec<IpNet>,
    load_balancer: Vec<IpNet>,
    /// Whether ranges of load balancers are announced as a whole.
    aggregates: bool,
}

impl From<&BgpConfigurationSpec> for ServiceRanges {
    fn from(spec: &BgpConfigurationSpec) -> Self {
        let of = |list: &[calico_model::CidrBlock]| {
            let ranges = list.iter().map(|range| range.cidr.0.trunc());
            ranges.collect()
        };
        let aggregation = spec.service_load_balancer_aggregation.unwrap_or_default();
        Self {
            cluster: of(&spec.service_cluster_ips),
            external: of(&spec.service_external_ips),
            load_balancer: of(&spec.service_load_balancer_ips),
            aggregates: aggregation == LoadBalancerAggregation::Enabled,
        }
    }
}

impl ServiceRanges {
    /// Returns whether no range is configured.
    pub fn is_empty(&self) -> bool {
        self.cluster.is_empty() && self.external.is_empty() && self.load_balancer.is_empty()
    }

    /// Returns whether all nodes announce a range around an address.
    pub fn has_range_around(&self, address: IpAddr) -> bool {
        let sorts = [Sort::Cluster, Sort::External, Sort::LoadBalancer];
        let mut listed = sorts.map(|sort| self.listed(sort, address)).into_iter();
        listed.any(|listed| matches!(listed, Some(Listed::InRange(_))))
    }

    fn of(&self, sort: Sort) -> &[IpNet] {
        match sort {
            Sort::Cluster => &self.cluster,
            Sort::External => &self.external,
            Sort::LoadBalancer => &self.load_balancer,
        }
    }

    /// Returns how an address is listed; `None` if it is in no range.
    fn listed(&self, sort: Sort, address: IpAddr) -> Option<Listed> {
        let ranges = self.of(sort).iter();
        let mut around = ranges.filter(|range| range.contains(&address)).peekable();
        around.peek()?;
        let is_alone = sort == Sort::LoadBalancer && !self.aggregates;
        let mut whole = None;
        for range in around {
            match range.prefix_len() == range.max_prefix_len() {
                true => return Some(Listed::Alone),
                false => whole = Some(*range),
            }
        }
        whole
            .filter(|_| !is_alone)
            .map(Listed::InRange)
            .or(Some(Listed::Alone))
    }
}

enum Listed {
    /// All nodes announce the range.
    InRange(IpNet),
    /// The address has a route of its own only.
    Alone,
}

/// The sort of an address of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// A cluster address.
    Cluster,
    /// An external address.
    External,
    /// An address of the load balancer.
    LoadBalancer,
}

impl Sort {
    /// Returns the list of BGPConfiguration with its ranges.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Cluster => "serviceClusterIPs",
            Self::External => "serviceExternalIPs",
            Self::LoadBalancer => "serviceLoadBalancerIPs",
        }
    }
}

/// An endpoint of a service, with the node as the datastore names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Its node; `None` if it is on none that the datastore has.
    pub node: Option<String>,
    /// Whether it has an IPv6 address.
    pub is_ipv6: bool,
    /// Its readiness.
    pub readiness: Readiness,
    /// Whether Felix reports that it works, or reports nothing about endpoints.
    pub is_up: bool,
}

/// The nodes that announce an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announced {
    /// None: the reason.
    Nowhere(Reason),
    /// These, if they may announce services.
    Nodes(BTreeSet<String>),
    /// All that may announce services.
    Everywhere,
}

/// Why no node announces an address by a route of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// No range contains the address.
    NotListed(Sort),
    /// All nodes announce the range.
    InRange(IpNet),
    /// No endpoint takes connections.
    NoEndpoint,
    /// No endpoint that takes connections is on a node.
    NoLocalEndpoint,
    /// Felix does not report that an endpoint works.
    NotUp,
    /// An annotation or a field of the service is invalid.
    Invalid,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed(sort) => write!(f, "{} does not contain it", sort.field()),
            Self::InRange(range) => write!(f, "all nodes announce its range {range}"),
            Self::NoEndpoint => f.write_str("no endpoint is ready"),
            Self::NoLocalEndpoint => f.write_str("no ready endpoint has a node of the datastore"),
            Self::NotUp => f.write_str("Felix does not report that a ready endpoint is up"),
            Self::Invalid => f.write_str("an annotation or traffic policy is invalid"),
        }
    }
}

/// Returns which nodes announce each address of a service.
pub fn announced(
    service: &KubeService,
    endpoints: &[Placed],
    ranges: &ServiceRanges,
) -> BTreeMap<IpAddr, Announced> {
    let mut all = BTreeMap::new();
    for (sort, address) in addresses(service) {
        let found = one(service, sort, address, endpoints, ranges);
        // An address of two sorts is announced for both.
        match all.get_mut(&address) {
            None => drop(all.insert(address, found)),
            Some(known) => join(known, found),
        }
    }
    all
}

/// Returns the addresses of a service, each with its sort.
fn addresses(service: &KubeService) -> impl Iterator<Item = (Sort, IpAddr)> + '_ {
    let sorts = [
        (Sort::Cluster, &service.cluster_ips),
        (Sort::External, &service.external_ips),
        (Sort::LoadBalancer, &service.load_balancer_ips),
    ];
    sorts
        .into_iter()
        .flat_map(|(sort, all)| all.iter().map(move |address| (sort, *address)))
}

fn join(known: &mut Announced, other: Announced) {
    match (&mut *known, other) {
        (Announced::Everywhere, _) | (_, Announced::Nowhere(_)) => {}
        (Announced::Nodes(known), Announced::Nodes(others)) => known.extend(others),
        (_, other) => *known = other,
    }
}

fn one(
    service: &KubeService,
    sort: Sort,
    address: IpAddr,
    endpoints: &[Placed],
    ranges: &ServiceRanges,
) -> Announced {
    let Some(listed) = ranges.listed(sort, address) else {
        return Announced::Nowhere(Reason::NotListed(sort));
    };
    let Some(attributes) = &service.attributes else {
        return Announced::Nowhere(Reason::Invalid);
    };
    let policy = match sort {
        Sort::Cluster => service.internal,
        Sort::External | Sort::LoadBalancer => service.external,
    };
    // Each entry serves the addresses of its own family.
    let of_family = |endpoint: &&Placed| endpoint.is_ipv6 == address.is_ipv6();
    let endpoints = endpoints.iter().filter(of_family);
    match (policy, listed) {
        (TrafficPolicy::Cluster, Listed::InRange(range)) if attributes.is_default() => {
            Announced::Nowhere(Reason::InRange(range))
        }
        (TrafficPolicy::Cluster, _) => match serving(endpoints).is_empty() {
            true => Announced::Nowhere(Reason::NoEndpoint),
            false => Announced::Everywhere,
        },
        (TrafficPolicy::Local, _) => local(endpoints.collect()),
    }
}

/// Returns the nodes with an endpoint that takes connections. kube-proxy decides for each node alone
/// whether it uses endpoints that terminate.
fn local(endpoints: Vec<&Placed>) -> Announced {
    let mut by_node: BTreeMap<&String, Vec<&Placed>> = BTreeMap::new();
    for endpoint in &endpoints {
        if let Some(node) = &endpoint.node {
            by_node.entry(node).or_default().push(endpoint);
        }
    }
    let of_node = |of: &Vec<&Placed>| {
        let serving = serving(of.iter().copied());
        (!serving.is_empty(), serving.iter().any(|one| one.is_up))
    };
    let works = by_node.iter().map(|(node, of)| (*node, of_node(of)));
    let works: Vec<(&String, (bool, bool))> = works.collect();
    let nodes = works.iter().filter(|(_, (_, is_up))| *is_up);
    let nodes: BTreeSet<String> = nodes.map(|(node, _)| (*node).clone()).collect();
    let reason = match (works.iter().any(|(_, (serves, _))| *serves), &endpoints) {
        (true, _) => Reason::NotUp,
        (false, all) if serving(all.iter().copied()).is_empty() => Reason::NoEndpoint,
        (false, _) => Reason::NoLocalEndpoint,
    };
    match nodes.is_empty() {
        true => Announced::Nowhere(reason),
        false => Announced::Nodes(nodes),
    }
}

/// Returns the endpoints that kube-proxy uses: those that are ready, or without any, those that
/// terminate and still serve (KEP-1669).
fn serving<'e>(endpoints: impl Iterator<Item = &'e Placed>) -> Vec<&'e Placed> {
    let all: Vec<&Placed> = endpoints.collect();
    let of = |readiness| {
        let all = all.iter().copied();
        all.filter(move |one| one.readiness == readiness)
            .collect::<Vec<_>>()
    };
    let ready = of(Readiness::Ready);
    match ready.is_empty() {
        true => of(Readiness::Draining),
        false => ready,
    }
}
