//! Virtual time in nanoseconds.

use std::time::Duration;

/// Converts a duration to nanoseconds.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
