//! A configuration that is applied at run time.

use super::*;
use crate::calc::BgpPorts;
use crate::render::{Control, Key, TCP};

fn config() -> AgentConfig {
    AgentConfig::new(HOST)
}

fn with_exception() -> AgentConfig {
    AgentConfig {
        control_port_exceptions: vec!["10.65.0.7/32".parse().unwrap()],
        ..config()
    }
}

fn has_exception(world: &World) -> bool {
    let rules = world.host.rules().expect("rules");
    let key = Key::Net("10.65.0.7/32".parse().unwrap());
    let set = &rules.sets["control-exceptions-ipv4"];
    set.elements.contains_key(&key)
}

/// Returns the closed TCP ports.
fn tcp(control: &Control) -> Vec<u16> {
    let tcp = control.ports.iter().filter(|(of, _)| *of == TCP);
    tcp.map(|(_, port)| *port).collect()
}

#[test]
fn exceptions_are_applied_at_once_and_withdrawn_again() {
    let mut world = World::new();
    world.in_sync();
    for (config, wanted) in [(with_exception(), true), (config(), false)] {
        world.agent.reconfigure(&config);
        world.settle();
        assert_eq!(has_exception(&world), wanted);
    }
}

#[test]
fn settings_wait_while_the_store_is_away() {
    let mut world = World::new();
    world.in_sync();
    world.agent.store_unread();
    world.agent.reconfigure(&with_exception());
    world.settle();
    assert!(!has_exception(&world));
    world.in_sync();
    assert!(has_exception(&world));
}

#[test]
fn ports_of_files_are_closed_while_the_store_is_away() {
    let files = |port: u16| BgpPorts {
        ports: [port].into(),
        neighbors: [([10, 0, 0, 1], port).into()].into(),
        incomplete: false,
    };
    let node = "/calico/resources/v3/projectcalico.org/nodes/n2";
    let value = br#"{"spec":{"bgp":{"ipv4Address":"10.0.0.12/24"}}}"#;
    for from_snapshot in [false, true] {
        let mut world = World::new();
        world.agent.change(node, Some(value));
        world.agent.bgp_files(files(1790));
        match from_snapshot {
            true => world.agent.store_restored(),
            false => world.in_sync(),
        }
        world.settle();
        world.agent.store_unread();
        world.agent.change(node, None);
        // The last file counts, and what was applied stays.
        for port in [4711, 4712] {
            world.agent.bgp_files(files(port));
            world.settle();
            assert!(world.agent.rules_in_sync());
            let control = &world.agent.desired().control;
            assert_eq!(tcp(control), [179, 1790, port]);
            assert_eq!(control.services.len(), 2);
            assert_eq!(control.nodes.len(), 1, "a partial read does not count");
        }
        world.in_sync();
        let control = &world.agent.desired().control;
        assert_eq!(tcp(control), [179, 4712]);
        assert_eq!((control.services.len(), control.nodes.len()), (1, 0));
        // Also if nothing else has changed.
        world.agent.store_unread();
        world.agent.bgp_files(files(4713));
        world.settle();
        assert_eq!(tcp(&world.agent.desired().control).len(), 3);
        world.in_sync();
        assert_eq!(tcp(&world.agent.desired().control), [179, 4713]);
    }
}

#[test]
fn interface_prefixes_are_applied_also_before_the_store_is_read() {
    let prefixes = |world: &World| {
        let rules = world.host.rules().expect("rules");
        format!("{:?}", rules.chains)
    };
    let mut other = config();
    other.settings.interface_prefix = "veth".into();
    for reads_before in [false, true] {
        let mut world = World::new();
        if reads_before {
            world.in_sync();
        }
        world.settle();
        assert!(!prefixes(&world).contains("veth"));
        world.agent.reconfigure(&other);
        world.settle();
        assert!(prefixes(&world).contains("veth"));
    }
}

#[test]
fn patience_is_applied_to_interfaces_that_are_awaited() {
    let mut world = World::new();
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.pass(Duration::from_secs(10));
    for (patience_s, state) in [
        (5, EndpointState::Error),
        (60, EndpointState::Down),
        (5, EndpointState::Error),
    ] {
        world.agent.reconfigure(&AgentConfig {
            interface_patience: Duration::from_secs(patience_s),
            ..config()
        });
        world.settle();
        assert_eq!(world.state().0, state, "{patience_s}");
    }
}

#[test]
fn keys_that_take_a_restart_keep_their_values() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    let routes = world.routes();
    world.agent.reconfigure(&AgentConfig {
        hostname: "other".into(),
        route_protocol: 81,
        table: 10,
        ..config()
    });
    world.pass(Duration::from_secs(5));
    assert_eq!(world.routes(), routes);
    let kept = world.agent.config();
    assert_eq!((&*kept.hostname, kept.table), (HOST, config().table));
}
