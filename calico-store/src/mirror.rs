//! Mirrors: keeping up with ranges of a store.
//!
//! A [`Mirror`] lists each range and watches it from there, lists anew when the history it needs is
//! gone, tries again with growing waits when the store cannot be reached, and turns all of it into
//! latest-wins changes for one consumer. It is a plain value: it says what to ask the store, is
//! told the answers, and owns no clock and no connection; [`follow::follow`] runs it.
//!
//! What it promises its consumer:
//! - A key's changes come in the order of their revisions; nothing older follows something newer,
//!   whichever member or proxy answers.
//! - A consumer that does not keep up gets each key's latest state, once. Memory is bounded by the
//!   keys, not by their changes.
//! - Nothing is deleted because the store was away or answered from the past, only because a list
//!   or event that is newer than what is known does not hold it.
//! - [`Status::InSync`] comes after every change that was known by then, and says that every range
//!   was read.
//! - What a snapshot held comes before [`Status::Snapshot`]. Nothing is deleted because a snapshot
//!   does not hold it, only because the store does not.
//! - A consumer that has a picture is told nothing of another history before all ranges were read
//!   of it; and a gated mirror tells it nothing of a store that does not say that it may be acted
//!   upon.

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
use crate::port::WatchRequest;
use feed::{Feed, Listed};
use gate::Gate;
pub use gate::Unready;
use state::State;

/// How far a mirror is with one of its ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeState {
    /// The cluster whose history the range follows.
    pub cluster: Option<u64>,
    /// Whether keys of another history may still be known.
    pub mixed: bool,
    /// How often the range was listed.
    pub lists: u64,
    /// How many keys are known.
    pub keys: usize,
}

/// Something for the consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// A key changed.
    Change(Change),
    /// How current the consumer's picture is.
    Status(Status),
}

/// The latest of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is there, and new or different.
    Put(KeyValue),
    /// It is gone.
    Delete(Bytes),
}

/// How current the consumer's picture is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Something has not been read yet, of this store or of another one in its place.
    Syncing,
    /// All that a snapshot of an earlier run held was told; the store has not been read in full.
    Snapshot {
        /// How old it was when it was read, in seconds.
        age_s: u64,
    },
    /// Everything was read, and is watched.
    InSync,
    /// Everything was read once, but the store has been away for a while: the picture is old.
    Lost,
    /// Everything was read, and is not to be acted upon. A picture from before stays as it is.
    Unready(Unready),
}

impl Status {
    /// The stable name: `syncing`, `snapshot`, `in-sync`, `away` or `not-ready`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syncing => "syncing",
            Self::Snapshot { .. } => "snapshot",
            Self::InSync => "in-sync",
            Self::Lost => "away",
            Self::Unready(_) => "not-ready",
        }
    }

    /// Returns false where the store cannot be reached, or is not to be acted upon.
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

    /// Returns why the store is not to be acted upon.
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

/// What the mirror wants of the store.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Read a page, and answer with [`Mirror::listed`].
    List {
        /// Which feed wants it.
        feed: FeedId,
        /// What to read.
        query: Query,
    },
    /// Begin to watch, and answer with [`Mirror::opened`], then [`Mirror::watched`].
    Watch {
        /// Which feed wants it.
        feed: FeedId,
        /// What to watch.
        request: WatchRequest,
    },
    /// Ask the feed's watch for a sign of life.
    Probe {
        /// Which feed.
        feed: FeedId,
    },
    /// Drop whatever is under way for the feed.
    Cancel {
        /// Which feed.
        feed: FeedId,
    },
}

/// One of the mirrored ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedId(pub usize);

/// Keeps up with ranges of a store. Time is a length since an origin that the caller owns.
#[derive(Debug)]
pub struct Mirror {
    feeds: Vec<Feed>,
    state: State,
    outputs: VecDeque<Output>,
    /// The status that the consumer was last told.
    told: Option<Status>,
    /// The age of the snapshot that it began with, in seconds.
    restored: Option<u64>,
    /// Whether the consumer was ever told a whole picture.
    has_picture: bool,
}

impl Mirror {
    /// A mirror of ranges; those within others are left out. Ranges must not overlap otherwise, as
    /// prefixes never do. The seed is for the jitter of waits.
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
            told: None,
            restored: None,
            has_picture: false,
        }
    }

    /// A mirror for a consumer that acts by what it is told. It mirrors ClusterInformation too, and
    /// once the consumer has a picture tells it something only while ClusterInformation `default`
    /// is there, says `datastoreReady: true`, and has the `clusterGUID` of the store before, where
    /// both have one. Where a list lacks what was known, or a watch tells that a range was emptied,
    /// it tells nothing before that was read again: each range is watched for itself, and what was
    /// deleted at once is not heard of at once. Where ClusterInformation comes to say so, each range
    /// must be known as of then.
    pub fn gated(ranges: impl IntoIterator<Item = KeyRange>, seed: u64) -> Self {
        let mut mirror = Self::new([gate::range()].into_iter().chain(ranges), seed);
        mirror.state.gate = Some(Gate::new());
        mirror
    }

    /// Begins with what an earlier run knew, of this history. To be called before anything else.
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
            gate.since = Revision::ZERO; // The earlier run knew it all.
        }
        self.restored = Some(age.as_secs());
    }

    /// The ranges that are mirrored.
    pub fn ranges(&self) -> impl Iterator<Item = &KeyRange> {
        self.feeds.iter().map(Feed::range)
    }

    /// Number of the history that the consumer's picture is of; `None` while it is not known, or not
    /// the same for all ranges, or held back.
    pub fn cluster(&self) -> Option<u64> {
        self.history().filter(|_| !self.is_held())
    }

    /// The newest revision that the consumer was told all of; `None` while there is something that
    /// it was not told.
    pub fn revision(&self) -> Option<Revision> {
        let is_told = self.has_picture && self.state.is_told() && !self.is_held();
        let newest = self.feeds.iter().map(Feed::whole).max();
        newest.filter(|_| is_told)
    }

    /// Number of the history that all ranges were read of.
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

    /// Number of feeds: one a range.
    pub fn feeds(&self) -> usize {
        self.feeds.len()
    }

    /// Returns how far the mirror is with a range; `None` if there is no such feed.
    pub fn range_state(&self, feed: FeedId) -> Option<RangeState> {
        self.feeds.get(feed.0).map(|feed| RangeState {
            cluster: feed.cluster(),
            mixed: feed.is_mixed(),
            lists: feed.lists(),
            keys: feed.keys(),
        })
    }

    /// Counts the keys of a range one by one: as many as [`RangeState::keys`].
    pub fn count(&self, feed: FeedId) -> usize {
        let feed = self.feeds.get(feed.0);
        feed.map_or(0, |feed| self.state.count(feed.range()))
    }

    /// Whether the mirror waits for the cluster's own record.
    pub const fn is_gated(&self) -> bool {
        self.state.gate.is_some()
    }

    /// A page was read, or was not.
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
    }

    /// The watch has begun, or has not.
    pub fn opened(&mut self, now: Duration, feed: FeedId, opened: Result<Header, Error>) {
        self.with(feed, |id, feed, _, outputs| {
            feed.opened(now, id, opened, outputs)
        });
    }

    /// The watch brought something, or is over.
    pub fn watched(&mut self, now: Duration, feed: FeedId, batch: Result<Batch, Error>) {
        let was_emptied = self.with(feed, |id, feed, state, outputs| {
            feed.watched(now, id, batch, state, outputs)
        });
        if was_emptied == Some(true) {
            self.doubt(now, feed);
        }
        self.await_all(now, feed);
    }

    /// Acts on every deadline that has passed; also begins.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.begins() {
            return;
        }
        for (at, feed) in self.feeds.iter_mut().enumerate() {
            feed.handle_timeout(now, FeedId(at), &mut self.outputs);
        }
    }

    /// When [`Self::handle_timeout`] is next due, or [`Self::take`] may have a new status.
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

    /// Whether a snapshot is still to be told: nothing is asked of the store before.
    const fn begins(&self) -> bool {
        self.restored.is_some() && !self.has_picture
    }

    /// Whether what is known is kept from a consumer that has a picture.
    pub fn is_held(&self) -> bool {
        let is_shut = self.state.gate.as_ref().is_some_and(Gate::is_shut);
        self.has_picture && (is_shut || self.history().is_none())
    }

    /// What to ask the store next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// What to tell the consumer, at most so many changes at once; empty when there is nothing.
    pub fn take(&mut self, now: Duration, max: usize) -> Vec<Update> {
        let mut updates = Vec::new();
        let status = self.status(now);
        // What says that a picture is there comes after the picture, everything else before.
        if self.told.is_none() {
            self.tell(Status::Syncing, &mut updates);
        } else if !status.is_picture() {
            self.tell(status, &mut updates);
        }
        if !self.is_held() {
            updates.extend(self.state.take(max).map(Update::Change));
        }
        if self.state.is_told() && status.is_picture() {
            self.tell(status, &mut updates);
        }
        updates
    }

    fn tell(&mut self, status: Status, updates: &mut Vec<Update>) {
        if self.told == Some(status) {
            return;
        }
        self.told = Some(status);
        self.has_picture |= status.is_picture();
        if let (Status::InSync, Some(gate)) = (status, &mut self.state.gate) {
            gate.pass();
        }
        updates.push(Update::Status(status));
    }

    /// Whether [`Self::take`] has something.
    pub fn has_updates(&self, now: Duration) -> bool {
        let has_changes = !self.state.is_told() && !self.is_held();
        has_changes || self.told.is_none() || self.told != Some(self.status(now))
    }

    /// How current the picture is. Short losses of contact do not count.
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
            // On the way back within the time that a loss may take: as it was.
            self.told.unwrap_or(Status::Syncing)
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
