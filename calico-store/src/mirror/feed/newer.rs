//! What is newer than what is known: the keys that were written since, and how many there are of all.
//! Only where some must be gone, or another history has begun, is the range listed.
//!
//! It is asked of a range whose changes the store has forgotten, and of one that was quiet for some
//! time, lest they be forgotten: events alone tell what is known as of when. Without the second, a
//! restart of the store would make all mirrors ask at once, and the store reads the whole range to
//! answer.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Feed, Phase, Retry};
use crate::error::Error;
use crate::kv::{Listing, Query, RevisionBounds};
use crate::limits::{ANSWER_MAX, CONFIRM_MAX, LIST_PAGE_KEYS, LIST_SPREAD};
use crate::mirror::state::State;
use crate::mirror::{FeedId, Output};

impl Feed {
    /// Asks for the keys that were written after what is known, which must be whole.
    pub(super) fn ask_newer(&mut self, now: Duration, id: FeedId, outputs: &mut VecDeque<Output>) {
        let query = Query {
            limit: LIST_PAGE_KEYS,
            bounds: RevisionBounds {
                mod_min: Some(self.known.next()),
                ..RevisionBounds::default()
            },
            ..Query::new(self.range.clone())
        };
        outputs.push_back(Output::List { feed: id, query });
        self.phase = Phase::Asking {
            until: now + ANSWER_MAX,
        };
    }

    /// The answer. A key of it that was not written since was there before and is as it was, so if
    /// there are as many as are known then, none is gone.
    pub(super) fn told_newer(
        &mut self,
        now: Duration,
        id: FeedId,
        answer: Result<Listing, Error>,
        state: &mut State,
        outputs: &mut VecDeque<Output>,
    ) {
        let Ok(newer) = answer else {
            return self.failed(now, Retry::Newer);
        };
        if Some(newer.header.cluster) != self.cluster || newer.header.revision < self.known {
            return self.failed(now, Retry::List);
        }
        let is_new = |key| usize::from(!state.has(key));
        let new: usize = newer.items.iter().map(|item| is_new(&item.key)).sum();
        let keys = self.keys + new;
        if newer.more || newer.count != keys as u64 {
            // All mirrors of the range may be about to: not at once.
            self.phase = Phase::Waiting {
                until: now + self.jitter.up_to(LIST_SPREAD),
                then: Retry::List,
            };
            return;
        }
        for item in newer.items {
            state.put(item, self.lists);
        }
        self.keys = keys;
        self.known = newer.header.revision;
        self.whole = self.known;
        self.confirm_later(now);
        self.open(now, id, outputs);
    }

    /// What is known is known as of now.
    pub(super) fn confirm_later(&mut self, now: Duration) {
        self.confirm_at = now + self.jitter.half_to_whole(CONFIRM_MAX);
    }
}
