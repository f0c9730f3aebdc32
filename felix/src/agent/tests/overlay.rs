//! The VXLAN overlay: device, entries and routes.

use serde_json::{Value, json};

use super::*;
use crate::limits::TUNNEL_CHECK;

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

fn put(world: &mut World, key: &str, value: &Value) {
    let key = match key.starts_with('/') {
        true => key.to_owned(),
        false => format!("{PREFIX}{key}"),
    };
    let octets = (!value.is_null()).then(|| value.to_string());
    world
        .agent
        .change(&key, octets.as_ref().map(String::as_bytes));
}

fn pool(world: &mut World, mode: &str) {
    let pool = json!({"spec": {"cidr": "10.64.0.0/10", "vxlanMode": mode}});
    put(world, "ippools/a", &pool);
}

/// Writes node `n` with a block.
fn node(world: &mut World, n: u32) {
    let (high, low) = (n / 200, n % 200);
    let spec = json!({"spec": {"bgp": {"ipv4Address": format!("10.0.{high}.{low}/16")},
        "ipv4VXLANTunnelAddr": format!("10.{}.{low}.0", 65 + high)}});
    put(world, &format!("nodes/n{n}"), &spec);
    let block = format!("ipv4/block/10.{}.{low}.0-26", 65 + high);
    put(
        world,
        &format!("/calico/ipam/v2/host/n{n}/{block}"),
        &json!({}),
    );
}

/// Writes a pool for IPv6.
fn pool_v6(world: &mut World) {
    let pool = json!({"spec": {"cidr": "fd65::/16", "vxlanMode": "Always"}});
    put(world, "ippools/six", &pool);
}

/// Writes node `n` with a block of IPv6.
fn node_v6(world: &mut World, n: u32) {
    let spec = json!({"spec": {"bgp": {"ipv6Address": format!("fd00::{n:x}/64")},
        "ipv6VXLANTunnelAddr": format!("fd65:{n:x}::")}});
    put(world, &format!("nodes/n{n}"), &spec);
    let block = format!("/calico/ipam/v2/host/n{n}/ipv6/block/fd65:{n:x}::-122");
    put(world, &block, &json!({}));
}

/// Returns a host in a fabric of this many nodes.
fn fabric(nodes: u32) -> World {
    let mut world = World::new();
    pool(&mut world, "Always");
    for n in 1..=nodes {
        node(&mut world, n);
    }
    world.in_sync();
    world
}

fn device(world: &World) -> Option<u32> {
    let kernel = world.kernel.borrow();
    kernel.link("vxlan.calico").map(|link| link.index)
}

/// Returns the routes of Felix to prefixes, with their gateways.
fn routes(world: &World) -> BTreeMap<String, String> {
    let kernel = world.kernel.borrow();
    let routes = kernel
        .routes()
        .filter(|(key, route)| key.table == TABLE_MAIN && route.protocol == 80);
    let text = |route: &Route| format!("{} {}", route.kind, route.gateways());
    routes
        .map(|(key, route)| (key.prefix.to_string(), text(route)))
        .collect()
}

#[test]
fn overlay_of_three_nodes_is_set_up_and_removed() {
    let mut world = fabric(3);
    let expected = [
        ("10.65.1.0/26", "blackhole "),
        ("10.65.2.0/26", "unicast 10.65.2.0"),
        ("10.65.3.0/26", "unicast 10.65.3.0"),
    ];
    let expected = expected.map(|(net, route)| (net.to_owned(), route.to_owned()));
    assert_eq!(routes(&world), expected.into());
    assert_eq!(world.host.tunnel_entries.len(), 4);
    assert_eq!(world.agent.waiting_for(), []);
    pool(&mut world, "Never");
    world.settle();
    assert_eq!(device(&world), None);
    assert_eq!(routes(&world), BTreeMap::new());
}

#[test]
fn device_waits_for_the_rules_about_tunnel_packets() {
    let mut world = World::new();
    world.host.refuse_rules = true;
    pool(&mut world, "Always");
    node(&mut world, 1);
    node(&mut world, 2);
    world.in_sync();
    assert_eq!(device(&world), None);
    world.host.refuse_rules = false;
    world.pass(RETRY_MAX);
    assert!(device(&world).is_some());
    assert_eq!(routes(&world).len(), 2);
}

#[test]
fn removed_entry_and_device_are_made_again() {
    let mut world = fabric(3);
    let index = device(&world).unwrap();
    let entries = world.host.tunnel_entries.clone();
    let lost = *entries.first().unwrap();
    world.host.tunnel_entries.remove(&lost);
    let foreign = TunnelEntry::Forwarding {
        interface: index,
        mac: calico_model::Mac([2, 0, 0, 0, 0, 9]),
        node: "192.0.2.9".parse().unwrap(),
    };
    world.host.tunnel_entries.insert(foreign);
    world.pass(TUNNEL_CHECK * 2);
    assert_eq!(world.host.tunnel_entries, entries);
    world.host.remove_tunnel(index);
    world.settle();
    let again = device(&world).unwrap();
    assert_ne!(again, index);
    assert_eq!(world.host.tunnel_entries.len(), 4);
    assert_eq!(routes(&world).len(), 3);
    world.pass(RETRY_MAX);
    assert_eq!(world.agent.waiting_for(), []);
}

#[test]
fn rejected_entry_is_reported_and_tried_again() {
    let mut world = fabric(1);
    world.host.refuse_tunnel_entry = true;
    node(&mut world, 2);
    world.settle();
    let reason = "vxlan.calico: entry for 10.65.2.0: no buffer space".to_owned();
    assert_eq!(
        world.agent.failures(),
        [format!("the overlay: {reason}")],
        "the host is not ready"
    );
    assert_eq!(world.agent.waiting_for(), [Waiting::Overlay(reason)]);
    world.host.refuse_tunnel_entry = false;
    world.pass(RETRY_MAX);
    assert_eq!(world.agent.waiting_for(), []);
    assert_eq!(world.agent.failures(), [""; 0]);
    assert_eq!(world.host.tunnel_entries.len(), 2);
}

#[test]
fn changed_tunnel_address_keeps_the_forwarding_entry() {
    let mut world = fabric(2);
    // Downwards and upwards: the old end is after the new one, or before.
    for tunnel in ["10.65.1.99", "10.65.9.9"] {
        let spec = json!({"spec": {"bgp": {"ipv4Address": "10.0.0.2/16"},
            "ipv4VXLANTunnelAddr": tunnel}});
        let before = world.host.tunnel_writes;
        put(&mut world, "nodes/n2", &spec);
        world.settle();
        let entries = &world.host.tunnel_entries;
        let is_forwarding = |entry: &&TunnelEntry| matches!(entry, TunnelEntry::Forwarding { .. });
        assert_eq!(entries.len(), 2, "{tunnel}: {entries:?}");
        assert_eq!(entries.iter().filter(is_forwarding).count(), 1, "{tunnel}");
        let writes = world.host.tunnel_writes - before;
        assert_eq!(writes, 2, "{tunnel}: the neighbor entries only");
    }
    put(&mut world, "nodes/n2", &Value::Null);
    world.settle();
    assert!(world.host.tunnel_entries.is_empty());
}

#[test]
fn entries_are_made_again_after_the_device_is_readdressed() {
    let mut world = fabric(3);
    let index = device(&world);
    let entries = world.host.tunnel_entries.clone();
    let spec = json!({"spec": {"bgp": {"ipv4Address": "10.0.0.1/16"},
        "ipv4VXLANTunnelAddr": "10.65.1.9"}});
    put(&mut world, "nodes/n1", &spec);
    world.settle();
    assert_eq!(device(&world), index, "the same device");
    assert_eq!(world.host.tunnel_entries, entries);
}

#[test]
fn rejected_mtu_is_reported_and_the_overlay_works() {
    let mut world = World::new();
    world.host.refuse_mtu = true;
    pool(&mut world, "Always");
    node(&mut world, 1);
    node(&mut world, 2);
    world.in_sync();
    let reason = "vxlan.calico: MTU 9000: Invalid argument".to_owned();
    assert_eq!(world.agent.waiting_for(), [Waiting::Overlay(reason)]);
    assert_eq!(world.host.tunnel_entries.len(), 2);
    assert_eq!(routes(&world).len(), 2);
    world.host.refuse_mtu = false;
    world.pass(TUNNEL_CHECK * 2);
    assert_eq!(world.agent.waiting_for(), []);
}

#[test]
fn one_of_a_thousand_nodes_costs_its_own_entries() {
    type Pool = fn(&mut World);
    type Node = fn(&mut World, u32);
    let families: [(Pool, Node); 2] = [(|world| pool(world, "Always"), node), (pool_v6, node_v6)];
    for (pool, node) in families {
        let mut world = World::new();
        pool(&mut world);
        (1..=1000).for_each(|n| node(&mut world, n));
        world.in_sync();
        assert_eq!(world.host.tunnel_entries.len(), 2 * 999);
        assert_eq!(routes(&world).len(), 1000);
        let before = world.host.tunnel_writes;
        put(&mut world, "nodes/n7", &Value::Null);
        world.settle();
        assert_eq!(world.host.tunnel_writes - before, 2);
        assert_eq!(routes(&world).len(), 999);
        node(&mut world, 7);
        world.settle();
        assert_eq!(world.host.tunnel_writes - before, 4);
        assert_eq!(routes(&world).len(), 1000);
        // Entries of an earlier run are found, and only the difference is written.
        let before = world.host.tunnel_writes;
        world.restart();
        pool(&mut world);
        for n in (1..=1000).filter(|n| *n != 9) {
            node(&mut world, n);
        }
        world.in_sync();
        assert_eq!(world.host.tunnel_writes - before, 2, "those of n9");
    }
}

#[test]
fn snapshot_removes_no_entry_or_device() {
    let mut world = fabric(3);
    world.restart();
    pool(&mut world, "Always");
    node(&mut world, 1);
    world.agent.store_restored();
    world.settle();
    assert_eq!(world.host.tunnel_entries.len(), 4);
    assert!(device(&world).is_some());
}

#[test]
fn endpoint_here_has_precedence_over_a_borrowed_address() {
    let mut world = fabric(3);
    let index = world.link("cali1");
    let remote = json!({"spec": {"orchestrator": "k8s", "node": "n3", "pod": "r",
        "endpoint": "eth0", "interfaceName": "cali7", "ipNetworks": ["10.65.1.9/32"]}});
    let key_of_remote = "workloadendpoints/ns/n3-k8s-r-eth0";
    put(&mut world, key_of_remote, &remote);
    world.settle();
    let borrowed = |world: &World| routes(world).get("10.65.1.9/32").cloned();
    assert_eq!(borrowed(&world).as_deref(), Some("unicast 10.65.3.0"));
    world.endpoint("a", "cali1", &["10.65.1.9/32"]);
    world.settle();
    assert_eq!(world.routes().get("10.65.1.9/32"), Some(&index));
    put(&mut world, key_of_remote, &Value::Null);
    world.settle();
    assert_eq!(world.routes().get("10.65.1.9/32"), Some(&index));
    put(&mut world, key_of_remote, &remote);
    world.agent.change(&key("a"), None);
    world.settle();
    assert_eq!(borrowed(&world).as_deref(), Some("unicast 10.65.3.0"));
}
