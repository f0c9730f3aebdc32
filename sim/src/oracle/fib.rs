//! In a stable state every kernel has exactly the routes that follow from the datastore, by a
//! reference model without BGP.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use calico_model::{Kind, Resource, WorkloadEndpointSpec};
use calico_store::{KeyRange, Query};
use fib_sync::{Route, RouteKey, TABLE_MAIN};
use ipnet::IpNet;

use crate::machine::UNDERLAY;
use crate::world::World;

/// `rtm_protocol` and metric of Felix's routes, and of the BGP client's.
const ENDPOINT: (u8, u32) = (80, 256);
pub(crate) const LEARNED: (u8, u32) = (119, 1024);

/// Table, destination and metric of the route by which Felix shows that the host is programmed.
const MARKER: (u32, IpAddr, u32) = (80_119, IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)), 256);

/// The metric of the route by which the BGP client shows that it answers to marked routes.
const ANSWERER_METRIC: u32 = 1024;

/// The relevant parts of a route: protocol, next hops with their interfaces.
type Way = (u8, Vec<(Option<IpAddr>, Option<u32>)>);

/// Returns for each address the nodes with an endpoint of it, by the datastore, and its interface
/// there.
pub(crate) fn owners(world: &World) -> BTreeMap<IpNet, BTreeMap<usize, u32>> {
    let mut owners: BTreeMap<IpNet, BTreeMap<usize, u32>> = BTreeMap::new();
    let range = KeyRange::prefix(Kind::WorkloadEndpoint.prefix());
    let listing = world
        .store
        .core
        .range(&Query::new(range))
        .unwrap_or_default();
    for item in listing.items {
        let Ok(endpoint) = Resource::<WorkloadEndpointSpec>::parse(&item.value) else {
            continue;
        };
        let Some(at) = world.machine(&endpoint.spec.node) else {
            continue;
        };
        let Some(node) = world
            .machines
            .get(at)
            .and_then(|machine| machine.node.as_ref())
        else {
            continue;
        };
        let kernel = node.kernel.borrow();
        if let Some(link) = kernel
            .link(&endpoint.spec.interface_name)
            .filter(|link| link.up)
        {
            for network in &endpoint.spec.ip_networks {
                owners.entry(network.0).or_default().insert(at, link.index);
            }
        }
    }
    owners
}

/// Returns the routes of the daemons that a node's kernel must have. If several nodes have an
/// address, the others use the one with the lowest BGP identifier (RFC 4271 §9.1.2.2 f), which
/// itself has no better route than its own.
fn expected(
    world: &World,
    at: usize,
    owners: &BTreeMap<IpNet, BTreeMap<usize, u32>>,
) -> BTreeMap<RouteKey, Way> {
    let (table, to, metric) = MARKER;
    let marker = RouteKey::new(table, to.into(), metric, 0);
    let mut routes = BTreeMap::from([(marker, (ENDPOINT.0, Vec::new()))]);
    if world.options.answers {
        let answerer = RouteKey::new(table, to.into(), ANSWERER_METRIC, 0);
        routes.insert(answerer, (LEARNED.0, Vec::new()));
    }
    for (net, places) in owners {
        if let Some(index) = places.get(&at) {
            let key = RouteKey::new(TABLE_MAIN, *net, ENDPOINT.1, 0);
            routes.insert(key, (ENDPOINT.0, vec![(None, Some(*index))]));
        }
        let best = places
            .keys()
            .min_by_key(|place| world.machines.get(**place).map(|m| m.v4));
        let Some(best) = best.filter(|best| **best != at) else {
            continue;
        };
        let Some(owner) = world.machines.get(*best) else {
            continue;
        };
        let key = RouteKey::new(TABLE_MAIN, *net, LEARNED.1, 0);
        let taken = world
            .foreign
            .get(at)
            .is_some_and(|foreign| foreign.contains_key(&key));
        if !taken {
            let gateway = owner.address(net.addr().is_ipv6());
            let index = world.underlay(at);
            routes.insert(key, (LEARNED.0, vec![(Some(gateway), index)]));
        }
    }
    routes
}

/// Returns the wrong routes of the daemons in any kernel, one line each; empty if every kernel is
/// correct.
pub fn check(world: &World) -> Vec<String> {
    let owners = owners(world);
    let mut wrong = Vec::new();
    for (at, machine) in world.machines.iter().enumerate() {
        let Some(node) = &machine.node else { continue };
        let wanted = expected(world, at, &owners);
        let kernel = node.kernel.borrow();
        let found: BTreeMap<RouteKey, Way> = kernel
            .routes()
            .filter(|(_, route)| [ENDPOINT.0, LEARNED.0].contains(&route.protocol))
            .map(|(key, route)| (*key, way(route)))
            .collect();
        let keys: BTreeSet<&RouteKey> = wanted.keys().chain(found.keys()).collect();
        for key in keys {
            let (want, have) = (wanted.get(key), found.get(key));
            if want != have {
                let name = &machine.name;
                wrong.push(format!("{name}: {key}: wanted {want:?}, found {have:?}"));
            }
        }
    }
    wrong
}

fn way(route: &Route) -> Way {
    let hops = route
        .next_hops
        .iter()
        .map(|hop| (hop.gateway, hop.interface));
    (route.protocol, hops.collect())
}

impl World {
    /// Returns the number of the daemons' routes in each node's kernel.
    pub(crate) fn routes(&self) -> Vec<usize> {
        let nodes = self
            .machines
            .iter()
            .filter_map(|machine| machine.node.as_ref());
        let ours = |route: &Route| [ENDPOINT.0, LEARNED.0].contains(&route.protocol);
        let count = |node: &crate::machine::NodeParts| {
            node.kernel
                .borrow()
                .routes()
                .filter(|(key, route)| key.table == TABLE_MAIN && ours(route))
                .count()
        };
        nodes.map(count).collect()
    }

    /// Returns the index of a node's interface to the underlay.
    pub(crate) fn underlay(&self, at: usize) -> Option<u32> {
        let node = self.machines.get(at)?.node.as_ref()?;
        node.kernel.borrow().link(UNDERLAY).map(|link| link.index)
    }
}
