//! One prefix in its table, and its states.

use crate::path::{Path, PathList};

/// The pending work of a slot and the references of its readers. Only the transitions here change it.
///
/// | flag | set by | cleared by | while it is set |
/// |---|---|---|---|
/// | `FREE` | [`release`](Self::release) | never: its place in the slab is given a new slot | nothing refers to the slot but the list of free ones, and no other flag is set |
/// | `QUEUED` | [`enqueue`](Self::enqueue) | [`dequeue`](Self::dequeue) | the slot is in the queue of decisions, once; readers skip it |
/// | `PUBLISHED` | [`publish`](Self::publish) with a route | [`publish`](Self::publish) without | the last entry of the slot in the log is about a route |
/// | `LOST` | [`lose_path_in_use`](Self::lose_path_in_use) | [`decide`](Self::decide) | a path in use has been removed since the last decision: its outcome is published even if the best path is the same |
/// | `MED` | [`see_med`](Self::see_med), [`decide`](Self::decide) | [`decide`](Self::decide) | some path may have a MULTI_EXIT_DISC other than 0: which of two paths is better depends on the others |
/// | `TOMBSTONE` | [`entomb`](Self::entomb) | [`exhume`](Self::exhume) | the slot is in the queue of tombstones, once |
/// | `SKIPPED` | [`is_readable`](Self::is_readable) | [`publish`](Self::publish) | a reader has skipped the slot because it is `QUEUED`: the decision is published even if nothing changes |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State(u8);

const FREE: u8 = 1;
const QUEUED: u8 = 2;
const PUBLISHED: u8 = 4;
const LOST: u8 = 8;
const MED: u8 = 16;
const TOMBSTONE: u8 = 32;
const SKIPPED: u8 = 64;

impl State {
    #[inline]
    const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    #[inline]
    const fn set(&mut self, flag: u8, on: bool) {
        if on {
            self.0 |= flag;
        } else {
            self.0 &= !flag;
        }
    }

    #[inline]
    fn release(&mut self) {
        debug_assert!(!self.has(FREE | QUEUED | TOMBSTONE));
        self.0 = FREE;
    }

    /// Returns whether it must be added to the queue, because it was not there.
    #[inline]
    fn enqueue(&mut self) -> bool {
        debug_assert!(!self.has(FREE));
        let was = self.has(QUEUED);
        self.set(QUEUED, true);
        !was
    }

    #[inline]
    fn dequeue(&mut self) {
        debug_assert!(self.has(QUEUED));
        self.set(QUEUED, false);
    }

    #[inline]
    fn publish(&mut self, has_route: bool) {
        debug_assert!(!self.has(FREE));
        self.set(SKIPPED, false);
        self.set(PUBLISHED, has_route);
    }

    #[inline]
    fn lose_path_in_use(&mut self) {
        self.set(LOST, true);
    }

    #[inline]
    fn see_med(&mut self, med: bool) {
        if med {
            self.set(MED, true);
        }
    }

    /// Records that all paths have been compared.
    #[inline]
    fn decide(&mut self, med: bool) {
        debug_assert!(!self.has(QUEUED));
        self.set(LOST, false);
        self.set(MED, med);
    }

    /// Returns whether it must be added to the queue of tombstones, because it was not there.
    #[inline]
    fn entomb(&mut self) -> bool {
        debug_assert!(!self.has(FREE));
        let was = self.has(TOMBSTONE);
        self.set(TOMBSTONE, true);
        !was
    }

    #[inline]
    fn exhume(&mut self) {
        debug_assert!(self.has(TOMBSTONE));
        self.set(TOMBSTONE, false);
    }

    #[inline]
    fn is_readable(&mut self) -> bool {
        let queued = self.has(QUEUED);
        if queued {
            self.set(SKIPPED, true);
        }
        !queued
    }
}

/// Index of no path.
const NO_BEST: u16 = u16::MAX;

/// One prefix.
#[derive(Debug)]
pub(crate) struct Slot<K> {
    paths: PathList,
    /// Its version in the log of changes; 0 if it never was there.
    version: u64,
    best: u16,
    state: State,
    key: K,
}

const _: () = assert!(size_of::<Slot<bgp_proto::Ipv4Prefix>>() == 32);
const _: () = assert!(size_of::<Slot<bgp_proto::Ipv6Prefix>>() == 48);

impl<K> Slot<K> {
    #[inline]
    pub(crate) const fn new(key: K) -> Self {
        Self {
            paths: PathList::EMPTY,
            version: 0,
            best: NO_BEST,
            state: State(0),
            key,
        }
    }

    #[inline]
    pub(crate) const fn key(&self) -> &K {
        &self.key
    }

    #[inline]
    pub(crate) fn paths(&self) -> &[Path] {
        self.paths.as_slice()
    }

    /// Returns the paths for changes in place; another peer or path identifier makes another path.
    #[inline]
    pub(crate) fn paths_mut(&mut self) -> &mut [Path] {
        self.paths.as_mut_slice()
    }

    /// Adds a path; returns its index.
    #[inline]
    pub(crate) fn add_path(&mut self, path: Path) -> usize {
        self.paths.push(path);
        self.paths.as_slice().len() - 1
    }

    /// Removes a path; the last one takes its index. Returns it.
    #[inline]
    pub(crate) fn remove_path(&mut self, index: usize) -> Path {
        let path = self.paths.swap_remove(index);
        let left = self.paths.as_slice().len();
        if self.best() == Some(index) {
            self.set_best(None);
            self.state.lose_path_in_use();
        } else if self.best() == Some(left) {
            self.set_best(Some(index));
        }
        if path.is_multipath() {
            self.state.lose_path_in_use();
        }
        path
    }

    #[inline]
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the index of the best path.
    #[inline]
    pub(crate) fn best(&self) -> Option<usize> {
        (self.best != NO_BEST).then(|| usize::from(self.best))
    }

    /// Returns the best path.
    #[inline]
    pub(crate) fn best_path(&self) -> Option<&Path> {
        self.paths().get(self.best()?)
    }

    #[inline]
    pub(crate) fn set_best(&mut self, best: Option<usize>) {
        self.best = best
            .and_then(|at| u16::try_from(at).ok())
            .unwrap_or(NO_BEST);
    }

    /// Releases a slot without paths to its table.
    #[inline]
    pub(crate) fn release(&mut self) {
        debug_assert!(self.paths().is_empty());
        self.state.release();
        self.version = 0;
    }

    #[inline]
    pub(crate) const fn is_free(&self) -> bool {
        self.state.has(FREE)
    }

    /// Requests a decision with all its paths. Returns whether it must be added to the queue.
    #[inline]
    pub(crate) fn enqueue(&mut self) -> bool {
        self.state.enqueue()
    }

    #[inline]
    pub(crate) fn dequeue(&mut self) {
        self.state.dequeue();
    }

    #[inline]
    pub(crate) const fn is_queued(&self) -> bool {
        self.state.has(QUEUED)
    }

    /// Records that some path has, or may have, a MULTI_EXIT_DISC other than 0.
    #[inline]
    pub(crate) fn see_med(&mut self, med: bool) {
        self.state.see_med(med);
    }

    #[inline]
    pub(crate) const fn has_med(&self) -> bool {
        self.state.has(MED)
    }

    /// Returns whether a path in use has been removed since the last decision.
    #[inline]
    pub(crate) const fn has_lost(&self) -> bool {
        self.state.has(LOST)
    }

    /// Records the result of comparing all paths; `med` states that some have a MULTI_EXIT_DISC
    /// other than 0.
    #[inline]
    pub(crate) fn decide(&mut self, best: Option<usize>, med: bool) {
        self.set_best(best);
        self.state.decide(med);
    }

    /// Returns whether a reader may read the slot. With a pending decision, the slot is neither in
    /// the state of the log nor in its next state: the reader skips it, and the decision is
    /// published in any case.
    #[inline]
    pub(crate) fn is_readable(&mut self) -> bool {
        self.state.is_readable()
    }

    /// Returns whether a reader has skipped the slot since it was published.
    #[inline]
    pub(crate) const fn was_skipped(&self) -> bool {
        self.state.has(SKIPPED)
    }

    /// Records that the slot has an entry in the log with this version.
    #[inline]
    pub(crate) fn publish(&mut self, version: u64) {
        self.version = version;
        self.state.publish(self.best != NO_BEST);
    }

    #[inline]
    pub(crate) const fn is_published(&self) -> bool {
        self.state.has(PUBLISHED)
    }

    /// Returns whether a changed outcome must be published: readers hold a route, or there is one.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.best != NO_BEST || self.is_published() || self.state.has(SKIPPED) && self.version != 0
    }

    /// Keeps a slot without paths until readers have read its withdrawal. Returns whether it must
    /// be added to the tombstones.
    #[inline]
    pub(crate) fn entomb(&mut self) -> bool {
        self.state.entomb()
    }

    /// Records that the slot was removed from the tombstones.
    #[inline]
    pub(crate) fn exhume(&mut self) {
        self.state.exhume();
    }

    #[inline]
    pub(crate) const fn is_tombstone(&self) -> bool {
        self.state.has(TOMBSTONE)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::attributes::AttrId;
    use crate::peer::PeerId;

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Add,
        Remove(usize),
        Med,
        Enqueue,
        Decide { best: usize, med: bool },
        Read,
        Publish,
        Entomb,
        Exhume,
        Release,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            2 => Just(Event::Add),
            2 => (0..4usize).prop_map(Event::Remove),
            1 => Just(Event::Med),
            2 => Just(Event::Enqueue),
            2 => (0..4usize, any::<bool>()).prop_map(|(best, med)| Event::Decide { best, med }),
            2 => Just(Event::Read),
            2 => Just(Event::Publish),
            1 => Just(Event::Entomb),
            1 => Just(Event::Exhume),
            1 => Just(Event::Release),
        ]
    }

    fn path(number: u16) -> Path {
        let set = AttrId::from_index(0);
        Path::new(PeerId(number), 0, 0, set, Some(set), None)
    }

    /// The state table, as sets of facts: the expected results of a slot's queries.
    #[derive(Debug, Default)]
    struct Expected {
        paths: Vec<u16>,
        best: Option<u16>,
        queued: bool,
        published: bool,
        lost: bool,
        med: bool,
        tombstone: bool,
        skipped: bool,
        free: bool,
    }

    impl Expected {
        fn check(&self, slot: &Slot<()>) -> Result<(), TestCaseError> {
            let mut paths: Vec<u16> = slot.paths().iter().map(|path| path.peer().0).collect();
            paths.sort_unstable();
            prop_assert_eq!(&paths, &self.paths);
            prop_assert_eq!(slot.best_path().map(|path| path.peer().0), self.best);
            prop_assert_eq!(slot.is_queued(), self.queued);
            prop_assert_eq!(slot.is_published(), self.published);
            prop_assert_eq!(slot.has_lost(), self.lost);
            prop_assert_eq!(slot.has_med(), self.med);
            prop_assert_eq!(slot.is_tombstone(), self.tombstone);
            prop_assert_eq!(slot.was_skipped(), self.skipped);
            prop_assert_eq!(slot.is_free(), self.free);
            let known = self.published || self.skipped && slot.version() != 0;
            prop_assert_eq!(slot.is_due(), self.best.is_some() || known);
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn slot_moves_through_its_states_as_documented(
            events in prop::collection::vec(event(), 1..60),
        ) {
            let mut slot = Slot::new(());
            let mut expected = Expected::default();
            let (mut number, mut version) = (0, 0);
            for event in events {
                if expected.free {
                    // Its place is given a new slot.
                    slot = Slot::new(());
                    expected = Expected::default();
                }
                match event {
                    Event::Add => {
                        number += 1;
                        prop_assert_eq!(slot.add_path(path(number)), expected.paths.len());
                        expected.paths.push(number);
                    }
                    Event::Remove(index) if index < expected.paths.len() => {
                        let removed = slot.remove_path(index).peer().0;
                        expected.paths.retain(|path| *path != removed);
                        if expected.best == Some(removed) {
                            expected.best = None;
                            expected.lost = true;
                        }
                    }
                    Event::Med => {
                        slot.see_med(false);
                        prop_assert_eq!(slot.has_med(), expected.med, "seen once is enough");
                        slot.see_med(true);
                        expected.med = true;
                    }
                    Event::Enqueue => {
                        prop_assert_eq!(slot.enqueue(), !expected.queued);
                        expected.queued = true;
                    }
                    Event::Decide { best, med } if expected.queued => {
                        slot.dequeue();
                        let best = Some(best).filter(|best| *best < expected.paths.len());
                        slot.decide(best, med);
                        expected.best = best.map(|best| slot.paths()[best].peer().0);
                        (expected.queued, expected.lost, expected.med) = (false, false, med);
                    }
                    Event::Read => {
                        prop_assert_eq!(slot.is_readable(), !expected.queued);
                        expected.skipped |= expected.queued;
                    }
                    Event::Publish => {
                        version += 1;
                        slot.publish(version);
                        prop_assert_eq!(slot.version(), version);
                        expected.published = expected.best.is_some();
                        expected.skipped = false;
                    }
                    Event::Entomb => {
                        prop_assert_eq!(slot.entomb(), !expected.tombstone);
                        expected.tombstone = true;
                    }
                    Event::Exhume if expected.tombstone => {
                        slot.exhume();
                        expected.tombstone = false;
                    }
                    Event::Release
                        if expected.paths.is_empty() && !expected.queued && !expected.tombstone =>
                    {
                        slot.release();
                        prop_assert_eq!(slot.version(), 0);
                        expected = Expected { free: true, ..Expected::default() };
                    }
                    _ => continue,
                }
                expected.check(&slot)?;
            }
        }
    }
}
