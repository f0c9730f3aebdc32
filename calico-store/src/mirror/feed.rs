//! One range of a mirror: lists it, watches from there, and recovers when either fails.

mod newer;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::jitter::Jitter;
use super::state::State;
use super::{FeedId, Output};
use crate::error::Error;
use crate::kv::{Batch, EventKind, Header, KeyRange, Listing, Query, Revision};
use crate::limits::{
    ANSWER_MAX, LIST_PAGE_KEYS, LIST_PAGE_KEYS_MAX, LIST_PAGE_OCTETS, LOST_AFTER, PROBE_TIMEOUT,
    QUIET_MAX, RETRY_MAX, RETRY_MIN, SNAPSHOT_HOLDS, STEADY_AFTER,
};
use crate::port::WatchRequest;

/// One mirrored range.
#[derive(Debug)]
pub(super) struct Feed {
    range: KeyRange,
    phase: Phase,
    /// The cluster ID of the history that is followed; `None` before the first answer.
    cluster: Option<u64>,
    /// Every change up to this revision is known, except for the rest of an unfinished list.
    known: Revision,
    /// When to confirm the state of a range without changes, so that the known revision never
    /// becomes older than the store's history lasts.
    confirm_at: Duration,
    /// Every change up to this revision is known, without exception.
    whole: Revision,
    /// The revision known to an earlier run, and the time until which older answers are rejected.
    floor: Option<(Revision, Duration)>,
    /// Some known keys may belong to the previous history, until a list is complete.
    other_history: bool,
    /// Number of existing keys, as far as known.
    keys: usize,
    /// Whether the range was ever read completely.
    listed_once: bool,
    /// Number of lists; each key stores the last list that contained it.
    lists: u32,
    /// Known keys that the pages of the list did not contain.
    missing: Vec<Bytes>,
    /// Failures since contact was last stable.
    failures: u32,
    /// Since when there is no watch; `None` while there is one.
    contact_lost: Option<Duration>,
    jitter: Jitter,
}

/// The pending request of the feed.
#[derive(Debug)]
enum Phase {
    /// Delay before the next attempt: to watch from the known revision, or to read again.
    Waiting { until: Duration, then: Retry },
    /// A query for changes after the known revision, up to which everything is known.
    Asking { until: Duration },
    /// A page of a list. `at` is the revision of the list, once its first page has arrived.
    Listing {
        at: Option<Revision>,
        query: Query,
        /// The consumer must take changes before the page is requested.
        waits: bool,
        until: Duration,
    },
    /// The confirmation of a watch.
    Opening { until: Duration },
    /// Events of a watch.
    Watching {
        opened: Duration,
        quiet_since: Duration,
        /// Maximum time without events. It differs between watches, otherwise all would request
        /// progress at once after a change that all have received.
        quiet_max: Duration,
        probed: bool,
    },
}

/// The progress of a list after a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    /// There is more to read, or to read again.
    InPart,
    /// The list is complete.
    InWhole {
        /// Whether the list lacks a known key.
        lacks: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    List,
    /// Only if everything up to the known revision is known.
    Newer,
    /// Only if everything up to the known revision is known.
    Watch,
}

impl Feed {
    pub(super) fn new(range: KeyRange, seed: u64) -> Self {
        Self {
            range,
            phase: Phase::Waiting {
                until: Duration::ZERO,
                then: Retry::List,
            },
            cluster: None,
            known: Revision::ZERO,
            confirm_at: Duration::ZERO,
            whole: Revision::ZERO,
            floor: None,
            other_history: false,
            keys: 0,
            listed_once: false,
            lists: 0,
            missing: Vec::new(),
            failures: 0,
            contact_lost: Some(Duration::ZERO),
            jitter: Jitter::new(seed),
        }
    }

    /// Sets the state known to an earlier run: this history up to this revision, with this many
    /// keys in the range. An older list is rejected for a limited time, because the history may
    /// have been restored from a backup.
    pub(super) fn restore(&mut self, now: Duration, cluster: u64, revision: Revision, keys: usize) {
        self.cluster = Some(cluster);
        self.keys = keys;
        self.whole = revision;
        self.floor = Some((revision, now + SNAPSHOT_HOLDS));
    }

    pub(super) const fn range(&self) -> &KeyRange {
        &self.range
    }

    pub(super) const fn cluster(&self) -> Option<u64> {
        self.cluster
    }

    /// Returns the history and revision up to which everything is known.
    pub(super) fn as_of(&self) -> Option<Header> {
        let revision = self.known;
        self.cluster.map(|cluster| Header { cluster, revision })
    }

    /// Returns the revision up to which everything is known.
    pub(super) const fn whole(&self) -> Revision {
        self.whole
    }

    pub(super) const fn was_listed(&self) -> bool {
        self.listed_once
    }

    /// Returns whether known keys may belong to another history than the followed one.
    pub(super) const fn is_mixed(&self) -> bool {
        self.other_history
    }

    pub(super) const fn is_current(&self) -> bool {
        matches!(self.phase, Phase::Watching { .. })
    }

    pub(super) fn is_lost(&self, now: Duration) -> bool {
        self.loss_deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Returns when an attempt, a progress request or a timeout is due.
    pub(super) fn deadline(&self) -> Duration {
        match &self.phase {
            Phase::Waiting { until, .. }
            | Phase::Asking { until }
            | Phase::Listing { until, .. }
            | Phase::Opening { until } => *until,
            Phase::Watching {
                quiet_since,
                quiet_max,
                probed,
                ..
            } => {
                let answer = if *probed {
                    PROBE_TIMEOUT
                } else {
                    Duration::ZERO
                };
                self.confirm_at.min(*quiet_since + *quiet_max + answer)
            }
        }
    }

    /// Returns when the loss of contact will be long enough to report.
    pub(super) fn loss_deadline(&self) -> Option<Duration> {
        self.contact_lost.map(|since| since + LOST_AFTER)
    }

    pub(super) fn handle_timeout(
        &mut self,
        now: Duration,
        id: FeedId,
        outputs: &mut VecDeque<Output>,
    ) {
        if self.deadline() > now {
            return;
        }
        match &mut self.phase {
            Phase::Waiting {
                then: Retry::List, ..
            } => self.list(now, id, outputs),
            Phase::Waiting {
                then: Retry::Newer, ..
            } => self.ask_newer(now, id, outputs),
            Phase::Waiting {
                then: Retry::Watch, ..
            } => self.open(now, id, outputs),
            Phase::Watching { .. } if self.confirm_at <= now => {
                outputs.push_back(Output::Cancel { feed: id });
                self.ask_newer(now, id, outputs);
            }
            Phase::Watching {
                probed: probed @ false,
                ..
            } => {
                *probed = true;
                outputs.push_back(Output::Probe { feed: id });
            }
            // Neither answer nor progress: the store may be lost without an error.
            Phase::Watching { .. } | Phase::Opening { .. } => {
                outputs.push_back(Output::Cancel { feed: id });
                self.failed(now, Retry::Watch);
            }
            Phase::Asking { .. } => {
                outputs.push_back(Output::Cancel { feed: id });
                self.failed(now, Retry::Newer);
            }
            Phase::Listing {
                waits: true, until, ..
            } => *until = now + ANSWER_MAX,
            Phase::Listing { .. } => {
                outputs.push_back(Output::Cancel { feed: id });
                self.failed(now, Retry::List);
            }
        }
    }

    /// Reads the range again, now.
    pub(super) fn read_again(&mut self, now: Duration, id: FeedId, outputs: &mut VecDeque<Output>) {
        outputs.push_back(Output::Cancel { feed: id });
        self.contact_lost.get_or_insert(now);
        self.list(now, id, outputs);
    }

    /// Reads the range again, as of this revision or later, unless a read is in progress; so the
    /// caller must check the result. An older answer is rejected, as long as the history is the
    /// same.
    pub(super) fn read_as_of(
        &mut self,
        now: Duration,
        id: FeedId,
        then: Header,
        outputs: &mut VecDeque<Output>,
    ) {
        if matches!(self.phase, Phase::Listing { .. }) {
            return;
        }
        if self.cluster == Some(then.cluster) {
            self.known = self.known.max(then.revision);
        }
        self.read_again(now, id, outputs);
    }

    pub(super) fn listed(
        &mut self,
        now: Duration,
        id: FeedId,
        page: Result<Listing, Error>,
        state: &mut State,
        outputs: &mut VecDeque<Output>,
    ) -> Listed {
        let (at, query, waits) = match &mut self.phase {
            Phase::Listing {
                at, query, waits, ..
            } => (at, query, waits),
            Phase::Asking { .. } => {
                self.listed_newer(now, id, page, state, outputs);
                return Listed::InPart;
            }
            _ => return Listed::InPart,
        };
        let Ok(page) = page else {
            // Compacted between two pages: restart from the first.
            self.failed(now, Retry::List);
            return Listed::InPart;
        };
        let other = self
            .cluster
            .is_some_and(|known| known != page.header.cluster);
        if at.is_some() && other {
            // The store was replaced between two pages.
            self.failed(now, Retry::List);
            return Listed::InPart;
        }
        let revision = at.unwrap_or(page.header.revision);
        let floor = self.floor.filter(|(_, until)| now < *until);
        let known = floor.map_or(self.known, |(revision, _)| revision.max(self.known));
        if at.is_none() && !other && revision < known {
            // A member or proxy that lags: its answer is older than the known state.
            self.failed(now, Retry::List);
            return Listed::InPart;
        }
        *at = Some(revision);
        if other {
            // The snapshot belongs to another history.
            (self.other_history, self.floor) = (true, None);
        }
        self.cluster = Some(page.header.cluster);
        // From the first page on, so that an older state cannot follow even if the list is never
        // completed.
        self.known = revision;
        let last = page.items.last().map(|item| item.key.clone());
        let octets: usize = page.items.iter().map(|item| item.value.len()).sum();
        for item in page.items {
            let is_new = state.listed(item, self.lists, self.other_history);
            self.keys += usize::from(is_new);
        }
        // Page by page, so that no step reads the keys of the whole range.
        let after = last
            .filter(|_| page.more)
            .map(|last| self.range.after(&last));
        let end = after.as_ref().map(|after| &after.start);
        state.find_missing(&query.range, end, self.lists, &mut self.missing);
        if let Some(after) = after {
            query.range = after;
            query.at = Some(revision);
            // After a failure, which may be an answer that was too long, all pages are short.
            if self.failures == 0 {
                query.limit = next_limit(query.limit, octets);
            }
            *waits = true;
            return Listed::InPart;
        }
        let gone = std::mem::take(&mut self.missing);
        let gone = gone
            .iter()
            .filter(|key| state.delete(key, revision))
            .count();
        self.keys = self.keys.saturating_sub(gone);
        debug_assert_eq!(
            self.keys,
            state.count(&self.range),
            "keys of {:?}",
            self.range
        );
        self.whole = revision;
        self.other_history = false;
        self.listed_once = true;
        self.contact_lost = None;
        self.confirm_later(now);
        self.open(now, id, outputs);
        Listed::InWhole { lacks: gone > 0 }
    }

    /// Requests the next page of a list, if there is one.
    pub(super) fn next_page(&mut self, now: Duration, id: FeedId, outputs: &mut VecDeque<Output>) {
        if let Phase::Listing {
            query,
            waits: waits @ true,
            until,
            ..
        } = &mut self.phase
        {
            (*waits, *until) = (false, now + ANSWER_MAX);
            outputs.push_back(Output::List {
                feed: id,
                query: query.clone(),
            });
        }
    }

    pub(super) fn opened(
        &mut self,
        now: Duration,
        id: FeedId,
        opened: Result<Header, Error>,
        outputs: &mut VecDeque<Output>,
    ) {
        if !matches!(self.phase, Phase::Opening { .. }) {
            return;
        }
        match opened {
            Ok(header) if Some(header.cluster) == self.cluster && header.revision >= self.known => {
                self.phase = Phase::Watching {
                    opened: now,
                    quiet_since: now,
                    quiet_max: self.jitter.half_to_whole(QUIET_MAX),
                    probed: false,
                };
                self.contact_lost = None;
            }
            // Another history, or a member that lags and would leave out changes.
            Ok(_) => {
                outputs.push_back(Output::Cancel { feed: id });
                self.failed(now, Retry::List);
            }
            Err(error) => self.ended(now, id, &error, outputs),
        }
    }

    /// Handles a batch or the end of a watch. Returns whether the range became empty at some
    /// revision.
    pub(super) fn watched(
        &mut self,
        now: Duration,
        id: FeedId,
        batch: Result<Batch, Error>,
        state: &mut State,
        outputs: &mut VecDeque<Output>,
    ) -> bool {
        let Phase::Watching {
            opened,
            quiet_since,
            probed,
            ..
        } = &mut self.phase
        else {
            return false;
        };
        if now >= *opened + STEADY_AFTER {
            self.failures = 0;
        }
        match batch {
            Ok(batch) => {
                (*quiet_since, *probed) = (now, false);
                return self.apply(now, batch, state);
            }
            Err(error) => self.ended(now, id, &error, outputs),
        }
        false
    }

    /// Handles the failure or the end of a watch.
    fn ended(&mut self, now: Duration, id: FeedId, error: &Error, outputs: &mut VecDeque<Output>) {
        match error {
            Error::Unavailable(_) | Error::WatchLost(_) => self.failed(now, Retry::Watch),
            Error::Compacted { .. } => {
                // Not a failure of the store: this range had no changes for longer than the history
                // lasts.
                outputs.push_back(Output::Cancel { feed: id });
                self.contact_lost.get_or_insert(now);
                self.ask_newer(now, id, outputs);
            }
            _ => self.failed(now, Retry::Newer),
        }
    }

    /// Applies changes that are newer than the known revision. The revision of a progress
    /// notification is ignored: older servers send it before the changes that it counts.
    ///
    /// Returns whether the range became empty at some revision, even if keys were added later.
    fn apply(&mut self, now: Duration, batch: Batch, state: &mut State) -> bool {
        let known = self.known;
        let mut was_emptied = false;
        for event in batch.events {
            if event.item.mod_revision <= known || !self.range.contains(&event.item.key) {
                continue;
            }
            self.known = self.known.max(event.item.mod_revision);
            self.whole = self.known;
            match event.kind {
                EventKind::Put => {
                    let is_new = state.put(event.item, self.lists);
                    self.keys += usize::from(is_new);
                }
                EventKind::Delete => {
                    let was_there = state.delete(&event.item.key, event.item.mod_revision);
                    self.keys = self.keys.saturating_sub(usize::from(was_there));
                    was_emptied |= was_there && self.keys == 0;
                }
            }
        }
        if self.known > known {
            self.confirm_later(now);
        }
        was_emptied
    }

    fn list(&mut self, now: Duration, id: FeedId, outputs: &mut VecDeque<Output>) {
        self.lists = self.lists.wrapping_add(1);
        self.missing.clear();
        let query = Query {
            limit: LIST_PAGE_KEYS,
            ..Query::new(self.range.clone())
        };
        outputs.push_back(Output::List {
            feed: id,
            query: query.clone(),
        });
        self.phase = Phase::Listing {
            at: None,
            query,
            waits: false,
            until: now + ANSWER_MAX,
        };
    }

    fn open(&mut self, now: Duration, id: FeedId, outputs: &mut VecDeque<Output>) {
        let request = WatchRequest::from(self.range.clone(), self.known.next());
        outputs.push_back(Output::Watch { feed: id, request });
        self.phase = Phase::Opening {
            until: now + ANSWER_MAX,
        };
    }

    /// Schedules the next attempt, with a longer delay after each failure.
    fn failed(&mut self, now: Duration, then: Retry) {
        let longest = RETRY_MIN
            .saturating_mul(1 << self.failures.min(16))
            .min(RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
        self.contact_lost.get_or_insert(now);
        self.phase = Phase::Waiting {
            until: now + self.jitter.half_to_whole(longest),
            then,
        };
    }
}

/// Returns the number of keys in the page after one with this number, and values of so many octets.
fn next_limit(limit: usize, octets: usize) -> usize {
    match octets {
        0..LIST_PAGE_OCTETS => (limit * 2).min(LIST_PAGE_KEYS_MAX),
        _ => (limit / 2).max(LIST_PAGE_KEYS),
    }
}
