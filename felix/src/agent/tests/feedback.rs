//! Reports of endpoints that cannot be set up, and of interfaces without an endpoint.

use calico_model::EndpointStatus;
use serde_json::json;

use super::*;
use crate::limits::{INTERFACE_PATIENCE, UNCLAIMED_NOTICE};

/// Time for some attempts.
const A_WHILE: Duration = Duration::from_secs(10);

fn unclaimed(world: &World) -> Vec<&str> {
    world.agent.unclaimed().map(|(name, _)| name).collect()
}

impl World {
    fn states(&self) -> Vec<(String, EndpointState)> {
        let views = self.agent.endpoints();
        views
            .map(|view| (view.id.workload.clone(), view.state))
            .collect()
    }

    fn is_refused(&self, why: &str) {
        let (state, reason) = self.state();
        assert_eq!(state, EndpointState::Error);
        assert!(reason.as_ref().unwrap().contains(why), "{reason:?}");
        let reported = self.agent.endpoints().next().unwrap().reported();
        assert_eq!(
            reported,
            EndpointStatus {
                status: state,
                reason
            }
        );
    }
}

#[test]
fn an_interface_that_does_not_come_is_an_error_until_it_does() {
    let mut world = World::new();
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.pass(INTERFACE_PATIENCE - Duration::from_secs(1));
    let reason = Some("interface cali1 does not exist".to_owned());
    assert_eq!(world.state(), (EndpointState::Down, reason));
    let reported = world.agent.endpoints().next().unwrap().reported();
    assert_eq!(reported, EndpointState::Down.into(), "down needs no reason");
    world.pass(Duration::from_secs(1));
    world.is_refused("cali1 has not appeared within 30 s");
    // The name may have been wrong: another interface gets its own time.
    world.endpoint("a", "cali2", &["10.65.0.1/32"]);
    world.settle();
    assert_eq!(world.state().0, EndpointState::Down);
    world.pass(INTERFACE_PATIENCE);
    world.is_refused("cali2 has not appeared within 30 s");
    world.link("cali2");
    world.settle();
    assert_eq!(world.state(), (EndpointState::Up, None));
}

#[test]
fn endpoint_is_down_after_its_interface_is_removed() {
    for by_this_run in [true, false] {
        let mut world = World::new();
        world.endpoint("a", "cali1", &["10.65.0.1/32"]);
        let index = world.link("cali1");
        if by_this_run {
            world.in_sync();
            world.kernel.borrow_mut().remove_link(index);
        } else {
            world.kernel.borrow_mut().remove_link(index);
            world.in_sync();
            let id = world.agent.endpoints().next().unwrap().id.clone();
            world.agent.presume_seen(&id);
        }
        world.pass(INTERFACE_PATIENCE * 3);
        let reason = Some("interface cali1 does not exist".to_owned());
        assert_eq!(world.state(), (EndpointState::Down, reason));
    }
}

#[test]
fn a_setting_that_is_refused_again_and_again_is_an_error() {
    let mut world = World::new();
    world.link("cali1");
    world.host.refuse_interface = Some("sysctl net.x = 1: Read-only file system".into());
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    assert_eq!(
        world.state().0,
        EndpointState::Down,
        "once may be by chance"
    );
    world.pass(A_WHILE);
    world.is_refused("cali1 is not configured: sysctl net.x = 1: Read-only");
    world.host.refuse_interface = None;
    world.pass(A_WHILE);
    assert_eq!(world.state(), (EndpointState::Up, None));
}

#[test]
fn rules_that_are_refused_again_and_again_are_an_error() {
    let mut world = World::new();
    world.link("cali1");
    world.in_sync();
    world.host.refuse_rules = true;
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.pass(A_WHILE);
    world.is_refused("packet filter no nftables");
}

#[test]
fn rejected_route_stays_an_error_while_retried() {
    let mut world = World::new();
    world.link("cali1");
    let prefix = "10.65.0.1/32".parse().unwrap();
    world.kernel.borrow_mut().refuse(prefix, Some(1));
    world.endpoint("a", "cali1", &["10.65.0.1/32", "fd65::1/128"]);
    world.in_sync();
    assert_eq!(world.state().0, EndpointState::Down);
    world.pass(A_WHILE);
    world.is_refused("route to 10.65.0.1 is refused: ");
    let refused = world.state();
    assert!(!refused.1.as_ref().unwrap().contains("x)"), "{refused:?}");
    // At every instant from here to the next attempts.
    for _ in 0..200 {
        world.now += Duration::from_millis(100);
        world.turn();
        assert_eq!(world.state(), refused, "on its way");
        world.settle();
        assert_eq!(world.state(), refused);
    }
    world.kernel.borrow_mut().refuse(prefix, None);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.state(), (EndpointState::Up, None));
}

#[test]
fn higher_id_is_rejected_until_the_lower_is_removed() {
    for (interface, address, why) in [
        (
            "cali2",
            "10.65.0.1/32",
            "10.65.0.1 is the address of endpoint k8s/ns/a/eth0",
        ),
        (
            "cali1",
            "10.65.0.2/32",
            "cali1 is the interface of endpoint k8s/ns/a/eth0",
        ),
    ] {
        let mut world = World::new();
        world.link("cali1");
        world.link("cali2");
        world.endpoint("b", interface, &[address]);
        world.in_sync();
        assert_eq!(world.state(), (EndpointState::Up, None));
        world.endpoint("a", "cali1", &["10.65.0.1/32"]);
        world.settle();
        let states = [
            ("ns/a".to_owned(), EndpointState::Up),
            ("ns/b".to_owned(), EndpointState::Error),
        ];
        assert_eq!(world.states(), states);
        let reason = world.agent.endpoints().last().unwrap().reason;
        assert_eq!(reason.as_deref(), Some(why));
        world.agent.change(&key("a"), None);
        world.settle();
        assert_eq!(world.state(), (EndpointState::Up, None));
    }
}

#[test]
fn workload_interface_is_unclaimed_without_an_endpoint() {
    let mut world = World::new();
    world.link("cali1");
    world.link("eth0");
    world.settle();
    assert!(unclaimed(&world).is_empty(), "the store may have it");
    world.in_sync();
    assert_eq!(unclaimed(&world), ["cali1"]);
    let index = world.link("tap2");
    world.settle();
    assert_eq!(unclaimed(&world), ["cali1", "tap2"]);
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.kernel.borrow_mut().remove_link(index);
    world.settle();
    assert!(unclaimed(&world).is_empty());
    world.agent.change(&key("a"), None);
    world.settle();
    let since = world.agent.unclaimed().next().map(|(_, since)| since);
    assert_eq!(since, Some(world.now));
    // It is reported once, and then no timer is left.
    world.pass(UNCLAIMED_NOTICE);
    assert!(world.agent.poll_timeout() > Some(world.now));
}

#[test]
fn patience_may_be_endless() {
    let mut world = World::new();
    let mut config = AgentConfig::new(HOST);
    config.interface_patience = Duration::MAX;
    world.agent = Agent::new(world.now, config);
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.pass(INTERFACE_PATIENCE * 100);
    assert_eq!(world.state().0, EndpointState::Down);
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_of_its_endpoint() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.0/24"]);
    world.in_sync();
    world.is_refused("spec.ipNetworks[0]: 10.65.0.0/24 is not a single address");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.settle();
    assert_eq!(world.state(), (EndpointState::Up, None));
    world.endpoint("a", "cali1", &["10.65.0.0/24"]);
    world.settle();
    world.is_refused("(/32 or /128); the last valid value stays in effect");
    assert_eq!(world.routes().len(), 1);
    // Another host's endpoint is not reported.
    let other = key("a").replace("n1-", "n2-");
    world.agent.change(&other, Some(b"{"));
    world.agent.change(&key("a"), None);
    world.settle();
    assert_eq!(world.states(), []);
}

#[test]
fn missing_profile_is_named_while_the_endpoint_is_up() {
    let mut world = World::new();
    world.link("cali1");
    let change = |world: &mut World, profiles: &[&str]| {
        let value = json!({"spec": {
            "orchestrator": "k8s", "node": HOST, "pod": "a", "endpoint": "eth0",
            "interfaceName": "cali1", "ipNetworks": ["10.65.0.1/32"], "profiles": profiles,
        }});
        let value = value.to_string();
        world.agent.change(&key("a"), Some(value.as_bytes()));
        world.settle();
    };
    let profile = |world: &mut World, spec: &serde_json::Value| {
        let key = "/calico/resources/v3/projectcalico.org/profiles/first";
        let value = json!({ "spec": spec }).to_string();
        world.agent.change(key, Some(value.as_bytes()));
        world.settle();
    };
    let problem = |world: &World| {
        let view = world.agent.endpoints().next().unwrap();
        assert_eq!((view.state, &view.reason), (EndpointState::Up, &None));
        assert_eq!(view.reported().reason, view.problem());
        view.problem()
    };
    change(&mut world, &["first", "kns.prod"]);
    world.in_sync();
    let all = "profile \"first\" does not exist: all traffic dropped";
    assert_eq!(problem(&world).as_deref(), Some(all));
    profile(&mut world, &json!({"egress": [{"action": "Allow"}]}));
    let ingress = "profile \"kns.prod\" does not exist: ingress traffic that nothing else allows \
        is dropped";
    assert_eq!(problem(&world).as_deref(), Some(ingress));
    change(&mut world, &["projectcalico-default-allow"]);
    assert_eq!(problem(&world), None);
}

#[test]
fn table_at_the_end_is_that_of_the_kernel() {
    for refuses in [false, true] {
        let mut world = World::new();
        world.link("cali1");
        world.in_sync();
        let before = world.host.rules();
        let end = |world: &mut World| {
            let held = world.agent.end(world.now, || world.host.poll_event());
            held.cloned()
        };
        assert_eq!(end(&mut world), before);
        // The daemon ends before it handles the kernel's answer.
        world.host.refuse_rules = refuses;
        world.endpoint("a", "cali1", &["10.65.0.1/32"]);
        world.agent.turn(world.now);
        while let Some((number, command)) = world.agent.poll_host_command() {
            world.host.submit(number, command);
        }
        let held = end(&mut world);
        let after = world.host.rules();
        assert_eq!(after == before, refuses);
        assert_eq!(held, after.filter(|_| !refuses), "refused: {refuses}");
    }
}
