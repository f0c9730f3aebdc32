//! Paths of a peer from before its restarts and refreshes.
//!
//! Every path stores the epoch of its peer and family in which it was last announced. Marking all
//! paths of a peer as stale is then one step, not a pass over the table: the epoch advances, and
//! paths are distinguished by their age in epochs. Four thresholds define the meaning of an age:
//! removed (RFC 4271 §8.2.2), stale since a restart (RFC 4724 §4.2), stale for a long time (RFC 9494
//! §4.2), or not sent again in a refresh in progress (RFC 7313 §4). A second restart removes the paths
//! that were already stale, except in families with long-lived graceful restart.

use bgp_proto::Family;

use crate::limits::EPOCHS_MAX;
use crate::path::Path;
use crate::peer::{DownMode, PathLimit, PeerCounters};

/// The ages of one peer's paths in one family, and its counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    epoch: u8,
    /// From this age on a path is removed; 0 for none.
    dead: u8,
    /// From this age on a path is stale since a restart; 0 for none.
    stale: u8,
    /// From this age on a path is stale beyond the restart time; 0 for none. Never below `stale`.
    long_lived: u8,
    /// From this age on a path has not been sent again in a refresh; 0 for none.
    refresh: u8,
    /// The greatest possible age of a path.
    oldest: u8,
    pub(crate) counters: PeerCounters,
    /// The maximum number of the peer's paths.
    pub(crate) limit: Option<PathLimit>,
    /// Whether the sweep must evaluate the peer's paths again.
    pub(crate) reevaluate: Option<Reevaluate>,
    /// The sweep has done everything requested once it has finished this many rounds.
    pub(crate) met_by: u64,
}

/// The paths that count as changed after another evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reevaluate {
    /// Paths with another result.
    Changed,
    /// All of them: the advertisement of a path depends on its peer, which has changed.
    All,
}

/// A change of all paths of a peer at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Flush,
    /// A restart. `keeps_stale` states whether paths that are already stale are retained.
    Restart {
        keeps_stale: bool,
    },
    LongLived,
    EndRestart,
    BeginRefresh,
    EndRefresh,
}

impl Mark {
    /// Returns the change at the end of a session.
    pub(crate) fn of_end(mode: DownMode, family: Family) -> Self {
        match mode {
            DownMode::Stale { kept, long_lived } if kept.contains(family) => Self::Restart {
                keeps_stale: long_lived.contains(family),
            },
            _ => Self::Flush,
        }
    }
}

impl Marks {
    pub(crate) fn mark(&mut self, how: Mark) {
        match how {
            Mark::Flush => self.flush(),
            Mark::Restart { keeps_stale } => self.restart(keeps_stale),
            Mark::LongLived => self.long_lived = self.stale,
            Mark::EndRestart => {
                self.end_restart();
            }
            Mark::BeginRefresh => self.begin_refresh(),
            Mark::EndRefresh => {
                self.end_refresh();
            }
        }
    }

    /// Returns the epoch for paths announced now.
    pub(crate) const fn epoch(&self) -> u8 {
        self.epoch
    }

    const fn age(&self, path: &Path) -> u8 {
        self.epoch.wrapping_sub(path.epoch())
    }

    /// Returns whether the path is removed and only waits for the sweep.
    pub(crate) const fn is_dead(&self, path: &Path) -> bool {
        reached(self.age(path), self.dead)
    }

    /// Returns whether the path is from before a restart and has not been sent again (RFC 4724
    /// §4.2).
    pub(crate) const fn is_stale(&self, path: &Path) -> bool {
        reached(self.age(path), self.stale)
    }

    /// Returns whether the path is stale beyond the restart time (RFC 9494 §4.2).
    pub(crate) const fn is_long_lived(&self, path: &Path) -> bool {
        reached(self.age(path), self.long_lived)
    }

    /// Returns whether the path has not been sent again in the refresh in progress (RFC 7313 §4).
    pub(crate) const fn awaits_refresh(&self, path: &Path) -> bool {
        reached(self.age(path), self.refresh)
    }

    /// Returns whether removed paths have not been swept yet.
    pub(crate) const fn has_dead(&self) -> bool {
        self.dead != 0
    }

    /// Returns whether the ages have to be rewritten before the epoch may advance.
    pub(crate) const fn is_full(&self) -> bool {
        self.oldest >= EPOCHS_MAX
    }

    const fn next_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.oldest += 1;
        self.dead += (self.dead != 0) as u8;
        self.stale += (self.stale != 0) as u8;
        self.long_lived += (self.long_lived != 0) as u8;
        self.refresh += (self.refresh != 0) as u8;
    }

    /// Removes all paths of the peer.
    fn flush(&mut self) {
        self.next_epoch();
        self.dead = 1;
        self.stale = 0;
        self.long_lived = 0;
        self.refresh = 0;
    }

    /// Marks all paths of the peer stale. Removes those that were already stale, because a peer that
    /// restarts twice has not sent them again (RFC 4724 §4.2), unless they are retained until the
    /// long-lived stale time has expired (RFC 9494 §4.2).
    fn restart(&mut self, keeps_stale: bool) {
        self.next_epoch();
        if !keeps_stale {
            self.dead = earlier(self.dead, self.stale);
            self.long_lived = 0;
        }
        self.stale = 1;
        self.refresh = 0;
    }

    /// Removes the paths that are still stale. Returns whether any were.
    fn end_restart(&mut self) -> bool {
        let stale = core::mem::take(&mut self.stale);
        self.long_lived = 0;
        self.dead = earlier(self.dead, stale);
        stale != 0
    }

    /// Starts a refresh: the peer sends everything again (RFC 7313 §4.1).
    fn begin_refresh(&mut self) {
        self.next_epoch();
        self.refresh = 1;
    }

    /// Ends a refresh: the paths not sent again are removed. Returns whether a refresh was in
    /// progress.
    fn end_refresh(&mut self) -> bool {
        let refresh = core::mem::take(&mut self.refresh);
        self.dead = earlier(self.dead, refresh);
        refresh != 0
    }

    /// Records that no removed path is left.
    pub(crate) fn swept(&mut self) {
        if self.dead != 0 {
            self.oldest = self.oldest.min(self.dead - 1);
            self.dead = 0;
        }
    }

    /// Makes all ages small. Returns the new marks; the remaining paths get their new epoch from
    /// [`Marks::renewed`] of the old ones.
    pub(crate) fn renew(&self) -> Self {
        let mut new = *self;
        new.dead = 0;
        new.stale = self.class(self.stale);
        new.long_lived = self.class(self.long_lived);
        new.refresh = self.class(self.refresh);
        new.oldest = new.stale.max(new.long_lived).max(new.refresh);
        new
    }

    /// Returns the epoch that keeps a path's status with the marks of [`Marks::renew`].
    pub(crate) const fn renewed(&self, path: &Path) -> u8 {
        self.epoch.wrapping_sub(self.class(self.age(path)))
    }

    /// Returns how many distinct thresholds an age has reached.
    const fn class(&self, age: u8) -> u8 {
        if age == 0 {
            return 0;
        }
        let differs = self.long_lived != self.stale;
        let refresh_differs = self.refresh != self.stale && self.refresh != self.long_lived;
        reached(age, self.stale) as u8
            + (differs && reached(age, self.long_lived)) as u8
            + (refresh_differs && reached(age, self.refresh)) as u8
    }
}

const fn reached(age: u8, threshold: u8) -> bool {
    threshold != 0 && age >= threshold
}

/// Returns the smaller of two thresholds, where 0 is none.
const fn earlier(one: u8, two: u8) -> u8 {
    match (one, two) {
        (0, other) | (other, 0) => other,
        (one, two) => {
            if one < two {
                one
            } else {
                two
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrId;
    use crate::peer::PeerId;

    fn announced(marks: &Marks) -> Path {
        Path::new(
            PeerId(1),
            0,
            marks.epoch(),
            AttrId::from_index(0),
            None,
            None,
        )
    }

    #[test]
    fn a_second_restart_drops_what_is_still_stale() {
        let mut marks = Marks::default();
        let first = announced(&marks);
        marks.restart(false);
        let second = announced(&marks);
        assert!(marks.is_stale(&first) && !marks.is_dead(&first));
        assert!(!marks.is_stale(&second));
        marks.restart(false);
        assert!(marks.is_dead(&first));
        assert!(marks.is_stale(&second) && !marks.is_dead(&second));
        assert!(marks.end_restart());
        assert!(marks.is_dead(&second));
        assert!(!marks.end_restart());
    }

    #[test]
    fn long_lived_paths_survive_a_second_restart() {
        let mut marks = Marks::default();
        let first = announced(&marks);
        marks.restart(true);
        assert!(marks.is_stale(&first) && !marks.is_long_lived(&first));
        marks.mark(Mark::LongLived);
        let second = announced(&marks);
        assert!(marks.is_long_lived(&first) && !marks.is_long_lived(&second));
        marks.restart(true);
        assert!(marks.is_long_lived(&first) && !marks.is_dead(&first));
        assert!(marks.is_stale(&second) && !marks.is_long_lived(&second));
        marks.mark(Mark::LongLived);
        assert!(marks.is_long_lived(&second));
        let third = announced(&marks);
        assert!(marks.end_restart());
        assert!(marks.is_dead(&first) && marks.is_dead(&second) && !marks.is_dead(&third));
        assert!(!marks.is_long_lived(&first));
    }

    #[test]
    fn restart_and_refresh_are_marked_apart() {
        let mut marks = Marks::default();
        let one = announced(&marks);
        marks.restart(false);
        let two = announced(&marks);
        marks.begin_refresh();
        let three = announced(&marks);
        assert!(marks.is_stale(&one) && marks.awaits_refresh(&one));
        assert!(!marks.is_stale(&two) && marks.awaits_refresh(&two));
        assert!(!marks.awaits_refresh(&three));
        assert!(marks.end_refresh());
        assert!(marks.is_dead(&one) && marks.is_dead(&two) && !marks.is_dead(&three));
        marks.swept();
        assert!(!marks.has_dead());
    }

    #[test]
    fn session_closed_in_a_refresh_keeps_aged_paths() {
        let mut marks = Marks::default();
        let one = announced(&marks);
        marks.begin_refresh();
        marks.restart(false);
        assert!(marks.is_stale(&one) && !marks.is_dead(&one) && !marks.awaits_refresh(&one));
        assert!(!marks.end_refresh());
        marks.flush();
        assert!(marks.is_dead(&one));
    }

    #[test]
    fn renewed_ages_mean_the_same() {
        let mut marks = Marks::default();
        let mut paths = alloc::vec![announced(&marks)];
        for round in 0..EPOCHS_MAX {
            match round % 3 {
                0 => marks.begin_refresh(),
                1 if round == 100 => marks.restart(false),
                1 if round == 103 => {
                    marks.mark(Mark::LongLived);
                    marks.begin_refresh();
                }
                1 if round == 154 => marks.restart(true),
                _ => marks.begin_refresh(),
            }
            paths.push(announced(&marks));
        }
        assert!(marks.is_full());
        let new = marks.renew();
        assert!(!new.is_full());
        for mut path in paths {
            let before = (
                marks.is_dead(&path),
                marks.is_stale(&path),
                marks.is_long_lived(&path),
                marks.awaits_refresh(&path),
            );
            path.set_epoch(marks.renewed(&path));
            assert_eq!(
                before,
                (
                    false,
                    new.is_stale(&path),
                    new.is_long_lived(&path),
                    new.awaits_refresh(&path)
                )
            );
        }
    }
}
