//! One budgeted walk of a table that serves everything that concerns many prefixes at once: paths
//! of peers that have gone, paths that were not sent again, next hops that have changed, policies
//! that have.

use crate::bite::Progress;
use crate::family::{FamilyTable, Mark};
use crate::limits::SWEEP_PER_UNIT;
use crate::peer::PeerId;
use crate::shared::Shared;
use crate::stale::Rejudge;
use crate::table::{Key, QUEUED};

/// Where the walk stands. It goes round; a request that comes during a round is met by the end of
/// the next.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    at: u32,
    round: u64,
    /// The walk rests when this round is reached.
    until: u64,
    /// The next hops' clock at the last request.
    clock: u64,
    /// The next hops' clock that a whole walk has answered to.
    done_clock: u64,
}

impl Sweep {
    pub(crate) const fn is_active(&self) -> bool {
        self.round < self.until
    }

    /// A whole walk is wanted that begins now or later.
    fn request(&mut self) {
        self.until = self.round + if self.at == 0 { 1 } else { 2 };
    }

    /// Next hops have changed; the clock now stands at `clock`.
    pub(crate) fn request_next_hops(&mut self, clock: u64, table_len: u32) {
        self.clock = clock;
        if table_len == 0 {
            self.done_clock = clock;
        } else {
            self.request();
        }
    }
}

impl<K: Key> FamilyTable<K> {
    /// Works on what is pending: decisions first, then the sweep, which makes more of them.
    pub(crate) fn decide(&mut self, shared: &mut Shared, budget: &mut u32) -> Progress {
        loop {
            while let Some(at) = self.pending.pop_front() {
                self.settle(shared, at);
                *budget = budget.saturating_sub(1);
                if *budget == 0 {
                    return self.progress();
                }
            }
            if !self.sweep.is_active() {
                return Progress::Done;
            }
            for _ in 0..SWEEP_PER_UNIT {
                self.sweep_one(shared);
            }
            *budget = budget.saturating_sub(1);
            if *budget == 0 {
                return self.progress();
            }
        }
    }

    fn progress(&self) -> Progress {
        if self.pending.is_empty() && !self.sweep.is_active() {
            Progress::Done
        } else {
            Progress::More
        }
    }

    fn sweep_one(&mut self, shared: &mut Shared) {
        if !self.sweep.is_active() {
            return;
        }
        if self.sweep.at >= self.table.len() {
            self.sweep.at = 0;
            self.sweep.round += 1;
            if !self.sweep.is_active() {
                self.sweep.done_clock = self.sweep.clock;
                for marks in &mut self.marks {
                    marks.swept();
                    marks.rejudge = None;
                }
            }
            return;
        }
        let at = self.sweep.at;
        self.sweep.at += 1;
        self.sweep_slot(shared, at);
    }

    fn sweep_slot(&mut self, shared: &mut Shared, at: u32) {
        let Some(slot) = self.table.used(at) else {
            return;
        };
        let since = self.sweep.done_clock;
        if self.sweep.clock > since && !slot.has(QUEUED) {
            let moved = slot.paths.as_slice().iter().any(|path| {
                let id = path.accepted().unwrap_or_else(|| path.received());
                shared
                    .next_hops
                    .changed_since(shared.interner.ranks(id).next_hop, since)
            });
            if moved {
                self.queue(at);
            }
        }
        let paths = self.table.slot(at).paths.as_slice().len();
        for index in (0..paths).rev() {
            let path = self.table.slot(at).paths.as_slice()[index];
            let Some(marks) = self.marks(path.peer()) else {
                continue;
            };
            if marks.is_dead(&path) {
                self.remove_path(shared, at, index);
            } else if let Some(how) = marks.rejudge {
                self.rejudge_path(shared, at, index, how);
            }
        }
    }

    /// Has all paths of a peer judged again.
    pub(crate) fn rejudge(&mut self, peer: PeerId, how: Rejudge) {
        let Some(marks) = self.marks.get_mut(peer.index()) else {
            return;
        };
        if marks.counters.paths > 0 {
            marks.rejudge = marks.rejudge.max(Some(how));
            self.sweep.request();
        }
    }

    /// Marks all paths of a peer in one step; those that are gone are swept in bites.
    pub(crate) fn mark(&mut self, shared: &mut Shared, peer: PeerId, how: Mark) {
        if self
            .marks(peer)
            .is_none_or(|marks| marks.counters.paths == 0)
        {
            // Nothing to mark, but a refresh must not look like one that never began.
            if self.marks(peer).is_none() {
                return;
            }
        }
        if self.marks(peer).is_some_and(super::stale::Marks::is_full) {
            self.renew(shared, peer);
        }
        let marks = self.marks_mut(peer);
        match how {
            Mark::Flush => marks.flush(),
            Mark::Restart => marks.restart(),
            Mark::EndRestart => {
                marks.end_restart();
            }
            Mark::BeginRefresh => marks.begin_refresh(),
            Mark::EndRefresh => {
                marks.end_refresh();
            }
        }
        if !marks.has_dead() {
            return;
        }
        if marks.counters.paths == 0 {
            marks.swept();
        } else {
            self.sweep.request();
        }
    }

    /// Removes all that is gone of a peer, in one go.
    pub(crate) fn sweep_peer(&mut self, shared: &mut Shared, peer: PeerId) {
        for at in 0..self.table.len() {
            let Some(slot) = self.table.used(at) else {
                continue;
            };
            for index in (0..slot.paths.as_slice().len()).rev() {
                let path = self.table.slot(at).paths.as_slice()[index];
                let gone = |marks: &crate::stale::Marks| marks.is_dead(&path);
                if path.peer() == peer && self.marks(peer).is_some_and(gone) {
                    self.remove_path(shared, at, index);
                }
            }
        }
        self.marks_mut(peer).swept();
    }

    /// Rewrites the epochs of a peer's paths, in one go: needed only after hundreds of restarts or
    /// refreshes that nothing has brought to an end.
    fn renew(&mut self, shared: &mut Shared, peer: PeerId) {
        let Some(old) = self.marks(peer).copied() else {
            return;
        };
        for at in 0..self.table.len() {
            let Some(slot) = self.table.used(at) else {
                continue;
            };
            for index in (0..slot.paths.as_slice().len()).rev() {
                let path = self.table.slot(at).paths.as_slice()[index];
                if path.peer() != peer {
                    continue;
                }
                if old.is_dead(&path) {
                    self.remove_path(shared, at, index);
                } else {
                    let epoch = old.renewed(&path);
                    self.table.slot_mut(at).paths.as_mut_slice()[index].set_epoch(epoch);
                }
            }
        }
        let counters = self.marks_mut(peer).counters;
        *self.marks_mut(peer) = old.renew();
        self.marks_mut(peer).counters = counters;
    }
}
