//! A small multi-version store: keys, revisions, leases and watches, without I/O or a clock.
//!
//! Every key has its versions, every revision its events. A read looks at one revision; a watch is
//! a cursor over the events, so that a slow reader costs only its position, and one that falls
//! behind the compaction gets an error. Time comes from the caller, as the duration since an origin
//! that the caller chooses.

mod apply;
mod check;
mod compact;
mod history;
mod journal;
mod lease;
mod read;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::limits;
use calico_store::Error;
use calico_store::{Event, Header, Revision};

use history::History;
use lease::Leases;
pub use watch::{WatchCursor, WatchPoll};

/// A store in memory, as a plain value.
#[derive(Debug)]
pub struct Core {
    config: CoreConfig,
    /// Faults enabled by a simulation.
    faults: Faults,
    /// The last revision.
    revision: Revision,
    /// Earlier revisions are compacted.
    compacted: Revision,
    /// Every key that has a version in the history.
    keys: BTreeMap<Bytes, History>,
    /// The events of every revision from `compacted` on, in order.
    log: VecDeque<Entry>,
    leases: Leases,
    /// Octets of all keys and values in the history.
    octets: usize,
    /// Octets of the events that the log holds.
    log_octets: usize,
    /// Counts how often all watches were lost.
    watch_epoch: u64,
    /// Encoded changes, if a journal is kept.
    journal: Option<Vec<u8>>,
    /// Whether the disk of the journal is full: nothing may be added.
    is_full: bool,
    /// Whether a client has requested to look for disk space.
    looks_for_space: bool,
}

/// Limits of a core, and the identity of its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreConfig {
    /// The cluster ID, which identifies the history: another number for every store that starts
    /// empty.
    pub cluster: u64,
    /// Revisions of history to keep; older ones are compacted automatically.
    pub history_revisions_max: usize,
    /// Octets of history to keep.
    pub history_octets_max: usize,
    /// Total octets; writes beyond are rejected.
    pub octets_max: usize,
}

impl Default for CoreConfig {
    fn default() -> Self {
        Self {
            cluster: 1,
            history_revisions_max: limits::HISTORY_REVISIONS_MAX,
            history_octets_max: limits::HISTORY_OCTETS_MAX,
            octets_max: limits::CORE_OCTETS_MAX,
        }
    }
}

/// Faults, for simulations and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// No request is answered, and all watches are lost.
    pub unavailable: bool,
    /// Reads and watches see the state this many revisions ago, like a member or proxy that lags.
    pub stale_by: i64,
    /// Watches stay open but return nothing, not even progress.
    pub watches_silent: bool,
}

/// The events of a revision.
#[derive(Debug)]
struct Entry {
    revision: Revision,
    events: Vec<Event>,
}

impl Core {
    /// Creates an empty store.
    pub fn new(config: CoreConfig) -> Self {
        Self {
            config,
            faults: Faults::default(),
            // As etcd: an empty store is at revision 1, the first write makes 2.
            revision: Revision(1),
            compacted: Revision::ZERO,
            keys: BTreeMap::new(),
            log: VecDeque::new(),
            leases: Leases::new(config.cluster),
            octets: 0,
            log_octets: 0,
            watch_epoch: 0,
            journal: None,
            is_full: false,
            looks_for_space: false,
        }
    }

    /// Returns the header for answers.
    pub const fn header(&self) -> Header {
        Header {
            cluster: self.config.cluster,
            revision: self.visible(),
        }
    }

    /// Octets of all keys and values, history included.
    pub const fn octets(&self) -> usize {
        self.octets
    }

    /// Returns the octets of keys and values that only the history's events hold.
    pub const fn log_octets(&self) -> usize {
        self.log_octets
    }

    /// Enables or disables faults.
    pub const fn set_faults(&mut self, faults: Faults) {
        if faults.unavailable {
            self.lose_watches();
        }
        self.faults = faults;
    }

    /// Returns the enabled faults.
    pub const fn faults(&self) -> Faults {
        self.faults
    }

    /// Ends every watch.
    pub const fn lose_watches(&mut self) {
        self.watch_epoch += 1;
    }

    /// Returns the revision that readers see: older than the true one while answers are stale.
    const fn visible(&self) -> Revision {
        let visible = self.revision.0.saturating_sub(self.faults.stale_by);
        if visible < self.compacted.0 {
            self.compacted
        } else {
            Revision(visible)
        }
    }

    fn answering(&self) -> Result<(), Error> {
        if self.faults.unavailable {
            return Err(Error::Unavailable("it does not answer".into()));
        }
        Ok(())
    }
}

/// The values on which a watch's next result depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    revision: Revision,
    compacted: Revision,
    watch_epoch: u64,
    faults: Faults,
}

impl Core {
    /// Returns a value that changes whenever a watch may have a new result.
    pub const fn stamp(&self) -> Stamp {
        Stamp {
            revision: self.revision,
            compacted: self.compacted,
            watch_epoch: self.watch_epoch,
            faults: self.faults,
        }
    }
}
