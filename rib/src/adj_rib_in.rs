//! The state of each peer's Adj-RIB-In beside its paths, which are in the slots of their prefixes:
//! the ages of these paths, their number and its limit.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::decide::Candidate;
use crate::path::Path;
use crate::peer::{PathLimit, PeerCounters, PeerId};
use crate::shared::Shared;
use crate::stale::{Mark, Marks, Reevaluate};

/// The Adj-RIBs-In of one family, by peer number.
#[derive(Debug, Default)]
pub(crate) struct AdjRibsIn {
    marks: Vec<Marks>,
    /// The number of paths of all peers.
    paths: usize,
    /// The slots with doubted paths of each peer since its last message: [`Path::is_doubted`].
    doubted: BTreeMap<PeerId, BTreeSet<u32>>,
}

impl AdjRibsIn {
    /// Notes a doubted path.
    pub(crate) fn doubt(&mut self, peer: PeerId, at: u32) {
        self.doubted.entry(peer).or_default().insert(at);
    }

    /// Returns whether a peer may have doubted paths.
    #[inline]
    pub(crate) fn has_doubted(&self, peer: PeerId) -> bool {
        !self.doubted.is_empty() && self.doubted.contains_key(&peer)
    }

    /// Returns the slot of a path that is doubted no longer, if there is one.
    pub(crate) fn take_doubted(&mut self, peer: PeerId) -> Option<u32> {
        let slots = self.doubted.get_mut(&peer)?;
        let at = slots.pop_first();
        if slots.is_empty() {
            self.doubted.remove(&peer);
        }
        at
    }

    #[inline]
    pub(crate) fn of(&self, peer: PeerId) -> Option<&Marks> {
        self.marks.get(peer.index())
    }

    /// Returns the Adj-RIB-In of a peer, made if necessary.
    pub(crate) fn of_mut(&mut self, peer: PeerId) -> &mut Marks {
        if peer.index() >= self.marks.len() {
            self.marks.resize(peer.index() + 1, Marks::default());
        }
        &mut self.marks[peer.index()]
    }

    /// Returns the epoch for paths that a peer announces now.
    #[inline]
    pub(crate) fn epoch(&self, peer: PeerId) -> u8 {
        self.of(peer).map_or(0, Marks::epoch)
    }

    /// Returns whether a path is removed and only waits for the sweep.
    pub(crate) fn is_dead(&self, path: &Path) -> bool {
        self.of(path.peer())
            .is_some_and(|marks| marks.is_dead(path))
    }

    /// Returns the inputs of the decision process for a path.
    #[inline]
    pub(crate) fn candidate(&self, shared: &Shared, path: &Path) -> Candidate {
        shared.candidate(path, self.of(path.peer()))
    }

    /// Returns whether no path of a peer waits for the sweep.
    pub(crate) fn is_settled(&self, peer: PeerId) -> bool {
        self.of(peer).is_none_or(|marks| !marks.has_dead())
    }

    pub(crate) fn counters(&self, peer: PeerId) -> PeerCounters {
        self.of(peer)
            .map(|marks| marks.counters)
            .unwrap_or_default()
    }

    /// Returns the number of paths of all peers.
    pub(crate) const fn paths_len(&self) -> usize {
        self.paths
    }

    pub(crate) fn set_limit(&mut self, peer: PeerId, limit: Option<PathLimit>) {
        self.of_mut(peer).limit = limit;
    }

    /// Returns whether one more path of a peer is rejected.
    #[inline]
    pub(crate) fn refuses(&self, peer: PeerId) -> bool {
        let marks = self.of(peer);
        let limit = marks.and_then(|marks| Some((marks.limit?, marks.counters.paths)));
        limit.is_some_and(|(limit, paths)| limit.refuse && paths >= limit.max)
    }

    /// Returns whether a peer has more paths than its limit.
    pub(crate) fn exceeds(&self, peer: PeerId) -> bool {
        let marks = self.of(peer);
        let limit = marks.and_then(|marks| Some((marks.limit?, marks.counters.paths)));
        limit.is_some_and(|(limit, paths)| paths > limit.max)
    }

    /// Counts a path and acquires its references.
    #[inline(always)]
    pub(crate) fn hold(&mut self, shared: &mut Shared, path: &Path) {
        shared.acquire_path(path);
        self.paths += 1;
        let counters = &mut self.of_mut(path.peer()).counters;
        counters.paths += 1;
        counters.accepted += u32::from(path.accepted().is_some());
        counters.ineligible += u32::from(path.accepted().is_some() && path.reason().is_some());
        counters.unconfirmed += u32::from(path.is_unconfirmed());
    }

    /// Reverts [`hold`](Self::hold) for a removed path.
    #[inline(always)]
    pub(crate) fn unhold(&mut self, shared: &mut Shared, path: &Path) {
        shared.release_path(path);
        self.paths -= 1;
        let counters = &mut self.of_mut(path.peer()).counters;
        counters.paths -= 1;
        counters.accepted -= u32::from(path.accepted().is_some());
        counters.ineligible -= u32::from(path.accepted().is_some() && path.reason().is_some());
        counters.unconfirmed -= u32::from(path.is_unconfirmed());
    }

    /// Requests that the sweep evaluates all paths of a peer again by the end of round `met_by`.
    /// Returns whether it has any.
    pub(crate) fn reevaluate(&mut self, peer: PeerId, how: Reevaluate, met_by: u64) -> bool {
        let Some(marks) = self.marks.get_mut(peer.index()) else {
            return false;
        };
        let has_paths = marks.counters.paths > 0;
        if has_paths {
            marks.reevaluate = marks.reevaluate.max(Some(how));
            marks.met_by = met_by;
        }
        has_paths
    }

    /// Marks all paths of a peer in one step. Returns whether some wait for the
    /// sweep, which is done with them by the end of round `met_by`.
    pub(crate) fn mark(&mut self, peer: PeerId, how: Mark, met_by: u64) -> bool {
        let marks = self.of_mut(peer);
        marks.mark(how);
        if how == Mark::LongLived && marks.counters.paths > 0 {
            marks.reevaluate = marks.reevaluate.max(Some(Reevaluate::Changed));
        }
        if how != Mark::BeginRefresh {
            marks.met_by = met_by;
        }
        if marks.counters.paths == 0 {
            marks.swept();
        }
        let has_work = marks.has_dead() || marks.reevaluate.is_some();
        if how == Mark::Flush {
            self.doubted.remove(&peer);
        }
        has_work
    }

    /// Records the number of finished rounds of the sweep.
    pub(crate) fn swept(&mut self, rounds: u64) {
        for marks in self.marks.iter_mut().filter(|marks| marks.met_by <= rounds) {
            marks.swept();
            marks.reevaluate = None;
        }
    }
}
