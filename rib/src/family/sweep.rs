//! One pass over a table with a budget for everything that concerns many prefixes at once: paths of
//! disconnected peers, paths that were not sent again, changed next hops, changed policies, and
//! ranges of prefixes to be evaluated again.

use alloc::collections::BTreeSet;

use super::FamilyTable;
use crate::limits::{REEVALUATE_RANGES_MAX, SWEEP_PER_UNIT};
use crate::peer::PeerId;
use crate::policy::{PrefixRange, PrefixSet};
use crate::shared::Shared;
use crate::stale::Reevaluate;
use crate::table::Key;

/// Prefixes to be evaluated again.
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
    decides_all: bool,
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

    /// Returns the prefixes to evaluate again, and whether all are decided again.
    fn take(&mut self) -> (Reevaluated, bool) {
        let Self {
            ranges,
            all,
            decides_all,
        } = core::mem::take(self);
        let reevaluated = match all {
            true => Reevaluated::All,
            false => Reevaluated::In(ranges.into_iter().collect()),
        };
        (reevaluated, decides_all)
    }
}

/// The position of the pass. It proceeds in rounds; a request during a round is done by the end of
/// the next one, whatever is requested later.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    at: u32,
    round: u64,
    /// The pass stops when this round is reached.
    until: u64,
    /// The next hops' clock at the last request.
    clock: u64,
    /// The clock when this round began.
    round_clock: u64,
    /// The clock when the last finished round began.
    done_clock: u64,
    /// The prefixes evaluated again in this round.
    reevaluated: Reevaluated,
    /// Whether all prefixes are decided again in this round.
    decides_all: bool,
    /// The prefixes evaluated again in the next round.
    requested: Requested,
}

impl Sweep {
    pub(crate) const fn is_active(&self) -> bool {
        self.round < self.until
    }

    /// Returns the number of finished rounds by which a request made now is done.
    pub(crate) const fn met_by(&self) -> u64 {
        self.round + if self.at == 0 { 1 } else { 2 }
    }

    /// Requests a whole round that begins now or later.
    pub(crate) fn request(&mut self) {
        self.until = self.met_by();
    }

    /// Requests a round after changed next hops; `clock` is their clock now.
    pub(crate) fn request_next_hops(&mut self, clock: u64, table_len: u32) {
        self.clock = clock;
        if table_len == 0 {
            self.done_clock = clock;
        } else {
            self.request();
        }
    }

    /// Requests another evaluation of the paths in a range of prefixes.
    pub(super) fn reevaluate(&mut self, range: &PrefixRange) {
        self.requested.add(range);
        self.request();
    }

    /// Requests another decision about all prefixes.
    pub(crate) fn decide_all(&mut self) {
        self.requested.decides_all = true;
        self.request();
    }

    /// Requests another evaluation of all paths.
    pub(super) fn reevaluate_all(&mut self) {
        self.requested.add_all();
        self.request();
    }

    /// Returns the next slot of the pass; `None` at the end of a round.
    fn next(&mut self, table_len: u32) -> Option<u32> {
        if self.at == 0 {
            (self.reevaluated, self.decides_all) = self.requested.take();
            self.round_clock = self.clock;
        }
        let at = self.at;
        if at < table_len {
            self.at += 1;
            return Some(at);
        }
        self.at = 0;
        self.round += 1;
        self.done_clock = self.done_clock.max(self.round_clock);
        self.reevaluated = Reevaluated::default();
        None
    }

    /// Returns the clock since which changed next hops have not been handled, if there are any.
    fn next_hops_since(&self) -> Option<u64> {
        (self.clock > self.done_clock).then_some(self.done_clock)
    }
}

impl<K: Key> FamilyTable<K> {
    /// Advances the pass by one unit of work. Returns how many paths were evaluated again, which is
    /// additional work.
    pub(super) fn sweep_unit(&mut self, shared: &mut Shared) -> u32 {
        let mut evaluated = 0;
        for _ in 0..SWEEP_PER_UNIT {
            if !self.sweep.is_active() {
                break;
            }
            match self.sweep.next(self.prefixes.len()) {
                Some(at) => evaluated += self.sweep_slot(shared, at),
                None => self.received.swept(self.sweep.round),
            }
        }
        evaluated
    }

    fn sweep_slot(&mut self, shared: &mut Shared, at: u32) -> u32 {
        let Some(slot) = self.prefixes.used(at) else {
            return 0;
        };
        if let Some(since) = self.sweep.next_hops_since()
            && !slot.is_queued()
        {
            let moved = slot.paths().iter().any(|path| {
                let id = path.accepted().unwrap_or_else(|| path.received());
                let next_hop = shared.interner.ranks(id).next_hop;
                shared.next_hops.changed_since(next_hop, since)
            });
            if moved {
                self.decider.enqueue(self.prefixes.slot_mut(at), at);
            }
        }
        if self.sweep.decides_all && !self.prefixes.slot(at).is_queued() {
            self.decider.enqueue(self.prefixes.slot_mut(at), at);
        }
        let is_in_range = (self.sweep.reevaluated).contains(self.prefixes.slot(at).key());
        self.sweep_paths(shared, at, is_in_range.then_some(Reevaluate::Changed))
    }

    /// Removes the removed paths of a slot, and evaluates others again: all of them if `how` is
    /// given, else those of peers for which it was requested. Returns their number.
    pub(super) fn sweep_paths(
        &mut self,
        shared: &mut Shared,
        at: u32,
        how: Option<Reevaluate>,
    ) -> u32 {
        let mut evaluated = 0;
        let paths = self.prefixes.paths(at).len();
        for index in (0..paths).rev() {
            let path = self.prefixes.paths(at)[index];
            let Some(marks) = self.received.of(path.peer()) else {
                continue;
            };
            // RFC 9494 §4.2: as the peer has sent it, or by the import policy.
            let refuses_llgr = || {
                let sets = [Some(path.received()), path.accepted()];
                let mut ranks = sets
                    .into_iter()
                    .flatten()
                    .map(|id| shared.interner.ranks(id));
                ranks.any(|ranks| ranks.well_known.refuses_llgr())
            };
            if marks.is_dead(&path) || marks.is_long_lived(&path) && refuses_llgr() {
                self.remove_path(shared, at, index);
            } else if let Some(how) = how.max(marks.reevaluate) {
                self.reevaluate_path(shared, at, index, how);
                evaluated += 1;
            }
        }
        evaluated
    }

    /// Removes all removed paths of a peer at once.
    pub(super) fn sweep_peer(&mut self, shared: &mut Shared, peer: PeerId) {
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

    /// Rewrites the epochs of a peer's paths at once: needed only after hundreds of unfinished
    /// restarts or refreshes.
    pub(super) fn renew(&mut self, shared: &mut Shared, peer: PeerId) {
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
