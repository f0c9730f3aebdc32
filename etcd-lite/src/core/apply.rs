//! Carries out transactions.

use bytes::Bytes;

use super::check::{Path, check_form};
use super::history::Version;
use super::{Core, Entry};
use calico_store::Error;
use calico_store::{Delete, Op, OpReply, Put, Txn, TxnReply};
use calico_store::{Event, EventKind, KeyRange, KeyValue, LeaseId};

impl Core {
    /// Carries out a transaction, whole or not at all.
    pub fn txn(&mut self, txn: &Txn) -> Result<TxnReply, Error> {
        self.answering()?;
        check_form(txn)?;
        let path = self.path(txn);
        self.check_path(txn, &path)?;
        if self.is_full && has_puts(txn, &path) {
            return Err(Error::NoSpace);
        }
        if self.octets + path_octets(txn, &path) > self.config.octets_max {
            return Err(Error::NoSpace);
        }
        let mut events = Vec::new();
        let mut reply = self.apply(txn, &path, &mut events);
        self.commit(events);
        reply.header = self.header();
        Ok(reply)
    }

    /// Performs the steps of a decided transaction. Their changes are visible to the next step
    /// immediately, and to readers with the commit.
    fn apply(&mut self, txn: &Txn, path: &Path, events: &mut Vec<Event>) -> TxnReply {
        let mut inner = path.inner.iter();
        let mut reply = TxnReply {
            succeeded: path.succeeded,
            ..TxnReply::default()
        };
        for op in path.ops(txn) {
            let step = match op {
                Op::Range(query) => {
                    let now = if events.is_empty() {
                        self.visible()
                    } else {
                        self.revision.next()
                    };
                    OpReply::Range(self.read(query, query.at.unwrap_or(now)))
                }
                Op::Put(put) => self.put(put, events),
                Op::Delete(delete) => self.delete(delete, events),
                Op::Txn(txn) => match inner.next() {
                    Some(path) => OpReply::Txn(self.apply(txn, path, events)),
                    None => continue,
                },
            };
            reply.replies.push(step);
        }
        reply
    }

    fn put(&mut self, put: &Put, events: &mut Vec<Event>) -> OpReply {
        let revision = self.revision.next();
        let history = self.keys.entry(put.key.clone()).or_default();
        let previous = history.latest(&put.key);
        let (create_revision, version, old_value, old_lease) = match &previous {
            Some(old) => (
                old.create_revision,
                old.version + 1,
                old.value.clone(),
                old.lease,
            ),
            None => (revision, 1, Bytes::new(), LeaseId::NONE),
        };
        let value = put.value.clone().unwrap_or(old_value);
        let lease = put.lease.unwrap_or(old_lease);
        let version = Version {
            mod_revision: revision,
            create_revision,
            version,
            lease,
            value: Some(value),
        };
        self.octets += version.octets(&put.key);
        history.push(version);
        if let Some(item) = history.latest(&put.key) {
            events.push(Event {
                kind: EventKind::Put,
                item,
                previous: previous.clone(),
            });
        }
        self.leases.detach(old_lease, &put.key);
        self.leases.attach(lease, &put.key);
        OpReply::Put {
            previous: previous.filter(|_| put.previous),
        }
    }

    fn delete(&mut self, delete: &Delete, events: &mut Vec<Event>) -> OpReply {
        let previous = self.delete_range(&delete.range, events);
        let deleted = previous.len() as u64;
        OpReply::Delete {
            deleted,
            previous: if delete.previous {
                previous
            } else {
                Vec::new()
            },
        }
    }

    fn delete_range(&mut self, range: &KeyRange, events: &mut Vec<Event>) -> Vec<KeyValue> {
        let revision = self.revision.next();
        let found: Vec<KeyValue> = self
            .histories(range)
            .filter_map(|(key, history)| history.latest(key))
            .collect();
        for item in &found {
            let gone = Version::gone(revision);
            self.octets += gone.octets(&item.key);
            if let Some(history) = self.keys.get_mut(&item.key) {
                history.push(gone);
            }
            self.leases.detach(item.lease, &item.key);
            events.push(Event {
                kind: EventKind::Delete,
                item: KeyValue {
                    key: item.key.clone(),
                    mod_revision: revision,
                    ..KeyValue::default()
                },
                previous: Some(item.clone()),
            });
        }
        found
    }

    /// Deletes keys at one revision; for leases that end.
    pub(super) fn delete_keys(&mut self, keys: impl IntoIterator<Item = Bytes>) {
        let mut events = Vec::new();
        for key in keys {
            self.delete_range(&KeyRange::key(key), &mut events);
        }
        self.commit(events);
    }

    /// Commits the changes as the next revision. Without changes there is no new revision.
    fn commit(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        self.revision = self.revision.next();
        self.note_revision(self.revision, &events);
        self.log_octets += events.iter().map(event_octets).sum::<usize>();
        self.log.push_back(Entry {
            revision: self.revision,
            events,
        });
        self.compact_by_itself();
    }
}

/// Returns whether a decided transaction writes a key.
fn has_puts(txn: &Txn, path: &Path) -> bool {
    let mut inner = path.inner.iter();
    path.ops(txn).iter().any(|op| match op {
        Op::Put(_) => true,
        Op::Txn(txn) => inner.next().is_some_and(|path| has_puts(txn, path)),
        Op::Range(_) | Op::Delete(_) => false,
    })
}

/// Returns the octets that an event of the log holds in addition to the current state: its previous
/// value.
pub(super) fn event_octets(event: &Event) -> usize {
    event.item.key.len()
        + event
            .previous
            .as_ref()
            .map_or(0, |previous| previous.value.len())
}

/// Returns the octets that the steps will add.
fn path_octets(txn: &Txn, path: &Path) -> usize {
    let mut inner = path.inner.iter();
    path.ops(txn)
        .iter()
        .map(|op| match op {
            Op::Range(_) | Op::Delete(_) => 0,
            Op::Put(put) => put.key.len() + put.value.as_ref().map_or(0, Bytes::len),
            Op::Txn(txn) => inner.next().map_or(0, |path| path_octets(txn, path)),
        })
        .sum()
}
