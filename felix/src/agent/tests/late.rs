//! A host that answers late.

use super::*;

#[test]
fn interface_bounced_during_configuration_is_configured_again() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.in_sync();
    world.host.stalls = true;
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.settle();
    let not_yet = Some("interface cali1 is not configured yet");
    assert_eq!(world.state().1.as_deref(), not_yet);
    world.kernel.borrow_mut().set_link_up(index, false);
    world.settle();
    world.kernel.borrow_mut().set_link_up(index, true);
    world.settle();
    world.host.stalls = false;
    world.settle();
    assert_eq!(world.host.configured[&index], 2);
    assert_eq!(world.state(), (EndpointState::Up, None));
    assert_eq!((world.routes().len(), world.host.neighbors.len()), (1, 1));
}

#[test]
fn route_waits_until_its_rules_are_in_effect() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.host.stalls = true;
    world.endpoint("a", "cali1", &["10.65.0.1/32", "10.65.0.2/32"]);
    world.settle();
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), index)].into());
    let (state, reason) = world.state();
    assert_eq!(state, EndpointState::Down);
    assert!(reason.unwrap().contains("packet filter not written yet"));
    world.host.stalls = false;
    world.settle();
    assert_eq!(world.routes().len(), 2);
    assert_eq!(world.state(), (EndpointState::Up, None));
}

#[test]
fn endpoint_deleted_while_its_entry_is_put_leaves_no_entry() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.host.stalls = true;
    world.endpoint("a", "cali1", &["10.65.0.1/32", "10.65.0.2/32"]);
    world.settle();
    world.agent.change(&key("a"), None);
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new(), "withdrawn at once");
    world.host.stalls = false;
    world.settle();
    assert!(world.host.neighbors.is_empty());
    assert!(!world.guards("cali1", [10, 65, 0, 2]));
}

#[test]
fn refresh_of_an_interface_does_not_take_its_endpoint_down() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.host.stalls = true;
    world.pass(INTERFACE_REFRESH * 2);
    assert_eq!(world.state(), (EndpointState::Up, None));
    world.host.stalls = false;
    world.settle();
    assert!(world.host.configured[&index] > 1);
}

#[test]
fn settings_of_interfaces_are_checked_in_the_interval() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    let configure = |world: &mut World, interval: &str| {
        let name = "/calico/resources/v3/projectcalico.org/felixconfigurations/default";
        let spec = format!(r#"{{"spec": {{"interfaceRefreshInterval": "{interval}"}}}}"#);
        world.agent.change(name, Some(spec.as_bytes()));
        world.settle();
        world.host.configured[&index]
    };
    for (interval, seconds) in [("10s", 10), ("500s", 500), ("90s", 90)] {
        let before = configure(&mut world, interval);
        world.pass(Duration::from_secs(seconds * 4 + 1));
        let checks = world.host.configured[&index] - before;
        assert!((3..=5).contains(&checks), "{interval} {checks}");
    }
    let before = configure(&mut world, "0s");
    world.pass(INTERFACE_REFRESH * 10);
    assert_eq!(world.host.configured[&index], before);
    // An interval that is too short is invalid: the last valid one stays.
    let before = configure(&mut world, "1ms");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.host.configured[&index], before);
}

#[test]
fn commands_to_a_stalled_host_are_bounded() {
    let mut world = World::new();
    world.in_sync();
    world.host.stalls = true;
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    for _ in 0..HOST_COMMANDS_MAX {
        for up in [false, true] {
            world.kernel.borrow_mut().set_link_up(index, up);
            world.settle();
        }
    }
    let bound = HOST_COMMANDS_MAX..=HOST_COMMANDS_MAX + 2;
    assert!(bound.contains(&world.host.waiting()));
    world.host.stalls = false;
    world.settle();
    assert_eq!(world.state(), (EndpointState::Up, None));
}
