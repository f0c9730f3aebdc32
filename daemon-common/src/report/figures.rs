//! Counts of the daemons: the numbers behind the facts of a status, for machines.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The store, as the daemon mirrors it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreFigures {
    /// Whether the datastore was read completely, is watched, and is applied.
    pub in_sync: bool,
    /// Whether it has been unreachable for a while; its last content stays applied.
    pub away: bool,
    /// Whether it is not ready, or has another clusterGUID than before.
    pub unready: bool,
    /// Age at the start of the snapshot of an earlier run, if that is applied.
    pub snapshot_age_s: Option<u64>,
    /// The applied revision.
    pub revision: Option<i64>,
    /// Seconds since its last answer, with or without changes; absent before the first one.
    pub answered_s: Option<u64>,
    /// Keys with a rejected value; the last valid value of each, if any, stays applied.
    pub bad_values: u64,
    /// A registration that the daemon keeps there is as it should be.
    pub registered: Option<bool>,
}

impl fmt::Display for StoreFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self { in_sync: true, .. } => "in sync",
            Self { unready: true, .. } => "not ready",
            Self { away: true, .. } => "away",
            _ if self.snapshot_age_s.is_some() => "not read",
            _ => "syncing",
        })?;
        if let Some(revision) = self.revision {
            write!(f, ", revision {revision}")?;
        }
        if let Some(age_s) = self.snapshot_age_s {
            write!(f, ", a snapshot that was {age_s} s old at the start")?;
        }
        match self.answered_s {
            Some(seconds) => write!(f, ", answered {seconds} s ago"),
            None => f.write_str(", no answer yet"),
        }
    }
}

/// The tables of a BGP speaker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableFigures {
    /// Prefixes with a path.
    pub prefixes: u64,
    /// Paths.
    pub paths: u64,
    /// Different sets of attributes that they have.
    pub attribute_sets: u64,
    /// Malformed messages since the start (RFC 7606).
    pub malformed: u64,
}

/// The routes that records of the datastore do not confirm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginFigures {
    /// Whether the records were read, and routes are compared with them.
    pub in_sync: bool,
    /// Paths without a record, for a short time.
    pub pending: u64,
    /// Paths without a record for so long that they were reported.
    pub unconfirmed: u64,
    /// Paths without a record that are not used, by neighbor; only in the mode `enforce`.
    pub excluded: BTreeMap<String, u64>,
    /// How often a path without a record was not held because there were too many, since the start.
    pub overflow: u64,
    /// Whether there may be paths now that are not held.
    pub incomplete: bool,
    /// Reported paths since the start, by node.
    pub reported: BTreeMap<String, u64>,
}

impl OriginFigures {
    /// Returns a note for the operator, if there are unconfirmed routes.
    pub fn note(&self) -> Option<String> {
        let excluded = self.excluded.values().sum::<u64>();
        if !self.in_sync && excluded > 0 {
            let text = "until the records of the datastore are read";
            return Some(format!(
                "{excluded} routes of neighbors are not used {text}"
            ));
        }
        let mut note = match self.unconfirmed {
            0 if !self.incomplete => return None,
            1 => "1 route of a neighbor has no record in the datastore".to_owned(),
            count => format!("{count} routes of neighbors have no record in the datastore"),
        };
        if self.incomplete {
            note.push_str(", and more than this daemon can hold");
        }
        if !self.excluded.is_empty() {
            note.push_str("; they are not used");
        }
        Some(note + "; `cambric show routes --why` has the reasons")
    }
}

impl fmt::Display for OriginFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unconfirmed, pending) = (self.unconfirmed, self.pending);
        write!(f, "{unconfirmed} unconfirmed, {pending} pending")
    }
}

/// The kernel routes that the daemon keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelFigures {
    /// Routes that should be there.
    pub wanted: u64,
    /// Of these, such as the kernel has confirmed.
    pub installed: u64,
    /// Of these, such as are on their way.
    pub pending: u64,
    /// Of these, such as the kernel refuses.
    pub failed: u64,
    /// Routes that others deleted or changed, since the start.
    pub drift: u64,
    /// Writes since the start: routes put and deleted.
    pub writes: u64,
}

/// Felix's counts on its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointFigures {
    /// Endpoints that are up.
    pub up: u64,
    /// Endpoints with an interface that is absent or down.
    pub down: u64,
    /// Endpoints that are refused.
    pub error: u64,
    /// Interfaces of workloads by their names that are no endpoint's.
    pub unclaimed: u64,
    /// Whether the kernel's packet filter is the wanted one.
    pub rules_in_sync: bool,
    /// Changes of the packet filter since the start.
    pub rules_transactions: u64,
    /// Changes of the packet filter by others that were undone.
    pub rules_foreign_edits: u64,
    /// Established connections that were cut, since the start.
    pub connections_cut: u64,
}

/// The counts of a daemon's log lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogFigures {
    /// Lines that wait to be written.
    pub waiting: u64,
    /// The most there ever were.
    pub peak: u64,
    /// Errors that were not written, since the start.
    pub lost_error: u64,
    /// Warnings that were not written, since the start.
    pub lost_warn: u64,
    /// Lines of level `info` that were not written, since the start.
    pub lost_info: u64,
    /// Lines of levels `debug` and `trace` that were not written, since the start.
    pub lost_debug: u64,
    /// Seconds since standard error accepted the last line, if it accepts none now.
    pub stalled_s: Option<u64>,
    /// Repeated events of which a summary was written instead, since the start.
    pub summarized: u64,
}

impl LogFigures {
    /// Lines that were not written, since the start.
    pub fn lost(&self) -> u64 {
        let Self {
            lost_error,
            lost_warn,
            lost_info,
            lost_debug,
            ..
        } = self;
        lost_error + lost_warn + lost_info + lost_debug
    }

    /// Returns a note for the operator, if standard error is not read.
    pub fn note(&self) -> Option<String> {
        let Self {
            waiting, stalled_s, ..
        } = self;
        let lost = self.lost();
        stalled_s.map(|seconds| {
            format!(
                "standard error has accepted no log line for {seconds} s: {waiting} lines wait, \
                 {lost} are lost; check its reader (journald, a pipe, a full disk)"
            )
        })
    }
}

impl fmt::Display for LogFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waiting, lost, summarized) = (self.waiting, self.lost(), self.summarized);
        write!(f, "{waiting} waiting, {lost} lost, {summarized} summarized")
    }
}
