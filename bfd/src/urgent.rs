//! A limit of the packets that are sent at once because their contents have changed.

use crate::limits::{SLOW_INTERVAL_US, URGENT_MAX};
use crate::{Duration, Instant};

/// The packets that were sent at once in the current time of [`SLOW_INTERVAL_US`]. In Down and Init, forged
/// packets can change the state as often as they arrive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Urgent {
    since: Instant,
    count: u32,
}

impl Urgent {
    /// Returns when the next packet may be sent.
    pub(crate) fn permits_at(&self) -> Instant {
        match self.count < URGENT_MAX {
            true => Instant::ZERO,
            false => self.ends_at(),
        }
    }

    /// Counts a packet.
    pub(crate) fn count(&mut self, now: Instant) {
        if self.count == 0 || now >= self.ends_at() {
            *self = Self {
                since: now,
                count: 0,
            };
        }
        self.count = self.count.saturating_add(1);
    }

    fn ends_at(&self) -> Instant {
        self.since + Duration::from_micros(SLOW_INTERVAL_US.into())
    }
}
