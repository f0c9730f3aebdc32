//! Connections that a changed policy forbids.

use serde_json::{Value, json};

use super::*;

const MARK: u32 = 4;

fn world() -> World {
    let mut world = World::new();
    let config = AgentConfig {
        cut_mark: Some(MARK),
        ..AgentConfig::new(HOST)
    };
    world.agent.reconfigure(&config);
    for n in 1..=2 {
        world.link(&format!("cali{n}"));
        let address = format!("10.65.0.{n}/32");
        world.endpoint(&format!("p{n}"), &format!("cali{n}"), &[&address]);
    }
    world
}

/// Returns a TCP connection to a port.
fn connection(from: &str, to: &str, ports: (u16, u16)) -> Connection {
    Connection {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        protocol: 6,
        ports: Some(ports),
        icmp: None,
        is_translated: false,
        requested: (to.parse().unwrap(), Some(ports.1)),
        interfaces: [None, None],
        tuple: Vec::new(),
        zone: None,
    }
}

/// Writes a policy that allows these to the workloads, and everything from them.
fn policy(world: &mut World, ingress: &Value) {
    let policy = json!({"spec": {"ingress": ingress, "egress": [{"action": "Allow"}],
        "types": ["Ingress", "Egress"]}});
    let octets = policy.to_string();
    let key = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/p";
    world.agent.change(key, Some(octets.as_bytes()));
}

fn to_port(port: u16) -> Value {
    json!([{"action": "Allow", "protocol": "TCP", "destination": {"ports": [port]}}])
}

#[test]
fn forbidden_connections_are_cut_and_others_are_not() {
    let mut world = world();
    let all = [
        connection("10.65.0.1", "10.65.0.2", (4000, 80)),
        connection("10.65.0.1", "10.65.0.2", (4001, 443)),
        connection("192.0.2.1", "10.65.0.2", (4000, 443)),
        connection("10.65.0.1", "192.0.2.1", (4000, 443)),
    ];
    world.host.connections = all.to_vec();
    world.in_sync();
    assert_eq!(world.host.cut, [], "everything is allowed");
    policy(&mut world, &to_port(80));
    world.pass(Duration::from_millis(100));
    let mut cut = world.host.cut.clone();
    cut.sort_by_key(|one| one.source);
    assert_eq!(cut, [all[1].clone(), all[2].clone()]);
    assert_eq!(world.agent.connections_cut_so_far(), 2);
    policy(&mut world, &json!([]));
    world.pass(Duration::from_millis(100));
    assert_eq!(world.host.cut.len(), 3);
    // Nothing changes, so nothing is listed.
    let listings = world.host.connection_listings;
    world.pass(Duration::from_secs(60));
    assert_eq!(world.host.connection_listings, listings);
}

#[test]
fn verdict_by_source_port_is_that_of_each_connection() {
    let mut world = world();
    let all: Vec<Connection> = (4000..4100)
        .map(|port| connection("10.65.0.1", "10.65.0.2", (port, 80)))
        .collect();
    world.host.connections = all.clone();
    let ports = json!(["4000:4049"]);
    policy(
        &mut world,
        &json!([{"action": "Allow", "protocol": "TCP", "source": {"ports": ports}}]),
    );
    world.in_sync();
    world.pass(Duration::from_millis(100));
    let mut cut = world.host.cut.clone();
    cut.sort_by_key(|one| one.ports);
    assert_eq!(cut, all[50..]);
}

#[test]
fn failed_listing_is_repeated_and_off_lists_nothing() {
    let mut world = world();
    world.host.connections = vec![connection("10.65.0.1", "10.65.0.2", (4000, 80))];
    world.host.refuse_connections = true;
    policy(&mut world, &json!([]));
    world.in_sync();
    world.pass(Duration::from_secs(1));
    assert_eq!(
        world.agent.cutting_problem(),
        Some("no connection tracking")
    );
    world.host.refuse_connections = false;
    world.pass(RETRY_MAX);
    assert_eq!(
        (world.agent.cutting_problem(), world.host.cut.len()),
        (None, 1)
    );
    let listings = world.host.connection_listings;
    world.agent.reconfigure(&AgentConfig::new(HOST));
    world.host.connections = vec![connection("10.65.0.2", "10.65.0.1", (4000, 80))];
    policy(&mut world, &to_port(443));
    world.pass(Duration::from_secs(1));
    assert_eq!(
        (world.host.connection_listings, world.host.cut.len()),
        (listings, 1)
    );
}

#[test]
fn frequent_changes_are_listed_at_intervals() {
    let mut world = world();
    world.in_sync();
    let listings = world.host.connection_listings;
    for port in 1..=40 {
        policy(&mut world, &to_port(port));
        world.pass(Duration::from_millis(5));
    }
    let made = world.host.connection_listings - listings;
    assert!((2..=5).contains(&made), "{made}");
}

#[test]
fn refused_mark_is_reported_and_others_are_cut() {
    let mut world = world();
    let all: Vec<Connection> = (4000..4004)
        .map(|port| connection("10.65.0.1", "10.65.0.2", (port, 80)))
        .collect();
    world.host.connections = all;
    world.host.refuse_cut_of = Some(4001);
    policy(&mut world, &json!([]));
    world.in_sync();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.host.cut.len(), 3);
    assert_eq!(world.agent.connections_cut_so_far(), 3);
    assert_eq!(world.agent.cutting_problem(), Some("the mark is refused"));
    // It is listed again at growing intervals.
    let listings = world.host.connection_listings;
    world.pass(RETRY_MAX);
    let made = world.host.connection_listings - listings;
    assert!((1..=20).contains(&made), "{made}");
    world.host.refuse_cut_of = None;
    world.pass(RETRY_MAX);
    assert_eq!(
        (world.agent.cutting_problem(), world.host.cut.len()),
        (None, 4)
    );
    let listings = world.host.connection_listings;
    world.pass(RETRY_MAX);
    assert_eq!(world.host.connection_listings, listings);
}

#[test]
fn forbidden_connections_are_cut_before_the_last_evaluation() {
    let mut world = world();
    world.in_sync();
    world.host.connections = (1..=200)
        .map(|port| connection("10.65.0.1", "10.65.0.2", (4000, port)))
        .collect();
    policy(&mut world, &json!([]));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.host.cut.len(), 200);
    assert!(world.host.cut_commands > 1, "in parts");
}

#[test]
fn only_connections_of_this_host_have_their_sockets_destroyed() {
    let mut world = world();
    let node = json!({"spec": {"bgp": {"ipv4Address": "10.0.0.11/24"}}}).to_string();
    let key = format!("/calico/resources/v3/projectcalico.org/nodes/{HOST}");
    world.agent.change(&key, Some(node.as_bytes()));
    let all = [
        connection("10.65.0.1", "10.65.0.2", (4000, 22)),
        connection("10.65.0.1", "192.0.2.1", (4000, 22)),
        connection("10.65.0.1", "10.0.0.11", (4000, 22)),
    ];
    world.host.connections = all.to_vec();
    let policy = json!({"spec": {"types": ["Egress"]}}).to_string();
    let key = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/p";
    world.agent.change(key, Some(policy.as_bytes()));
    world.in_sync();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.host.cut.len(), 3);
    assert_eq!(world.host.cut_of_host, all[2..]);
}

#[test]
fn workload_does_not_keep_a_connection_by_its_source_port() {
    let mut world = world();
    let host = json!({"metadata": {"name": "h"}, "spec": {"node": HOST, "interfaceName": "eth0"}});
    let key = "/calico/resources/v3/projectcalico.org/hostendpoints/h";
    world.agent.change(key, Some(host.to_string().as_bytes()));
    let none = json!({"spec": {"types": ["Ingress", "Egress"]}}).to_string();
    let key = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/none";
    world.agent.change(key, Some(none.as_bytes()));
    let of_workload = connection("10.65.0.1", "169.254.1.1", (6443, 80));
    // The host may have begun it, to a failsafe port.
    let mut of_server = connection("192.0.2.1", "169.254.1.1", (6443, 80));
    of_server.interfaces[0] = Some("eth0".to_owned());
    let mut of_client = of_server.clone();
    of_client.ports = Some((6442, 80));
    world.host.connections = vec![of_workload.clone(), of_server, of_client.clone()];
    world.in_sync();
    world.pass(Duration::from_millis(100));
    let mut cut = world.host.cut.clone();
    cut.sort_by_key(|one| one.source);
    assert_eq!(cut, [of_workload, of_client]);
}
