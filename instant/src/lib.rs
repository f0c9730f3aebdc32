//! A point in time that the caller owns.
//!
//! Sans-IO code reads no clock: a driver passes the time with each input, and a simulator passes
//! whatever time it likes.

#![no_std]

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

use core::time::Duration;

/// Nanoseconds since an origin that the caller chose: the start of a driver, zero in a simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The driver's origin.
    pub const ZERO: Self = Self(0);

    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the instant `seconds` after the origin.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time (584 years).
    fn add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// As [`Instant::saturating_duration_since`].
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:03}s",
            self.0 / 1_000_000_000,
            self.0 / 1_000_000 % 1_000
        )
    }
}

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let one = Instant::from_secs(1);
        assert_eq!(one + Duration::from_millis(500), Instant(1_500_000_000));
        assert_eq!(Instant::ZERO - one, Duration::ZERO);
        assert_eq!(Instant(u64::MAX) + Duration::MAX, Instant(u64::MAX));
    }
}
