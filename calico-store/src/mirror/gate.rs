//! Whether a store may be acted upon.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use calico_model::{ClusterInformationSpec, Kind, Resource};

use super::FeedId;
use crate::kv::{Header, KeyRange, Revision};

/// Where a store says of itself what it is.
pub(super) fn key() -> Bytes {
    format!("{}default", Kind::ClusterInformation.prefix()).into()
}

/// The range that a gate needs.
pub(super) fn range() -> KeyRange {
    KeyRange::prefix(Kind::ClusterInformation.prefix())
}

/// Why a store is not to be acted upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unready {
    /// It does not say what it is: it is empty, or not filled yet.
    Silent,
    /// It says that it is not ready.
    Locked,
    /// It says that it is another one than that which was acted upon.
    Other,
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "it has no ClusterInformation default",
            Self::Locked => "its ClusterInformation does not say datastoreReady: true",
            Self::Other => "its clusterGUID is not that of the store before",
        })
    }
}

/// What a store says of itself.
#[derive(Debug)]
struct Said {
    is_ready: bool,
    /// Its number, empty if it has none.
    guid: String,
}

/// Holds back a store that does not say that it may be acted upon.
#[derive(Debug)]
pub(super) struct Gate {
    key: Bytes,
    /// What the store says now; `None` if nothing.
    said: Option<Said>,
    /// Number of the store that is acted upon, empty if it has none.
    guid: String,
    /// As of when what the store said must be read before it counts again.
    pub(super) doubt: Option<Header>,
    /// When the store came to say that it may be acted upon: what it held then must be known.
    pub(super) since: Revision,
    /// Feeds that are read because they may not know that.
    pub(super) awaited: BTreeSet<FeedId>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            key: key(),
            said: None,
            guid: String::new(),
            doubt: None,
            since: Revision::ZERO,
            awaited: BTreeSet::new(),
        }
    }

    /// A key has this value since then, or none. A value that does not read leaves the one before
    /// it.
    pub(super) fn note(&mut self, key: &Bytes, value: Option<&[u8]>, revision: Revision) {
        if *key != self.key {
            return;
        }
        let was_ready = self.unready().is_none();
        match value.map(Resource::<ClusterInformationSpec>::parse) {
            Some(Ok(Resource { spec, .. })) => {
                self.said = Some(Said {
                    is_ready: spec.is_ready(),
                    guid: spec.cluster_guid,
                });
            }
            Some(Err(_)) => {}
            None => self.said = None,
        }
        if !was_ready {
            self.since = revision;
        }
    }

    /// What the store said was said by another one than that which speaks now.
    pub(super) fn forget(&mut self, key: &Bytes) {
        if *key == self.key {
            self.said = None;
        }
    }

    /// Whether what is known is not to be told.
    pub(super) fn is_shut(&self) -> bool {
        self.doubt.is_some() || !self.awaited.is_empty() || self.unready().is_some()
    }

    /// What the store said counts when it was read again, as of then or later.
    pub(super) fn doubt(&mut self, then: Header) {
        let same = self.doubt.filter(|doubt| doubt.cluster == then.cluster);
        let revision = same.map_or(then.revision, |doubt| doubt.revision.max(then.revision));
        self.doubt = Some(Header { revision, ..then });
    }

    /// The store is acted upon as it is.
    pub(super) fn pass(&mut self) {
        if let Some(said) = self.said.as_ref().filter(|said| !said.guid.is_empty()) {
            self.guid.clone_from(&said.guid);
        }
    }

    /// Why the store is not to be acted upon, if it is not.
    pub(super) fn unready(&self) -> Option<Unready> {
        let Some(said) = &self.said else {
            return Some(Unready::Silent);
        };
        let is_same = [&said.guid, &self.guid].contains(&&String::new()) || said.guid == self.guid;
        match (said.is_ready, is_same) {
            (false, _) => Some(Unready::Locked),
            (true, false) => Some(Unready::Other),
            (true, true) => None,
        }
    }
}
