//! Routes that are marked before they are removed, with a BGP client that answers.

use fib_sync::METRIC_LEAVING;
use ipnet::IpNet;
use kernel_events::marker;

use super::*;
use crate::limits::LEAVING;

const BGP: Owner = Owner(119);
const ADDRESS: &str = "10.65.0.1/32";

/// Returns a host with an endpoint and a BGP client, and the index of its interface.
fn routed() -> (World, u32) {
    let mut world = World::new();
    sign(&world, marker::answerer_key());
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &[ADDRESS, "fd65::1/128"]);
    world.in_sync();
    assert_eq!(metrics(&world, ADDRESS), [256]);
    (world, index)
}

/// Adds a route of the BGP client.
fn sign(world: &World, key: RouteKey) {
    let mut kernel = world.kernel.borrow_mut();
    kernel.add_route(key, marker::route(BGP)).unwrap();
}

fn answer(world: &mut World, prefix: &str) {
    let prefix: IpNet = prefix.parse().unwrap();
    sign(world, marker::answer_key(prefix));
    world.settle();
}

/// Returns the metrics of Felix's routes to a prefix.
fn metrics(world: &World, prefix: &str) -> Vec<u32> {
    let prefix: IpNet = prefix.parse().unwrap();
    let kernel = world.kernel.borrow();
    let routes = kernel.routes();
    let own = routes.filter(|(key, route)| key.prefix == prefix && route.protocol == 80);
    own.map(|(key, _)| key.metric).collect()
}

fn delete(world: &mut World) {
    world.agent.change(&key("a"), None);
    world.settle();
}

// Promise (Felix): A route of a workload is marked before it is removed, and the rules of its endpoint
// stay until the BGP client has withdrawn it, at most 200 ms.
#[test]
fn deleted_endpoint_is_reachable_until_it_is_withdrawn() {
    let (mut world, index) = routed();
    delete(&mut world);
    for prefix in [ADDRESS, "fd65::1/128"] {
        assert_eq!(metrics(&world, prefix), [METRIC_LEAVING]);
    }
    assert_eq!(world.routes()[ADDRESS], index);
    assert!(world.guards("cali1", [10, 65, 0, 1]));
    assert!(world.host.forgotten.is_empty());
    assert_eq!(world.agent.waiting_for(), [Waiting::Withdrawal(1)]);
    answer(&mut world, ADDRESS);
    assert_eq!(metrics(&world, ADDRESS), [0; 0]);
    assert!(world.guards("cali1", [10, 65, 0, 1]), "IPv6 is left");
    answer(&mut world, "fd65::1/128");
    assert_eq!(world.routes(), BTreeMap::new());
    assert!(!world.guards("cali1", [10, 65, 0, 1]));
    assert_eq!(world.host.forgotten.len(), 2);
    assert_eq!(world.agent.endpoints().count(), 0);
    assert_eq!(world.agent.waiting_for(), []);
}

#[test]
fn marked_route_without_an_answer_ends_after_its_time() {
    let (mut world, _) = routed();
    delete(&mut world);
    world.pass(LEAVING - Duration::from_millis(1));
    assert_eq!(metrics(&world, ADDRESS), [METRIC_LEAVING]);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.routes(), BTreeMap::new());
    assert!(!world.guards("cali1", [10, 65, 0, 1]));
}

#[test]
fn route_without_a_bgp_client_is_removed_at_once() {
    let (mut world, _) = routed();
    let gone = world
        .kernel
        .borrow_mut()
        .delete_route(&marker::answerer_key());
    assert!(gone);
    world.settle();
    delete(&mut world);
    assert_eq!(world.routes(), BTreeMap::new());
}

#[test]
fn bgp_client_from_before_the_start_is_seen() {
    let (mut world, _) = routed();
    world.restart();
    world.endpoint("a", "cali1", &[ADDRESS]);
    world.in_sync();
    delete(&mut world);
    assert_eq!(metrics(&world, ADDRESS), [METRIC_LEAVING]);
}

#[test]
fn endpoint_that_returns_keeps_its_route_and_connections() {
    let (mut world, index) = routed();
    delete(&mut world);
    world.endpoint("a", "cali1", &[ADDRESS, "fd65::1/128"]);
    world.settle();
    assert_eq!(metrics(&world, ADDRESS), [256]);
    world.pass(LEAVING);
    assert_eq!(world.routes()[ADDRESS], index);
    assert_eq!(metrics(&world, ADDRESS), [256]);
    assert!(world.host.forgotten.is_empty());
    assert_eq!(world.state(), (EndpointState::Up, None));
}

#[test]
fn address_needed_by_another_endpoint_is_not_held() {
    let (mut world, _) = routed();
    let other = world.link("cali2");
    delete(&mut world);
    world.endpoint("b", "cali2", &[ADDRESS]);
    world.settle();
    assert_eq!(metrics(&world, ADDRESS), [256]);
    assert_eq!(world.routes()[ADDRESS], other);
    assert!(!world.guards("cali1", [10, 65, 0, 1]));
    assert!(world.guards("cali2", [10, 65, 0, 1]));
}

#[test]
fn address_removed_from_an_endpoint_is_withdrawn_first() {
    let (mut world, _) = routed();
    world.endpoint("a", "cali1", &["fd65::1/128"]);
    world.settle();
    assert_eq!(metrics(&world, ADDRESS), [METRIC_LEAVING]);
    assert_eq!(metrics(&world, "fd65::1/128"), [256]);
    answer(&mut world, ADDRESS);
    assert_eq!(metrics(&world, ADDRESS), [0; 0]);
}

#[test]
fn route_over_a_removed_link_is_not_marked() {
    for is_first in [true, false] {
        let (mut world, index) = routed();
        if is_first {
            world.kernel.borrow_mut().remove_link(index);
        }
        delete(&mut world);
        if !is_first {
            world.kernel.borrow_mut().remove_link(index);
        }
        world.settle();
        assert_eq!(world.routes(), BTreeMap::new());
        // The routing table is read again.
        world.pass(LEAVING);
        assert_eq!(world.routes(), BTreeMap::new());
        assert_eq!(world.agent.waiting_for(), []);
    }
}

#[test]
fn mark_of_a_killed_agent_is_removed() {
    let (mut world, _) = routed();
    delete(&mut world);
    world.restart();
    world.in_sync();
    world.pass(Duration::from_secs(11));
    assert_eq!(world.routes(), BTreeMap::new());
}
