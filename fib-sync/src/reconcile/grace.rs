//! The time after a start in which own routes that nobody wants yet are kept.

use core::time::Duration;

use instant::Instant;

/// A restarted daemon finds the routes of its former life before it has learned what it wants;
/// deleting them then would cut traffic for nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    ends: Instant,
    over: bool,
}

impl Grace {
    pub(super) fn new(now: Instant, length: Duration) -> Self {
        Self {
            ends: now + length,
            over: length.is_zero(),
        }
    }

    /// Whether stray routes may be deleted.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// When the grace period ends, unless it has.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.over).then_some(self.ends)
    }

    /// Whether it ends with this call.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        !self.over && now >= self.ends && self.finish()
    }

    /// Ends it early: everything that is wanted is known. Returns whether it ends with this call.
    pub(super) fn finish(&mut self) -> bool {
        !core::mem::replace(&mut self.over, true)
    }
}
