//! One budgeted walk of a table that serves everything that concerns many prefixes at once: paths
//! of peers that have gone, paths that were not sent again, next hops that have changed, policies
//! that have, ranges of prefixes that are to be evaluated again.

use alloc::collections::BTreeSet;

use bgp_proto::{Net, Prefix};

use crate::bite::Progress;
use crate::family::FamilyTable;
use crate::limits::{REEVALUATE_RANGES_MAX, SWEEP_PER_UNIT};
use crate::peer::PeerId;
use crate::policy::{PrefixRange, PrefixSet};
use crate::shared::Shared;
use crate::stale::{Mark, Reevaluate};
use crate::table::Key;

/// Prefixes whose paths are evaluated again.
#[derive(Debug)]
enum Reevaluated {
    In(PrefixSet),
    All,
}

impl Default for Reevaluated {
    fn default() -> Self {
        Self::In(PrefixSet::default())
    }
}

impl Reevaluated {
    fn contains(&self, key: &impl Key) -> bool {
        match self {
            Self::In(ranges) => !ranges.is_empty() && ranges.contains(key.net()),
            Self::All => true,
        }
    }
}

/// Requests to evaluate ranges of prefixes again that no round has begun with.
#[derive(Debug, Default)]
struct Requested {
    ranges: BTreeSet<PrefixRange>,
    all: bool,
}

impl Requested {
    fn add(&mut self, range: &PrefixRange) {
        self.ranges.insert(range.clone());
        if self.ranges.len() > REEVALUATE_RANGES_MAX {
            self.add_all();
        }
    }

    fn add_all(&mut self) {
        self.ranges.clear();
        self.all = true;
    }

    fn take(&mut self) -> Reevaluated {
        let Self { ranges, all } = core::mem::take(self);
        match all {
            true => Reevaluated::All,
            false => Reevaluated::In(ranges.into_iter().collect()),
        }
    }
}

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
    /// What this round evaluates again.
    reevaluated: Reevaluated,
    /// What the next round evaluates again.
    requested: Requested,
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
            let evaluated: u32 = (0..SWEEP_PER_UNIT).map(|_| self.sweep_one(shared)).sum();
            *budget = budget.saturating_sub(evaluated.max(1));
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

    /// Moves the walk on by a slot. Returns how many paths were evaluated again.
    fn sweep_one(&mut self, shared: &mut Shared) -> u32 {
        if !self.sweep.is_active() {
            return 0;
        }
        if self.sweep.at == 0 {
            self.sweep.reevaluated = self.sweep.requested.take();
        }
        if self.sweep.at >= self.prefixes.len() {
            self.sweep.at = 0;
            self.sweep.round += 1;
            if !self.sweep.is_active() {
                self.sweep.done_clock = self.sweep.clock;
                self.sweep.reevaluated = Reevaluated::default();
                self.received.swept();
            }
            return 0;
        }
        let at = self.sweep.at;
        self.sweep.at += 1;
        self.sweep_slot(shared, at)
    }

    fn sweep_slot(&mut self, shared: &mut Shared, at: u32) -> u32 {
        let Some(slot) = self.prefixes.used(at) else {
            return 0;
        };
        let since = self.sweep.done_clock;
        if self.sweep.clock > since && !slot.is_queued() {
            let moved = slot.paths().iter().any(|path| {
                let id = path.accepted().unwrap_or_else(|| path.received());
                shared
                    .next_hops
                    .changed_since(shared.interner.ranks(id).next_hop, since)
            });
            if moved {
                self.queue(at);
            }
        }
        let in_range = (self.sweep.reevaluated).contains(self.prefixes.slot(at).key());
        self.sweep_paths(shared, at, in_range.then_some(Reevaluate::Changed))
    }

    /// Removes the paths of a slot that are gone, and evaluates others again: all of them if `how`
    /// is given, else those of peers for which that was requested. Returns how many these were.
    fn sweep_paths(&mut self, shared: &mut Shared, at: u32, how: Option<Reevaluate>) -> u32 {
        let mut evaluated = 0;
        let paths = self.prefixes.paths(at).len();
        for index in (0..paths).rev() {
            let path = self.prefixes.paths(at)[index];
            let Some(marks) = self.received.of(path.peer()) else {
                continue;
            };
            if marks.is_dead(&path) {
                self.remove_path(shared, at, index);
            } else if let Some(how) = how.max(marks.reevaluate) {
                self.reevaluate_path(shared, at, index, how);
                evaluated += 1;
            }
        }
        evaluated
    }

    /// Requests that all paths of a peer are evaluated again.
    pub(crate) fn reevaluate_peer(&mut self, peer: PeerId, how: Reevaluate) {
        if self.received.reevaluate(peer, how) {
            self.sweep.request();
        }
    }

    /// Evaluates the paths of one prefix again, or requests that for those of a longer range.
    pub(crate) fn reevaluate(&mut self, shared: &mut Shared, range: &PrefixRange) {
        if !self.prefixes.row().is_typed() {
            self.sweep.requested.add_all();
        } else if range.is_single() {
            let net = match range.prefix() {
                Prefix::V4(prefix) => Net::V4(prefix),
                Prefix::V6(prefix) => Net::V6(prefix),
            };
            if let Some(at) = self.prefixes.look_up(net) {
                self.sweep_paths(shared, at, Some(Reevaluate::Changed));
            }
            return;
        } else {
            self.sweep.requested.add(range);
        }
        self.sweep.request();
    }

    /// Marks all paths of a peer in one step; those that are gone are swept in bites.
    pub(crate) fn mark(&mut self, shared: &mut Shared, peer: PeerId, how: Mark) {
        let Some(marks) = self.received.of(peer) else {
            return;
        };
        if marks.is_full() {
            self.renew(shared, peer);
        }
        if self.received.mark(peer, how) {
            self.sweep.request();
        }
    }

    /// Removes all that is gone of a peer, in one go.
    pub(crate) fn sweep_peer(&mut self, shared: &mut Shared, peer: PeerId) {
        for at in 0..self.prefixes.len() {
            let Some(slot) = self.prefixes.used(at) else {
                continue;
            };
            for index in (0..slot.paths().len()).rev() {
                let path = self.prefixes.paths(at)[index];
                if path.peer() == peer && self.received.is_dead(&path) {
                    self.remove_path(shared, at, index);
                }
            }
        }
        self.received.of_mut(peer).swept();
    }

    /// Rewrites the epochs of a peer's paths, in one go: needed only after hundreds of restarts or
    /// refreshes that nothing has brought to an end.
    fn renew(&mut self, shared: &mut Shared, peer: PeerId) {
        let Some(old) = self.received.of(peer).copied() else {
            return;
        };
        for at in 0..self.prefixes.len() {
            let Some(slot) = self.prefixes.used(at) else {
                continue;
            };
            for index in (0..slot.paths().len()).rev() {
                let path = self.prefixes.paths(at)[index];
                if path.peer() != peer {
                    continue;
                }
                if old.is_dead(&path) {
                    self.remove_path(shared, at, index);
                } else {
                    let epoch = old.renewed(&path);
                    self.prefixes.slot_mut(at).paths_mut()[index].set_epoch(epoch);
                }
            }
        }
        let counters = self.received.of_mut(peer).counters;
        *self.received.of_mut(peer) = old.renew();
        self.received.of_mut(peer).counters = counters;
    }
}
