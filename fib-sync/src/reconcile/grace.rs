//! The grace period after a start, in which own routes that are not wanted yet are kept.

use core::time::Duration;

use instant::Instant;

/// A restarted daemon finds the routes of its former run before it has received the wanted ones;
/// deleting them at that time would interrupt traffic needlessly.
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

    /// Returns whether stray routes may be deleted.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the end of the grace period, unless it is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.over).then_some(self.ends)
    }

    /// Ends the grace period if its time has come. Returns whether it ends with this call.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        !self.over && now >= self.ends && self.finish()
    }

    /// Ends the grace period early, when every wanted route is known. Returns whether it ends with
    /// this call.
    pub(super) fn finish(&mut self) -> bool {
        !core::mem::replace(&mut self.over, true)
    }
}
