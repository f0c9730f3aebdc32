//! Mirrors that require a ready datastore.

use proptest::prelude::*;

use super::*;

const SNAPSHOT: Status = Status::Snapshot { age_s: 5 };

/// Longer than the time after which a loss is reported.
const LONG: Duration = Duration::from_secs(60);

/// Returns a ready store with a `clusterGUID`, and a consumer with a picture of it.
fn world() -> World {
    let mut world = World::gated();
    world.set_information("one", true);
    fill(&mut world);
    world.settle();
    world.check_in_sync();
    world
}

fn fill(world: &mut World) {
    for key in ["/a/1", "/a/2", "/a/3", "/b/1"] {
        world.put(key, "x");
    }
}

fn pass(world: &mut World, time: Duration) {
    let end = world.now + time;
    while world.now < end {
        world.settle();
        world.pass();
    }
    world.settle();
}

/// Returns the consumer's keys, without ClusterInformation.
fn held(world: &World) -> Vec<Bytes> {
    let keys = world.consumer.state.keys().cloned();
    keys.filter(|held| *held != ready_key()).collect()
}

#[test]
fn a_store_that_was_emptied_takes_nothing_away() {
    for (away, restarted) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = world();
        let before = world.consumer.state.clone();
        let as_of = world.core.header().revision;
        assert_eq!(world.mirror.revision(), Some(as_of));
        if away {
            world.core.lose_watches();
            world.core.set_faults(Faults {
                unavailable: true,
                ..Faults::default()
            });
            pass(&mut world, LOST_AFTER * 2);
        }
        if restarted {
            world.restart();
        }
        world.replace();
        pass(&mut world, LONG);
        assert_eq!(world.consumer.state, before);
        assert_eq!(
            world.consumer.status,
            Some(Status::Unready(Unready::Silent))
        );

        // A program starts to fill it: nothing changes before it is ready.
        world.put("/b/2", "new");
        pass(&mut world, LONG);
        assert_eq!(
            (world.consumer.state == before, world.consumer.deletes),
            (true, 0)
        );
        world.set_information("one", false);
        pass(&mut world, LONG);
        assert_eq!(
            world.consumer.status,
            Some(Status::Unready(Unready::Locked))
        );
        assert_eq!(world.consumer.state, before);
        assert_eq!(world.mirror.revision(), None, "it is held back");
        world.set_information("one", true);
        world.calm();
        world.check_in_sync();
        assert_eq!(held(&world), ["/b/2"]);
        let revision = world.core.header().revision;
        assert_eq!(world.mirror.revision(), Some(revision));
    }
}

#[test]
fn datastore_with_another_guid_is_not_applied() {
    let mut world = world();
    let before = world.consumer.state.clone();
    world.replace();
    world.set_information("two", true);
    world.put("/a/1", "other");
    world.calm();
    let other = Some(Status::Unready(Unready::Other));
    assert_eq!(
        (&world.consumer.state, world.consumer.status),
        (&before, other)
    );
    // Not after a restart with a snapshot either …
    world.restart();
    world.calm();
    assert_eq!(
        (&world.consumer.state, world.consumer.status),
        (&before, other)
    );
    assert_eq!(world.consumer.statuses[..2], [Status::Syncing, SNAPSHOT]);
    // … but after one without.
    world.begin();
    world.calm();
    world.check_in_sync();
    assert_eq!(held(&world), ["/a/1"]);
}

#[test]
fn missing_guid_is_not_a_different_one() {
    let mut world = world();
    world.replace();
    world.set_information("", true);
    world.put("/a/1", "other");
    world.calm();
    world.check_in_sync();
    assert_eq!(held(&world), ["/a/1"]);
    // The earlier GUID is still known.
    world.set_information("two", true);
    world.calm();
    let other = Some(Status::Unready(Unready::Other));
    assert_eq!(world.consumer.status, other);
}

#[test]
fn restored_datastore_is_reported_once_fully_read() {
    let mut world = world();
    world.replace();
    world.put("/a/1", "saved");
    world.set_information("one", true);
    world.calm();
    world.check_in_sync();
    let statuses = &world.consumer.statuses;
    let ends = [Status::InSync, Status::Syncing, Status::InSync];
    assert!(statuses.ends_with(&ends), "{statuses:?}");
    assert_eq!(world.consumer.deletes, 3);

    // One range of the new history was read, the others were not.
    world.replace();
    world.set_information("one", true);
    let (puts, deletes) = (world.consumer.puts, world.consumer.deletes);
    let now = world.clusters;
    let read = |world: &World| {
        let lists = world.lists.values();
        lists
            .filter(|list| list.cluster == now && list.is_whole)
            .count()
    };
    while read(&world) < 2 {
        while !world.answer() {
            world.pass();
        }
        world.consume(usize::MAX);
    }
    assert_eq!(
        (world.consumer.puts, world.consumer.deletes, read(&world)),
        (puts, deletes, 2)
    );
    world.calm();
    world.check_in_sync();
}

#[test]
fn changes_of_a_locked_datastore_are_reported_at_unlock() {
    let mut world = world();
    world.set_information("one", false);
    world.settle();
    let before = world.consumer.state.clone();
    world.put("/a/1", "y");
    world.delete(KeyRange::key("/b/1"));
    pass(&mut world, LONG);
    assert_eq!(world.consumer.state, before);
    assert_eq!(world.mirror.cluster(), None, "no snapshot of it");
    world.set_information("one", true);
    world.settle();
    world.check_in_sync();
    assert_eq!(
        world.consumer.statuses[1..],
        [
            Status::InSync,
            Status::Unready(Unready::Locked),
            Status::InSync
        ]
    );
    // An unparsable value changes nothing.
    world.write(ready_key(), "?");
    world.put("/a/1", "z");
    world.settle();
    world.check_in_sync();
    // A deleted ClusterInformation is not ready.
    world.delete(KeyRange::key(ready_key()));
    world.delete(KeyRange::key("/a/1"));
    world.calm();
    let silent = Some(Status::Unready(Unready::Silent));
    assert_eq!((held(&world).len(), world.consumer.status), (3, silent));
}

/// A program that fills a locked store unlocks it last; each watch reports its own part, in any
/// order.
#[test]
fn writes_before_an_unlocking_are_reported_with_it() {
    let feeds = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [1, 0, 2]];
    for order in feeds.map(|feeds| feeds.map(FeedId)) {
        for is_new_mirror in [false, true] {
            let mut world = world();
            let all = held(&world);
            match is_new_mirror {
                true => world.replace(),
                false => world.delete(KeyRange::prefix("/a/")),
            }
            world.set_information("one", false);
            world.calm();
            let is_whole = |world: &World| held(world) == all;
            fill(&mut world);
            world.set_information("one", true);
            for feed in order {
                world.bring_of(feed);
                world.consume(usize::MAX);
                assert!(is_whole(&world), "{order:?}: {:?}", held(&world));
            }
            while world.answer() {
                world.consume(usize::MAX);
                assert!(is_whole(&world), "{order:?}: {:?}", held(&world));
            }
            world.settle();
            world.check_in_sync();
        }
    }
}

/// A consumer without an earlier picture is not in sync with less, either.
#[test]
fn first_state_has_writes_before_the_store_was_ready() {
    for information in [None, Some(false)] {
        let mut world = World::gated();
        if let Some(is_ready) = information {
            world.set_information("one", is_ready);
        }
        world.settle();
        fill(&mut world);
        world.set_information("one", true);
        for feed in (0..3).map(FeedId) {
            world.bring_of(feed);
            world.consume(usize::MAX);
            let is_in_sync = world.consumer.status == Some(Status::InSync);
            assert!(!is_in_sync || held(&world).len() == 4);
        }
        world.settle();
        world.check_in_sync();
    }
}

/// The same cluster ID, as an etcd has that is created again with the same members and token.
#[test]
fn emptied_store_is_read_again_before_it_counts() {
    for information in [None, Some("two")] {
        let mut world = world();
        for nth in 0..20 {
            world.put("/b/1", &nth.to_string());
        }
        world.settle();
        let before = world.consumer.state.clone();
        world.core = Core::new(CoreConfig::default());
        world.watches.clear();
        // Up to the revision at which ClusterInformation was read; it is watched from there,
        // therefore.
        if let Some(guid) = information {
            world.set_information(guid, true);
        }
        for nth in 0..8 {
            world.put("/c/1", &nth.to_string());
        }
        for feed in (0..3).map(FeedId) {
            let lost = Err(Error::WatchLost("restarted".into()));
            world.mirror.watched(world.now, feed, lost);
        }
        world.calm();
        assert_eq!(
            (&world.consumer.state, world.consumer.status),
            (&before, Some(Status::Lost))
        );
        // Up to the known revision: lists lack known keys.
        for nth in 0..40 {
            world.put("/c/1", &nth.to_string());
        }
        world.calm();
        let unready = information.map_or(Unready::Silent, |_| Unready::Other);
        assert_eq!(
            (&world.consumer.state, world.consumer.status),
            (&before, Some(Status::Unready(unready)))
        );
    }
}

/// As after `etcdctl del --prefix`: everything is deleted at one revision, and each watch reports
/// its own part.
#[test]
fn deletion_with_cluster_information_is_not_reported() {
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].map(|feeds| feeds.map(FeedId)) {
        let mut world = world();
        let before = world.consumer.state.clone();
        world.delete(KeyRange::prefix("/"));
        // A program that fills it again changes nothing before ClusterInformation exists.
        world.put("/a/9", "new");
        for feed in order {
            world.bring_of(feed);
            world.consume(usize::MAX);
            assert_eq!(world.consumer.state, before, "{order:?}");
        }
        world.calm();
        let silent = Some(Status::Unready(Unready::Silent));
        assert_eq!(
            (&world.consumer.state, world.consumer.status),
            (&before, silent)
        );
        world.set_information("one", true);
        world.calm();
        world.check_in_sync();
        assert_eq!(held(&world), ["/a/9"]);
    }
}

#[test]
fn single_deletion_is_reported_without_a_request() {
    let mut world = world();
    world.delete(KeyRange::key("/a/2"));
    assert!(world.bring_of(FeedId(1)) && world.consume(usize::MAX));
    assert_eq!(held(&world), ["/a/1", "/a/3", "/b/1"]);
    assert!(world.asked.is_empty(), "{:?}", world.asked);
    // The deletion of the last key of a range is delivered after a read of ClusterInformation,
    // because an emptied store looks the same.
    world.delete(KeyRange::key("/b/1"));
    assert!(world.bring_of(FeedId(2)) && !world.consume(usize::MAX));
    assert!(world.answer() && world.consume(usize::MAX));
    assert_eq!(held(&world), ["/a/1", "/a/3"]);
    world.settle();
    world.check_in_sync();
    assert_eq!(world.consumer.statuses, [Status::Syncing, Status::InSync]);
}

/// However many ranges become empty while the request is pending, its answer is awaited.
#[test]
fn pending_request_is_not_sent_again() {
    let mut world = world();
    let lists = |world: &World| lists(world)[0];
    let before = lists(&world);
    world.delete(KeyRange::prefix("/a/"));
    assert!(world.bring_of(FeedId(1)));
    world.ask();
    for nth in 0..10 {
        world.put("/b/1", &nth.to_string());
        world.delete(KeyRange::key("/b/1"));
        assert!(world.bring_of(FeedId(2)));
    }
    assert_eq!(lists(&world), before + 1);
    // It is answered as of now, which is late enough; a stale answer is not.
    world.core.set_faults(Faults {
        stale_by: 1,
        ..Faults::default()
    });
    assert!(world.answer() && !world.consume(usize::MAX));
    world.calm();
    world.check_in_sync();
    assert_eq!(held(&world), Vec::<Bytes>::new());
    assert!(lists(&world) > before + 1);
}

#[test]
fn empty_datastore_without_prior_state_is_not_ready() {
    let mut world = World::gated();
    pass(&mut world, LONG);
    let silent = Status::Unready(Unready::Silent);
    assert_eq!(world.consumer.statuses, [Status::Syncing, silent]);
    world.put("/a/1", "x");
    world.calm();
    assert_eq!(world.consumer.status, Some(silent));
    world.set_information("one", true);
    world.settle();
    world.check_in_sync();
}

#[derive(Debug, Clone)]
enum Step {
    Information(bool),
    Nothing,
    Else(Action),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => any::<bool>().prop_map(Step::Information),
        1 => Just(Step::Nothing),
        8 => action().prop_map(Step::Else),
    ]
}

/// Returns the events of a store that is not filled again, except with keys outside the mirrored
/// ranges.
fn emptied() -> impl Strategy<Value = Action> {
    let harmless = |action: &Action| match action {
        Action::Put(key, _) => key.starts_with("/c/"),
        action => !matches!(action, Action::Faults(_, 1.., _)),
    };
    action().prop_filter("harmless", harmless)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Checks that, whatever happened, the consumer holds the content of the store once it is
    /// ready, and gets no update between two reports that it is not ready.
    #[test]
    fn every_gated_mirror_catches_up(
        steps in prop::collection::vec(step(), 1..120),
        restart in any::<bool>(),
    ) {
        let mut world = World::gated();
        for step in steps {
            let held = world.consumer.state.clone();
            let was_held = world.is_held();
            match step {
                Step::Information(is_ready) => world.set_information("one", is_ready),
                Step::Nothing => world.delete(KeyRange::key(ready_key())),
                Step::Else(action) => world.act(action),
            }
            if was_held && world.is_held() {
                prop_assert_eq!(&held, &world.consumer.state);
            }
        }
        if restart {
            world.restart();
        }
        world.core.set_faults(Faults::default());
        world.set_information("one", true);
        world.calm();
        world.check_in_sync();
    }

    // Promise: as calico-store an_etcd_that_lost_all_takes_nothing_away
    /// Checks that, whatever is late, lost or compacted, a key that was deleted together with
    /// ClusterInformation is not reported as deleted before the datastore is ready again.
    #[test]
    fn deletions_of_an_emptied_store_are_never_reported(
        actions in prop::collection::vec(emptied(), 1..80),
        restart in any::<bool>(),
    ) {
        let mut world = world();
        let before = world.consumer.state.clone();
        world.delete(KeyRange::prefix("/"));
        if restart {
            world.restart();
        }
        for action in actions {
            world.act(action);
            let state = &world.consumer.state;
            prop_assert!(state == &before || restart && world.consumer.deletes == 0);
        }
        world.calm();
        prop_assert_eq!(&before, &world.consumer.state);
        world.set_information("one", true);
        world.calm();
        world.check_in_sync();
    }
}
