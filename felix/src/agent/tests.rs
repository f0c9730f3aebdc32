mod bandwidth;
mod cutting;
mod departures;
mod events;
mod faults;
mod feedback;
mod history;
mod interfaces;
mod ipip;
mod late;
mod marker;
mod offload;
mod overlay;
mod reload;
mod settings;
mod store;
mod world;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use calico_model::EndpointState;
use calico_store::Unready;
use fib_sync::{Owner, Route, RouteKey, TABLE_MAIN};

use super::*;
use crate::limits::{HOST_COMMANDS_MAX, INTERFACE_REFRESH, RETRY_MAX, RULES_CHECK};
use world::{HOST, World, key};

#[test]
fn an_endpoint_before_its_interface_and_after() {
    for interface_first in [true, false] {
        let mut world = World::new();
        let mut index = 0;
        if interface_first {
            index = world.link("cali1");
        }
        world.endpoint("a", "cali1", &["10.65.0.1/32", "fd65::1/128"]);
        world.in_sync();
        if !interface_first {
            assert_eq!(world.routes(), BTreeMap::new());
            let (state, reason) = world.state();
            assert_eq!(state, EndpointState::Down);
            assert_eq!(reason.as_deref(), Some("interface cali1 does not exist"));
            index = world.link("cali1");
            world.settle();
        }
        let routes = [
            ("10.65.0.1/32".to_owned(), index),
            ("fd65::1/128".to_owned(), index),
        ];
        assert_eq!(world.routes(), routes.into());
        assert_eq!(world.host.neighbors.len(), 2);
        assert!(world.host.ipv6.contains(&index));
        assert_eq!(world.state(), (EndpointState::Up, None));
        assert_eq!(world.agent.waiting_for(), []);
    }
}

#[test]
fn routes_have_the_metric_and_protocol_asked_for() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    let key = RouteKey::new(254, "10.65.0.1/32".parse().unwrap(), 256, 0);
    assert_eq!(
        world
            .kernel
            .borrow()
            .route(&key)
            .map(|route| route.protocol),
        Some(80)
    );
}

#[test]
fn removed_endpoint_leaves_nothing_behind() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32", "fd65::1/128"]);
    world.in_sync();
    world.agent.change(&key("a"), None);
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    assert!(world.host.neighbors.is_empty());
    assert!(!world.guards("cali1", [10, 65, 0, 1]));
    let gone: Vec<IpAddr> = world.host.forgotten.iter().copied().collect();
    assert_eq!(
        gone,
        [
            "10.65.0.1".parse::<IpAddr>().unwrap(),
            "fd65::1".parse().unwrap()
        ]
    );
    assert_eq!(world.agent.endpoints().count(), 0);
}

#[test]
fn moved_address_waits_until_conntrack_is_flushed() {
    for at_once in [true, false] {
        let mut world = World::new();
        for name in ["cali1", "cali2", "cali3"] {
            world.link(name);
        }
        world.endpoint("a", "cali1", &["10.65.0.1/32"]);
        world.in_sync();
        world.host.forgets_late = true;
        world.agent.change(&key("a"), None);
        if !at_once {
            world.settle();
        }
        world.endpoint("b", "cali2", &["10.65.0.1/32", "10.65.0.2/32"]);
        world.settle();
        // No other endpoint waits for it.
        world.endpoint("c", "cali3", &["10.65.0.3/32"]);
        world.settle();
        let routed = |world: &World| world.routes().into_keys().collect::<Vec<_>>();
        assert_eq!(routed(&world), ["10.65.0.2/32", "10.65.0.3/32"]);
        assert!(!world.guards("cali2", [10, 65, 0, 1]), "nor can it send");
        assert!(world.guards("cali2", [10, 65, 0, 2]) && world.guards("cali3", [10, 65, 0, 3]));
        let (state, reason) = world.state();
        assert_eq!(state, EndpointState::Down);
        let reason = reason.unwrap();
        assert!(
            reason.ends_with("10.65.0.1 had are being forgotten"),
            "{reason}"
        );
        let writes = world.host.writes;
        world.pass(Duration::from_secs(5));
        assert_eq!(world.host.writes, writes);

        world.host.forgets_late = false;
        world.settle();
        assert_eq!(routed(&world).len(), 3);
        assert!(world.guards("cali2", [10, 65, 0, 1]));
        assert_eq!(world.state(), (EndpointState::Up, None));
        assert_eq!(world.agent.waiting_for(), []);
    }
}

#[test]
fn no_route_leads_to_an_interface_that_the_rules_do_not_guard() {
    let mut world = World::new();
    world.link("cali1");
    world.in_sync();
    world.host.refuse_rules = true;
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    let (state, reason) = world.state();
    assert_eq!(state, EndpointState::Down);
    assert!(reason.unwrap().contains("no nftables"));
    world.host.refuse_rules = false;
    world.pass(Duration::from_secs(1));
    assert_eq!(world.state(), (EndpointState::Up, None));
}

#[test]
fn a_failed_setting_keeps_the_endpoint_down_and_is_tried_again() {
    let mut world = World::new();
    world.link("cali1");
    world.host.refuse_interface = Some("sysctl net.x = 1: Read-only file system".into());
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    assert_eq!(world.routes(), BTreeMap::new());
    let (state, reason) = world.state();
    assert_eq!(state, EndpointState::Down);
    assert!(reason.unwrap().ends_with("Read-only file system"));
    world.pass(Duration::from_secs(60));
    world.host.refuse_interface = None;
    world.pass(Duration::from_secs(30));
    assert_eq!(world.state(), (EndpointState::Up, None));
}

#[test]
fn failed_host_setting_is_reported_and_retried() {
    let mut world = World::new();
    world.host.refuse_host = true;
    world.in_sync();
    assert_eq!(
        world.agent.waiting_for(),
        [Waiting::Host("read-only".into())]
    );
    world.host.refuse_host = false;
    world.pass(Duration::from_secs(1));
    assert_eq!(world.agent.waiting_for(), []);
    assert_eq!(world.host.hosts, 1);
    // The gateway's address on `lo` is restored.
    let gateway = ipnet::IpNet::new(GATEWAY_IPV4.into(), 32).unwrap();
    let lo = world.link("lo");
    world.kernel.borrow_mut().add_address(lo, gateway);
    world.settle();
    world.kernel.borrow_mut().remove_address(lo, gateway);
    world.settle();
    assert_eq!(world.host.hosts, 2);
}

#[test]
fn a_foreign_edit_is_counted() {
    let mut world = World::new();
    world.in_sync();
    world.host.edited = true;
    world.pass(Duration::from_secs(11));
    assert_eq!(world.agent.foreign_edits(), 1);
}

#[test]
fn idle_means_idle() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.pass(Duration::from_secs(20));
    let (writes, puts) = (world.host.writes, world.agent.route_summary().puts);
    world.pass(Duration::from_secs(600));
    assert_eq!(
        (world.host.writes, world.agent.route_summary().puts),
        (writes, puts)
    );
}
