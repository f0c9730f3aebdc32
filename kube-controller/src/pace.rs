//! The times of requests: delays after failures, and a minimum interval.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{REQUEST_INTERVAL, RETRY_MAX};

/// The pace of the requests of one reader.
#[derive(Debug)]
pub(crate) struct Pace {
    started: Instant,
    next: Instant,
    delay: Duration,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            started: now,
            next: now,
            delay: REQUEST_INTERVAL,
        }
    }

    /// Returns when the next request may start.
    pub(crate) const fn next(&self) -> Instant {
        self.next
    }

    /// Records the start of a request.
    pub(crate) const fn started(&mut self, now: Instant) {
        self.started = now;
    }

    /// Records a complete list: its watch may follow at once. The delay stays, because the watch can
    /// still fail.
    pub(crate) const fn listed(&mut self, now: Instant) {
        self.next = now;
    }

    /// Records the regular end of a watch.
    pub(crate) fn ended(&mut self) {
        self.delay = REQUEST_INTERVAL;
        self.next = self.started + REQUEST_INTERVAL;
    }

    /// Records an event of a watch: the server works.
    pub(crate) const fn delivered(&mut self) {
        self.delay = REQUEST_INTERVAL;
    }

    /// Records how long a watch was open. One that was open for longer than the delay has worked, also
    /// without an event.
    pub(crate) fn watched(&mut self, open: Duration) {
        if open > self.delay {
            self.delay = REQUEST_INTERVAL;
        }
    }

    /// Records a failure. The server may demand a longer delay, up to [`RETRY_MAX`].
    pub(crate) fn failed(&mut self, now: Instant, demanded: Option<Duration>) {
        let delay = self.delay.max(demanded.unwrap_or_default());
        self.next = now + delay.min(RETRY_MAX);
        self.delay = (self.delay * 2).min(RETRY_MAX);
    }

    /// Records that the server does not have the kind.
    pub(crate) fn missing(&mut self, now: Instant, delay: Duration) {
        self.delay = REQUEST_INTERVAL;
        self.next = now + delay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_double_the_delay_up_to_a_maximum() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        let mut delays = Vec::new();
        for _ in 0..7 {
            pace.started(now);
            pace.failed(now, None);
            delays.push((pace.next() - now).as_secs());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30]);
        pace.ended();
        assert_eq!(pace.next() - now, REQUEST_INTERVAL);
        pace.failed(now, Some(Duration::from_secs(7)));
        assert_eq!((pace.next() - now).as_secs(), 7);
        pace.failed(now, Some(Duration::from_secs(3600)));
        assert_eq!(pace.next() - now, RETRY_MAX);
    }

    #[test]
    fn watch_that_has_worked_resets_the_delay() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        let delay_s = |pace: &mut Pace| {
            pace.failed(now, None);
            (pace.next() - now).as_secs()
        };
        assert_eq!([delay_s(&mut pace), delay_s(&mut pace)], [1, 2]);
        pace.watched(Duration::from_secs(4));
        assert_eq!(delay_s(&mut pace), 4, "not longer than the delay");
        pace.watched(Duration::from_secs(60));
        assert_eq!([delay_s(&mut pace), delay_s(&mut pace)], [1, 2]);
        pace.delivered();
        assert_eq!(delay_s(&mut pace), 1);
    }

    #[test]
    fn list_is_followed_by_its_watch_at_once() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.failed(now, None);
        pace.listed(now);
        assert_eq!(pace.next(), now);
        // A watch that fails at once does not start a loop without a delay.
        pace.failed(now, None);
        assert_eq!((pace.next() - now).as_secs(), 2);
    }
}
