//! The actions of a mirror for its gate.

use std::time::Duration;

use super::feed::Feed;
use super::gate::range;
use super::{FeedId, Mirror};
use crate::kv::Header;

impl Mirror {
    /// Requires ClusterInformation to be read again, as of the revision known to this feed or
    /// later, because the store may have been emptied.
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

    /// Handles a completed read. If it was that of the ClusterInformation, and new enough,
    /// ClusterInformation counts again.
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

    /// Handles new data of a feed. If the datastore has become ready, every feed must have its
    /// content as of that revision: each range has its own watch, which may not have reported it
    /// yet.
    pub(super) fn await_all(&mut self, now: Duration, feed: FeedId) {
        if self.gates_feed() == Some(feed) {
            for feed in (0..self.feeds.len()).map(FeedId) {
                self.await_if_behind(now, feed);
            }
        }
    }

    /// Handles a completed read. It is repeated if it was too old.
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

    /// Returns the feed of the ClusterInformation.
    fn gates_feed(&self) -> Option<FeedId> {
        let range = range();
        let mut feeds = self.feeds.iter();
        feeds
            .position(|feed| feed.range().covers(&range))
            .map(FeedId)
    }
}
