//! The deadlines of many sessions.

use alloc::collections::BTreeSet;

use crate::Instant;
use crate::packet::Discriminator;

/// A deadline of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Instant,
    id: Discriminator,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        #[cfg(test)]
        count::add();
        (self.at, self.id).cmp(&(other.at, other.id))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The deadline of each session, in order: each operation takes a time of O(log n).
#[derive(Clone, Debug, Default)]
pub(crate) struct Due(BTreeSet<Entry>);

impl Due {
    /// Returns the first deadline and its session.
    pub(crate) fn first(&self) -> Option<(Instant, Discriminator)> {
        self.0.first().map(|entry| (entry.at, entry.id))
    }

    /// Replaces the deadline of a session.
    pub(crate) fn replace(
        &mut self,
        id: Discriminator,
        before: Option<Instant>,
        after: Option<Instant>,
    ) {
        if before == after {
            return;
        }
        if let Some(at) = before {
            self.0.remove(&Entry { at, id });
        }
        if let Some(at) = after {
            self.0.insert(Entry { at, id });
        }
    }
}

/// The comparisons of deadlines in this thread.
#[cfg(test)]
pub(crate) mod count {
    use core::cell::Cell;

    std::thread_local! {
        static COMPARISONS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn add() {
        COMPARISONS.set(COMPARISONS.get() + 1);
    }

    pub(crate) fn comparisons() -> u64 {
        COMPARISONS.get()
    }
}
