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

mod feed;
pub mod follow;
pub mod keep;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::error::Error;
use crate::kv::{Batch, Header, KeyRange, KeyValue, Listing, Query, Revision};
use crate::port::WatchRequest;
use feed::Feed;
use state::State;

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
    /// Something has not been read yet.
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
}

impl Status {
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
        }
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
            feed.restore(now, cluster, revision);
        }
        self.restored = Some(age.as_secs());
    }

    /// The ranges that are mirrored.
    pub fn ranges(&self) -> impl Iterator<Item = &KeyRange> {
        self.feeds.iter().map(Feed::range)
    }

    /// Number of the history that is mirrored; `None` while it is not known or not the same for all
    /// ranges.
    pub fn cluster(&self) -> Option<u64> {
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

    /// A page was read, or was not.
    pub fn listed(&mut self, now: Duration, feed: FeedId, page: Result<Listing, Error>) {
        self.with(feed, |id, feed, state, outputs| {
            feed.listed(now, id, page, state, outputs)
        });
    }

    /// The watch has begun, or has not.
    pub fn opened(&mut self, now: Duration, feed: FeedId, opened: Result<Header, Error>) {
        self.with(feed, |id, feed, _, outputs| {
            feed.opened(now, id, opened, outputs)
        });
    }

    /// The watch brought something, or is over.
    pub fn watched(&mut self, now: Duration, feed: FeedId, batch: Result<Batch, Error>) {
        self.with(feed, |id, feed, state, outputs| {
            feed.watched(now, id, batch, state, outputs)
        });
    }

    /// Acts on every deadline that has passed; also begins.
    pub fn handle_timeout(&mut self, now: Duration) {
        for (at, feed) in self.feeds.iter_mut().enumerate() {
            feed.handle_timeout(now, FeedId(at), &mut self.outputs);
        }
    }

    /// When [`Self::handle_timeout`] is next due, or [`Self::take`] may have a new status.
    pub fn poll_timeout(&self, now: Duration) -> Option<Duration> {
        let losses = self
            .feeds
            .iter()
            .filter_map(Feed::loss_deadline)
            .filter(|at| *at > now);
        self.feeds.iter().map(Feed::deadline).chain(losses).min()
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
        updates.extend(self.state.take(max).map(Update::Change));
        if self.state.is_told() && status.is_picture() {
            self.tell(status, &mut updates);
        }
        updates
    }

    fn tell(&mut self, status: Status, updates: &mut Vec<Update>) {
        if self.told != Some(status) {
            self.told = Some(status);
            updates.push(Update::Status(status));
        }
    }

    /// Whether [`Self::take`] has something.
    pub fn has_updates(&self, now: Duration) -> bool {
        !self.state.is_told() || self.told.is_none() || self.told != Some(self.status(now))
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
        } else if self.feeds.iter().all(Feed::is_current) {
            Status::InSync
        } else {
            // On the way back within the time that a loss may take: as it was.
            self.told.unwrap_or(Status::Syncing)
        }
    }

    fn with(
        &mut self,
        id: FeedId,
        act: impl FnOnce(FeedId, &mut Feed, &mut State, &mut VecDeque<Output>),
    ) {
        if let Some(feed) = self.feeds.get_mut(id.0) {
            act(id, feed, &mut self.state, &mut self.outputs);
        }
    }
}
