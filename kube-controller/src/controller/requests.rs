//! The requests of the controller: writes, the record of the server, and its verification.

use bytes::Bytes;
use calico_store::{Error, Revision};
use daemon_common::events::{Event, Text, emit};
use tokio::time::Instant;

use super::Controller;
use crate::guard::{CONFIRMED_KEY, is_uid};
use crate::kinds::Watched;
use crate::limits::{WRITE_RETRY_MAX, WRITE_RETRY_MIN, WRITES_PER_BATCH};
use crate::plan::Change;
use crate::stored::Value;
use crate::target::Target;
use crate::write::{Job, Written, write_all, write_record};
use kube_client::{Failure, Server};

/// The result of a request.
pub(super) enum Done {
    Wrote {
        results: Vec<(Job, Written)>,
        record: Option<Bytes>,
        was: Option<Revision>,
    },
    Recorded {
        record: Bytes,
        was: Option<Revision>,
        confirmed: bool,
        result: Result<Revision, Error>,
    },
    Verified {
        keys: Vec<Target>,
        result: Result<String, Failure>,
    },
}

impl Controller {
    /// Stores the server if it is new or confirmed, or why it is held; or deletes resources.
    pub(super) fn confirm_or_delete(&mut self) {
        let confirmation = self.stored.confirmation().cloned();
        if let Some(Value { octets, revision }) = confirmation
            && self.are_lists_tried()
            && let Ok(text) = std::str::from_utf8(&octets)
            && self.guard.confirm(text)
        {
            self.prove_losses();
            self.sweep(true);
            if let Some(record) = self.new_record() {
                self.write_record(record, Some(revision));
            }
            return;
        }
        let known = self.guard.record();
        let held = self.hold();
        let is_new = known.is_none() && held.is_none();
        let alarm = held.as_ref().filter(|held| held.needs_confirmation());
        let is_news = known.is_some_and(|known| known.held.is_none()) && alarm.is_some();
        let is_behind = held.is_none() && self.guard.is_record_behind();
        if is_new || is_news || is_behind {
            if let Some(record) = self.new_record() {
                self.write_record(record, None);
            }
        } else if held.is_none()
            && self.verify_at <= Instant::now()
            && self.deletable().next().is_some()
        {
            self.verify();
        }
    }

    pub(super) fn write(&mut self, jobs: Vec<Job>, record: Option<Bytes>) {
        let writer = self.writer.clone();
        let was = self.begin_write();
        self.running = Some(Box::pin(async move {
            let results = write_all(writer, jobs, record.clone()).await;
            Done::Wrote {
                results,
                record,
                was,
            }
        }));
    }

    fn write_record(&mut self, record: Bytes, confirmation: Option<Revision>) {
        let writer = self.writer.clone();
        let was = self.begin_write();
        self.running = Some(Box::pin(async move {
            let result = write_record(writer, record.clone(), confirmation).await;
            Done::Recorded {
                record,
                was,
                confirmed: confirmation.is_some(),
                result,
            }
        }));
    }

    /// Returns the revision of the record before a write.
    fn begin_write(&mut self) -> Option<Revision> {
        self.is_reread = false;
        self.stored.record().map(|record| record.revision)
    }

    /// Asks the server for its UID, right before resources are deleted.
    fn verify(&mut self) {
        let keys = self.deletable().take(WRITES_PER_BATCH);
        let keys = keys.cloned().collect();
        let mut server = Server::new(self.access.clone());
        self.running = Some(Box::pin(async move {
            let path = format!("{}/{}", Watched::Namespace.path(), super::IDENTITY);
            let read = server.read(&path).await;
            Done::Verified {
                keys,
                result: read.and_then(|value| uid_of(&value)),
            }
        }));
    }

    pub(super) fn finish(&mut self, done: Done) {
        match done {
            Done::Wrote {
                results,
                record,
                was,
            } => {
                let (mut last, mut must_wait) = (None, false);
                for (job, written) in results {
                    if let Written::Done(revision) = &written {
                        last = last.max(Some(*revision));
                    }
                    must_wait |= self.finish_write(job, written);
                }
                if must_wait {
                    self.failed();
                }
                if let (Some(record), Some(revision)) = (record, last) {
                    self.recorded(record, was, revision);
                }
            }
            Done::Recorded {
                record,
                was,
                confirmed,
                result,
            } => match result {
                Ok(revision) => {
                    self.recorded(record, was, revision);
                    if confirmed {
                        let key = CONFIRMED_KEY;
                        self.stored.set(key.as_bytes(), None);
                    }
                    self.succeeded();
                }
                Err(_) => self.failed(),
            },
            Done::Verified { keys, result } => match result {
                Ok(uid) => {
                    self.verify_delay = WRITE_RETRY_MIN;
                    self.verification = None;
                    // Otherwise the guard holds deletions now.
                    if self.guard.verify(&uid) {
                        self.delete(keys);
                    }
                }
                Err(failure) => self.not_verified(failure),
            },
        }
    }

    /// Delays the next verification. Writes are not affected.
    fn not_verified(&mut self, failure: Failure) {
        if self.verification.as_ref() != Some(&failure) {
            let reason = format!("no verification before deletions: {failure}");
            emit(Event::KubernetesRequestFailed {
                kind: Text::new(Watched::Namespace),
                reason: Text::new(reason),
            });
        }
        self.verification = Some(failure);
        self.verify_at = Instant::now() + self.verify_delay;
        self.verify_delay = (self.verify_delay * 2).min(WRITE_RETRY_MAX);
    }

    /// Deletes resources that are still unwanted.
    fn delete(&mut self, keys: Vec<Target>) {
        let mut jobs = Vec::new();
        for key in keys {
            self.unwanted.remove(&key);
            match self.plan(&key) {
                Ok(Change::Delete { was }) => jobs.push(Job {
                    key,
                    octets: None,
                    was,
                }),
                _ => {
                    self.unchecked.insert(key);
                }
            }
        }
        let record = self.new_record();
        if !jobs.is_empty() {
            self.write(jobs, record);
        }
    }

    /// Applies the result of a write. Returns whether further writes must wait.
    pub(super) fn finish_write(&mut self, job: Job, written: Written) -> bool {
        match written {
            Written::Done(revision) => {
                self.faults.remove(&job.key);
                self.conflicts.remove(&job.key);
                self.wrote(&job, revision);
                match &job.octets {
                    Some(_) => self.counts.written += 1,
                    None => {
                        self.counts.deleted += 1;
                        self.proven.remove(&job.key);
                        emit(Event::KubernetesResourceDeleted {
                            resource: Text::new(job.key.name()),
                        });
                    }
                }
                let value = job.octets.map(|octets| Value { octets, revision });
                self.learn(job.key, job.was, value, Some(revision));
                self.succeeded();
            }
            Written::Conflict(value) => {
                self.learn(job.key.clone(), job.was, value, None);
                self.unchecked.insert(job.key.clone());
                // A second conflict of a key: the follower and the datastore disagree.
                return !self.conflicts.insert(job.key);
            }
            Written::Failed(error) if error.is_transient() => {
                self.unchecked.insert(job.key);
                return true;
            }
            Written::Failed(error) => self.fault(job.key, error.to_string()),
            Written::NotTried => {
                self.unchecked.insert(job.key);
            }
        }
        false
    }

    /// Sets the value that a write has shown. If the datastore was read again since the write began, the
    /// follower delivers it.
    fn learn(
        &mut self,
        key: Target,
        was: Revision,
        value: Option<Value>,
        written: Option<Revision>,
    ) {
        match self.is_reread {
            true => drop(self.unchecked.insert(key)),
            false => self.stored.set_own(&key, was, value, written),
        }
    }

    fn recorded(&mut self, octets: Bytes, was: Option<Revision>, revision: Revision) {
        if !self.is_reread {
            let value = Value { octets, revision };
            self.stored.set_own_record(was, value);
            self.take_record();
        }
    }

    const fn succeeded(&mut self) {
        self.retry_delay = WRITE_RETRY_MIN;
    }

    fn failed(&mut self) {
        self.retry_at = Instant::now() + self.retry_delay;
        self.retry_delay = (self.retry_delay * 2).min(WRITE_RETRY_MAX);
    }
}

/// Returns the UID of the namespace that identifies a server. No other object, and no answer of a proxy,
/// has one.
pub(super) fn uid_of(value: &serde_json::Value) -> Result<String, Failure> {
    let metadata = &value["metadata"];
    let is_identity = value["kind"] == "Namespace" && metadata["name"] == super::IDENTITY;
    match metadata["uid"].as_str() {
        Some(uid) if is_identity && is_uid(uid) => Ok(uid.to_owned()),
        _ => Err(Failure::Invalid(format!(
            "it is not the namespace {} with a UID",
            super::IDENTITY
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_namespace_with_a_uid_identifies_a_server() {
        let object = |kind: &str, name: &str, uid: &str| json!({"kind": kind, "metadata": {"name": name, "uid": uid}});
        let uid = "9ef9ffc7-dc8e-4a07-b4e0-2dc11012d5be";
        let found = uid_of(&object("Namespace", super::super::IDENTITY, uid));
        assert_eq!(found.as_deref(), Ok(uid));
        for wrong in [
            json!({}),
            json!([]),
            object("Status", super::super::IDENTITY, uid),
            object("Namespace", "default", uid),
            object("Namespace", super::super::IDENTITY, ""),
            object("Namespace", super::super::IDENTITY, "x y"),
        ] {
            assert!(uid_of(&wrong).is_err(), "{wrong}");
        }
    }
}
