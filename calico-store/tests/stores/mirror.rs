//! A mirror of the embedded store, in virtual time.

mod forgotten;
mod gated;
mod restored;
mod world;

use std::time::Duration;

use proptest::prelude::*;

use bytes::Bytes;
use calico_store::limits::{
    ANSWER_MAX, CONFIRM_MAX, LOST_AFTER, PROBE_TIMEOUT, QUIET_MAX, READ_AHEAD_MAX, RETRY_MAX,
};
use calico_store::mirror::*;
use calico_store::*;
use etcd_lite::core::{Core, CoreConfig, Faults};
use world::World;

/// Returns the key of the ClusterInformation, which a gated mirror requires.
fn ready_key() -> Bytes {
    format!("{}default", calico_model::Kind::ClusterInformation.prefix()).into()
}

/// Returns the number of lists of each range.
fn lists(world: &World) -> Vec<usize> {
    world.lists.values().map(|lists| lists.begun).collect()
}

#[test]
fn content_precedes_in_sync_and_changes_follow() {
    let mut world = World::new();
    for key in ["/a/1", "/a/2", "/a/3", "/b/1", "/c/1"] {
        world.put(key, "x");
    }
    world.settle();
    world.check_in_sync();
    assert_eq!(world.consumer.statuses, [Status::Syncing, Status::InSync]);
    assert_eq!(world.consumer.puts, 4);
    world.put("/a/1", "y");
    world.delete(KeyRange::key("/b/1"));
    world.settle();
    world.check_in_sync();
    assert_eq!((world.consumer.puts, world.consumer.deletes), (5, 1));
    assert_eq!(world.consumer.statuses.len(), 2);
}

#[test]
fn a_consumer_that_sleeps_gets_the_latest_once() {
    let mut world = World::new();
    world.put("/a/kept", "0");
    world.settle();
    for nth in 0..1000 {
        world.put("/a/kept", &nth.to_string());
        world.put("/a/passing", "x");
        world.delete(KeyRange::key("/a/passing"));
        while world.answer() || world.bring() {}
    }
    let before = world.consumer.puts;
    world.settle();
    assert_eq!(
        (world.consumer.puts - before, world.consumer.deletes),
        (1, 0)
    );
    world.check_in_sync();
}

#[test]
fn revision_is_that_of_delivered_changes() {
    let mut world = World::new();
    world.put("/a/1", "x");
    world.put("/b/1", "x");
    world.put("/c/1", "not mirrored");
    let revision = |world: &World| world.core.header().revision;
    assert_eq!(world.mirror.revision(), None);
    while world.answer() || world.bring() {}
    assert_eq!(world.mirror.revision(), None, "known, but not reported");
    world.settle();
    let read = revision(&world);
    assert_eq!(world.mirror.revision(), Some(read));

    // Keys outside the mirrored ranges do not count; keys inside count once they are delivered.
    world.put("/c/1", "y");
    world.settle();
    assert_eq!(world.mirror.revision(), Some(read));
    world.put("/b/1", "y");
    while world.answer() || world.bring() {}
    assert_eq!(world.mirror.revision(), None, "known, but not reported");
    world.settle();
    assert_eq!(world.mirror.revision(), Some(revision(&world)));

    // A deletion is a change like others; and a list reports its revision.
    world.delete(KeyRange::key("/a/1"));
    world.settle();
    assert_eq!(world.mirror.revision(), Some(revision(&world)));
    world.put("/c/1", "z");
    world.core.lose_watches();
    world.core.compact(revision(&world)).unwrap();
    world.calm();
    assert_eq!(world.mirror.revision(), Some(revision(&world)));

    // A younger history counts by its own revisions.
    world.replace();
    world.put("/a/1", "x");
    world.calm();
    world.check_in_sync();
    assert!(revision(&world) < read);
    assert_eq!(world.mirror.revision(), Some(revision(&world)));
}

#[test]
fn a_lost_watch_is_taken_up_where_it_ended() {
    let mut world = World::new();
    for nth in 0..10 {
        world.put(&format!("/a/{nth}"), "x");
    }
    world.settle();
    let before = world.consumer.puts;
    world.core.lose_watches();
    world.settle();
    world.put("/a/1", "y");
    world.delete(KeyRange::key("/a/2"));
    world.calm();
    world.check_in_sync();
    // No list: only changes were delivered. A short loss is not reported.
    assert_eq!(
        (world.consumer.puts - before, world.consumer.deletes),
        (1, 1)
    );
    assert_eq!(world.consumer.statuses, [Status::Syncing, Status::InSync]);
}

#[test]
fn a_compacted_history_is_made_up_for_by_a_list() {
    let mut world = World::new();
    for nth in 0..5 {
        world.put(&format!("/a/{nth}"), "x");
    }
    world.settle();
    world.core.lose_watches();
    world.settle();
    let before = world.consumer.puts;
    world.put("/a/0", "y");
    world.put("/b/9", "x");
    world.delete(KeyRange::key("/a/1"));
    world.core.compact(world.core.header().revision).unwrap();
    world.calm();
    world.check_in_sync();
    assert_eq!(
        (world.consumer.puts - before, world.consumer.deletes),
        (2, 1)
    );
}

#[test]
fn a_store_that_is_away_deletes_nothing_and_is_reported_lost() {
    let mut world = World::new();
    world.put("/a/1", "x");
    world.settle();
    world.core.set_faults(Faults {
        unavailable: true,
        ..Faults::default()
    });
    let start = world.now;
    while world.consumer.status != Some(Status::Lost) {
        world.settle();
        world.pass();
        assert!(
            world.now < start + LOST_AFTER * 2,
            "it must be reported in time"
        );
    }
    assert!(world.now >= start + LOST_AFTER);
    let tries = format!("{:?}", world.mirror);
    for _ in 0..50 {
        world.settle();
        world.pass();
    }
    assert!(
        world.now > start + RETRY_MAX * 10,
        "the tries come less and less often: {tries}"
    );
    assert_eq!((world.consumer.deletes, world.consumer.state.len()), (0, 1));
    world.calm();
    world.check_in_sync();
    assert_eq!(
        world.consumer.statuses,
        [
            Status::Syncing,
            Status::InSync,
            Status::Lost,
            Status::InSync
        ]
    );
}

#[test]
fn a_stale_answer_changes_nothing() {
    let mut world = World::new();
    world.put("/a/1", "old");
    world.put("/b/1", "old");
    world.settle();
    world.put("/a/1", "new");
    world.delete(KeyRange::key("/b/1"));
    world.put("/b/2", "new");
    world.settle();
    let (puts, deletes) = (world.consumer.puts, world.consumer.deletes);
    // The next answers are from a member that lags by all three, and would restore a deleted key.
    world.core.lose_watches();
    world.core.set_faults(Faults {
        stale_by: 3,
        ..Faults::default()
    });
    for _ in 0..10 {
        world.settle();
        world.pass();
    }
    assert_eq!(
        (world.consumer.puts, world.consumer.deletes),
        (puts, deletes)
    );
    world.calm();
    world.check_in_sync();
    assert_eq!(
        (world.consumer.puts, world.consumer.deletes),
        (puts, deletes)
    );
}

#[test]
fn a_silent_watch_is_noticed() {
    let mut world = World::new();
    world.settle();
    world.core.set_faults(Faults {
        watches_silent: true,
        ..Faults::default()
    });
    world.put("/a/1", "x");
    let start = world.now;
    world.settle();
    while world.watches.len() == 2 {
        world.pass();
        assert!(world.now <= start + QUIET_MAX + PROBE_TIMEOUT);
        world.settle();
    }
    world.calm();
    world.check_in_sync();
}

#[test]
fn quiet_watch_that_answers_is_kept() {
    let mut world = World::new();
    world.put("/a/1", "x");
    world.settle();
    let end = world.now + QUIET_MAX * 20;
    while world.now < end {
        world.settle();
        world.pass();
    }
    assert_eq!(lists(&world), [1, 1]);
    world.check_in_sync();
}

#[test]
fn a_store_that_never_answers_is_asked_again() {
    let mut world = World::new();
    world.put("/a/1", "x");
    for _ in 0..20 {
        world.ask();
        world.asked.clear();
        world.pass();
    }
    assert!(world.now > RETRY_MAX);
    world.calm();
    world.check_in_sync();
}

#[test]
fn a_new_history_replaces_the_old_one() {
    let mut world = World::new();
    for nth in 0..20 {
        world.put(&format!("/a/{nth}"), "x");
    }
    world.settle();
    world.replace();
    world.put("/a/3", "other");
    world.put("/b/1", "other");
    world.calm();
    world.check_in_sync();
    assert_eq!(world.consumer.state.len(), 2);
}

#[test]
fn store_without_last_writes_is_not_watched_ahead() {
    let mut world = World::new();
    world.put("/a/1", "kept");
    world.settle();
    for _ in 0..5 {
        world.put("/a/1", "lost");
        world.put("/a/2", "lost");
    }
    world.settle();
    // The same history up to a point, then another one: a member restored from a backup.
    world.core = Core::new(CoreConfig::default());
    world.put("/a/1", "kept");
    world.watches.clear();
    for feed in [FeedId(0), FeedId(1)] {
        world
            .mirror
            .watched(world.now, feed, Err(Error::WatchLost("restored".into())));
    }
    world.consumer.newest.clear();
    world.calm();
    assert_eq!(
        (world.consumer.status, world.consumer.deletes),
        (Some(Status::Lost), 0)
    );
    // Once it has reached the mirror's revision, its answers count again.
    for nth in 0..20 {
        world.put("/b/1", &nth.to_string());
    }
    world.calm();
    world.check_in_sync();
    assert_eq!(world.consumer.state.len(), 2);
}

#[test]
fn store_replaced_between_pages_is_listed_again() {
    let mut world = World::new();
    for nth in 0..5 {
        world.put(&format!("/a/{nth}"), "x");
    }
    assert!(world.answer());
    world.replace();
    // The new history has the revision that the second page requests.
    for nth in 0..10 {
        world.put("/b/1", &nth.to_string());
    }
    world.calm();
    world.check_in_sync();
    assert_eq!(world.consumer.state.len(), 1);
}

#[test]
fn a_list_of_a_new_history_that_does_not_end_is_begun_again() {
    let mut world = World::new();
    for nth in 0..20 {
        world.put(&format!("/a/{nth:02}"), "x");
    }
    world.settle();
    world.replace();
    // The same keys at the same revisions, but different.
    for nth in 0..5 {
        world.put(&format!("/a/{nth:02}"), "other");
    }
    // Page by page, until one page of the new history has arrived; the next is never answered.
    while world.lists[&FeedId(0)].cluster != world.clusters {
        while !world.answer() {
            world.pass();
        }
    }
    world.ask();
    world.asked.clear();
    world.calm();
    world.check_in_sync();
    assert_eq!(world.consumer.state.len(), 5);
}

#[test]
fn in_sync_is_reported_after_all_known_values() {
    let mut world = World::new();
    for nth in 0..10 {
        world.put(&format!("/a/{nth}"), "x");
    }
    while world.answer() || world.bring() {}
    while world.consume(3) {
        let all = world.consumer.puts == 10;
        assert_eq!(
            world.consumer.status,
            Some(if all { Status::InSync } else { Status::Syncing })
        );
    }
    world.check_in_sync();
}

#[test]
fn list_waits_for_a_consumer_that_takes_nothing() {
    let mut world = World::new();
    let keys = 2 * READ_AHEAD_MAX;
    for nth in 0..keys {
        world.put(&format!("/a/{nth:05}"), "x");
    }
    // The store answers pages of two keys.
    while world.answer() || world.bring() {}
    while world.now < ANSWER_MAX {
        world.pass();
        assert!(!world.answer(), "a request while {READ_AHEAD_MAX} wait");
    }
    let begun = lists(&world);
    world.settle();
    world.check_in_sync();
    assert_eq!(world.consumer.puts, keys);
    assert_eq!(lists(&world), begun, "no list is begun again");
}

#[test]
fn read_ahead_of_a_list_is_bounded() {
    let mut world = World::new();
    for nth in 0..2 * READ_AHEAD_MAX {
        world.put(&format!("/a/{nth:05}"), "x");
    }
    while world.answer() || world.bring() {}
    let mut taken = 0;
    while world.consume(1) {
        taken += 1;
        if taken > 100 {
            break;
        }
    }
    // A status, and the changes of a hundred keys: as many are requested.
    let mut pages = 0;
    while world.answer() {
        pages += 1;
    }
    assert_eq!(pages, 50);
}

#[test]
fn events_that_are_known_already_change_nothing() {
    let mut world = World::new();
    world.put("/a/1", "old");
    world.put("/a/1", "new");
    world.settle();
    let item = |revision| KeyValue {
        key: "/a/1".into(),
        value: "0001:repeated".into(),
        mod_revision: Revision(revision),
        ..KeyValue::default()
    };
    let event = |kind| Event {
        kind,
        item: item(3),
        previous: None,
    };
    for kind in [EventKind::Put, EventKind::Delete] {
        let batch = Batch {
            revision: Revision(3),
            events: vec![event(kind)],
        };
        world.mirror.watched(world.now, FeedId(0), Ok(batch));
    }
    world.settle();
    world.check_in_sync();
    assert_eq!((world.consumer.puts, world.consumer.deletes), (1, 0));
}

#[test]
fn ranges_within_others_are_left_out() {
    let ranges = ["/a/b/", "/a/", "/c/", "/a/"].map(KeyRange::prefix);
    assert_eq!(Mirror::new(ranges, 0).feeds(), 2);
}

#[derive(Debug, Clone)]
enum Action {
    Put(String, u8),
    Delete(String),
    Clear,
    Compact(i64),
    Lose,
    Faults(bool, i64, bool),
    Replace,
    Answer,
    Forget,
    Bring,
    BringOf(usize),
    Consume(usize),
    Pass,
    /// Long enough that the known state has to be confirmed.
    Quiet,
}

fn action() -> impl Strategy<Value = Action> {
    let key = || "/[abc]/[0-4]";
    prop_oneof![
        8 => (key(), any::<u8>()).prop_map(|(key, value)| Action::Put(key, value)),
        4 => key().prop_map(Action::Delete),
        1 => Just(Action::Clear),
        2 => (0..4_i64).prop_map(Action::Compact),
        1 => Just(Action::Lose),
        2 => (prop::bool::weighted(0.2), 0..4_i64, prop::bool::weighted(0.2))
            .prop_map(|(away, stale, silent)| Action::Faults(away, stale, silent)),
        2 => Just(Action::Replace),
        10 => Just(Action::Answer),
        3 => Just(Action::Forget),
        4 => Just(Action::Bring),
        8 => (0..3_usize).prop_map(Action::BringOf),
        6 => (1..4_usize).prop_map(Action::Consume),
        4 => Just(Action::Pass),
        2 => Just(Action::Quiet),
    ]
}

impl World {
    fn act(&mut self, action: Action) {
        match action {
            Action::Put(key, value) => self.put(&key, &value.to_string()),
            Action::Delete(key) => self.delete(KeyRange::key(key)),
            Action::Clear => self.delete(KeyRange::prefix("/a/")),
            Action::Compact(ago) => {
                let _ = self
                    .core
                    .compact(Revision(self.core.header().revision.0 - ago));
            }
            Action::Lose => self.core.lose_watches(),
            Action::Faults(unavailable, stale_by, watches_silent) => {
                self.core.set_faults(Faults {
                    unavailable,
                    stale_by,
                    watches_silent,
                });
            }
            Action::Replace => self.replace(),
            Action::Answer => drop(self.answer()),
            Action::Forget => {
                self.ask();
                self.asked.pop_front();
            }
            Action::Bring => drop(self.bring()),
            Action::BringOf(feed) => drop(self.bring_of(FeedId(feed))),
            Action::Consume(max) => drop(self.consume(max)),
            Action::Pass => self.pass(),
            Action::Quiet => self.now += CONFIRM_MAX,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Checks that, whatever happened, no key went back in time, and in the end the consumer holds
    /// the content of the store.
    #[test]
    fn every_mirror_catches_up(actions in prop::collection::vec(action(), 1..120)) {
        let mut world = World::new();
        for action in actions {
            world.act(action);
        }
        world.calm();
        world.check_in_sync();
    }
}

#[test]
fn keys_on_leases_are_keys_like_others() {
    let mut world = World::new();
    let lease = world
        .core
        .lease_grant(Duration::ZERO, LeaseId::NONE, 5)
        .unwrap();
    let put = Put {
        lease: Some(lease.id),
        ..Put::new("/a/leased", "x")
    };
    world
        .core
        .txn(&Txn {
            then: vec![Op::Put(put)],
            ..Txn::default()
        })
        .unwrap();
    world.settle();
    assert_eq!(world.consumer.state.len(), 1);
    world.core.expire(Duration::from_secs(6));
    world.settle();
    assert_eq!((world.consumer.state.len(), world.consumer.deletes), (0, 1));
}

/// Lists this number of keys with values of so many octets, after some failures. Returns the limits of the
/// pages.
fn limits_of_pages(keys: usize, octets: usize, failures: u32) -> Vec<usize> {
    let mut world = World::new();
    for key in 0..keys {
        world.put(&format!("/a/{key:06}"), &"x".repeat(octets));
    }
    let mut mirror = Mirror::new([KeyRange::prefix("/a/")], 7);
    let (mut now, mut left) = (Duration::ZERO, failures);
    let mut limits = Vec::new();
    loop {
        now += RETRY_MAX;
        mirror.handle_timeout(now);
        while let Some(output) = mirror.poll_output() {
            match output {
                Output::List { feed, .. } if left > 0 => {
                    left -= 1;
                    let error = Error::Unavailable("the answer is too long".into());
                    mirror.listed(now, feed, Err(error));
                }
                Output::List { feed, query } => {
                    limits.push(query.limit);
                    mirror.listed(now, feed, world.core.range(&query));
                }
                _ => return limits,
            }
            mirror.take(now, usize::MAX);
        }
    }
}

#[test]
fn pages_of_short_values_are_longer() {
    assert_eq!(limits_of_pages(900, 10, 0), [1000]);
    assert_eq!(
        limits_of_pages(12_000, 10, 0),
        [1000, 2000, 4000, 4000, 4000]
    );
    // The second page has more octets than it may.
    assert_eq!(limits_of_pages(5000, 1500, 0), [1000, 2000, 1000, 2000]);
    // The failure may be an answer that was too long.
    assert_eq!(limits_of_pages(3500, 10, 1), [1000; 4]);
}
