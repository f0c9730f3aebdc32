//! Mirrors, which follow ranges of a store.
//!
//! A [`Mirror`] lists each range and watches it from there, lists it again when the history it
//! needs was compacted, retries with growing delays when the store is unreachable, and turns all of
//! it into latest-wins changes for one consumer. It is a plain value: it returns the requests to
//! the store, takes the answers, and owns no clock and no connection; [`follow::follow`] runs it.
//!
//! Guarantees for its consumer:
//! - A key's changes arrive in the order of their revisions; an older state never follows a newer
//!   one, whichever member or proxy answers.
//! - A slow consumer gets each key's latest state, once. Memory is bounded by the keys, not by
//!   their changes. While the consumer has many changes to take, no further page is read, so that
//!   the values of a large range are not all in memory at once.
//! - An unreachable store or an outdated answer never causes a deletion. A key is deleted only
//!   after a deletion event, or after a list newer than the known state without the key.
//! - [`Status::InSync`] follows every change that was known by then, and means that every range was
//!   read.
//! - The content of a snapshot precedes [`Status::Snapshot`]. A key that is missing in a snapshot
//!   is never deleted for that reason, only if it is missing in the store.
//! - A consumer that has a complete picture gets no change from another history before all ranges
//!   were read from it. From a gated mirror it gets no change while the datastore is not ready.

mod feed;
pub mod follow;
mod gate;
mod gated;
mod jitter;
pub mod keep;
mod snapshot;
mod state;
mod troubles;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::error::Error;
use crate::kv::{Batch, Header, KeyRange, KeyValue, Listing, Query, Revision};
use crate::limits::READ_AHEAD_MAX;
use crate::port::WatchRequest;
use feed::{Feed, Listed};
use gate::Gate;
pub use gate::Unready;
use state::State;

/// An update for the consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// A key changed.
    Change(Change),
    /// The status of the consumer's picture.
    Status(Status),
}

/// The latest state of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key exists, and is new or changed.
    Put(KeyValue),
    /// The key was deleted.
    Delete(Bytes),
}

/// The status of the consumer's picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Part of the store, or of another store that replaced it, has not been read yet.
    Syncing,
    /// The whole snapshot of an earlier run was returned; the store has not been read in full.
    Snapshot {
        /// The age of the snapshot when it was read, in seconds.
        age_s: u64,
    },
    /// Everything was read, and is watched.
    InSync,
    /// Everything was read once, but the store has been unreachable for a while: the picture may be
    /// outdated.
    Lost,
    /// Everything was read, but must not be applied. An earlier picture stays unchanged.
    Unready(Unready),
}

impl Status {
    /// Returns the stable name: `syncing`, `snapshot`, `in-sync`, `away` or `not-ready`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syncing => "syncing",
            Self::Snapshot { .. } => "snapshot",
            Self::InSync => "in-sync",
            Self::Lost => "away",
            Self::Unready(_) => "not-ready",
        }
    }

    /// Returns false if the store is unreachable or not ready.
    pub const fn is_available(self) -> bool {
        !matches!(self, Self::Lost | Self::Unready(_))
    }

    /// Returns the age of the snapshot that the consumer has.
    pub const fn snapshot_age_s(self) -> Option<u64> {
        match self {
            Self::Snapshot { age_s } => Some(age_s),
            _ => None,
        }
    }

    /// Returns why the datastore is not ready.
    pub const fn unready(self) -> Option<Unready> {
        match self {
            Self::Unready(why) => Some(why),
            _ => None,
        }
    }

    const fn is_picture(self) -> bool {
        matches!(self, Self::InSync | Self::Snapshot { .. })
    }
}

/// A request of the mirror to the store.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Read a page, and pass the answer to [`Mirror::listed`].
    List {
        /// The requesting feed.
        feed: FeedId,
        /// The query.
        query: Query,
    },
    /// Open a watch, and pass the answers to [`Mirror::opened`], then [`Mirror::watched`].
    Watch {
        /// The requesting feed.
        feed: FeedId,
        /// The watch request.
        request: WatchRequest,
    },
    /// Request progress of the feed's watch.
    Probe {
        /// The feed.
        feed: FeedId,
    },
    /// Drop the pending request or watch of the feed.
    Cancel {
        /// The feed.
        feed: FeedId,
    },
}

/// Identifies one of the mirrored ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedId(pub usize);

/// Follows ranges of a store. Time is the duration since an origin that the caller chooses.
#[derive(Debug)]
pub struct Mirror {
    feeds: Vec<Feed>,
    state: State,
    outputs: VecDeque<Output>,
    /// The last status returned to the consumer.
    reported: Option<Status>,
    /// The age of the snapshot that the mirror started with, in seconds.
    restored: Option<u64>,
    /// Whether the consumer ever got a complete picture.
    has_picture: bool,
}

impl Mirror {
    /// Returns a mirror of ranges, without those that lie within others. Ranges must not overlap
    /// otherwise; prefixes never do. The seed is for the jitter of delays.
    pub fn new(ranges: impl IntoIterator<Item = KeyRange>, seed: u64) -> Self {
        let mut kept: Vec<KeyRange> = Vec::new();
        for range in ranges {
            if !kept.iter().any(|other| other.covers(&range)) {
                kept.retain(|other| !range.covers(other));
                kept.push(range);
            }
        }
        let feeds = kept
            .into_iter()
            .zip(1_u64..)
            .map(|(range, nth)| Feed::new(range, seed.wrapping_add(nth)))
            .collect();
        Self {
            feeds,
            state: State::default(),
            outputs: VecDeque::new(),
            reported: None,
            restored: None,
            has_picture: false,
        }
    }

    /// Returns a mirror for a consumer that applies its updates. It mirrors ClusterInformation too.
    ///
    /// Once the consumer has a complete picture, it gets updates only while ClusterInformation
    /// `default` exists, has `datastoreReady: true`, and has the earlier `clusterGUID`, if both
    /// have one. If a list lacks known keys, or a watch reports that a range became empty, updates
    /// wait until ClusterInformation was read again: each range has its own watch, so that a
    /// deletion of several ranges at once is not reported at once. When ClusterInformation becomes
    /// ready, each range must be known as of that revision first.
    pub fn gated(ranges: impl IntoIterator<Item = KeyRange>, seed: u64) -> Self {
        let mut mirror = Self::new([gate::range()].into_iter().chain(ranges), seed);
        mirror.state.gate = Some(Gate::new());
        mirror
    }

    /// Starts with the content that an earlier run has saved, of this history. Must be called before any
    /// other method.
    pub fn restore(
        &mut self,
        now: Duration,
        cluster: u64,
        age: Duration,
        items: impl IntoIterator<Item = KeyValue>,
    ) {
        let mut revision = Revision::ZERO;
        for item in items {
            revision = revision.max(item.mod_revision);
            self.state.put(item, 0);
        }
        for feed in &mut self.feeds {
            let keys = self.state.count(feed.range());
            feed.restore(now, cluster, revision, keys);
        }
        if let Some(gate) = &mut self.state.gate {
            gate.pass();
            gate.since = Revision::ZERO; // The earlier run had read everything.
        }
        self.restored = Some(age.as_secs());
    }

    /// Returns the mirrored ranges.
    pub fn ranges(&self) -> impl Iterator<Item = &KeyRange> {
        self.feeds.iter().map(Feed::range)
    }

    /// Returns the cluster ID of the consumer's picture; `None` while it is unknown, differs
    /// between the ranges, or is held back.
    pub fn cluster(&self) -> Option<u64> {
        self.history().filter(|_| !self.is_held())
    }

    /// Returns the newest revision of which the consumer has got all changes; `None` while there
    /// are undelivered changes.
    pub fn revision(&self) -> Option<Revision> {
        let is_reported = self.has_picture && self.state.is_reported() && !self.is_held();
        let newest = self.feeds.iter().map(Feed::whole).max();
        newest.filter(|_| is_reported)
    }

    /// Returns the cluster ID that all ranges were read from.
    fn history(&self) -> Option<u64> {
        if self.feeds.iter().any(Feed::is_mixed) {
            return None;
        }
        let mut clusters = self.feeds.iter().map(Feed::cluster);
        let first = clusters.next()??;
        clusters
            .all(|cluster| cluster == Some(first))
            .then_some(first)
    }

    /// Returns the number of feeds: one per range.
    pub fn feeds(&self) -> usize {
        self.feeds.len()
    }

    /// Handles the result of reading a page.
    pub fn listed(&mut self, now: Duration, feed: FeedId, page: Result<Listing, Error>) {
        let listed = self.with(feed, |id, feed, state, outputs| {
            feed.listed(now, id, page, state, outputs)
        });
        if let Some(Listed::InWhole { lacks }) = listed {
            if lacks {
                self.doubt(now, feed);
            }
            self.settle_doubt(now, feed);
            self.settle_wait(now, feed);
        }
        self.await_all(now, feed);
        self.next_pages(now);
    }

    /// Handles the result of opening a watch.
    pub fn opened(&mut self, now: Duration, feed: FeedId, opened: Result<Header, Error>) {
        self.with(feed, |id, feed, _, outputs| {
            feed.opened(now, id, opened, outputs)
        });
    }

    /// Handles a batch or the end of a watch.
    pub fn watched(&mut self, now: Duration, feed: FeedId, batch: Result<Batch, Error>) {
        let was_emptied = self.with(feed, |id, feed, state, outputs| {
            feed.watched(now, id, batch, state, outputs)
        });
        if was_emptied == Some(true) {
            self.doubt(now, feed);
        }
        self.await_all(now, feed);
        self.next_pages(now);
    }

    /// Requests the next pages of lists, unless the consumer must take changes first. A consumer that
    /// gets no changes now is not waited for.
    fn next_pages(&mut self, now: Duration) {
        if self.state.undelivered() > READ_AHEAD_MAX && !self.is_held() {
            return;
        }
        for (at, feed) in self.feeds.iter_mut().enumerate() {
            feed.next_page(now, FeedId(at), &mut self.outputs);
        }
    }

    /// Handles every expired deadline; the first call starts the mirror.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.begins() {
            return;
        }
        for (at, feed) in self.feeds.iter_mut().enumerate() {
            feed.handle_timeout(now, FeedId(at), &mut self.outputs);
        }
        self.next_pages(now);
    }

    /// Returns when [`Self::handle_timeout`] is next due, or [`Self::take`] may have a new status.
    pub fn poll_timeout(&self, now: Duration) -> Option<Duration> {
        if self.begins() {
            return None;
        }
        let losses = self
            .feeds
            .iter()
            .filter_map(Feed::loss_deadline)
            .filter(|at| *at > now);
        self.feeds.iter().map(Feed::deadline).chain(losses).min()
    }

    /// Returns whether a snapshot is still to be delivered: no request is sent before.
    const fn begins(&self) -> bool {
        self.restored.is_some() && !self.has_picture
    }

    /// Returns whether known changes are held back from a consumer that has a complete picture.
    fn is_held(&self) -> bool {
        let is_shut = self.state.gate.as_ref().is_some_and(Gate::is_shut);
        self.has_picture && (is_shut || self.history().is_none())
    }

    /// Returns the next request to the store.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns updates for the consumer, at most `max` changes at once; empty when there are none.
    pub fn take(&mut self, now: Duration, max: usize) -> Vec<Update> {
        let mut updates = Vec::new();
        let status = self.status(now);
        // A status that reports a complete picture follows the changes, every other status precedes
        // them.
        if self.reported.is_none() {
            self.report(Status::Syncing, &mut updates);
        } else if !status.is_picture() {
            self.report(status, &mut updates);
        }
        if !self.is_held() {
            updates.extend(self.state.take(max).map(Update::Change));
        }
        self.next_pages(now);
        if self.state.is_reported() && status.is_picture() {
            self.report(status, &mut updates);
        }
        updates
    }

    fn report(&mut self, status: Status, updates: &mut Vec<Update>) {
        if self.reported == Some(status) {
            return;
        }
        self.reported = Some(status);
        self.has_picture |= status.is_picture();
        if let (Status::InSync, Some(gate)) = (status, &mut self.state.gate) {
            gate.pass();
        }
        updates.push(Update::Status(status));
    }

    /// Returns whether [`Self::take`] has updates.
    pub fn has_updates(&self, now: Duration) -> bool {
        let has_changes = !self.state.is_reported() && !self.is_held();
        has_changes || self.reported.is_none() || self.reported != Some(self.status(now))
    }

    /// Returns the status of the picture. Short losses of contact do not count.
    fn status(&self, now: Duration) -> Status {
        if self.feeds.iter().any(|feed| !feed.was_listed()) {
            match self.restored {
                Some(age_s) => Status::Snapshot { age_s },
                None => Status::Syncing,
            }
        } else if self.feeds.iter().any(|feed| feed.is_lost(now)) {
            Status::Lost
        } else if self.history().is_none() {
            Status::Syncing
        } else if self.feeds.iter().all(Feed::is_current) {
            let gate = self.state.gate.as_ref();
            gate.and_then(Gate::unready)
                .map_or(Status::InSync, Status::Unready)
        } else {
            // Recovering within the time allowed for a loss: unchanged.
            self.reported.unwrap_or(Status::Syncing)
        }
    }

    fn with<T>(
        &mut self,
        id: FeedId,
        act: impl FnOnce(FeedId, &mut Feed, &mut State, &mut VecDeque<Output>) -> T,
    ) -> Option<T> {
        let feed = self.feeds.get_mut(id.0)?;
        Some(act(id, feed, &mut self.state, &mut self.outputs))
    }
}
