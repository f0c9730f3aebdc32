//! The interfaces between which connections are offloaded.

use serde_json::{Value, json};

use super::*;
use crate::limits::{OFFLOAD_INTERFACES_MAX, OFFLOAD_RETURN};

fn configure(world: &mut World, spec: &Value) {
    let key = "/calico/resources/v3/projectcalico.org/felixconfigurations/default";
    let value = json!({ "spec": spec }).to_string();
    world.agent.change(key, Some(value.as_bytes()));
    world.pass(Duration::from_secs(1));
}

fn world() -> World {
    let mut world = World::new();
    for name in ["cali1", "cali2", "eth0", "eth1", "other"] {
        world.link(name);
    }
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.endpoint("b", "cali2", &["10.65.0.2/32"]);
    world.in_sync();
    world
}

fn offloaded(world: &World) -> Vec<&str> {
    world.host.offloaded.iter().map(String::as_str).collect()
}

#[test]
fn interfaces_follow_the_settings_and_the_limits() {
    let mut world = world();
    assert_eq!(offloaded(&world), <[&str; 0]>::default());
    configure(&mut world, &json!({"nftablesFlowTableOffload": "All"}));
    assert_eq!(offloaded(&world), ["cali1", "cali2"]);
    let with = |pattern: &str| json!({"nftablesFlowTableOffload": "All", "nftablesFlowTableDataIfacePattern": pattern});
    configure(&mut world, &with("^(eth|cali)"));
    assert_eq!(offloaded(&world), ["cali1", "cali2", "eth0", "eth1"]);
    // The last valid value stays in effect.
    configure(&mut world, &with("("));
    assert_eq!(offloaded(&world), ["cali1", "cali2", "eth0", "eth1"]);
    configure(
        &mut world,
        &json!({"nftablesFlowTableOffload": "Workloads"}),
    );
    assert_eq!(offloaded(&world), ["cali1", "cali2", "eth0", "eth1"]);
    configure(&mut world, &with("^eth0"));
    let limited = json!({
        "metadata": {"name": "x", "namespace": "ns"},
        "spec": {"orchestrator": "k8s", "node": HOST, "pod": "c", "endpoint": "eth0",
            "interfaceName": "cali2", "ipNetworks": ["10.65.0.3/32"],
            "qosControls": {"egressPacketRate": 10}},
    });
    let index = world.kernel.borrow().link("cali1").unwrap().index;
    world.kernel.borrow_mut().remove_link(index);
    world.pass(Duration::from_secs(1));
    // The kernel has removed it from the table.
    assert_eq!(offloaded(&world), ["cali1", "cali2", "eth0"]);
    world.agent.change(&key("b"), None);
    world
        .agent
        .change(&key("c"), Some(limited.to_string().as_bytes()));
    world.pass(Duration::from_secs(1));
    assert_eq!(offloaded(&world), ["eth0"]);
    configure(&mut world, &json!({}));
    assert_eq!(offloaded(&world), <[&str; 0]>::default());
}

#[test]
fn offloaded_connections_return_after_a_change_of_rules() {
    let mut world = world();
    configure(&mut world, &json!({"nftablesFlowTableOffload": "All"}));
    let before = world.host.offloads;
    world.pass(Duration::from_secs(60));
    assert_eq!(world.host.offloads, before, "nothing has changed");
    let policy = json!({"spec": {"ingress": [{"action": "Allow"}]}}).to_string();
    let key = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/p";
    world.agent.change(key, Some(policy.as_bytes()));
    world.pass(Duration::from_secs(1));
    assert!(world.host.offloads > before);
}

#[test]
fn interface_that_flaps_ends_no_offloaded_connections() {
    let mut world = world();
    configure(&mut world, &json!({"nftablesFlowTableOffload": "All"}));
    assert_eq!(offloaded(&world), ["cali1", "cali2"]);
    world.pass(Duration::from_secs(60));
    let before = (world.host.offloads, world.agent.rules.commits());
    // The carrier, which a workload can change.
    let index = world.kernel.borrow().link("cali1").unwrap().index;
    for round in 0..20 {
        let is_up = round % 2 == 1;
        world.kernel.borrow_mut().set_carrier(index, is_up);
        world.pass(Duration::from_millis(500));
    }
    assert_eq!(world.host.offloads, before.0);
    // The interface itself: it returns after a time without a removal.
    for _ in 0..20 {
        let index = world.kernel.borrow().link("cali1").unwrap().index;
        world.kernel.borrow_mut().remove_link(index);
        world.pass(Duration::from_millis(500));
        world.link("cali1");
        world.pass(Duration::from_millis(500));
    }
    assert_eq!(world.agent.rules.commits(), before.1, "the same rules");
    assert_eq!(world.host.offloads, before.0);
    world.pass(OFFLOAD_RETURN);
    assert_eq!(world.host.offloads, before.0 + 1);
    assert_eq!(offloaded(&world), ["cali1", "cali2"]);
    // A new interface is added at once.
    world.link("cali3");
    world.endpoint("c", "cali3", &["10.65.0.3/32"]);
    world.pass(Duration::from_secs(1));
    assert_eq!(offloaded(&world), ["cali1", "cali2", "cali3"]);
}

#[test]
fn table_that_may_exist_is_written_after_a_change_of_rules() {
    let mut world = world();
    configure(&mut world, &json!({"nftablesFlowTableOffload": "All"}));
    let policy = |world: &mut World, name: &str| {
        let policy = json!({"spec": {"ingress": [{"action": "Allow"}]}}).to_string();
        let key = format!("/calico/resources/v3/projectcalico.org/globalnetworkpolicies/{name}");
        world.agent.change(&key, Some(policy.as_bytes()));
        world.pass(Duration::from_secs(1));
    };
    world.host.refuse_offload = true;
    for keeps in [false, true] {
        world.host.keep_offload_table = keeps;
        policy(&mut world, &format!("first{keeps}"));
        // After several failures, the next attempt is later than the next changes.
        world.pass(RETRY_MAX * 8);
        let before = world.host.offloads;
        policy(&mut world, &format!("a{keeps}"));
        policy(&mut world, &format!("b{keeps}"));
        let writes = world.host.offloads - before;
        assert_eq!(writes >= 2, keeps, "{writes}");
    }
}

#[test]
fn table_of_removed_interfaces_is_written_with_new_rules() {
    let mut world = world();
    configure(&mut world, &json!({"nftablesFlowTableOffload": "All"}));
    world.pass(Duration::from_secs(60));
    let before = world.host.offloads;
    for name in ["cali1", "cali2"] {
        let index = world.kernel.borrow().link(name).unwrap().index;
        world.kernel.borrow_mut().remove_link(index);
        world.link(name);
    }
    world.pass(Duration::from_secs(1));
    assert_eq!(world.host.offloads, before, "the same rules");
    let policy = json!({"spec": {"ingress": [{"action": "Allow"}]}}).to_string();
    let key = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/p";
    world.agent.change(key, Some(policy.as_bytes()));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.host.offloads, before + 1);
    assert_eq!(offloaded(&world), <[&str; 0]>::default());
    world.pass(OFFLOAD_RETURN);
    assert_eq!(offloaded(&world), ["cali1", "cali2"]);
}

#[test]
fn refused_flowtable_is_reported_and_tried_again() {
    let mut world = world();
    world.host.refuse_offload = true;
    configure(&mut world, &json!({"nftablesFlowTableOffload": "All"}));
    assert_eq!(world.agent.offload_problem(), Some("no flowtables"));
    world.host.refuse_offload = false;
    world.pass(RETRY_MAX);
    assert_eq!(world.agent.offload_problem(), None);
    assert_eq!(offloaded(&world), ["cali1", "cali2"]);
}

#[test]
fn offload_is_refused_with_cutting_and_bounded() {
    let mut world = world();
    let config = AgentConfig {
        cut_mark: Some(4),
        ..AgentConfig::new(HOST)
    };
    world.agent.reconfigure(&config);
    configure(&mut world, &json!({"nftablesFlowTableOffload": "All"}));
    let problem = world.agent.offload_problem().unwrap();
    assert!(problem.contains("cutting.enabled"), "{problem}");
    assert_eq!(offloaded(&world), <[&str; 0]>::default());
    world.agent.reconfigure(&AgentConfig::new(HOST));
    for n in 0..OFFLOAD_INTERFACES_MAX {
        world.link(&format!("eth0.{n}"));
    }
    let spec = json!({
        "nftablesFlowTableOffload": "All", "nftablesFlowTableDataIfacePattern": "^eth",
    });
    configure(&mut world, &spec);
    assert_eq!(world.host.offloaded.len(), OFFLOAD_INTERFACES_MAX);
    let problem = world.agent.offload_problem().unwrap();
    assert!(problem.contains("4 others are not offloaded"), "{problem}");
    let first = world.host.offloaded.first().unwrap();
    assert!(first.starts_with("eth0"), "uplinks come first: {first}");
    let key = "/calico/resources/v3/projectcalico.org/felixconfigurations/default";
    let few = json!({"spec": {
        "nftablesFlowTableOffload": "All", "nftablesFlowTableDataIfacePattern": "^eth[01]$",
    }});
    for n in 0..OFFLOAD_INTERFACES_MAX {
        let name = format!("cali9{n}");
        world.link(&name);
        world.endpoint(
            &name,
            &name,
            &[&format!("10.66.{}.{}/32", n / 250, n % 250)],
        );
    }
    world.agent.change(key, Some(few.to_string().as_bytes()));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.host.offloaded.len(), OFFLOAD_INTERFACES_MAX);
    assert!(
        ["eth0", "eth1"]
            .iter()
            .all(|name| world.host.offloaded.contains(*name))
    );
}

#[test]
fn offload_of_an_earlier_run_ends_with_the_closed_filter() {
    let mut world = World::new();
    world.host.offloaded = ["eth0".to_owned()].into();
    world.settle();
    assert!(world.host.rules().is_some(), "workloads are closed");
    assert_eq!(offloaded(&world), <[&str; 0]>::default());
}
