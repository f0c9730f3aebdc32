//! Reads and writes a mirror's snapshot.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Deserialize;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::snapshot::{self, Fault, Header, Loaded};
use super::{Change, Status, Update};
use crate::kv::{KeyRange, KeyValue};
use crate::limits::{SNAPSHOT_AGE_MAX, SNAPSHOT_INTERVAL, SNAPSHOT_REFRESH, SNAPSHOT_SETTLE};

/// Where a mirror stores its picture for the next start; also a section of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotOptions {
    /// The file. Its directory must exist.
    pub file: PathBuf,
    /// Its maximum age for use, in seconds; 0 disables its use.
    #[serde(default = "age_max_s")]
    pub max_age_s: u64,
}

const fn age_max_s() -> u64 {
    SNAPSHOT_AGE_MAX.as_secs()
}

impl SnapshotOptions {
    /// Returns options with this file and the default maximum age.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            max_age_s: age_max_s(),
        }
    }

    /// Reads the file if it exists and is valid.
    pub(super) fn load(&self, ranges: &[KeyRange]) -> Option<Loaded> {
        let age_max = Duration::from_secs(self.max_age_s);
        match snapshot::load(&self.file, ranges, SystemTime::now(), age_max) {
            Ok(loaded) => {
                if let Some(loaded) = &loaded {
                    let (keys, age_s) = (loaded.items.len(), loaded.age.as_secs());
                    info!(file = %self.file.display(), keys, age_s, "begins with the snapshot");
                }
                loaded
            }
            Err(reason) => {
                warn!(file = %self.file.display(), %reason, "the snapshot is not used");
                None
            }
        }
    }
}

type Changes = BTreeMap<Bytes, Option<KeyValue>>;

/// Writes the updates that the consumer gets to the file.
pub(super) struct Keeper {
    options: SnapshotOptions,
    ranges: Vec<KeyRange>,
    /// The last snapshot, if this run wrote it: the content of an earlier run's snapshot was
    /// delivered as updates.
    base: Option<File>,
    /// The updates of the consumer since then.
    changes: Changes,
    in_sync: bool,
    /// Time of the last write or attempt.
    last: Option<Instant>,
    writing: Option<JoinHandle<(Result<File, Fault>, Changes)>>,
    /// Writing failed, and the failure was logged.
    failed: bool,
    /// The previous snapshot, on which the next one is based, cannot be read any more.
    broken: bool,
}

/// An event for the keeper.
pub(super) enum Turn {
    /// It is time to write.
    Due,
    /// A write succeeded or failed.
    Done(Box<(Result<File, Fault>, Changes)>),
}

impl Keeper {
    pub(super) fn new(options: SnapshotOptions, ranges: Vec<KeyRange>) -> Self {
        Self {
            options,
            ranges,
            base: None,
            changes: Changes::new(),
            in_sync: false,
            last: None,
            writing: None,
            failed: false,
            broken: false,
        }
    }

    /// Records updates of the consumer.
    pub(super) fn note(&mut self, updates: &[Update]) {
        if self.broken {
            return;
        }
        for update in updates {
            match update {
                Update::Change(Change::Put(item)) => {
                    self.changes.insert(item.key.clone(), Some(item.clone()));
                }
                Update::Change(Change::Delete(key)) => {
                    self.changes.insert(key.clone(), None);
                }
                Update::Status(status) => {
                    if *status == Status::InSync && self.last.is_none() {
                        self.last = Instant::now().checked_sub(SNAPSHOT_INTERVAL - SNAPSHOT_SETTLE);
                    }
                    self.in_sync = *status == Status::InSync;
                }
            }
        }
    }

    /// Waits for the next event. Cancellation loses nothing.
    pub(super) async fn turn(&mut self) -> Turn {
        if let Some(writing) = &mut self.writing {
            let done = writing.await;
            self.writing = None;
            return Turn::Done(Box::new(done.unwrap_or_else(|error| {
                // The task panicked or the runtime ends: its data is lost.
                let gone = std::io::Error::other(error);
                (Err(Fault::Io(gone)), Changes::new())
            })));
        }
        if !self.in_sync || self.broken {
            return std::future::pending().await;
        }
        let wait = if self.changes.is_empty() {
            SNAPSHOT_REFRESH
        } else {
            SNAPSHOT_INTERVAL
        };
        if let Some(last) = self.last {
            sleep_until(last + wait).await;
        }
        Turn::Due
    }

    /// Handles an event. The cluster ID is that of the mirrored history.
    pub(super) fn act(&mut self, turn: Turn, cluster: Option<u64>) {
        match turn {
            Turn::Due => self.begin(cluster),
            Turn::Done(done) => self.done(*done),
        }
    }

    fn begin(&mut self, cluster: Option<u64>) {
        self.last = Some(Instant::now());
        let Some(cluster) = cluster else {
            return;
        };
        let base = match self.base.as_ref().map(File::try_clone).transpose() {
            Ok(base) => base,
            Err(error) => return self.done((Err(error.into()), Changes::new())),
        };
        let written = SystemTime::now().duration_since(UNIX_EPOCH);
        let header = Header {
            written_s: written.map_or(0, |since| since.as_secs()),
            cluster,
            ranges: self.ranges.clone(),
        };
        let path = self.options.file.clone();
        let changes = std::mem::take(&mut self.changes);
        self.writing = Some(spawn_blocking(move || {
            let written = snapshot::write(&path, &header, base.as_ref(), &changes);
            (written, changes)
        }));
    }

    fn done(&mut self, (written, changes): (Result<File, Fault>, Changes)) {
        let file = self.options.file.display();
        match written {
            Ok(base) => {
                if std::mem::take(&mut self.failed) {
                    info!(%file, "the snapshot is written again");
                }
                self.base = Some(base);
            }
            Err(Fault::Io(reason)) => {
                if !std::mem::replace(&mut self.failed, true) {
                    warn!(%file, %reason, "the snapshot is not written; it is tried again");
                }
                // Changes made during the write are newer.
                for (key, item) in changes {
                    self.changes.entry(key).or_insert(item);
                }
            }
            Err(reason) => {
                warn!(%file, %reason, "the last snapshot does not read any more; none is written until a restart");
                self.broken = true;
                self.changes.clear();
            }
        }
    }
}
