//! Mirrors that start with a snapshot.

use proptest::prelude::*;

use super::*;

const SNAPSHOT: Status = Status::Snapshot { age_s: 5 };

fn world() -> World {
    let mut world = World::new();
    for key in ["/a/1", "/a/2", "/a/3", "/b/1"] {
        world.put(key, "x");
    }
    world.settle();
    world
}

fn away(world: &mut World) {
    world.core.set_faults(Faults {
        unavailable: true,
        ..Faults::default()
    });
}

#[test]
fn mirror_without_store_delivers_the_content_of_the_snapshot() {
    let mut world = world();
    let before = world.consumer.state.clone();
    away(&mut world);
    world.restart();
    for _ in 0..20 {
        world.settle();
        world.pass();
    }
    assert_eq!(world.consumer.state, before);
    assert_eq!(world.consumer.statuses, [Status::Syncing, SNAPSHOT]);

    // Reachable again with some differences: only these are delivered.
    let puts = world.consumer.puts;
    world.core.set_faults(Faults::default());
    world.put("/a/2", "y");
    world.delete(KeyRange::key("/b/1"));
    world.calm();
    world.check_in_sync();
    assert_eq!((world.consumer.puts - puts, world.consumer.deletes), (1, 1));
    assert_eq!(
        world.consumer.statuses,
        [Status::Syncing, SNAPSHOT, Status::InSync]
    );
}

#[test]
fn a_store_of_another_history_is_taken_as_it_is() {
    let mut world = world();
    away(&mut world);
    world.restart();
    world.settle();
    world.replace();
    // At the revision of the old store, with other values and one key less.
    for key in ["/a/1", "/a/2", "/a/3"] {
        world.put(key, "other");
    }
    world.calm();
    world.check_in_sync();
}

#[test]
fn diverged_copy_of_the_history_is_accepted() {
    let mut world = World::new();
    world.put("/a/1", "x");
    world.put("/a/2", "lost");
    world.settle();
    // The same cluster ID, restored from before the second write, which then was another one.
    world.core = Core::new(CoreConfig::default());
    world.put("/a/1", "x");
    world.put("/a/2", "else");
    world.restart();
    world.calm();
    world.check_in_sync();
    assert_eq!(world.consumer.deletes, 0);
}

#[test]
fn a_proxy_that_is_behind_the_snapshot_is_not_believed() {
    let mut world = world();
    world.put("/a/1", "last");
    world.settle();
    let before = world.consumer.state.clone();
    world.core.set_faults(Faults {
        stale_by: 2,
        ..Faults::default()
    });
    world.restart();
    let end = world.now + Duration::from_secs(10);
    while world.now < end {
        world.settle();
        world.pass();
    }
    assert_eq!(world.consumer.state, before);
    assert_eq!(world.consumer.status, Some(SNAPSHOT));
    world.calm();
    world.check_in_sync();
    assert_eq!(world.consumer.deletes, 0);
}

#[test]
fn a_copy_that_lost_writes_is_taken_after_a_while() {
    let mut world = world();
    world.core = Core::new(CoreConfig::default());
    world.put("/a/1", "x");
    world.restart();
    world.calm();
    assert_eq!(world.consumer.status, Some(Status::InSync));
    assert_eq!((world.consumer.state.len(), world.consumer.deletes), (1, 3));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Checks that it catches up after a restart with a snapshot at any time.
    #[test]
    fn mirror_restarted_with_any_snapshot_catches_up(
        before in prop::collection::vec(action(), 1..60),
        between in prop::collection::vec(action(), 1..20),
        after in prop::collection::vec(action(), 1..60),
    ) {
        let mut world = World::new();
        before.into_iter().for_each(|action| world.act(action));
        world.restart();
        for action in between {
            world.act(action);
        }
        after.into_iter().for_each(|action| world.act(action));
        world.calm();
        world.check_in_sync();
    }
}
