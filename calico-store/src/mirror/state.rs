//! The known state of each key, and the part of it not yet delivered to the consumer.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Bound;

use bytes::Bytes;

use super::Change;
use super::gate::Gate;
use crate::kv::{KeyRange, KeyValue, Revision};

/// Every key of the mirrored ranges.
#[derive(Debug, Default)]
pub(super) struct State {
    keys: BTreeMap<Box<[u8]>, Known>,
    /// The changes that are not delivered yet.
    unreported: BTreeMap<Bytes, Pending>,
    /// Receives every change.
    pub(super) gate: Option<Gate>,
}

/// The known state of a key. There may be a hundred thousand, so a pending change is elsewhere.
#[derive(Debug, Default)]
struct Known {
    /// The revision of the last known write.
    revision: Revision,
    /// Checksum of the value.
    sum: u64,
    /// The last list that contained it.
    seen: u32,
    /// Whether the consumer has the key, in any state.
    delivered: bool,
    /// Whether the key exists in the store, as far as known.
    is_there: bool,
}

#[derive(Debug)]
enum Pending {
    Put(Box<KeyValue>),
    Delete,
}

impl State {
    /// Records a key of a list. A known state changes nothing, unless the list is from another
    /// history, in which the same revision may have another content. That also applies to a
    /// restored backup of the history, compared with an earlier run's snapshot.
    ///
    /// Returns whether the key did not exist before.
    pub(super) fn listed(&mut self, item: KeyValue, list: u32, other_history: bool) -> bool {
        let known = self.keys.get(&*item.key);
        let known = known.map(|known| (known.revision, known.sum));
        if known != Some((item.mod_revision, sum(&item.value))) || other_history {
            if let (true, Some(gate)) = (other_history, &mut self.gate) {
                gate.forget(&item.key);
            }
            return self.put(item, list);
        }
        if let Some(known) = self.keys.get_mut(&*item.key) {
            known.seen = list;
        }
        false
    }

    /// Records a written key. Returns whether it did not exist before.
    pub(super) fn put(&mut self, item: KeyValue, list: u32) -> bool {
        if let Some(gate) = &mut self.gate {
            gate.note(&item.key, Some(&item.value), item.mod_revision);
        }
        let known = self.keys.entry((&*item.key).into()).or_default();
        let is_new = !known.is_there;
        *known = Known {
            revision: item.mod_revision,
            sum: sum(&item.value),
            seen: list,
            is_there: true,
            delivered: known.delivered,
        };
        let key = item.key.clone();
        self.unreported.insert(key, Pending::Put(Box::new(item)));
        is_new
    }

    /// Returns whether the key exists in the store, as far as known.
    pub(super) fn has(&self, key: &Bytes) -> bool {
        self.keys.get(&**key).is_some_and(|known| known.is_there)
    }

    /// Records a deleted key. A key that the consumer never got is dropped without an update.
    /// Returns whether it existed.
    pub(super) fn delete(&mut self, key: &Bytes, revision: Revision) -> bool {
        if let Some(gate) = &mut self.gate {
            gate.note(key, None, revision);
        }
        let Some(known) = self.keys.get_mut(&**key) else {
            return false;
        };
        let was_there = known.is_there;
        if known.delivered {
            (known.revision, known.is_there) = (revision, false);
            self.unreported.insert(key.clone(), Pending::Delete);
        } else {
            self.keys.remove(&**key);
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
        list: u32,
        missing: &mut Vec<Bytes>,
    ) {
        let from = (Bound::Included(&*range.start), Bound::Unbounded);
        let keys = self.keys.range::<[u8], _>(from);
        let keys = keys
            .take_while(|(key, _)| range.contains(key) && end.is_none_or(|end| ***key < **end))
            .filter(|(_, known)| known.seen != list && known.is_there);
        missing.extend(keys.map(|(key, _)| Bytes::copy_from_slice(key)));
    }

    /// Returns the number of existing keys in the range.
    pub(super) fn count(&self, range: &KeyRange) -> usize {
        let keys = self.keys.iter();
        keys.filter(|(key, known)| range.contains(key) && known.is_there)
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
            && let Some((key, pending)) = self.unreported.pop_first()
        {
            match pending {
                Pending::Put(item) => {
                    if let Some(known) = self.keys.get_mut(&*key) {
                        known.delivered = true;
                    }
                    changes.push(Change::Put(*item));
                }
                Pending::Delete => {
                    self.keys.remove(&*key);
                    changes.push(Change::Delete(key));
                }
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
