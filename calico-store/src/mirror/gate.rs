//! Decides whether the datastore may be applied.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use calico_model::{ClusterInformationSpec, Kind, Resource};

use super::FeedId;
use crate::kv::{Header, KeyRange, Revision};

/// Returns the key of the ClusterInformation.
pub(super) fn key() -> Bytes {
    format!("{}default", Kind::ClusterInformation.prefix()).into()
}

/// Returns the range that a gate needs.
pub(super) fn range() -> KeyRange {
    KeyRange::prefix(Kind::ClusterInformation.prefix())
}

/// Why the datastore must not be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unready {
    /// It has no ClusterInformation: it is empty, or not filled yet.
    Silent,
    /// `datastoreReady` is not true.
    Locked,
    /// Its `clusterGUID` differs from the applied one.
    Other,
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "it has no ClusterInformation default",
            Self::Locked => "its ClusterInformation does not have datastoreReady: true",
            Self::Other => "its clusterGUID is not that of the store before",
        })
    }
}

/// The content of the ClusterInformation.
#[derive(Debug)]
struct Information {
    is_ready: bool,
    /// Its `clusterGUID`, empty if it has none.
    guid: String,
}

/// Holds back the changes of a datastore that is not ready.
#[derive(Debug)]
pub(super) struct Gate {
    key: Bytes,
    /// The present ClusterInformation; `None` if it does not exist.
    information: Option<Information>,
    /// The `clusterGUID` of the applied datastore, empty if it has none.
    guid: String,
    /// The revision as of which ClusterInformation must be read before it counts again.
    pub(super) doubt: Option<Header>,
    /// The revision at which the datastore became ready: its content at that revision must be
    /// known.
    pub(super) since: Revision,
    /// Feeds that are read because their revision may be older.
    pub(super) awaited: BTreeSet<FeedId>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            key: key(),
            information: None,
            guid: String::new(),
            doubt: None,
            since: Revision::ZERO,
            awaited: BTreeSet::new(),
        }
    }

    /// Records the value of a key at this revision, or its deletion. An unparsable value leaves the
    /// previous one in effect.
    pub(super) fn note(&mut self, key: &Bytes, value: Option<&[u8]>, revision: Revision) {
        if *key != self.key {
            return;
        }
        let was_ready = self.unready().is_none();
        match value.map(Resource::<ClusterInformationSpec>::parse) {
            Some(Ok(Resource { spec, .. })) => {
                self.information = Some(Information {
                    is_ready: spec.is_ready(),
                    guid: spec.cluster_guid,
                });
            }
            Some(Err(_)) => {}
            None => self.information = None,
        }
        if !was_ready {
            self.since = revision;
        }
    }

    /// Drops the recorded ClusterInformation, because it was read from another history.
    pub(super) fn forget(&mut self, key: &Bytes) {
        if *key == self.key {
            self.information = None;
        }
    }

    /// Returns whether known changes must be held back.
    pub(super) fn is_shut(&self) -> bool {
        self.doubt.is_some() || !self.awaited.is_empty() || self.unready().is_some()
    }

    /// Requires ClusterInformation to be read again, as of this revision or later, before it
    /// counts.
    pub(super) fn doubt(&mut self, then: Header) {
        let same = self.doubt.filter(|doubt| doubt.cluster == then.cluster);
        let revision = same.map_or(then.revision, |doubt| doubt.revision.max(then.revision));
        self.doubt = Some(Header { revision, ..then });
    }

    /// Accepts the datastore with its present `clusterGUID`.
    pub(super) fn pass(&mut self) {
        if let Some(information) = self
            .information
            .as_ref()
            .filter(|information| !information.guid.is_empty())
        {
            self.guid.clone_from(&information.guid);
        }
    }

    /// Returns why the datastore must not be applied, if it must not.
    pub(super) fn unready(&self) -> Option<Unready> {
        let Some(information) = &self.information else {
            return Some(Unready::Silent);
        };
        let is_same = [&information.guid, &self.guid].contains(&&String::new())
            || information.guid == self.guid;
        match (information.is_ready, is_same) {
            (false, _) => Some(Unready::Locked),
            (true, false) => Some(Unready::Other),
            (true, true) => None,
        }
    }
}
