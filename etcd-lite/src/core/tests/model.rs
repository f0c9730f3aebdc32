//! The core against a naive store that keeps every state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use crate::core::{Core, CoreConfig, WatchCursor, WatchPoll};
use calico_store::Error;
use calico_store::WatchRequest;
use calico_store::{Batch, EventKind, KeyRange, KeyValue, LeaseId, Query, RangeEnd, Revision};
use calico_store::{Compare, CompareWith, Comparison, Delete, Op, Put, Txn};

/// A store that keeps every state.
struct Naive {
    states: Vec<BTreeMap<Bytes, KeyValue>>,
    compacted: Revision,
    leases: BTreeMap<LeaseId, Duration>,
}

impl Naive {
    fn new() -> Self {
        // Revisions 0 and 1 are empty.
        Self {
            states: vec![BTreeMap::new(); 2],
            compacted: Revision::ZERO,
            leases: BTreeMap::new(),
        }
    }

    fn revision(&self) -> Revision {
        Revision(i64::try_from(self.states.len()).unwrap() - 1)
    }

    fn latest(&self) -> &BTreeMap<Bytes, KeyValue> {
        self.states.last().unwrap()
    }

    fn at(&self, revision: Revision) -> &BTreeMap<Bytes, KeyValue> {
        &self.states[usize::try_from(revision.0).unwrap()]
    }

    /// Performs steps one after another; a revision is created if any of them changed something.
    fn write(&mut self, steps: &[Step]) {
        let revision = self.revision().next();
        let mut state = self.latest().clone();
        let mut changed = false;
        for step in steps {
            match step {
                Step::Put(key, value, lease) => {
                    let item = state.entry(key.clone()).or_insert_with(|| KeyValue {
                        key: key.clone(),
                        create_revision: revision,
                        ..KeyValue::default()
                    });
                    item.value = value.clone();
                    item.lease = *lease;
                    item.version += 1;
                    item.mod_revision = revision;
                    changed = true;
                }
                Step::Delete(range) => {
                    let before = state.len();
                    state.retain(|key, _| !range.contains(key));
                    changed |= state.len() < before;
                }
            }
        }
        if changed {
            self.states.push(state);
        }
    }

    fn expire(&mut self, now: Duration) {
        let mut over: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, ends)| **ends <= now)
            .collect();
        over.sort_by_key(|(id, ends)| (**ends, **id));
        let over: Vec<LeaseId> = over.into_iter().map(|(id, _)| *id).collect();
        for id in over {
            self.end_lease(id);
        }
    }

    fn end_lease(&mut self, id: LeaseId) {
        self.leases.remove(&id);
        let on_it = self.latest().values().filter(|item| item.lease == id);
        let steps: Vec<Step> = on_it
            .map(|item| Step::Delete(KeyRange::key(item.key.clone())))
            .collect();
        self.write(&steps);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(Bytes, Bytes, LeaseId),
    Delete(KeyRange),
}

#[derive(Debug, Clone)]
enum Action {
    Write(Vec<Step>),
    /// Write if the last write of the key was this many revisions ago.
    Swap(Bytes, i64, Vec<Step>),
    Compact(i64),
    Grant(i64),
    Revoke(usize),
    KeepAlive(usize),
    Pass(u64),
    Watch(KeyRange, i64),
    Poll(usize),
}

fn key() -> impl Strategy<Value = Bytes> {
    "[abc]{1,2}".prop_map(Bytes::from)
}

fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        key().prop_map(KeyRange::key),
        "[abc]{0,1}".prop_map(KeyRange::prefix),
        (key(), key()).prop_map(|(start, end)| KeyRange {
            start,
            end: RangeEnd::Before(end)
        }),
        Just(KeyRange::all()),
    ]
}

/// Returns a step. Leases are identified by small numbers; numbers without a lease mean none.
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (key(), "[xyz]{0,3}", 0..4_i64)
            .prop_map(|(key, value, lease)| Step::Put(key, value.into(), LeaseId(lease))),
        1 => range().prop_map(Step::Delete),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let steps = || prop::collection::vec(step(), 1..4);
    prop_oneof![
        8 => steps().prop_map(Action::Write),
        4 => (key(), 0..6_i64, steps()).prop_map(|(key, ago, steps)| Action::Swap(key, ago, steps)),
        1 => (0..8_i64).prop_map(Action::Compact),
        1 => (1..20_i64).prop_map(Action::Grant),
        1 => (0..4_usize).prop_map(Action::Revoke),
        1 => (0..4_usize).prop_map(Action::KeepAlive),
        1 => (0..15_u64).prop_map(Action::Pass),
        2 => (range(), -6..4_i64).prop_map(|(range, from)| Action::Watch(range, from)),
        3 => (0..4_usize).prop_map(Action::Poll),
    ]
}

/// A watch and the state that its reader has built from it.
struct Reader {
    range: KeyRange,
    cursor: WatchCursor,
    /// The state of the range in the view of the reader; unknown if the watch started in the future.
    state: Option<BTreeMap<Bytes, KeyValue>>,
    from: Revision,
}

struct World {
    core: Core,
    naive: Naive,
    now: Duration,
    leases: Vec<LeaseId>,
    readers: Vec<Reader>,
}

impl World {
    fn new() -> Self {
        let config = CoreConfig {
            history_revisions_max: usize::MAX,
            ..CoreConfig::default()
        };
        Self {
            core: Core::new(config),
            naive: Naive::new(),
            now: Duration::ZERO,
            leases: Vec::new(),
            readers: Vec::new(),
        }
    }

    /// Replaces the small number of a lease by its id, if it exists.
    fn real(&self, step: Step) -> Step {
        let Step::Put(key, value, LeaseId(nth)) = step else {
            return step;
        };
        let nth = usize::try_from(nth).unwrap().checked_sub(1);
        let lease = nth.and_then(|nth| self.leases.get(nth)).copied();
        let alive = lease.filter(|id| self.naive.leases.contains_key(id));
        Step::Put(key, value, alive.unwrap_or(LeaseId::NONE))
    }

    fn write(&mut self, compare: Option<(Bytes, Revision)>, steps: Vec<Step>) {
        let steps: Vec<Step> = steps.into_iter().map(|step| self.real(step)).collect();
        let op = |step: &Step| match step.clone() {
            Step::Put(key, value, lease) => Op::Put(Put {
                lease: Some(lease),
                ..Put::new(key, value)
            }),
            Step::Delete(range) => Op::Delete(Delete {
                range,
                previous: false,
            }),
        };
        let holds = compare.as_ref().is_none_or(|(key, was)| {
            self.naive
                .latest()
                .get(key)
                .map_or(Revision::ZERO, |item| item.mod_revision)
                == *was
        });
        let compares = compare.into_iter().map(|(key, was)| Compare {
            range: KeyRange::key(key),
            comparison: Comparison::Equal,
            with: CompareWith::ModRevision(was),
        });
        let txn = Txn {
            compares: compares.collect(),
            then: steps.iter().map(op).collect(),
            otherwise: vec![],
        };
        match self.core.txn(&txn) {
            Ok(reply) => {
                assert!(!writes_twice(&steps));
                assert_eq!(reply.succeeded, holds);
                if holds {
                    self.naive.write(&steps);
                }
            }
            Err(Error::DuplicateKey) => assert!(writes_twice(&steps)),
            Err(error) => panic!("{error}"),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Write(steps) => self.write(None, steps),
            Action::Swap(key, ago, steps) => {
                let was = Revision((self.naive.revision().0 - ago).max(0));
                self.write(Some((key, was)), steps);
            }
            Action::Compact(ago) => self.compact(Revision(self.naive.revision().0 - ago)),
            Action::Grant(ttl_s) => {
                let lease = self
                    .core
                    .lease_grant(self.now, LeaseId::NONE, ttl_s)
                    .unwrap();
                self.naive.leases.insert(
                    lease.id,
                    self.now + Duration::from_secs(ttl_s.unsigned_abs()),
                );
                self.leases.push(lease.id);
            }
            Action::Revoke(nth) => {
                let Some(&id) = self.leases.get(nth) else {
                    return;
                };
                let there = self.naive.leases.contains_key(&id);
                assert_eq!(self.core.lease_revoke(id).is_ok(), there);
                if there {
                    self.naive.end_lease(id);
                }
            }
            Action::KeepAlive(nth) => {
                let Some(&id) = self.leases.get(nth) else {
                    return;
                };
                let kept = self.core.lease_keep_alive(self.now, id);
                assert_eq!(kept.is_ok(), self.naive.leases.contains_key(&id));
                if let Ok(ttl_s) = kept {
                    self.naive
                        .leases
                        .insert(id, self.now + Duration::from_secs(ttl_s.unsigned_abs()));
                }
            }
            Action::Pass(seconds) => {
                self.now += Duration::from_secs(seconds);
                self.core.expire(self.now);
                self.naive.expire(self.now);
            }
            Action::Watch(range, ahead) => self.watch(range, ahead),
            Action::Poll(nth) => self.poll(nth),
        }
    }

    fn compact(&mut self, at: Revision) {
        match self.core.compact(at) {
            Ok(()) => self.naive.compacted = at,
            Err(Error::Compacted { .. }) => assert!(at <= self.naive.compacted),
            Err(error) => panic!("{error}"),
        }
    }

    fn watch(&mut self, range: KeyRange, ahead: i64) {
        let from = Revision((self.naive.revision().0 + ahead).max(1));
        let cursor = self
            .core
            .watch(WatchRequest::from(range.clone(), from))
            .unwrap();
        // The state just before, if that revision exists.
        let before = Some(Revision(from.0 - 1)).filter(|before| *before <= self.naive.revision());
        let state = before.map(|before| {
            let state = self.naive.at(before).clone().into_iter();
            state.filter(|(key, _)| range.contains(key)).collect()
        });
        self.readers.push(Reader {
            state,
            range,
            cursor,
            from,
        });
    }

    fn poll(&mut self, nth: usize) {
        if nth >= self.readers.len() {
            return;
        }
        let reader = &mut self.readers[nth];
        let behind = reader.cursor.next() < self.naive.compacted;
        match self.core.poll_watch(&mut reader.cursor) {
            WatchPoll::Ended(error) => {
                assert_eq!(
                    error,
                    Error::Compacted {
                        at: self.naive.compacted
                    }
                );
                assert!(behind);
                self.readers.remove(nth);
            }
            WatchPoll::Idle => self.check_reader(nth),
            WatchPoll::Events(batch) => {
                assert!(!behind);
                self.take(nth, batch);
                self.poll(nth);
            }
        }
    }

    fn take(&mut self, nth: usize, batch: Batch) {
        let reader = &mut self.readers[nth];
        let mut last = reader.from;
        for event in batch.events {
            assert!(event.item.mod_revision >= last && reader.range.contains(&event.item.key));
            last = event.item.mod_revision;
            let Some(state) = &mut reader.state else {
                continue;
            };
            match event.kind {
                EventKind::Put => drop(state.insert(event.item.key.clone(), event.item)),
                EventKind::Delete => assert!(state.remove(&event.item.key).is_some()),
            }
        }
        assert_eq!(batch.revision, last);
    }

    /// Checks that a reader that has read everything has the store's content.
    fn check_reader(&self, nth: usize) {
        let reader = &self.readers[nth];
        if let Some(state) = &reader.state {
            let held = self
                .naive
                .latest()
                .iter()
                .filter(|(key, _)| reader.range.contains(key));
            assert!(state.iter().eq(held));
        }
    }

    /// Checks that every readable revision has its content of that time.
    fn check(&self, ranges: &[KeyRange]) {
        assert_eq!(self.core.header().revision, self.naive.revision());
        for revision in 0..=self.naive.revision().0 {
            for range in ranges {
                let query = Query {
                    at: Some(Revision(revision)),
                    ..Query::new(range.clone())
                };
                let read = self.core.range(&query);
                if Revision(revision) < self.naive.compacted {
                    assert!(matches!(read, Err(Error::Compacted { .. })));
                    continue;
                }
                let listing = read.unwrap();
                let held = self
                    .naive
                    .at(Revision(revision))
                    .iter()
                    .filter(|(key, _)| range.contains(key));
                assert!(listing.items.iter().eq(held.map(|(_, item)| item)));
                assert_eq!(listing.count, listing.items.len() as u64);
            }
        }
        for id in self.naive.leases.keys() {
            let on_it: BTreeSet<Bytes> = self
                .naive
                .latest()
                .values()
                .filter(|item| item.lease == *id)
                .map(|item| item.key.clone())
                .collect();
            let state = self.core.lease_state(self.now, *id).unwrap();
            assert!(state.keys.iter().eq(&on_it));
        }
        assert_eq!(self.core.leases().len(), self.naive.leases.len());
    }
}

fn writes_twice(steps: &[Step]) -> bool {
    let puts: Vec<&Bytes> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Put(key, ..) => Some(key),
            Step::Delete(_) => None,
        })
        .collect();
    let distinct: BTreeSet<_> = puts.iter().collect();
    distinct.len() < puts.len()
        || steps.iter().any(|step| match step {
            Step::Delete(range) => puts.iter().any(|key| range.contains(key)),
            Step::Put(..) => false,
        })
}

proptest! {
    #[test]
    fn the_core_does_what_a_store_that_keeps_everything_does(
        actions in prop::collection::vec(action(), 1..60),
        ranges in prop::collection::vec(range(), 1..4),
    ) {
        let mut world = World::new();
        for action in actions {
            world.act(action);
        }
        while !world.readers.is_empty() {
            world.poll(0);
            if !world.readers.is_empty() {
                world.readers.remove(0);
            }
        }
        world.check(&ranges);
    }

    #[test]
    fn deleted_and_compacted_key_leaves_nothing(
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let mut world = World::new();
        for step in steps {
            world.write(None, vec![step]);
        }
        world.write(None, vec![Step::Delete(KeyRange::all())]);
        for _ in 0..2 {
            world.write(None, vec![Step::Put("last".into(), "".into(), LeaseId::NONE)]);
        }
        let revision = world.core.header().revision;
        world.compact(revision);
        prop_assert_eq!(world.core.keys.len(), 1);
        prop_assert_eq!(world.core.octets(), "last".len());
        prop_assert_eq!(world.core.log_octets(), "last".len());
    }
}
