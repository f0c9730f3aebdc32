//! Events of an agent.

use daemon_common::events::Event;

use super::*;
use crate::calc::EndpointId;
use crate::events::Events;

/// Returns the events of the only endpoint, or of its deletion.
fn changes(events: &mut Events, world: &World, id: &EndpointId) -> Option<Event> {
    let view = world.agent.endpoint(id);
    events.endpoint_changed(id, view.as_ref())
}

#[test]
fn endpoint_events_follow_its_state() {
    let mut world = World::new();
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    let mut events = Events::new();
    let id = world
        .agent
        .endpoints()
        .next()
        .expect("an endpoint")
        .id
        .clone();
    let down = changes(&mut events, &world, &id);
    let Some(Event::EndpointDown { reason, .. }) = down else {
        panic!("{down:?}")
    };
    assert_eq!(reason.as_str(), "interface cali1 does not exist");
    assert_eq!(changes(&mut events, &world, &id), None, "nothing changed");
    world.link("cali1");
    world.settle();
    let up = changes(&mut events, &world, &id);
    let Some(Event::EndpointUp { interface, .. }) = up else {
        panic!("{up:?}")
    };
    assert_eq!(interface.as_str(), "cali1");
    world.agent.change(&key("a"), None);
    world.settle();
    let removed = changes(&mut events, &world, &id);
    assert!(
        matches!(removed, Some(Event::EndpointRemoved { .. })),
        "{removed:?}"
    );
    assert_eq!(changes(&mut events, &world, &id), None, "it is forgotten");
}

#[test]
fn refused_rules_are_one_event_for_each_reason() {
    let mut world = World::new();
    let mut events = Events::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.host.refuse_rules = true;
    world.in_sync();
    let emitted = events.rules_changed(&world.agent, 0);
    assert!(
        matches!(emitted[..], [(_, Event::RulesFailed { .. })]),
        "{emitted:?}"
    );
    assert!(events.rules_changed(&world.agent, 0).is_empty());
    world.host.refuse_rules = false;
    world.pass(Duration::from_secs(600));
    events.at_revision(Some(7));
    let emitted = events.rules_changed(&world.agent, 1);
    let applied = Event::RulesApplied {
        transactions: 1,
        revision: Some(7),
    };
    assert!(
        matches!(&emitted[..], [(_, event)] if *event == applied),
        "{emitted:?}"
    );
}
