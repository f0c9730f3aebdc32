//! The agent while the datastore is unread, not ready, unreachable, or known from a snapshot.

use serde_json::json;

use daemon_common::events::{Event, Text};

use super::*;
use crate::events::Events;
use crate::limits::{INHERITANCE_STEPS_PER_TURN, INHERITANCE_TURNS_MAX, INHERITED_CHECK};

#[test]
fn unread_store_drops_traffic_and_changes_nothing() {
    let mut world = World::new();
    let index = world.link("cali1");
    let stale = RouteKey::new(254, "10.65.0.9/32".parse().unwrap(), 256, 0);
    world
        .kernel
        .borrow_mut()
        .add_route(stale, Route::device(Owner(80), index))
        .unwrap();
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.pass(Duration::from_secs(300));
    let rules = world.host.rules().expect("the closed rules");
    assert!(rules.sets["workloads"].elements.is_empty());
    assert_eq!(world.routes(), [("10.65.0.9/32".to_owned(), index)].into());
    assert_eq!(world.agent.waiting_for()[0], Waiting::Store);
}

#[test]
fn closed_rules_return_after_a_flush_and_a_refused_write() {
    let mut world = World::new();
    world.settle();
    assert!(world.host.rules().is_some(), "the closed rules");
    world.host.tables = Default::default();
    (world.host.edited, world.host.refuse_rules) = (true, true);
    world.pass(Duration::from_secs(60));
    assert!(world.agent.poll_timeout() > Some(world.now), "it waits");
    world.host.refuse_rules = false;
    world.pass(RETRY_MAX);
    let rules = world.host.rules().expect("the closed rules");
    assert!(rules.sets["workloads"].elements.is_empty());
    let writes = world.host.writes;
    world.pass(Duration::from_secs(60));
    assert_eq!(world.host.writes, writes, "it rests");
}

/// Returns the events of the packet filter since the last call, without those of transactions.
fn rule_events(events: &mut Events, world: &World) -> Vec<Event> {
    let changed = events.rules_changed(&world.agent, 0);
    changed.into_iter().map(|(_, event)| event).collect()
}

#[test]
fn inherited_rules_that_cannot_be_listed_are_tried_again() {
    for is_refused in [true, false] {
        let mut world = World::new();
        world.link("cali1");
        world.endpoint("a", "cali1", &["10.65.0.1/32"]);
        world.in_sync();
        world.restart();
        match is_refused {
            true => world.host.refuse_check = Some("interrupted"),
            false => world.host.doubts_check = true,
        }
        world.pass(INHERITED_CHECK);
        let problem = world.agent.comparison_problem().expect("it is reported");
        let words = "another program changed nftables rules during the listing";
        assert_eq!(problem, if is_refused { "interrupted" } else { words });
        let first = world.host.checks;
        // The delays are doubled, up to the interval of all comparisons.
        world.pass(RULES_CHECK);
        assert_eq!(world.host.checks - first, 5);
        assert_eq!(world.agent.filter_in_effect(), "of an earlier run");
        let before = world.host.checks;
        world.pass(RULES_CHECK * 60);
        let later = world.host.checks - before;
        assert!((60..=61).contains(&later), "{later} listings");
        assert!(world.guards("cali1", [10, 65, 0, 1]), "the table stays");

        world.host.refuse_check = None;
        world.host.doubts_check = false;
        world.pass(RULES_CHECK);
        assert_eq!(world.agent.comparison_problem(), None);
        world.host.edited = true;
        world.pass(RULES_CHECK);
        assert_eq!(world.agent.filter_in_effect(), "drops all workload traffic");
    }
}

#[test]
fn inherited_rules_that_differ_from_their_record_are_closed() {
    let mut world = World::new();
    let mut events = Events::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.restart();
    world.host.edited = true;
    world.pass(INHERITED_CHECK);
    assert!(!world.guards("cali1", [10, 65, 0, 1]));
    let reason = Text::new("the inherited table differs from its record");
    let emitted = rule_events(&mut events, &world);
    assert_eq!(emitted, [Event::RulesClosed { reason }]);
}

#[test]
fn filter_in_effect_names_which_changes_are_detected() {
    for is_recorded in [true, false] {
        let mut world = World::new();
        world.in_sync();
        world.restart();
        world.host.lacks_record = !is_recorded;
        world.settle();
        assert_eq!(world.agent.filter_in_effect(), "of an earlier run");
        // Only the first listing is compared with the record.
        for time in [INHERITED_CHECK, RULES_CHECK] {
            world.pass(time);
            world.host.lacks_record = false;
            let words = match is_recorded {
                true => "of an earlier run, unchanged, and watched",
                false => "of an earlier run, and watched",
            };
            assert_eq!(world.agent.filter_in_effect(), words);
        }
    }
}

#[test]
fn changed_inherited_rules_that_are_replaced_are_undone() {
    let mut world = World::new();
    let mut events = Events::new();
    world.in_sync();
    world.restart();
    world.pass(RULES_CHECK);
    world.host.edited = true;
    world.host.refuse_rules = true;
    world.pass(RULES_CHECK);
    let emitted = rule_events(&mut events, &world);
    assert!(
        matches!(emitted[..], [Event::RulesFailed { .. }]),
        "nothing is closed yet: {emitted:?}"
    );
    world.agent.store_in_sync();
    world.host.refuse_rules = false;
    world.pass(RETRY_MAX);
    let emitted = rule_events(&mut events, &world);
    assert_eq!(emitted, [Event::RulesRepaired {}]);
}

#[test]
fn own_rules_that_cannot_be_listed_are_reported() {
    let mut world = World::new();
    world.in_sync();
    world.host.refuse_check = Some("interrupted");
    world.pass(RULES_CHECK);
    assert_eq!(world.agent.comparison_problem(), Some("interrupted"));
    let before = world.host.checks;
    world.pass(RULES_CHECK);
    assert_eq!(world.host.checks - before, 5);
    world.host.refuse_check = None;
    world.pass(RULES_CHECK);
    assert_eq!(world.agent.comparison_problem(), None);
}

#[test]
fn inherited_rules_that_are_changed_are_closed() {
    for (from_snapshot, is_removed) in [(false, true), (true, true), (false, false), (true, false)]
    {
        let mut world = World::new();
        let mut events = Events::new();
        world.link("cali1");
        world.endpoint("a", "cali1", &["10.65.0.1/32"]);
        world.in_sync();
        world.restart();
        if from_snapshot {
            world.endpoint("a", "cali1", &["10.65.0.1/32"]);
            world.agent.store_restored();
        }
        world.pass(RULES_CHECK * 3);
        assert!(world.guards("cali1", [10, 65, 0, 1]), "the table stays");
        assert_eq!(world.agent.foreign_edits(), 0);
        match is_removed {
            true => world.host.tables = Default::default(),
            false => world.host.edited = true,
        }
        world.pass(RULES_CHECK);
        // The snapshot's rules follow, as on a host without any.
        assert_eq!(world.guards("cali1", [10, 65, 0, 1]), from_snapshot);
        assert_eq!(world.agent.foreign_edits(), 0, "it is not undone");
        let reason = match is_removed {
            true => "another program removed the inherited table",
            false => "another program changed the inherited table",
        };
        let reason = Text::new(reason);
        let emitted = rule_events(&mut events, &world);
        assert_eq!(emitted, [Event::RulesClosed { reason }]);
        let writes = world.host.writes;
        world.pass(RULES_CHECK * 3);
        assert_eq!(world.host.writes, writes, "it rests");
        world.endpoint("a", "cali1", &["10.65.0.1/32"]);
        world.in_sync();
        assert!(world.guards("cali1", [10, 65, 0, 1]));
    }
}

#[test]
fn restart_keeps_rules_and_routes_then_removes_strays() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.link("cali2");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.endpoint("b", "cali2", &["10.65.0.2/32"]);
    world.in_sync();
    let rules = world.host.rules();
    assert_eq!(world.routes().len(), 2);
    world.restart();
    world.pass(Duration::from_secs(60));
    assert_eq!(
        world.host.rules(),
        rules,
        "rules stay while the store is not read"
    );
    assert_eq!(world.routes().len(), 2);
    // b was deleted while the agent was not running.
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    assert!(world.guards("cali1", [10, 65, 0, 1]) && !world.guards("cali2", [10, 65, 0, 2]));
    assert_eq!(world.routes().len(), 2, "strays have some grace");
    world.pass(Duration::from_secs(11));
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), index)].into());
    assert_eq!(world.host.neighbors.len(), 1, "the entry of b is gone");
}

#[test]
fn partial_store_counts_when_it_is_complete() {
    for (lost, from_snapshot) in [(true, false), (false, false), (false, true)] {
        let mut world = World::new();
        let change = |world: &mut World| {
            world.endpoint("a", "cali1", &["10.65.0.1/32"]);
            world.endpoint("b", "cali2", &["10.65.0.2/32"]);
        };
        world.link("cali1");
        world.link("cali2");
        change(&mut world);
        world.in_sync();
        let (rules, routes) = (world.host.rules(), world.routes());
        assert_eq!(routes.len(), 2);
        if from_snapshot {
            world.restart();
            change(&mut world);
            world.agent.store_restored();
            world.settle();
        }
        // Unreachable, or replaced by another one.
        match lost {
            true => world.agent.store_unread(),
            false => world.agent.store_unready(Unready::Silent),
        }
        for gone in [&key("a"), &key("b")] {
            world.agent.change(gone, None);
            world.settle();
        }
        world.pass(Duration::from_secs(600));
        assert_eq!(world.routes(), routes);
        assert_eq!(world.host.rules(), rules);
        let waits = world.agent.waiting_for().first().cloned();
        assert_eq!(
            waits,
            (!lost).then_some(Waiting::StoreReady(Unready::Silent))
        );

        world.endpoint("a", "cali1", &["10.65.0.1/32"]);
        world.in_sync();
        world.pass(Duration::from_secs(600));
        assert_eq!(
            world.routes().into_keys().collect::<Vec<_>>(),
            ["10.65.0.1/32"]
        );
        assert_eq!(world.agent.waiting_for(), []);
    }
}

#[test]
fn snapshot_sets_endpoints_up_on_a_bare_host() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.agent.store_restored();
    world.settle();
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), index)].into());
    assert!(world.guards("cali1", [10, 65, 0, 1]));
    assert_eq!(world.agent.waiting_for(), [Waiting::Store]);
    world.in_sync();
    assert_eq!(world.agent.waiting_for(), []);
}

// Promise (Datastore): A cached snapshot never causes a deletion, and a truncated snapshot is
// rejected.
#[test]
fn nothing_is_removed_on_the_strength_of_a_snapshot() {
    let mut world = World::new();
    let indices = ["cali1", "cali2", "cali3"].map(|name| world.link(name));
    for (nth, id) in ["a", "b", "c"].into_iter().enumerate() {
        world.endpoint(
            id,
            &format!("cali{}", nth + 1),
            &[&format!("10.65.0.{}/32", nth + 1)],
        );
    }
    world.in_sync();
    let (rules, routes) = (world.host.rules(), world.routes());
    let neighbors = world.host.neighbors.clone();
    assert_eq!((routes.len(), neighbors.len()), (3, 3));

    // The snapshot has one of the three.
    world.restart();
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.agent.store_restored();
    world.pass(Duration::from_secs(600));
    assert_eq!(world.host.rules(), rules);
    assert_eq!(world.routes(), routes);
    assert_eq!(world.host.neighbors, neighbors);

    // The datastore is read: endpoints that it lacks are removed.
    world.endpoint("b", "cali2", &["10.65.0.2/32"]);
    world.in_sync();
    world.pass(Duration::from_secs(600));
    assert_eq!(
        world.routes(),
        [
            ("10.65.0.1/32".to_owned(), indices[0]),
            ("10.65.0.2/32".to_owned(), indices[1]),
        ]
        .into()
    );
    assert_eq!(world.host.neighbors.len(), 2);
    assert!(!world.guards("cali3", [10, 65, 0, 3]));
}

#[test]
fn interface_back_without_store_gets_its_route() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.restart();
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.agent.store_restored();
    world.settle();
    world.kernel.borrow_mut().remove_link(index);
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    let index = world.link("cali1");
    world.settle();
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), index)].into());
}

#[test]
fn tunnels_to_the_host_pass_until_pools_use_them() {
    let mut world = World::new();
    let asks = |world: &World| {
        let rules = world.host.rules().expect("rules");
        let text = format!("{:?}", rules.chains["guard-input"]);
        text.contains("tunnel-to-host")
    };
    // The path to the datastore may be a tunnel.
    world.settle();
    assert!(!asks(&world), "before the store is read");
    world.in_sync();
    assert!(!asks(&world), "no pool uses tunnels");
    let pool = "/calico/resources/v3/projectcalico.org/ippools/v4";
    for (modes, asked) in [
        (json!({"ipipMode": "CrossSubnet"}), true),
        (json!({"ipipMode": "Never"}), false),
        (json!({"vxlanMode": "Always"}), true),
    ] {
        let mut spec = modes.clone();
        spec["cidr"] = json!("10.65.0.0/16");
        let value = json!({ "spec": spec }).to_string();
        world.agent.change(pool, Some(value.as_bytes()));
        world.settle();
        assert_eq!(asks(&world), asked, "{modes}");
    }
}

#[test]
fn store_lost_right_after_a_full_read_is_applied_as_it_was_read() {
    for from_snapshot in [false, true] {
        let mut world = World::new();
        let index = world.link("cali1");
        world.link("cali2");
        if from_snapshot {
            world.endpoint("old", "cali2", &["10.65.0.2/32"]);
            world.agent.store_restored();
            world.settle();
            world.agent.change(&key("old"), None);
        }
        world.endpoint("a", "cali1", &["10.65.0.1/32"]);
        world.agent.store_in_sync();
        world.agent.store_unread();
        // A part of the next read.
        world.agent.change(&key("a"), None);
        world.pass(Duration::from_secs(60));
        assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), index)].into());
        assert!(world.guards("cali1", [10, 65, 0, 1]));
    }
}

#[test]
fn snapshot_after_a_full_read_is_ignored() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.agent.store_unread();
    world.agent.change(&key("a"), None);
    world.agent.store_restored();
    world.settle();
    assert_eq!(world.routes().len(), 1);
    world.in_sync();
    assert_eq!(world.routes(), BTreeMap::new());
}

#[test]
fn profile_that_changes_in_each_turn_does_not_delay_others() {
    let mut world = World::new();
    // More endpoints than inherit its labels in one turn.
    for n in 0..=INHERITANCE_STEPS_PER_TURN {
        let pod = format!("p{n}");
        let value = json!({"spec": {
            "orchestrator": "k8s", "node": "n2", "pod": pod, "endpoint": "eth0",
            "interfaceName": "cali1", "ipNetworks": [format!("10.67.{}.{}/32", n / 250, n % 250)],
            "profiles": ["open"],
        }});
        let key = format!(
            "/calico/resources/v3/projectcalico.org/workloadendpoints/ns/n2-k8s-{pod}-eth0"
        );
        world.agent.change(&key, Some(value.to_string().as_bytes()));
    }
    world.link("cali1");
    world.in_sync();
    world.endpoint("late", "cali1", &["10.65.0.1/32"]);
    let mut turns = 0;
    while world.agent.calculator.desired().interfaces.is_empty() {
        assert!(turns <= INHERITANCE_TURNS_MAX, "the endpoint is missing");
        turns += 1;
        let value = json!({"spec": {"labelsToApply": {"turn": turns.to_string()}}}).to_string();
        let key = "/calico/resources/v3/projectcalico.org/profiles/open";
        world.agent.change(key, Some(value.as_bytes()));
        world.agent.turn(world.now);
    }
    assert_eq!(turns, INHERITANCE_TURNS_MAX + 1);
    assert!(!world.agent.is_calculating());
}
