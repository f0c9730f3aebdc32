//! Limits of the bandwidth of endpoints.

use serde_json::{Value, json};

use super::*;
use crate::calc::shaper_name;
use crate::limits::{BANDWIDTH_CHECK_GAP, BANDWIDTH_COMMANDS_PER_TURN};

/// Writes an endpoint with these limits.
fn limited(world: &mut World, controls: &Value) {
    let value = json!({"spec": {
        "orchestrator": "k8s", "node": HOST, "pod": "a", "endpoint": "eth0",
        "interfaceName": "cali1", "ipNetworks": ["10.65.0.1/32"], "qosControls": controls,
        "profiles": ["projectcalico-default-allow"],
    }});
    let octets = value.to_string();
    world.agent.change(&key("a"), Some(octets.as_bytes()));
}

fn problem(world: &World) -> Option<String> {
    world
        .agent
        .endpoints()
        .next()
        .expect("an endpoint")
        .problem()
}

/// Returns the rate of traffic from the workload, in octets.
fn egress(world: &World) -> Option<u64> {
    let limits = world.host.limits.get("cali1")?;
    limits.egress.map(|bucket| bucket.rate)
}

#[test]
fn limits_follow_the_endpoint_and_its_interface() {
    let mut world = World::new();
    let old = world.link("cali1");
    limited(&mut world, &json!({"egressBandwidth": 8000}));
    world.in_sync();
    assert_eq!(egress(&world), Some(1000));
    limited(&mut world, &json!({"egressBandwidth": 16000}));
    world.settle();
    assert_eq!((egress(&world), world.host.limit_writes), (Some(2000), 2));
    // A new interface of this name has no limits yet.
    world.kernel.borrow_mut().remove_link(old);
    world.settle();
    assert_eq!(
        world.host.limits.len(),
        0,
        "the device of the former one is removed"
    );
    world.link("cali1");
    world.settle();
    assert_eq!(egress(&world), Some(2000));
    limited(&mut world, &Value::Null);
    world.settle();
    assert_eq!(world.host.limits.len(), 0);
    limited(&mut world, &json!({"ingressBandwidth": 8000}));
    world.settle();
    assert_eq!(world.host.limits.len(), 1);
    world.agent.change(&key("a"), None);
    world.settle();
    assert_eq!(world.host.limits.len(), 0);
}

#[test]
fn interface_without_limits_is_cleaned_once_only() {
    let mut world = World::new();
    world.link("cali1");
    limited(&mut world, &Value::Null);
    world.in_sync();
    assert_eq!(
        world.host.limit_writes, 1,
        "an earlier run may have left limits"
    );
    world.pass(INTERFACE_REFRESH * 2);
    assert_eq!(world.host.limit_writes, 1);
    limited(&mut world, &json!({"egressBandwidth": 8000}));
    world.settle();
    assert_eq!(world.host.limit_writes, 2);
    world.pass(INTERFACE_REFRESH * 2 + BANDWIDTH_CHECK_GAP);
    assert_eq!(
        world.host.limit_writes, 4,
        "compared with each check of the interface"
    );
}

#[test]
fn limits_of_many_interfaces_are_written_in_several_turns() {
    let mut world = World::new();
    world.in_sync();
    let count = BANDWIDTH_COMMANDS_PER_TURN * 2 + 1;
    for n in 1..=count {
        world.link(&format!("cali{n}"));
        let spec = json!({"spec": {
            "orchestrator": "k8s", "node": HOST, "pod": n.to_string(), "endpoint": "eth0",
            "interfaceName": format!("cali{n}"),
            "ipNetworks": [format!("10.65.{}.{}/32", n / 256, n % 256)],
            "qosControls": {"egressBandwidth": 8000},
        }});
        let octets = spec.to_string();
        world
            .agent
            .change(&key(&n.to_string()), Some(octets.as_bytes()));
    }
    world.settle();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.host.limits.len(), count);
    let most = std::mem::take(&mut world.host.limits_in_turn_max);
    assert_eq!(most, BANDWIDTH_COMMANDS_PER_TURN);
    for n in 1..=count {
        world.agent.change(&key(&n.to_string()), None);
    }
    world.settle();
    world.pass(Duration::from_secs(1));
    assert!(world.host.limits.is_empty());
    assert_eq!(world.host.limits_in_turn_max, BANDWIDTH_COMMANDS_PER_TURN);
}

#[test]
fn limits_of_several_interfaces_are_compared_together() {
    let mut world = World::new();
    world.in_sync();
    for n in 1..=2 {
        let spec = json!({"spec": {
            "orchestrator": "k8s", "node": HOST, "pod": n.to_string(), "endpoint": "eth0",
            "interfaceName": format!("cali{n}"), "ipNetworks": [format!("10.65.0.{n}/32")],
            "qosControls": {"egressBandwidth": 8000},
            "profiles": ["projectcalico-default-allow"],
        }});
        world.link(&format!("cali{n}"));
        let octets = spec.to_string();
        world
            .agent
            .change(&key(&n.to_string()), Some(octets.as_bytes()));
        world.pass(BANDWIDTH_CHECK_GAP / 2);
    }
    assert_eq!(world.host.limit_writes, 2);
    // Their checks are half a gap apart; the comparisons have one time.
    world.pass(INTERFACE_REFRESH - BANDWIDTH_CHECK_GAP / 4);
    assert_eq!(world.host.limit_writes, 2);
    world.pass(BANDWIDTH_CHECK_GAP / 2);
    assert_eq!(world.host.limit_writes, 4);
}

#[test]
fn removed_device_of_an_interface_is_made_again() {
    let mut world = World::new();
    world.link("cali1");
    limited(&mut world, &json!({"egressBandwidth": 8000}));
    world.in_sync();
    let device = world.link(&shaper_name("cali1"));
    world.settle();
    world.kernel.borrow_mut().remove_link(device);
    world.settle();
    assert_eq!(world.host.limit_writes, 2);
}

#[test]
fn rejected_limit_is_a_problem_of_an_endpoint_that_is_up() {
    let mut world = World::new();
    world.link("cali1");
    world.host.refuse_limits = true;
    limited(&mut world, &json!({"ingressBandwidth": 8000}));
    world.in_sync();
    world.pass(RETRY_MAX);
    assert_eq!(world.state(), (EndpointState::Up, None));
    let reason = "the bandwidth is not limited: a foreign queueing discipline";
    assert_eq!(problem(&world).as_deref(), Some(reason));
    world.host.refuse_limits = false;
    world.pass(RETRY_MAX);
    assert_eq!((problem(&world), world.host.limits.len()), (None, 1));
}

#[test]
fn rejected_removal_of_limits_is_reported_and_repeated() {
    for is_link_removed in [false, true] {
        let mut world = World::new();
        let link = world.link("cali1");
        limited(&mut world, &json!({"egressBandwidth": 8000}));
        world.in_sync();
        world.host.refuse_limits = true;
        world.agent.change(&key("a"), None);
        if is_link_removed {
            world.kernel.borrow_mut().remove_link(link);
        }
        world.pass(RETRY_MAX * 2);
        assert_eq!(world.host.limits.len(), 1);
        let reason = "former limits of bandwidth are not removed: a foreign queueing discipline";
        let problem = world.agent.bandwidth.problem("cali1");
        assert_eq!(problem.as_deref(), Some(reason));
        world.host.refuse_limits = false;
        world.pass(RETRY_MAX);
        assert_eq!(world.host.limits.len(), 0);
        let writes = world.host.limit_writes;
        world.pass(RETRY_MAX * 2);
        assert_eq!(
            world.host.limit_writes, writes,
            "it is not repeated any more"
        );
    }
}

#[test]
fn limits_of_an_endpoint_deleted_while_stopped_are_removed() {
    let mut world = World::new();
    world.link("cali1");
    world.link("eth0");
    limited(&mut world, &json!({"egressBandwidth": 8000}));
    world.in_sync();
    let limits = world.host.limits["cali1"];
    world.host.limits.insert("eth0".into(), limits);
    world.restart();
    world.settle();
    assert_eq!(world.host.limits.len(), 2, "the datastore is not yet read");
    world.in_sync();
    let left: Vec<&String> = world.host.limits.keys().collect();
    assert_eq!(left, ["eth0"], "it is not an interface of a workload");
}
