//! Floods of connections from addresses that are no neighbor's.
//!
//! Each such connection costs the kernel a handshake and the program an `accept`. During a flood, the
//! packet filter of the listening sockets drops the SYNs of strangers instead. The kernel counts the
//! dropped ones, so the end of the flood is seen, too.

use bgp_speaker::bgp_fsm::Instant;

use crate::limits::{STRANGER_EVERY, STRANGERS_AT_ONCE, STRANGERS_LOOK, STRANGERS_RETURN_MAX};

/// The connections of strangers, and the flood if there is one.
#[derive(Debug)]
pub(crate) struct Strangers {
    /// Until when the refused connections count, one per [`STRANGER_EVERY`].
    counted_until: Instant,
    /// When the filter is tried again, if the kernel has rejected it.
    retry_at: Instant,
    flood: Option<Flood>,
}

#[derive(Clone, Copy, Debug)]
struct Flood {
    /// When to look at the kernel's counters again.
    look_at: Instant,
    /// Their sum when last looked at.
    dropped: u64,
    /// Segments dropped since the begin.
    total: u64,
}

impl Strangers {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            counted_until: now,
            retry_at: now,
            flood: None,
        }
    }

    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.flood.map(|flood| flood.look_at)
    }

    /// Counts one connection; returns whether there are too many.
    pub(crate) fn count(&mut self, now: Instant) -> bool {
        let until = self.counted_until.max(now);
        let is_flood = until - now >= STRANGER_EVERY * STRANGERS_AT_ONCE;
        if !is_flood {
            self.counted_until = until + STRANGER_EVERY;
        }
        is_flood && now >= self.retry_at
    }

    /// Waits before the filter is tried again.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.retry_at = now + STRANGERS_LOOK;
    }

    /// Returns whether the kernel drops the SYNs of strangers.
    pub(crate) const fn are_dropped(&self) -> bool {
        self.flood.is_some()
    }

    /// Begins a flood; `dropped`: the kernel's counters.
    pub(crate) fn begin(&mut self, now: Instant, dropped: u64) {
        self.flood = Some(Flood {
            look_at: now + STRANGERS_LOOK,
            dropped,
            total: 0,
        });
    }

    /// Takes the kernel's counters; returns whether the flood has ended.
    pub(crate) fn look(&mut self, now: Instant, dropped: u64) -> bool {
        let Some(flood) = &mut self.flood else {
            return false;
        };
        let new = dropped.saturating_sub(flood.dropped);
        flood.dropped = dropped;
        flood.total += new;
        flood.look_at = now + STRANGERS_LOOK;
        new <= STRANGERS_RETURN_MAX
    }

    /// Ends the flood; returns how many segments were dropped in it.
    pub(crate) fn end(&mut self) -> Option<u64> {
        self.flood.take().map(|flood| flood.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_connections_below_the_rate_are_no_flood() {
        let mut now = Instant::ZERO;
        let mut strangers = Strangers::new(now);
        for _ in 0..10 * STRANGERS_AT_ONCE {
            assert!(!strangers.count(now));
            now += STRANGER_EVERY;
        }
    }

    #[test]
    fn more_connections_at_once_than_allowed_are_a_flood() {
        let now = Instant::ZERO;
        let mut strangers = Strangers::new(now);
        for _ in 0..STRANGERS_AT_ONCE {
            assert!(!strangers.count(now));
        }
        assert!(strangers.count(now));
        assert!(!strangers.count(now + STRANGER_EVERY));
    }

    #[test]
    fn rejected_filter_is_tried_again_after_a_pause() {
        let now = Instant::ZERO;
        let mut strangers = Strangers::new(now);
        for _ in 0..STRANGERS_AT_ONCE {
            strangers.count(now);
        }
        assert!(strangers.count(now));
        strangers.failed(now);
        assert!(!strangers.count(now));
        let later = now + STRANGERS_LOOK;
        assert!((0..=STRANGERS_AT_ONCE).any(|_| strangers.count(later)));
    }

    #[test]
    fn flood_ends_when_few_syns_are_dropped() {
        let now = Instant::ZERO;
        let mut strangers = Strangers::new(now);
        strangers.begin(now, 7);
        assert_eq!(strangers.look_at(), Some(now + STRANGERS_LOOK));
        assert!(!strangers.look(now, 8 + STRANGERS_RETURN_MAX));
        assert!(strangers.look(now, 8 + 2 * STRANGERS_RETURN_MAX));
        assert_eq!(strangers.end(), Some(1 + 2 * STRANGERS_RETURN_MAX));
        assert!(!strangers.are_dropped());
    }
}
