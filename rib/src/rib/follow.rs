//! Watchers of single routes: readers that are given only what changes from now on, and rejected
//! paths.

use alloc::boxed::Box;

use bgp_proto::Family;

use super::Rib;
use crate::export::Cursor;
use crate::policy::PrefixSet;
use crate::rejected::{RejectedPath, Rejections};

impl Rib {
    /// Returns the place of a reader that is given only what changes from now on. Unlike a feed it
    /// never walks the table: before each [`Rib::changes`] it takes [`Rib::skip_missed`].
    #[must_use]
    pub fn latest(&self, family: Family) -> Cursor {
        let table = self.table(family);
        table.map_or(Cursor::following(1), |table| table.exporter().latest())
    }

    /// Moves a reader whose next changes are no longer in the log to its end. Returns how many
    /// changes it missed: at least one if any, at most so many.
    pub fn skip_missed(&self, family: Family, cursor: &mut Cursor) -> u64 {
        let table = self.table(family);
        table.map_or(0, |table| table.exporter().skip_missed(cursor))
    }

    /// Records the paths that import policies reject from now on: those to these destinations, or
    /// to all. What was recorded and not taken is kept.
    pub fn watch_rejected(&mut self, destinations: Option<PrefixSet>) {
        match &mut self.shared.rejections {
            Some(rejections) => rejections.watch(destinations),
            none => *none = Some(Box::new(Rejections::new(destinations))),
        }
    }

    /// Records no rejected path any more, and forgets those recorded.
    pub fn unwatch_rejected(&mut self) {
        self.shared.rejections = None;
    }

    /// Returns whether rejected paths are recorded.
    #[must_use]
    pub const fn watches_rejected(&self) -> bool {
        self.shared.rejections.is_some()
    }

    /// Takes the oldest rejected path, with the number of those before it that were dropped because
    /// there were too many.
    pub fn poll_rejected(&mut self) -> Option<(u64, RejectedPath)> {
        self.shared.rejections.as_mut()?.pop()
    }
}
