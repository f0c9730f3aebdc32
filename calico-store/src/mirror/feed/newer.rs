//! Reads only the keys that were written after the known revision, and the number of all keys. The
//! range is listed only if keys must have been deleted, or if the history is another one.
//!
//! A feed does this for a range of which the store has compacted the changes, and for a range
//! without changes for some time, before they are compacted: only events advance the known
//! revision. Without the second case, a restart of the store would make all mirrors send this query
//! at once, and the store reads the whole range to answer it.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Feed, Phase, Retry};
use crate::error::Error;
use crate::kv::{Listing, Query, RevisionBounds};
use crate::limits::{ANSWER_MAX, CONFIRM_MAX, LIST_PAGE_KEYS, LIST_SPREAD};
use crate::mirror::state::State;
use crate::mirror::{FeedId, Output};

impl Feed {
    /// Requests the keys written after the known revision, up to which everything must be known.
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

    /// Handles the answer. A key that was not written since the known revision was there before and
    /// is unchanged. So if the number of keys equals the number of known keys, none was deleted.
    pub(super) fn listed_newer(
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
            // All mirrors of the range may need a list: spread them.
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

    /// Schedules the next confirmation, because the state is now known to be current.
    pub(super) fn confirm_later(&mut self, now: Duration) {
        self.confirm_at = now + self.jitter.half_to_whole(CONFIRM_MAX);
    }
}
