//! The recent failures of a path, and the connections that its state has caused.

use bgp_fsm::{Duration, Instant};

use crate::limits::{PATH_DAMPING, PATH_DAMPING_FORGET, PATH_DAMPING_MAX, PATH_DIAL_INTERVAL};

/// The recent history of the path to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathHistory {
    /// The failures that have ended a session, and the last one.
    failures: u32,
    failed_at: Option<Instant>,
    /// When the state of the path last caused a connection.
    dialed_at: Option<Instant>,
    /// When it causes the next one.
    pub(crate) dial_at: Option<Instant>,
}

impl PathHistory {
    /// Notes a failure that ends a session. Returns how long the session is held down: nothing after a
    /// single failure, then a time that doubles with each failure.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<Duration> {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < PATH_DAMPING_FORGET;
        if !self.failed_at.is_some_and(is_recent) {
            self.failures = 0;
        }
        self.failed_at = Some(now);
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.checked_sub(2)?;
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        Some(PATH_DAMPING.saturating_mul(factor).min(PATH_DAMPING_MAX))
    }

    /// Notes that the path works again: a connection is due, but not sooner than [`PATH_DIAL_INTERVAL`]
    /// after the last one. So a path that comes up again and again causes no flood of connections.
    pub(crate) fn works(&mut self, now: Instant) {
        let next = self.dialed_at.map(|at| at + PATH_DIAL_INTERVAL);
        self.dial_at = Some(next.map_or(now, |next| next.max(now)));
    }

    /// Returns whether a connection is due, and notes it.
    pub(crate) fn take_dial(&mut self, now: Instant) -> bool {
        let is_due = self.dial_at.is_some_and(|at| at <= now);
        if is_due {
            self.dial_at = None;
            self.dialed_at = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_doubles_until_a_time_without_failures() {
        let mut history = PathHistory::default();
        let mut now = Instant::from_secs(1);
        let mut holds = [None; 8];
        for hold in &mut holds {
            *hold = history.failed(now).map(|hold| hold.as_secs());
            now += Duration::from_secs(599);
        }
        let doubled = [None, Some(10), Some(20), Some(40), Some(80), Some(160)];
        assert_eq!(holds[..6], doubled);
        assert_eq!(holds[6..], [Some(320); 2]);
        assert_eq!(history.failed(now + Duration::from_secs(1)), None);
        history.failures = u32::MAX;
        assert_eq!(history.failed(now), Some(PATH_DAMPING_MAX));
    }

    #[test]
    fn path_that_flaps_causes_few_connections() {
        let mut history = PathHistory::default();
        let mut dials = 0;
        for milliseconds in 0..20_000 {
            let now = Instant::ZERO + Duration::from_millis(milliseconds);
            history.works(now);
            dials += u32::from(history.take_dial(now));
        }
        assert_eq!(dials, 4);
    }
}
