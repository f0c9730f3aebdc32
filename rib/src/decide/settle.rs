//! When to decide, and how to do so without looking at all paths.

use super::{Candidate, compare, select};
use crate::family::FamilyTable;
use crate::shared::Shared;
use crate::table::Key;

impl<K: Key> FamilyTable<K> {
    /// A path has come or has become another one. `before` is what it was if it was the best.
    ///
    /// In the frequent cases the decision is made here and now, while the slot is at hand, by
    /// comparing the path with the best one. Only if that may not be enough the slot is put among
    /// those that wait for [`FamilyTable::settle`].
    pub(crate) fn touched(
        &mut self,
        shared: &Shared,
        at: u32,
        index: usize,
        before: Option<Candidate>,
    ) {
        let slot = self.prefixes.slot(at);
        if slot.is_queued() {
            return;
        }
        let paths = slot.paths();
        let path = &paths[index];
        let rules = shared.config.decision;
        if paths.len() == 1 && !slot.has_lost() {
            let set = path.accepted().unwrap_or_else(|| path.received());
            let is_med = shared.interner.ranks(set).med != 0 && !rules.always_compare_med;
            let med = slot.has_med() || is_med;
            let usable = shared
                .ineligible(path, self.received.of(path.peer()))
                .is_none();
            self.prefixes.slot_mut(at).see_med(med);
            return self.conclude(at, index, usable.then_some(index));
        }
        let new = self.received.candidate(shared, path);
        // Paths of one AS that differ in MULTI_EXIT_DISC make the order of two paths depend on
        // the others.
        let med = slot.has_med() || new.med != 0 && !rules.always_compare_med;
        let best = slot.best();
        let winner = if med || slot.has_lost() || shared.config.multipath_max > 1 {
            return self.look_later(at, med);
        } else {
            let Some(best_index) = best else {
                return self.look_later(at, med);
            };
            if best_index == index {
                let better = |before: &Candidate| compare(&new, before, &rules).is_le();
                if !before.is_some_and(|before| before.eligible && better(&before)) {
                    return self.look_later(at, med);
                }
                Some(index)
            } else {
                let best = &paths[best_index];
                let best = shared.candidate(best, self.received.of(best.peer()));
                if !best.eligible {
                    return self.look_later(at, med);
                }
                Some(if compare(&new, &best, &rules).is_lt() {
                    index
                } else {
                    best_index
                })
            }
        };
        self.prefixes.slot_mut(at).see_med(med);
        self.conclude(at, index, winner);
    }

    fn look_later(&mut self, at: u32, med: bool) {
        self.prefixes.slot_mut(at).see_med(med);
        self.queue(at);
    }

    /// The path at `index` has been compared: `winner` is the best now.
    fn conclude(&mut self, at: u32, index: usize, winner: Option<usize>) {
        let slot = self.prefixes.slot_mut(at);
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
        if changed && slot.is_due() {
            self.publish(at);
        } else {
            self.publish_paths(at);
        }
    }

    /// The last path has gone.
    pub(crate) fn emptied(&mut self, at: u32) {
        let slot = self.prefixes.slot_mut(at);
        if slot.is_queued() {
            return;
        }
        slot.decide(None, false);
        if slot.is_due() {
            self.publish(at);
        }
        self.rest(at);
    }

    /// Decides about a slot with all its paths.
    pub(crate) fn settle(&mut self, shared: &Shared, at: u32) {
        self.prefixes.slot_mut(at).dequeue();
        if self.prefixes.paths(at).is_empty() {
            return self.emptied(at);
        }
        let mut candidates = core::mem::take(&mut self.scratch.candidates);
        candidates.clear();
        let paths = self.prefixes.paths(at);
        candidates.extend(
            paths
                .iter()
                .map(|path| self.received.candidate(shared, path)),
        );
        let rules = shared.config.decision;
        let selection = select(
            &candidates,
            &rules,
            shared.config.multipath_max,
            &mut |_, _| {},
        );
        let slot = self.prefixes.slot_mut(at);
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
        if (changed || slot.was_skipped()) && slot.is_due() {
            self.publish(at);
        } else {
            self.publish_paths(at);
        }
        self.scratch.candidates = candidates;
    }
}
