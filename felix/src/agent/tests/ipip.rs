//! The device for IP in IP, and the routes through it.

use serde_json::{Value, json};

use super::*;
use crate::limits::TUNNEL_CHECK;
use crate::render::guards_ipip;

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

fn put(world: &mut World, key: &str, value: &Value) {
    let key = match key.starts_with('/') {
        true => key.to_owned(),
        false => format!("{PREFIX}{key}"),
    };
    let octets = value.to_string();
    world.agent.change(&key, Some(octets.as_bytes()));
}

fn pool(world: &mut World, mode: &str) {
    let pool = json!({"spec": {"cidr": "10.64.0.0/10", "ipipMode": mode}});
    put(world, "ippools/a", &pool);
}

fn node(world: &mut World, n: u32) {
    let spec = json!({"spec": {"bgp": {"ipv4Address": format!("10.0.0.{n}/24"),
        "ipv4IPIPTunnelAddr": format!("10.65.{n}.0")}}});
    put(world, &format!("nodes/n{n}"), &spec);
    let block = format!("/calico/ipam/v2/host/n{n}/ipv4/block/10.65.{n}.0-26");
    put(world, &block, &json!({}));
}

fn fabric() -> World {
    let mut world = World::new();
    pool(&mut world, "Always");
    (1..=2).for_each(|n| node(&mut world, n));
    world
}

/// Returns the addresses of the device.
fn addresses(world: &World) -> Vec<String> {
    let kernel = world.kernel.borrow();
    let Some(index) = kernel.link("tunl0").map(|link| link.index) else {
        return Vec::new();
    };
    let all = kernel.addresses().filter(|at| at.interface == index);
    all.map(|at| at.address.addr().to_string()).collect()
}

fn is_up(world: &World) -> bool {
    let kernel = world.kernel.borrow();
    kernel.link("tunl0").is_some_and(|link| link.up)
}

/// Returns the routes of Felix to blocks, with their gateways.
fn routes(world: &World) -> Vec<String> {
    let kernel = world.kernel.borrow();
    let is_main = |key: &RouteKey| key.table == TABLE_MAIN;
    let routes = kernel
        .routes()
        .filter(|(key, route)| is_main(key) && route.protocol == 80);
    let text = |(key, route): (&RouteKey, &Route)| {
        format!("{} {} {}", key.prefix, route.kind, route.gateways())
    };
    routes.map(text).collect()
}

fn waits(world: &World) -> bool {
    let waiting = world.agent.waiting_for();
    let is_of =
        |one: &Waiting| matches!(one, Waiting::Overlay(text) if text.starts_with("tunl0: "));
    waiting.iter().any(is_of)
}

#[test]
fn ipip_device_has_its_address_until_no_pool_needs_it() {
    let mut world = fabric();
    world.in_sync();
    assert_eq!(addresses(&world), ["10.65.1.0"]);
    // The blackhole of the own block is bgp-client's.
    assert_eq!(routes(&world), ["10.65.2.0/26 unicast 10.0.0.2"]);
    assert!(!waits(&world));
    // A comparison without a difference changes nothing.
    world.pass(TUNNEL_CHECK * 3);
    assert_eq!(world.host.ipip_writes, 1);
    // An address of another program stays.
    let index = world.kernel.borrow().link("tunl0").unwrap().index;
    let other = "192.0.2.7/32".parse().unwrap();
    world.kernel.borrow_mut().add_address(index, other);
    pool(&mut world, "Never");
    world.settle();
    assert_eq!(addresses(&world), ["192.0.2.7"]);
    assert_eq!(routes(&world), <[&str; 0]>::default());
    assert!(is_up(&world), "another program uses it");
}

#[test]
fn ipip_device_is_set_down_before_the_filter_drops_its_rule() {
    let mut world = fabric();
    world.in_sync();
    assert!(is_up(&world));
    pool(&mut world, "Never");
    world.settle();
    assert!(!is_up(&world) && world.host.ipip_was_guarded);
    assert!(!guards_ipip(&world.host.rules().unwrap()));
    // Another program may use it then.
    let index = world.kernel.borrow().link("tunl0").unwrap().index;
    world.kernel.borrow_mut().set_link_up(index, true);
    world.pass(TUNNEL_CHECK * 3);
    assert!(is_up(&world));
    pool(&mut world, "Always");
    world.settle();
    assert_eq!(addresses(&world), ["10.65.1.0"]);
}

#[test]
fn address_that_ipam_has_released_is_removed() {
    let mut world = fabric();
    world.in_sync();
    assert_eq!(addresses(&world), ["10.65.1.0"]);
    let spec = json!({"spec": {"bgp": {"ipv4Address": "10.0.0.1/24"}}});
    put(&mut world, "nodes/n1", &spec);
    world.settle();
    assert_eq!(addresses(&world), <[&str; 0]>::default());
    assert!(!is_up(&world));
    assert!(guards_ipip(&world.host.rules().unwrap()));
    node(&mut world, 1);
    world.settle();
    assert_eq!(addresses(&world), ["10.65.1.0"]);
    assert!(is_up(&world));
}

#[test]
fn addresses_of_an_earlier_run_are_released() {
    let mut world = World::new();
    let index = world.link("tunl0");
    {
        let mut kernel = world.kernel.borrow_mut();
        kernel.set_tunnel(index, Some(fib_sync::Tunnel::Ipip));
        for address in ["10.65.1.0/32", "192.0.2.7/32"] {
            kernel.add_address(index, address.parse().unwrap());
        }
    }
    pool(&mut world, "Never");
    node(&mut world, 1);
    world.settle();
    assert_eq!(addresses(&world).len(), 2, "the datastore is not read");
    world.in_sync();
    assert_eq!(addresses(&world), ["192.0.2.7"]);
}

#[test]
fn ipip_device_of_an_earlier_run_is_set_down() {
    let mut world = World::new();
    let index = world.link("tunl0");
    {
        let mut kernel = world.kernel.borrow_mut();
        kernel.set_tunnel(index, Some(fib_sync::Tunnel::Ipip));
        kernel.add_address(index, "10.65.1.0/32".parse().unwrap());
    }
    pool(&mut world, "Never");
    world.settle();
    assert!(is_up(&world), "the datastore is not read");
    world.in_sync();
    assert!(!is_up(&world) && addresses(&world).is_empty());
}

#[test]
fn kernel_without_ipip_is_reported_and_others_continue() {
    let mut world = fabric();
    world.host.refuse_ipip = true;
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.1.7/32"]);
    world.in_sync();
    world.pass(RETRY_MAX);
    assert!(waits(&world));
    let failures = world.agent.failures();
    assert_eq!(failures, ["the overlay: tunl0: Operation not supported"]);
    assert_eq!(routes(&world).len(), 1, "the endpoint only");
    world.host.refuse_ipip = false;
    world.pass(RETRY_MAX);
    assert!(!waits(&world));
    assert_eq!(routes(&world).len(), 2);
}

#[test]
fn ipip_device_waits_for_the_rules_about_its_packets() {
    let mut world = fabric();
    world.host.refuse_rules = true;
    world.in_sync();
    assert_eq!(addresses(&world), <[&str; 0]>::default());
    world.host.refuse_rules = false;
    world.pass(RETRY_MAX);
    assert_eq!(addresses(&world), ["10.65.1.0"]);
}

#[test]
fn routes_of_ipip_pools_follow_the_settings_of_both() {
    let mut world = fabric();
    let set = |world: &mut World, felix: &str, bgp: &str| {
        let spec = |value: &str| json!({"spec": {"programClusterRoutes": value}});
        put(world, "felixconfigurations/default", &spec(felix));
        put(world, "bgpconfigurations/default", &spec(bgp));
        world.pass(Duration::from_secs(20));
    };
    world.in_sync();
    for (felix, bgp, count) in [
        ("EnabledNoEncapOnly", "EnabledIPIPOnly", 0),
        ("Enabled", "Disabled", 1),
        ("Disabled", "Enabled", 0),
        ("EnabledIPIPOnly", "EnabledNoEncapOnly", 1),
        // Each route would have two writers.
        ("EnabledIPIPOnly", "Enabled", 0),
    ] {
        set(&mut world, felix, bgp);
        assert_eq!(routes(&world).len(), count, "{felix} {bgp}");
        assert_eq!(addresses(&world), ["10.65.1.0"], "{felix} {bgp}");
    }
}
