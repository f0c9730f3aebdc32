//! The clock of the daemon: the time since the start of the system, which the next process continues.

use std::time::{Duration, SystemTime};

use bfd::Instant;
use nix::time::{ClockId, clock_gettime};

/// A clock with the origin of the system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
    /// The time of `start`.
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let start = std::time::Instant::now();
        // Linux has this clock.
        let since_boot = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
        Self {
            start,
            origin: Instant::ZERO + since_boot.unwrap_or_default(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.origin + self.start.elapsed()
    }

    /// Returns the time since the start of the process.
    pub(crate) fn uptime(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the tokio instant of an instant.
    pub(crate) fn tokio(&self, at: Instant) -> tokio::time::Instant {
        (self.start + at.saturating_duration_since(self.origin)).into()
    }
}

/// Returns when a packet arrived that the kernel has stamped with the time of the day: not before
/// `earliest`, and not after `now`. So a change of the time of the day shows no gap that is longer than the
/// time since the socket was last found empty.
pub(crate) fn arrival(
    now: Instant,
    of_day: SystemTime,
    stamp: Duration,
    earliest: Instant,
) -> Instant {
    let stamped = SystemTime::UNIX_EPOCH + stamp;
    let age = of_day.duration_since(stamped).unwrap_or_default();
    let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    Instant(now.0.saturating_sub(age)).max(earliest).min(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrival_is_between_the_last_reading_and_now() {
        let (now, earliest) = (Instant::from_secs(100), Instant::from_secs(90));
        let of_day = SystemTime::UNIX_EPOCH + Duration::from_secs(5_000);
        let at = |stamp_s| arrival(now, of_day, Duration::from_secs(stamp_s), earliest);
        assert_eq!(at(4_997), Instant::from_secs(97));
        // The time of the day was set forwards, and backwards, after the packet arrived.
        assert_eq!(at(1_000), earliest);
        assert_eq!(at(6_000), now);
    }
}
