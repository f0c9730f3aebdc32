//! The one place that reads a clock.

use bgp_speaker::bgp_fsm::Instant;

/// The driver's clock: monotonic, its origin the moment of its making. Follows Tokio's time, so
/// that a test may pause it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// A clock that shows zero now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    /// The runtime's name for an instant of this clock.
    pub(crate) fn tokio(&self, at: Instant) -> tokio::time::Instant {
        let since = at.saturating_duration_since(Instant::ZERO);
        // 30 years are as good as never, and no addition overflows.
        let longest = std::time::Duration::from_secs(86_400 * 365 * 30);
        self.origin + since.min(longest)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
