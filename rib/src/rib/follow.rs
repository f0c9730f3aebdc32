//! Watchers of single routes: readers that receive only later changes, and rejected paths.

use alloc::boxed::Box;

use bgp_proto::Family;

use super::Rib;
use crate::export::Cursor;
use crate::policy::PrefixSet;
use crate::rejected::{PolicyDirection, RejectedPath, Rejections};

impl Rib {
    /// Returns the position of a reader that receives only later changes. Unlike a full dump it
    /// never reads the whole table: it must call [`Rib::skip_missed`] before each [`Rib::changes`].
    #[must_use]
    pub fn latest(&self, family: Family) -> Cursor {
        let table = self.table(family);
        table.map_or(Cursor::following(1), |table| table.exporter().latest())
    }

    /// Moves a reader to the end of the log if its next changes are no longer there. Returns an
    /// upper bound of the changes that it missed, at least one if any.
    pub fn skip_missed(&self, family: Family, cursor: &mut Cursor) -> u64 {
        let table = self.table(family);
        table.map_or(0, |table| table.exporter().skip_missed(cursor))
    }

    /// Records the paths that policies reject from now on: those to these destinations, or to all.
    /// Paths that were recorded before are kept.
    ///
    /// An export policy is evaluated when a group reaches a changed route, and again for each full
    /// table dump to a member. A path that other rules exclude from the group is not recorded.
    pub fn watch_rejected(&mut self, by: PolicyDirection, destinations: Option<PrefixSet>) {
        match self.shared.rejected.of(by) {
            Some(rejections) => rejections.watch(destinations),
            none => *none = Some(Box::new(Rejections::new(destinations))),
        }
    }

    /// Stops recording rejected paths, and drops the recorded ones.
    pub fn unwatch_rejected(&mut self, by: PolicyDirection) {
        *self.shared.rejected.of(by) = None;
    }

    /// Returns whether rejected paths are recorded.
    #[must_use]
    pub const fn watches_rejected(&self, by: PolicyDirection) -> bool {
        self.shared.rejected.is_watched(by)
    }

    /// Takes the oldest rejected path, with the number of those before it that were dropped because
    /// there were too many.
    pub fn poll_rejected(&mut self, by: PolicyDirection) -> Option<(u64, RejectedPath)> {
        self.shared.rejected.of(by).as_mut()?.pop()
    }
}
