//! Reports of a reconciler to operators: deletions, and foreign routes that carry the owner's
//! protocol.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{
    FOREIGN_KEPT_MAX, FOREIGN_NAMED_MAX, NOTICE_WINDOW, NOTICES_MAX, NOTICES_PER_WINDOW,
};
use crate::owner::Owner;
use crate::route::{Route, RouteKey};
use instant::Instant;

/// An event for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A route is being deleted from the kernel.
    Deleting {
        /// Its identity.
        key: RouteKey,
        /// The route as it was last seen, if that is known.
        route: Option<Route>,
        /// Why.
        cause: DeleteCause,
    },
    /// Further routes were deleted in the last [`NOTICE_WINDOW`].
    DeletedMore {
        /// How many.
        count: u64,
    },
    /// A route carries the owner's protocol, but at a metric or in a table at which this program
    /// writes no routes: it belongs to another program and stays.
    Foreign {
        /// Its identity.
        key: RouteKey,
        /// The protocol.
        owner: Owner,
    },
    /// There are more such routes than are logged.
    ForeignMore,
}

/// Why a route is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeleteCause {
    /// It was wanted, and is no longer.
    Withdrawn,
    /// A former run wrote it, or another program did under this protocol, table and metric; it is
    /// not wanted.
    Stray,
    /// A foreign route has the same key, so that a replace could replace the wrong one.
    Rewrite,
    /// All its gateways have failed.
    GatewayFailed,
}

impl DeleteCause {
    /// Returns the cause as a field of a log line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Withdrawn => "withdrawn",
            Self::Stray => "stray",
            Self::Rewrite => "rewrite",
            Self::GatewayFailed => "gateway-failed",
        }
    }
}

/// Notices queued for the log, and their limits.
#[derive(Debug, Default)]
pub(super) struct Notices {
    waiting: VecDeque<Notice>,
    /// When the current window ends; deletions beyond its limit are only counted.
    window_ends: Instant,
    in_window: u32,
    more: u64,
    foreign_named: usize,
}

impl Notices {
    /// Records a deletion.
    pub(super) fn deleting(
        &mut self,
        now: Instant,
        key: RouteKey,
        route: Option<Route>,
        cause: DeleteCause,
    ) {
        self.pass_time(now);
        if self.in_window == 0 {
            self.window_ends = now + NOTICE_WINDOW;
        }
        self.in_window = self.in_window.saturating_add(1);
        if self.in_window > NOTICES_PER_WINDOW || self.waiting.len() >= NOTICES_MAX {
            self.more = self.more.saturating_add(1);
            return;
        }
        self.waiting
            .push_back(Notice::Deleting { key, route, cause });
    }

    /// Records a foreign route that was not there before.
    fn foreign(&mut self, key: RouteKey, owner: Owner) {
        self.foreign_named = self.foreign_named.saturating_add(1);
        let notice = match self.foreign_named {
            named if named <= FOREIGN_NAMED_MAX => Notice::Foreign { key, owner },
            named if named == FOREIGN_NAMED_MAX + 1 => Notice::ForeignMore,
            _ => return,
        };
        // At most FOREIGN_NAMED_MAX + 1 in the life of a reconciler.
        self.waiting.push_back(notice);
    }

    /// Ends the window when its time has come.
    pub(super) fn pass_time(&mut self, now: Instant) {
        if self.in_window == 0 || now < self.window_ends {
            return;
        }
        self.in_window = 0;
        if self.more > 0 && self.waiting.len() < NOTICES_MAX {
            let count = core::mem::take(&mut self.more);
            self.waiting.push_back(Notice::DeletedMore { count });
        }
    }

    /// Returns the end of the window, if there is something to report then.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (self.more > 0 && self.in_window > 0).then_some(self.window_ends)
    }

    pub(super) fn poll(&mut self) -> Option<Notice> {
        self.waiting.pop_front()
    }
}

/// Foreign routes with the owner's protocol.
#[derive(Debug, Default)]
pub(super) struct Foreigners {
    /// The first such routes, with the round of dumps that last saw each.
    kept: BTreeMap<RouteKey, (u32, Route)>,
    /// Number of further ones that the current or last dump saw.
    more: usize,
}

impl Foreigners {
    /// Records that a foreign route exists.
    pub(super) fn note(&mut self, key: RouteKey, route: &Route, round: u32, notices: &mut Notices) {
        if let Some(seen) = self.kept.get_mut(&key) {
            *seen = (round, route.clone());
        } else if self.kept.len() < FOREIGN_KEPT_MAX {
            self.kept.insert(key, (round, route.clone()));
            notices.foreign(key, route.owner());
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Records that a route was removed, or is no longer foreign.
    pub(super) fn forget(&mut self, key: &RouteKey) {
        self.kept.remove(key);
    }

    /// Starts a dump, which counts the routes that are not kept from zero.
    pub(super) const fn recount(&mut self) {
        self.more = 0;
    }

    /// Removes the routes that the round has not seen, unless an event reported them during the
    /// round.
    pub(super) fn sweep(&mut self, round: u32, known: impl Fn(&RouteKey) -> bool) {
        self.kept
            .retain(|key, (seen, _)| *seen == round || known(key));
    }

    pub(super) fn count(&self) -> usize {
        self.kept.len().saturating_add(self.more)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.kept.iter().map(|(key, (_, route))| (key, route))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::TABLE_MAIN;

    #[test]
    fn deletions_beyond_the_limit_are_counted_and_summed_up() {
        let mut notices = Notices::default();
        let start = Instant(5);
        let key = RouteKey::new(TABLE_MAIN, "10.0.0.0/24".parse().unwrap(), 1024, 0);
        for _ in 0..NOTICES_PER_WINDOW + 7 {
            notices.deleting(start, key, None, DeleteCause::Stray);
        }
        let reported = core::iter::from_fn(|| notices.poll()).count();
        assert_eq!(reported, NOTICES_PER_WINDOW as usize);
        assert_eq!(notices.deadline(), Some(start + NOTICE_WINDOW));
        notices.pass_time(start + NOTICE_WINDOW);
        assert_eq!(notices.poll(), Some(Notice::DeletedMore { count: 7 }));
        assert_eq!((notices.poll(), notices.deadline()), (None, None));
        notices.deleting(start + NOTICE_WINDOW, key, None, DeleteCause::Stray);
        assert!(notices.poll().is_some(), "a new window names again");
    }

    #[test]
    fn notices_that_are_not_polled_are_bounded() {
        let mut notices = Notices::default();
        let key = RouteKey::new(TABLE_MAIN, "10.0.0.0/24".parse().unwrap(), 1024, 0);
        let mut now = Instant(0);
        for _ in 0..100 {
            for _ in 0..2 * NOTICES_PER_WINDOW {
                notices.deleting(now, key, None, DeleteCause::Withdrawn);
            }
            now += NOTICE_WINDOW;
        }
        assert!(notices.waiting.len() <= NOTICES_MAX);
    }
}
