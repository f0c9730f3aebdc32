//! Delays before refused routes are retried and before forced dumps.

use core::time::Duration;

use crate::limits::{BACKOFF_MAX, BACKOFF_MIN, DUMP_GAP_MAX, DUMP_GAP_MIN};

/// Returns the delay after this many attempts: doubling from the smallest to the largest.
pub(super) fn retry_delay(attempts: u32) -> Duration {
    doubled(BACKOFF_MIN, BACKOFF_MAX, attempts.saturating_sub(1))
}

/// Returns the gap before the next forced dump after this many in a row.
pub(super) fn dump_gap(in_a_row: u32) -> Duration {
    if in_a_row == 0 {
        return Duration::ZERO;
    }
    doubled(DUMP_GAP_MIN, DUMP_GAP_MAX, in_a_row - 1)
}

fn doubled(min: Duration, max: Duration, times: u32) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    min.checked_mul(factor).map_or(max, |delay| delay.min(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_bound() {
        assert_eq!(retry_delay(1), BACKOFF_MIN);
        assert_eq!(retry_delay(2), BACKOFF_MIN * 2);
        assert_eq!(retry_delay(40), BACKOFF_MAX);
        assert_eq!(retry_delay(u32::MAX), BACKOFF_MAX);
        assert_eq!(dump_gap(0), Duration::ZERO);
        assert_eq!(dump_gap(1), DUMP_GAP_MIN);
        assert_eq!(dump_gap(99), DUMP_GAP_MAX);
    }
}
