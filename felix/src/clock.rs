//! The time of the daemon.

use std::future::pending;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fib_sync::Instant;

/// Time since the daemon started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(tokio::time::Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    pub(crate) fn now(self) -> Instant {
        Instant(0) + self.0.elapsed()
    }

    /// Waits until a time; `None`: forever.
    pub(crate) async fn reach(self, at: Option<Instant>) {
        // A time beyond the range of the clock counts as never.
        let deadline = at.and_then(|at| self.0.checked_add(Duration::from_nanos(at.0)));
        match deadline {
            Some(deadline) if deadline <= tokio::time::Instant::now() => {}
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => pending().await,
        }
    }
}

/// Returns the milliseconds of Unix time.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Returns the seconds of Unix time.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
