//! Events of an agent.

use std::iter::from_fn;

use daemon_common::events::Event;
use fib_sync::limits::{NOTICE_WINDOW, NOTICES_PER_WINDOW};
use kernel_events::noticed;

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

/// Returns the events of kernel routes since the last call.
fn noticed_by(world: &mut World) -> Vec<Event> {
    let notices = from_fn(|| world.agent.poll_notice());
    notices.map(|notice| noticed(&notice)).collect()
}

#[test]
fn many_deleted_routes_are_single_events_and_a_count() {
    const MORE: u32 = 8;
    let mut world = World::new();
    let pods = 0..NOTICES_PER_WINDOW + MORE;
    for n in pods.clone() {
        world.link(&format!("cali{n}"));
        let address = format!("10.65.0.{n}/32");
        world.endpoint(&format!("w{n}"), &format!("cali{n}"), &[&address]);
    }
    world.in_sync();
    assert_eq!(world.routes().len(), pods.len());
    assert_eq!(world.agent.poll_notice(), None, "nothing was deleted");
    for n in pods {
        world.agent.change(&key(&format!("w{n}")), None);
    }
    world.settle();
    let single = noticed_by(&mut world);
    assert_eq!(single.len(), NOTICES_PER_WINDOW as usize);
    for event in &single {
        assert_eq!(event.kind().name, "route.deleted");
        assert_eq!(event.fields()["cause"], "withdrawn");
    }
    world.pass(NOTICE_WINDOW);
    let rest = noticed_by(&mut world);
    let [more] = &rest[..] else {
        panic!("{rest:?}")
    };
    assert_eq!(more.kind().name, "route.deleted_more");
    assert_eq!(more.fields()["count"], MORE);
    assert_eq!(more.fields()["within_s"], NOTICE_WINDOW.as_secs());
}
