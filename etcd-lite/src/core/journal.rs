//! Encodes the changes of a core as octets, and restores a core from them.
//!
//! A journal is a sequence of records: a revision with its changes, a granted lease, an ended
//! lease, a compaction. A base is the complete state of a core in the same format: the content at
//! its oldest revision, then its history.

use std::time::Duration;

use bytes::Bytes;

use super::history::Version;
use super::{Core, Entry};
use calico_store::shared::{Taker, put_field, put_item, put_number};
use calico_store::{Event, EventKind, KeyValue, LeaseId, Revision};

const REVISION: u8 = 1;
const GRANT: u8 = 2;
const END: u8 = 3;
const COMPACT: u8 = 4;
/// The oldest revision of a base, and the last compacted revision before it.
const BASE: u8 = 5;
/// A key that existed then.
const ITEM: u8 = 6;
/// The changes of the oldest revision, of which the items already hold the result.
const OLDEST: u8 = 7;

/// Kinds of change within a revision.
const PUT: u8 = 1;
const DELETE: u8 = 2;

impl Core {
    /// Starts to record changes, until they are taken.
    pub(crate) fn keep_journal(&mut self) {
        self.journal.get_or_insert_default();
    }

    /// Takes the changes recorded since the last call.
    pub(crate) fn take_journal(&mut self) -> Vec<u8> {
        self.journal
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Returns the octets of the changes recorded since then.
    pub(crate) fn journal_octets(&self) -> usize {
        self.journal.as_ref().map_or(0, Vec::len)
    }

    /// Sets whether the disk of the journal is full. Then only deletions and compactions are
    /// accepted.
    pub(crate) const fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Returns whether the disk of the journal is full.
    pub(crate) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Requests to look for disk space before the next answer.
    pub(crate) const fn look_for_space(&mut self) {
        self.looks_for_space = true;
    }

    /// Takes that request.
    pub(crate) const fn take_look_for_space(&mut self) -> bool {
        std::mem::replace(&mut self.looks_for_space, false)
    }

    /// Continues in place of another core of the same file, from which it was restored: leases begin
    /// again, and watches stay.
    pub(crate) fn take_the_place_of(&mut self, other: &Self, now: Duration) {
        self.faults = other.faults;
        self.watch_epoch = other.watch_epoch;
        self.leases.renew_all(now);
    }

    pub(super) fn note_revision(&mut self, revision: Revision, events: &[Event]) {
        if let Some(journal) = &mut self.journal {
            put_revision(journal, REVISION, revision, events);
        }
    }

    pub(super) fn note_grant(&mut self, id: LeaseId, ttl_s: i64) {
        if let Some(journal) = &mut self.journal {
            put_grant(journal, id, ttl_s);
        }
    }

    pub(super) fn note_end(&mut self, id: LeaseId) {
        if let Some(journal) = &mut self.journal {
            journal.push(END);
            put_number(journal, id.0.cast_unsigned());
        }
    }

    pub(super) fn note_compaction(&mut self, at: Revision) {
        if let Some(journal) = &mut self.journal {
            journal.push(COMPACT);
            put_number(journal, at.0.cast_unsigned());
        }
    }

    /// Returns the complete state, in pieces of about this many octets.
    pub(crate) fn base(&self, piece: usize) -> Vec<Vec<u8>> {
        let mut pieces = Pieces {
            piece,
            done: Vec::new(),
            open: Vec::new(),
        };
        let oldest = self.oldest();
        let out = pieces.next();
        out.push(BASE);
        put_number(out, oldest.0.cast_unsigned());
        put_number(out, self.compacted.0.cast_unsigned());
        for (id, ttl_s) in self.leases.granted() {
            put_grant(pieces.next(), id, ttl_s);
        }
        for (key, history) in &self.keys {
            if let Some(item) = history.at(key, oldest) {
                let out = pieces.next();
                out.push(ITEM);
                put_item(out, &item);
            }
        }
        for entry in &self.log {
            let kind = if entry.revision <= oldest {
                OLDEST
            } else {
                REVISION
            };
            put_revision(pieces.next(), kind, entry.revision, &entry.events);
        }
        pieces.done.push(pieces.open);
        pieces.done
    }

    /// Returns the first revision that can be read.
    fn oldest(&self) -> Revision {
        let first = self.log.front().map_or(self.revision, |entry| {
            Revision(entry.revision.0.saturating_sub(1))
        });
        self.compacted.max(first)
    }

    /// Applies records. Returns the position of an invalid record as error.
    pub(crate) fn replay(&mut self, records: Bytes) -> Result<(), usize> {
        let mut taker = Taker::new(records);
        while !taker.is_empty() {
            let at = taker.at();
            self.replay_one(&mut taker).ok_or(at)?;
        }
        Ok(())
    }

    fn replay_one(&mut self, taker: &mut Taker) -> Option<()> {
        match taker.tag()? {
            kind @ (REVISION | OLDEST) => {
                let revision = Revision(taker.signed()?);
                let changes = take_changes(taker)?;
                let in_order = match kind {
                    REVISION => revision > self.revision,
                    _ => revision <= self.revision,
                };
                if !in_order {
                    return None;
                }
                self.replay_revision(kind, revision, changes);
            }
            GRANT => {
                let (id, ttl_s) = (LeaseId(taker.signed()?), taker.signed()?);
                self.leases.take_over(id, ttl_s);
            }
            END => drop(self.leases.remove(LeaseId(taker.signed()?))),
            COMPACT => {
                let at = Revision(taker.signed()?);
                if at > self.revision || at < self.compacted {
                    return None;
                }
                self.forget(at);
            }
            BASE => {
                self.revision = Revision(taker.signed()?);
                self.compacted = Revision(taker.signed()?);
            }
            ITEM => {
                let item = taker.item()?;
                self.push(&item, item.mod_revision);
            }
            _ => return None,
        }
        Some(())
    }

    fn replay_revision(&mut self, kind: u8, revision: Revision, changes: Vec<Change>) {
        let mut events = Vec::with_capacity(changes.len());
        for change in changes {
            let key = match &change {
                Change::Put(item) => &item.key,
                Change::Delete(key) => key,
            };
            // The replay determines the previous value itself.
            let previous = match kind {
                REVISION => self.keys.get(key).and_then(|history| history.latest(key)),
                _ => None,
            };
            let (kind_of, item) = match change {
                Change::Put(item) => (EventKind::Put, item),
                Change::Delete(key) => {
                    let gone = KeyValue {
                        key,
                        mod_revision: revision,
                        ..KeyValue::default()
                    };
                    (EventKind::Delete, gone)
                }
            };
            if kind == REVISION {
                if let Some(previous) = &previous {
                    self.leases.detach(previous.lease, &item.key);
                }
                match kind_of {
                    EventKind::Put => self.push(&item, revision),
                    EventKind::Delete => self.push_gone(&item.key, revision),
                }
            }
            events.push(Event {
                kind: kind_of,
                item,
                previous,
            });
        }
        self.revision = self.revision.max(revision);
        self.log_octets += events.iter().map(super::apply::event_octets).sum::<usize>();
        self.log.push_back(Entry { revision, events });
    }

    fn push(&mut self, item: &KeyValue, revision: Revision) {
        let version = Version {
            mod_revision: revision,
            create_revision: item.create_revision,
            version: item.version,
            lease: item.lease,
            value: Some(item.value.clone()),
        };
        self.octets += version.octets(&item.key);
        self.keys.entry(item.key.clone()).or_default().push(version);
        self.leases.attach(item.lease, &item.key);
    }

    fn push_gone(&mut self, key: &Bytes, revision: Revision) {
        let gone = Version::gone(revision);
        self.octets += gone.octets(key);
        self.keys.entry(key.clone()).or_default().push(gone);
    }
}

enum Change {
    Put(KeyValue),
    Delete(Bytes),
}

fn put_revision(out: &mut Vec<u8>, kind: u8, revision: Revision, events: &[Event]) {
    out.push(kind);
    put_number(out, revision.0.cast_unsigned());
    put_number(out, events.len() as u64);
    for event in events {
        match event.kind {
            EventKind::Put => {
                out.push(PUT);
                put_item(out, &event.item);
            }
            EventKind::Delete => {
                out.push(DELETE);
                put_field(out, &event.item.key);
            }
        }
    }
}

fn take_changes(taker: &mut Taker) -> Option<Vec<Change>> {
    let count = taker.number()?;
    let mut changes = Vec::new();
    for _ in 0..count {
        changes.push(match taker.tag()? {
            PUT => Change::Put(taker.item()?),
            DELETE => Change::Delete(taker.field()?),
            _ => return None,
        });
    }
    Some(changes)
}

fn put_grant(out: &mut Vec<u8>, id: LeaseId, ttl_s: i64) {
    out.push(GRANT);
    put_number(out, id.0.cast_unsigned());
    put_number(out, ttl_s.cast_unsigned());
}

/// Octets in pieces that end between two records.
struct Pieces {
    piece: usize,
    done: Vec<Vec<u8>>,
    open: Vec<u8>,
}

impl Pieces {
    /// Returns the piece for the next record.
    fn next(&mut self) -> &mut Vec<u8> {
        if self.open.len() >= self.piece {
            self.done.push(std::mem::take(&mut self.open));
        }
        &mut self.open
    }
}
