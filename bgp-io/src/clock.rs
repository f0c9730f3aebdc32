//! The only module that reads a clock.

use bgp_speaker::bgp_fsm::Instant;

/// The driver's clock: monotonic, with its creation as its origin. It follows Tokio's time, so that
/// a test may pause it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// Creates a clock that shows zero now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }

    /// Returns the current instant.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    /// Converts an instant of this clock to the runtime's.
    pub(crate) fn tokio(&self, at: Instant) -> tokio::time::Instant {
        let since = at.saturating_duration_since(Instant::ZERO);
        // 30 years are practically never, and no addition overflows.
        let longest = std::time::Duration::from_secs(86_400 * 365 * 30);
        self.origin + since.min(longest)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
