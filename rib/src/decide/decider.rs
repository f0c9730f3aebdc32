//! Scheduling of decisions, and decisions without comparing all paths.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Candidate, compare, select};
use crate::adj_rib_in::AdjRibsIn;
use crate::prefixes::Prefixes;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::table::Key;

/// The result of a change or a decision for readers of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No result yet: the slot is in the queue of decisions.
    Pending,
    /// Its route has changed, or was removed.
    Route,
    /// Its route is unchanged, but some path changed: relevant for readers of all paths.
    Paths,
    /// It has no paths any more; `is_due` states whether readers hold a route of it.
    Gone { is_due: bool },
}

/// Decides about slots, mostly at once; the others are queued.
#[derive(Debug, Default)]
pub(crate) struct Decider {
    queue: VecDeque<u32>,
    /// Reused memory of decisions.
    candidates: Vec<Candidate>,
}

impl Decider {
    /// Returns the number of slots that wait for a decision.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes the next slot that waits for [`Self::decide`].
    pub(crate) fn next(&mut self) -> Option<u32> {
        self.queue.pop_front()
    }

    /// Queues a slot for [`Self::decide`].
    #[inline]
    pub(crate) fn enqueue<K>(&mut self, slot: &mut Slot<K>, at: u32) -> Outcome {
        if slot.enqueue() {
            self.queue.push_back(at);
        }
        Outcome::Pending
    }

    /// Handles an added or changed path. `before` is its former state if it was the best.
    ///
    /// In the frequent cases the decision is made here and now, while the slot is in the cache, by
    /// comparing the path with the best one. The slot is queued only if that may not be sufficient.
    #[inline]
    pub(crate) fn path_changed<K: Key>(
        &mut self,
        (prefixes, received): (&mut Prefixes<K>, &AdjRibsIn),
        shared: &Shared,
        (at, index): (u32, usize),
        before: Option<Candidate>,
    ) -> Outcome {
        let slot = prefixes.slot_mut(at);
        if slot.is_queued() {
            return Outcome::Pending;
        }
        let paths = slot.paths();
        let path = &paths[index];
        let rules = &shared.config.decision;
        if paths.len() == 1 && !slot.has_lost() {
            let set = path.accepted().unwrap_or_else(|| path.received());
            let is_med = shared.interner.ranks(set).med != 0 && !rules.always_compare_med;
            let marks = received.of(path.peer());
            let usable = shared.is_usable(path, marks);
            slot.see_med(is_med);
            return conclude(slot, index, usable.then_some(index));
        }
        let new = received.candidate(shared, path);
        // Paths of one AS with different MULTI_EXIT_DISC make the order of two paths depend on the
        // others.
        let med = slot.has_med() || new.med != 0 && !rules.always_compare_med;
        let known = slot.best().filter(|_| {
            let compares_all = med || slot.has_lost() || shared.config.multipath_max > 1;
            !compares_all
        });
        let winner = match known {
            Some(best) if best == index => {
                let better = |before: &Candidate| compare(&new, before, rules).is_le();
                let stays = before.is_some_and(|before| before.eligible && better(&before));
                stays.then_some(index)
            }
            Some(best) => {
                let other = received.candidate(shared, &paths[best]);
                let wins = || compare(&new, &other, rules).is_lt();
                let winner = || if wins() { index } else { best };
                other.eligible.then(winner)
            }
            None => None,
        };
        slot.see_med(med);
        match winner {
            Some(winner) => conclude(slot, index, Some(winner)),
            None => self.enqueue(slot, at),
        }
    }

    /// Handles a removed path.
    #[inline]
    pub(crate) fn path_removed<K>(&mut self, slot: &mut Slot<K>, at: u32) -> Outcome {
        if slot.is_queued() {
            Outcome::Pending
        } else if slot.paths().is_empty() {
            empty(slot)
        } else if slot.has_lost() || slot.has_med() {
            // The removed path lost by MULTI_EXIT_DISC or beat others by it: the order may have
            // changed (RFC 4271 §9.1.2.2 c).
            self.enqueue(slot, at)
        } else {
            Outcome::Paths
        }
    }

    /// Decides about a slot from the queue by comparing all its paths.
    pub(crate) fn decide<K: Key>(
        &mut self,
        (prefixes, received): (&mut Prefixes<K>, &AdjRibsIn),
        shared: &Shared,
        at: u32,
    ) -> Outcome {
        let slot = prefixes.slot_mut(at);
        slot.dequeue();
        if slot.paths().is_empty() {
            return empty(slot);
        }
        let candidates = &mut self.candidates;
        candidates.clear();
        let paths = slot.paths().iter();
        candidates.extend(paths.map(|path| received.candidate(shared, path)));
        let rules = &shared.config.decision;
        let multipath_max = shared.config.multipath_max;
        let selection = select(candidates, rules, multipath_max, &mut |_, _| {});
        let mut changed = slot.has_lost() || selection.best != slot.best();
        for (index, path) in slot.paths_mut().iter_mut().enumerate() {
            let used = selection
                .multipath
                .iter()
                .any(|&used| usize::from(used) == index);
            changed |= used != path.is_multipath() || used && path.is_changed();
            path.decided(used);
        }
        let differ = candidates.iter().any(|candidate| candidate.med != 0);
        slot.decide(selection.best, differ && !rules.always_compare_med);
        outcome(slot, changed || slot.was_skipped())
    }
}

/// Applies the comparison of the path at `index`: `winner` is the best path now.
#[inline(always)]
fn conclude<K>(slot: &mut Slot<K>, index: usize, winner: Option<usize>) -> Outcome {
    let before = slot.best();
    let paths = slot.paths_mut();
    let changed = winner != before || winner == Some(index) && paths[index].is_changed();
    if winner != before
        && let Some(before) = before
    {
        paths[before].decided(false);
    }
    paths[index].decided(winner == Some(index));
    slot.set_best(winner);
    outcome(slot, changed)
}

#[inline]
fn outcome<K>(slot: &Slot<K>, changed: bool) -> Outcome {
    match changed && slot.is_due() {
        true => Outcome::Route,
        false => Outcome::Paths,
    }
}

/// Handles a slot without paths.
#[inline]
fn empty<K>(slot: &mut Slot<K>) -> Outcome {
    slot.decide(None, false);
    let is_due = slot.is_due();
    Outcome::Gone { is_due }
}
