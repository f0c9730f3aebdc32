//! Settings of FelixConfiguration that the agent follows while it runs.

use serde_json::{Value, json};

use super::*;

fn configure(world: &mut World, spec: &Value) {
    let key = "/calico/resources/v3/projectcalico.org/felixconfigurations/default";
    let value = json!({ "spec": spec }).to_string();
    world.agent.change(key, Some(value.as_bytes()));
    world.settle();
}

/// Returns the own routes of the kernel: prefix, metric and source.
fn routes(world: &World) -> Vec<(String, u32, Option<IpAddr>)> {
    let kernel = world.kernel.borrow();
    let routes = kernel
        .routes()
        .filter(|(key, route)| key.table == TABLE_MAIN && route.protocol == 80);
    routes
        .map(|(key, route)| (key.prefix.to_string(), key.metric, route.source))
        .collect()
}

fn workload() -> World {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32", "fd65::1/128"]);
    world.in_sync();
    world
}

fn route(prefix: &str, metric: u32, source: Option<&str>) -> (String, u32, Option<IpAddr>) {
    let source = source.map(|source| source.parse().unwrap());
    (prefix.to_owned(), metric, source)
}

#[test]
fn metric_of_each_family_follows_its_setting() {
    let mut world = workload();
    configure(&mut world, &json!({"ipv4NormalRoutePriority": 700}));
    let other = [
        route("10.65.0.1/32", 700, None),
        route("fd65::1/128", 256, None),
    ];
    assert_eq!(routes(&world), other);
    assert_eq!(world.state(), (EndpointState::Up, None));
    configure(&mut world, &json!({"ipv6NormalRoutePriority": 1024}));
    let other = [
        route("10.65.0.1/32", 256, None),
        route("fd65::1/128", 1024, None),
    ];
    assert_eq!(routes(&world), other);
    // The last valid value stays in effect.
    configure(&mut world, &json!({"ipv6NormalRoutePriority": 0}));
    assert_eq!(routes(&world), other);
}

#[test]
fn overlay_routes_follow_the_metric() {
    let mut world = World::new();
    let mut put = |key: &str, value: Value| {
        let key = match key.starts_with('/') {
            true => key.to_owned(),
            false => format!("/calico/resources/v3/projectcalico.org/{key}"),
        };
        world.agent.change(&key, Some(value.to_string().as_bytes()));
    };
    put(
        "ippools/a",
        json!({"spec": {"cidr": "10.65.0.0/16", "vxlanMode": "Always"}}),
    );
    for n in [1, 2] {
        let node = json!({"spec": {"bgp": {"ipv4Address": format!("10.0.0.{n}/24")},
            "ipv4VXLANTunnelAddr": format!("10.65.{n}.0")}});
        put(&format!("nodes/n{n}"), node);
        let block = format!("/calico/ipam/v2/host/n{n}/ipv4/block/10.65.{n}.0-26");
        put(&block, json!({}));
    }
    world.in_sync();
    let at = |metric| {
        [
            route("10.65.1.0/26", metric, None),
            route("10.65.2.0/26", metric, None),
        ]
    };
    assert_eq!(routes(&world), at(256));
    configure(&mut world, &json!({"ipv4NormalRoutePriority": 700}));
    assert_eq!(routes(&world), at(700));
}

#[test]
fn source_of_routes_follows_its_setting() {
    let mut world = workload();
    let sources = json!({"deviceRouteSourceAddress": "10.0.0.1",
        "deviceRouteSourceAddressIPv6": "fd00::1"});
    configure(&mut world, &sources);
    let with = [
        route("10.65.0.1/32", 256, Some("10.0.0.1")),
        route("fd65::1/128", 256, Some("fd00::1")),
    ];
    assert_eq!(routes(&world), with);
    configure(&mut world, &json!({}));
    let without = [
        route("10.65.0.1/32", 256, None),
        route("fd65::1/128", 256, None),
    ];
    assert_eq!(routes(&world), without);
}

#[test]
fn routes_stay_as_they_are_while_their_sync_is_disabled() {
    let mut world = workload();
    let before = routes(&world);
    configure(&mut world, &json!({"routeSyncDisabled": true}));
    world.link("cali2");
    world.endpoint("b", "cali2", &["10.65.0.2/32"]);
    world.agent.change(&key("a"), None);
    world.pass(RETRY_MAX);
    assert_eq!(routes(&world), before);
    assert_eq!(world.state(), (EndpointState::Up, None));
    assert_eq!(world.agent.waiting_for(), []);
    configure(&mut world, &json!({"routeSyncDisabled": false}));
    assert_eq!(routes(&world), [route("10.65.0.2/32", 256, None)]);
}

#[test]
fn route_table_is_read_at_the_interval_of_the_setting() {
    let mut world = workload();
    let mut reads = |spec: Value| {
        configure(&mut world, &spec);
        let before = world.dumps;
        world.pass(Duration::from_secs(180));
        world.dumps - before
    };
    assert!((1..=2).contains(&reads(json!({}))));
    assert!((17..=18).contains(&reads(json!({"routeRefreshInterval": "10s"}))));
    assert_eq!(reads(json!({"routeRefreshInterval": "0s"})), 0);
}

#[test]
fn forwarding_is_left_alone_if_it_is_disabled() {
    let mut world = workload();
    let enabled = |world: &World| world.host.forwarding.map(|wanted| wanted.enabled);
    assert_eq!(enabled(&world), Some(true));
    configure(&mut world, &json!({"ipForwarding": "Disabled"}));
    assert_eq!(enabled(&world), Some(false));
    configure(
        &mut world,
        &json!({"ipForwarding": "Enabled", "ipv6Support": false}),
    );
    let wanted = Forwarding {
        enabled: true,
        ipv6: false,
    };
    assert_eq!(world.host.forwarding, Some(wanted));
}

#[test]
fn packet_filter_is_compared_at_the_interval_of_the_setting() {
    let mut world = workload();
    let checks = |world: &mut World, spec: Value| {
        configure(world, &spec);
        let before = world.host.checks;
        world.pass(Duration::from_secs(120));
        world.host.checks - before
    };
    assert!((11..=13).contains(&checks(&mut world, json!({}))));
    let slow = json!({"nftablesRefreshInterval": "60s", "ipsetsRefreshInterval": "0s"});
    assert!((1..=2).contains(&checks(&mut world, slow)));
    let sets = json!({"nftablesRefreshInterval": "60s", "ipsetsRefreshInterval": "20s"});
    assert!((5..=6).contains(&checks(&mut world, sets)));
    let never = json!({"nftablesRefreshInterval": "0s"});
    assert_eq!(checks(&mut world, never), 0);
    // Another program's change is compared nevertheless.
    let before = world.host.checks;
    world.agent.rules_changed(world.now);
    world.settle();
    assert_eq!(world.host.checks, before + 1);
}
