//! The known state of each key, and the part of it not yet delivered to the consumer.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};

use bytes::Bytes;

use super::Change;
use super::gate::Gate;
use crate::kv::{KeyRange, KeyValue, Revision};

/// Every key of the mirrored ranges.
#[derive(Debug, Default)]
pub(super) struct State {
    keys: BTreeMap<Bytes, Known>,
    /// Keys with an undelivered change.
    unreported: BTreeSet<Bytes>,
    /// Receives every change.
    pub(super) gate: Option<Gate>,
}

/// The known state of a key.
#[derive(Debug, Default)]
struct Known {
    /// The revision of the last known write.
    revision: Revision,
    /// Whether the consumer has the key, in any state.
    delivered: bool,
    pending: Option<Pending>,
    /// The last list that contained it.
    seen: u64,
    /// Checksum of the value.
    sum: u64,
}

impl Known {
    /// Returns whether the key exists in the store, as far as known.
    const fn is_there(&self) -> bool {
        match self.pending {
            Some(Pending::Put(_)) => true,
            Some(Pending::Delete) => false,
            None => self.delivered,
        }
    }
}

#[derive(Debug)]
enum Pending {
    /// Boxed: most keys have no pending change.
    Put(Box<KeyValue>),
    Delete,
}

impl State {
    /// Records a key of a list. A known state changes nothing, unless the list is from another
    /// history, in which the same revision may have another content. That also applies to a
    /// restored backup of the history, compared with an earlier run's snapshot.
    ///
    /// Returns whether the key did not exist before.
    pub(super) fn listed(&mut self, item: KeyValue, list: u64, other_history: bool) -> bool {
        let known = self.keys.get(&item.key);
        let known = known.map(|known| (known.revision, known.sum));
        if known != Some((item.mod_revision, sum(&item.value))) || other_history {
            if let (true, Some(gate)) = (other_history, &mut self.gate) {
                gate.forget(&item.key);
            }
            return self.put(item, list);
        }
        if let Some(known) = self.keys.get_mut(&item.key) {
            known.seen = list;
        }
        false
    }

    /// Records a written key. Returns whether it did not exist before.
    pub(super) fn put(&mut self, item: KeyValue, list: u64) -> bool {
        if let Some(gate) = &mut self.gate {
            gate.note(&item.key, Some(&item.value), item.mod_revision);
        }
        let known = self.keys.entry(item.key.clone()).or_default();
        let is_new = !known.is_there();
        known.seen = list;
        known.revision = item.mod_revision;
        known.sum = sum(&item.value);
        self.unreported.insert(item.key.clone());
        known.pending = Some(Pending::Put(Box::new(item)));
        is_new
    }

    /// Returns whether the key exists in the store, as far as known.
    pub(super) fn has(&self, key: &Bytes) -> bool {
        self.keys.get(key).is_some_and(Known::is_there)
    }

    /// Records a deleted key. A key that the consumer never got is dropped without an update.
    /// Returns whether it existed.
    pub(super) fn delete(&mut self, key: &Bytes, revision: Revision) -> bool {
        if let Some(gate) = &mut self.gate {
            gate.note(key, None, revision);
        }
        let Some(known) = self.keys.get_mut(key) else {
            return false;
        };
        let was_there = known.is_there();
        if known.delivered {
            known.revision = revision;
            known.pending = Some(Pending::Delete);
            self.unreported.insert(key.clone());
        } else {
            self.keys.remove(key);
            self.unreported.remove(key);
        }
        was_there
    }

    /// Appends the existing keys of the range, up to `end` if that is given, that a list did not
    /// contain.
    pub(super) fn find_missing(
        &self,
        range: &KeyRange,
        end: Option<&Bytes>,
        list: u64,
        missing: &mut Vec<Bytes>,
    ) {
        let keys = self.keys.range(range.start.clone()..);
        let keys = keys
            .take_while(|(key, _)| range.contains(key) && end.is_none_or(|end| *key < end))
            .filter(|(_, known)| known.seen != list && known.is_there());
        missing.extend(keys.map(|(key, _)| key.clone()));
    }

    /// Returns the number of existing keys in the range.
    pub(super) fn count(&self, range: &KeyRange) -> usize {
        let keys = self.keys.iter();
        keys.filter(|(key, known)| range.contains(key) && known.is_there())
            .count()
    }

    /// Returns whether every known change was delivered to the consumer.
    pub(super) fn is_reported(&self) -> bool {
        self.unreported.is_empty()
    }

    /// Returns the number of keys with a change that the consumer has not taken.
    pub(super) fn undelivered(&self) -> usize {
        self.unreported.len()
    }

    /// Takes changes for the consumer, in the order of the keys.
    pub(super) fn take(&mut self, max: usize) -> impl Iterator<Item = Change> {
        let mut changes = Vec::with_capacity(max.min(self.unreported.len()));
        while changes.len() < max
            && let Some(key) = self.unreported.pop_first()
        {
            let Some(known) = self.keys.get_mut(&key) else {
                continue;
            };
            match known.pending.take() {
                Some(Pending::Put(item)) => {
                    known.delivered = true;
                    changes.push(Change::Put(*item));
                }
                Some(Pending::Delete) => {
                    self.keys.remove(&key);
                    changes.push(Change::Delete(key));
                }
                None => {}
            }
        }
        changes.into_iter()
    }
}

fn sum(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(value);
    hasher.finish()
}
