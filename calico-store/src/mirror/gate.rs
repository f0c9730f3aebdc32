//! Whether a store may be acted upon.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use calico_model::{ClusterInformationSpec, Kind, Resource};

use super::feed::Feed;
use super::{FeedId, Mirror};
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

/// What a mirror does about its gate.
impl Mirror {
    /// The store may have been emptied: what it has said of itself counts no more until it was read
    /// again, as of what this feed knows or later.
    pub(super) fn doubt(&mut self, now: Duration, feed: FeedId) {
        let Some(gates) = self.gates_feed().filter(|gates| *gates != feed) else {
            return;
        };
        let then = self.feeds.get(feed.0).and_then(Feed::as_of);
        if let (true, Some(gate), Some(then)) = (self.has_picture, &mut self.state.gate, then) {
            gate.doubt(then);
            self.with(gates, |id, feed, _, outputs| {
                feed.read_as_of(now, id, then, outputs);
            });
        }
    }

    /// A feed was read. If it was what the store says of itself, and not too early, that counts again.
    pub(super) fn settle_doubt(&mut self, now: Duration, feed: FeedId) {
        let read = self.feeds.get(feed.0).and_then(Feed::as_of);
        let is_gates = self.gates_feed() == Some(feed);
        let Some(gate) = self.state.gate.as_mut().filter(|_| is_gates) else {
            return;
        };
        let is_old = |then: &Header, read: Header| {
            read.cluster == then.cluster && read.revision < then.revision
        };
        gate.doubt = gate
            .doubt
            .filter(|then| read.is_some_and(|read| is_old(then, read)));
        if let Some(then) = gate.doubt {
            self.with(feed, |id, feed, _, outputs| {
                feed.read_as_of(now, id, then, outputs);
            });
        }
    }

    /// A feed has brought something. If the store has come to say that it may be acted upon, every
    /// feed must know what it held then: each is watched for itself, and may not have heard of it.
    pub(super) fn await_all(&mut self, now: Duration, feed: FeedId) {
        if self.gates_feed() == Some(feed) {
            for feed in (0..self.feeds.len()).map(FeedId) {
                self.await_if_behind(now, feed);
            }
        }
    }

    /// A feed was read. That was enough, unless it was too early.
    pub(super) fn settle_wait(&mut self, now: Duration, feed: FeedId) {
        if let Some(gate) = &mut self.state.gate {
            gate.awaited.remove(&feed);
        }
        self.await_if_behind(now, feed);
    }

    fn await_if_behind(&mut self, now: Duration, feed: FeedId) {
        let as_of = |feed: FeedId| self.feeds.get(feed.0).and_then(Feed::as_of);
        let (gates, own) = (self.gates_feed().and_then(as_of), as_of(feed));
        let Some(gate) = self
            .state
            .gate
            .as_mut()
            .filter(|gate| gate.unready().is_none())
        else {
            return;
        };
        let (Some(Header { cluster, .. }), Some(own)) = (gates, own) else {
            return;
        };
        let revision = gate.since;
        if own.cluster == cluster && own.revision < revision {
            gate.awaited.insert(feed);
            self.with(feed, |id, feed, _, outputs| {
                feed.read_as_of(now, id, Header { cluster, revision }, outputs);
            });
        }
    }

    /// The feed that brings what the store says of itself.
    fn gates_feed(&self) -> Option<FeedId> {
        let range = range();
        let mut feeds = self.feeds.iter();
        feeds
            .position(|feed| feed.range().covers(&range))
            .map(FeedId)
    }
}
