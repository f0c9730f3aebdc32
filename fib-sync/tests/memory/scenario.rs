//! One behavior per test.

use std::time::Duration;

use fib_sync::limits::{BACKOFF_MAX, BACKOFF_MIN};
use fib_sync::memory::Faults;
use fib_sync::{Command, DeleteCause, FibStatus, Notice, Owner, PutMode, Route, RouteKey};

use crate::world::{FELIX, STATIC, UP1, US, World, key, via};

const MOMENT: Duration = Duration::from_millis(1);

#[test]
fn reconciler_dumps_the_table_before_its_first_write() {
    let mut world = World::new(1);
    world.want(key("10.65.0.1/32"), via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    assert!(matches!(
        world.commands[0],
        Command::Dump {
            table: 254,
            owner: None
        }
    ));
    assert!(matches!(
        world.commands[1],
        Command::Put(_, _, PutMode::Create)
    ));
    assert_eq!(world.commands.len(), 2);
    assert_eq!(world.status(&key("10.65.0.1/32")), Some(FibStatus::Acked));
    world.want(key("10.65.0.1/32"), via(US, &["10.0.0.13"]));
    world.run(MOMENT);
    assert!(matches!(
        world.commands[2],
        Command::Put(_, _, PutMode::Replace)
    ));
    world.unwant(&key("10.65.0.1/32"));
    world.run(MOMENT);
    assert_eq!(world.commands[3], Command::Delete(key("10.65.0.1/32"), US));
    assert_eq!(world.commands.len(), 4);
    assert_eq!(world.reconciler.routes().count(), 0);
}

#[test]
fn a_restart_writes_only_the_difference() {
    let mut world = World::new(2);
    for prefix in ["10.65.0.1/32", "10.65.0.2/32", "10.65.0.3/32"] {
        world.want(key(prefix), via(US, &["10.0.0.12"]));
    }
    world.run(MOMENT);
    world.crash();
    world.commands.clear();
    world.run(Duration::from_secs(5));
    assert_eq!(world.ours().len(), 3, "nothing is flushed");
    world.want(key("10.65.0.1/32"), via(US, &["10.0.0.12"]));
    world.want(key("10.65.0.2/32"), via(US, &["10.1.0.12"]));
    world.run(Duration::from_secs(5));
    assert_eq!(world.writes(), 1, "{:?}", world.commands);
    assert_eq!(world.status(&key("10.65.0.3/32")), Some(FibStatus::Stray));
    world.run(Duration::from_secs(20));
    assert_eq!(
        world.ours().len(),
        2,
        "the stray went when the grace period ended"
    );
    assert!(world.reconciler.in_sync());
}

#[test]
fn routes_through_a_lost_gateway_are_deleted_without_grace() {
    let (dead, alive) = ("10.0.0.12", "10.0.0.13");
    for is_read_before in [true, false] {
        let mut world = World::new(2);
        world.want(key("10.65.0.1/32"), via(US, &[dead]));
        world.want(key("10.65.0.2/32"), via(US, &[alive]));
        world.want(key("10.65.0.3/32"), via(US, &[dead, alive]));
        world.run(MOMENT);
        world.crash();
        if is_read_before {
            world.run(MOMENT);
        }
        let gateway = dead.parse().expect("an address");
        world.reconciler.lose_gateway(gateway);
        world.run(MOMENT);
        let kept = world.ours();
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert_eq!(world.status(&key("10.65.0.1/32")), None);
        // It is installed again if it is wanted.
        world.want(key("10.65.0.1/32"), via(US, &[dead]));
        world.run(MOMENT);
        assert_eq!(world.ours().len(), 3);
    }
}

#[test]
fn route_wanted_before_is_deleted_without_grace() {
    let mut world = World::new(3);
    world.want(key("10.65.0.1/32"), via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    world.unwant(&key("10.65.0.1/32"));
    world.run(MOMENT);
    assert!(world.ours().is_empty());
}

#[test]
fn foreign_route_is_named_and_replaced_after_its_removal() {
    let mut world = World::new(4);
    let at = key("10.65.0.1/32");
    world
        .kernel
        .add_route(at, via(STATIC, &["10.0.0.99"]))
        .unwrap();
    world.want(at, via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    assert_eq!(
        world.writes(),
        0,
        "the dump has named it: no write is needed to find out"
    );
    assert!(matches!(
        world.status(&at),
        Some(FibStatus::Conflict {
            owner: Some(STATIC),
            attempts: 1,
            ..
        })
    ));
    world.run(Duration::from_secs(10));
    assert!(
        world.writes() <= 6,
        "it is not fought over: {}",
        world.writes()
    );
    world.kernel.delete_route(&at);
    world.run(MOMENT);
    assert_eq!(world.status(&at), Some(FibStatus::Acked));
    // Another program takes over the key: reported again, not taken back.
    world
        .kernel
        .replace_route(at, via(STATIC, &["10.0.0.99"]))
        .unwrap();
    world.run(MOMENT);
    assert!(matches!(
        world.status(&at),
        Some(FibStatus::Conflict { .. })
    ));
    assert_eq!(world.kernel.route(&at).unwrap().owner(), STATIC);
}

#[test]
fn a_conflict_met_by_a_write_is_named_by_one_dump() {
    let mut world = World::new(5);
    world.run(MOMENT);
    let at = key("10.65.0.1/32");
    // No event is sent: as if the route had been there before the key was wanted.
    world
        .kernel
        .add_route(at, via(STATIC, &["10.0.0.99"]))
        .unwrap();
    world.run(MOMENT);
    world.want(at, via(US, &["10.0.0.12"]));
    world.run(Duration::from_secs(10));
    let dumps = world.reconciler.summary().dumps;
    assert!(matches!(
        world.status(&at),
        Some(FibStatus::Conflict {
            owner: Some(Owner(4)),
            ..
        })
    ));
    assert_eq!(dumps, 2, "the first, and one to name it");
}

// Promise: as fib-sync foreign_route_of_another_metric_is_kept
#[test]
fn felix_and_bgp_share_a_prefix() {
    let mut world = World::new(6);
    let felix = RouteKey::new(254, "10.65.0.1/32".parse().unwrap(), 256, 0);
    world
        .kernel
        .add_route(felix, Route::device(FELIX, 4))
        .unwrap();
    world.want(key("10.65.0.1/32"), via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    assert_eq!(world.status(&key("10.65.0.1/32")), Some(FibStatus::Acked));
    let used = world
        .kernel
        .route_to(254, "10.65.0.1".parse().unwrap())
        .unwrap();
    assert_eq!(used.1.owner(), FELIX, "the lower metric forwards");
    world.unwant(&key("10.65.0.1/32"));
    world.run(MOMENT);
    assert!(world.kernel.route(&felix).is_some());
}

#[test]
fn a_refused_route_backs_off_alone() {
    let mut world = World::new(7);
    world
        .kernel
        .refuse("10.65.0.1/32".parse().unwrap(), Some(libc::ENOMEM));
    for prefix in ["10.65.0.1/32", "10.65.0.2/32"] {
        world.want(key(prefix), via(US, &["10.0.0.12"]));
    }
    world.run(MOMENT);
    assert_eq!(world.status(&key("10.65.0.2/32")), Some(FibStatus::Acked));
    let Some(FibStatus::Failed {
        error,
        attempts: 1,
        retry_at,
    }) = world.status(&key("10.65.0.1/32"))
    else {
        panic!("{:?}", world.status(&key("10.65.0.1/32")));
    };
    assert_eq!(error.name(), Some("ENOMEM"));
    assert!(retry_at.saturating_duration_since(world.now) <= BACKOFF_MIN);
    world.run(Duration::from_secs(600));
    // Doubling to a minute: about 9 attempts to get there, then one a minute.
    assert!(world.writes() < 25, "{}", world.writes());
    world.kernel.refuse("10.65.0.1/32".parse().unwrap(), None);
    world.run(BACKOFF_MAX);
    assert!(world.reconciler.in_sync());
}

#[test]
fn foreign_delete_is_repaired_without_a_dump() {
    let mut world = World::new(8);
    world.want(key("10.65.0.1/32"), via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    world.commands.clear();
    world.kernel.delete_route(&key("10.65.0.1/32"));
    world.run(MOMENT);
    assert_eq!(world.commands.len(), 1);
    assert_eq!(world.ours().len(), 1);
    assert_eq!(world.reconciler.summary().drift, 1);
}

#[test]
fn an_overrun_voids_belief_until_a_dump_is_through() {
    let mut world = World::new(9);
    world.want(key("10.65.0.1/32"), via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    world.kernel.delete_route(&key("10.65.0.1/32"));
    world.kernel.overrun(world.attachment);
    world.want(key("10.65.0.2/32"), via(US, &["10.0.0.12"]));
    world.commands.clear();
    world.run(Duration::from_secs(1));
    // The write that was already decided may be sent first; nothing else before the dump.
    let dump = world
        .commands
        .iter()
        .position(|c| matches!(c, Command::Dump { .. }))
        .unwrap();
    assert!(dump <= 1, "{:?}", world.commands);
    assert_eq!(world.ours().len(), 2);
    assert!(world.reconciler.in_sync());
}

#[test]
fn a_loss_without_a_word_is_found_by_the_periodic_check() {
    let mut world = World::new(10);
    world.want(key("10.65.0.1/32"), via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    let mut faults = Faults::default();
    faults.lose_notification = 1000;
    world.kernel.set_faults(faults);
    world.kernel.delete_route(&key("10.65.0.1/32"));
    world.run(Duration::from_secs(50));
    assert!(world.ours().is_empty());
    world.run(Duration::from_secs(15));
    assert_eq!(world.ours().len(), 1);
}

#[test]
fn ipv4_routes_that_went_with_their_link_come_back_with_it() {
    let mut world = World::new(11);
    world.want(key("10.65.0.1/32"), via(US, &["10.1.0.12"]));
    world.run(MOMENT);
    world.kernel.set_link_up(UP1, false);
    world.run(Duration::from_secs(1));
    assert!(matches!(
        world.status(&key("10.65.0.1/32")),
        Some(FibStatus::Failed { .. })
    ));
    world.run(Duration::from_secs(300));
    world.kernel.set_link_up(UP1, true);
    world.run(MOMENT);
    assert_eq!(
        world.ours().len(),
        1,
        "at once, whatever the back-off had come to"
    );
}

#[test]
fn one_hop_lost_is_put_back() {
    let mut world = World::new(12);
    let at = key("fd65::1/128");
    world.want(at, via(US, &["fd00::12", "fd01::12"]));
    world.run(MOMENT);
    world.kernel.remove_link(UP1);
    world.run(Duration::from_secs(1));
    assert_eq!(world.kernel.route(&at).unwrap().next_hops.len(), 1);
    assert!(matches!(world.status(&at), Some(FibStatus::Failed { .. })));
    // The remaining hop stays in use until its replacement is accepted.
    world.want(at, via(US, &["fd00::12", "fd00::13"]));
    world.run(MOMENT);
    assert_eq!(world.status(&at), Some(FibStatus::Acked));
}

#[test]
fn a_shadow_run_writes_nothing() {
    let mut world = World::new(13);
    world.want(key("10.65.0.1/32"), via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    world.crash();
    let mut config = crate::world::config(fib_sync::NexthopObjects::Ignore);
    config.install = false;
    world.reconciler = fib_sync::Reconciler::new(world.now, config);
    world.commands.clear();
    world.want(key("10.65.0.2/32"), via(US, &["10.0.0.12"]));
    world.run(Duration::from_secs(120));
    assert_eq!(world.writes(), 0);
    assert_eq!(world.status(&key("10.65.0.1/32")), Some(FibStatus::Stray));
    assert_eq!(world.status(&key("10.65.0.2/32")), Some(FibStatus::Wanted));
    assert!(!world.reconciler.in_sync());
    world.want(key("10.65.0.1/32"), via(US, &["10.0.0.12"]));
    assert_eq!(world.status(&key("10.65.0.1/32")), Some(FibStatus::Acked));
}

/// Returns a world whose routes have metric 1024 in the main table; table 7 is read as well.
fn world_of_metric_1024(seed: u64) -> World {
    let mut world = World::new(seed);
    world.configure(|config| {
        config.metrics = vec![1024..=1024];
        config.tables_read = vec![7];
    });
    world
}

// Promise (Kernel routes): A route with a daemon's own protocol is foreign if the daemon does
// not write its metric or table.
#[test]
fn own_protocol_at_another_metric_or_table_stays() {
    let mut world = world_of_metric_1024(21);
    let written = key("10.65.0.1/32");
    let others = [
        RouteKey::new(254, written.prefix, 256, 0),
        RouteKey::new(254, "10.65.9.0/26".parse().unwrap(), 20, 0),
        RouteKey::new(7, "10.65.0.0/26".parse().unwrap(), 1024, 0),
    ];
    for other in others {
        world
            .kernel
            .add_route(other, via(US, &["10.0.0.12"]))
            .unwrap();
    }
    world.want(written, via(US, &["10.0.0.13"]));
    world.run(Duration::from_secs(40));
    let late = RouteKey::new(254, "10.65.8.0/26".parse().unwrap(), 256, 0);
    world
        .kernel
        .add_route(late, via(US, &["10.0.0.12"]))
        .unwrap();
    world.run(Duration::from_secs(300));
    for other in others.iter().chain([&late]) {
        assert!(world.kernel.route(other).is_some(), "{other} was deleted");
    }
    assert_eq!(world.reconciler.summary().foreign, 4);
    let named: Vec<_> = world.notices().into_iter().collect();
    for other in others.into_iter().chain([late]) {
        let notice = Notice::Foreign {
            key: other,
            owner: US,
        };
        assert_eq!(
            named.iter().filter(|one| **one == notice).count(),
            1,
            "{other}"
        );
    }
    // A removed route is no longer counted.
    assert!(world.kernel.delete_route(&late));
    world.run(MOMENT);
    assert_eq!(world.reconciler.summary().foreign, 3);
    assert_eq!(world.reconciler.foreigners().count(), 3);
}

#[test]
fn metrics_adopted_later_make_strays_of_foreign_routes() {
    let mut world = world_of_metric_1024(22);
    let other = RouteKey::new(254, "10.65.9.0/26".parse().unwrap(), 511, 0);
    world
        .kernel
        .add_route(other, via(US, &["10.0.0.12"]))
        .unwrap();
    world.run(Duration::from_secs(40));
    assert!(world.kernel.route(&other).is_some());
    world.reconciler.adopt_metrics(&[257..=2000]);
    world.run(Duration::from_secs(40));
    assert!(world.kernel.route(&other).is_none());
    assert_eq!(world.reconciler.summary().foreign, 0);
}

#[test]
fn a_deletion_is_noticed_with_its_cause() {
    let mut world = world_of_metric_1024(23);
    let stray = key("10.65.0.2/32");
    world
        .kernel
        .add_route(stray, via(US, &["10.0.0.12"]))
        .unwrap();
    let wanted = key("10.65.0.1/32");
    world.want(wanted, via(US, &["10.0.0.13"]));
    world.run(MOMENT);
    world.unwant(&wanted);
    world.run(Duration::from_secs(40));
    assert!(world.ours().is_empty());
    let causes: Vec<_> = world
        .notices()
        .into_iter()
        .filter_map(|notice| match notice {
            Notice::Deleting { key, cause, .. } => Some((key, cause)),
            _ => None,
        })
        .collect();
    let expected = [
        (wanted, DeleteCause::Withdrawn),
        (stray, DeleteCause::Stray),
    ];
    assert_eq!(causes, expected);
}
