//! When a parser that has crashed is started again.

use std::time::{Duration, Instant};

use crate::limits::{PARSER_CRASHES_MAX, PARSER_DELAY_MAX, PARSER_DELAY_MIN, PARSER_STABLE};

/// The starts of parsers so far.
#[derive(Debug)]
pub(super) struct Restarts {
    /// When the last one started.
    began: Instant,
    /// Crashes in a row, each soon after its start.
    crashes: u32,
    /// How often one was started again.
    pub(super) count: u32,
    /// How the last one ended.
    pub(super) last: String,
}

impl Restarts {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            began: now,
            crashes: 0,
            count: 0,
            last: String::new(),
        }
    }

    /// Records a start.
    pub(super) const fn started(&mut self, now: Instant) {
        self.began = now;
    }

    /// Records a crash, and returns when the next parser starts; `None` if there were too many.
    pub(super) fn crashed(&mut self, now: Instant, how: String) -> Option<Instant> {
        if now.saturating_duration_since(self.began) >= PARSER_STABLE {
            self.crashes = 0;
        }
        let doubled = PARSER_DELAY_MIN.saturating_mul(1 << self.crashes.min(16));
        self.crashes += 1;
        self.count = self.count.saturating_add(1);
        self.last = how;
        let delay = match self.crashes {
            // At once: its neighbors wait.
            1 => Duration::ZERO,
            _ => doubled.min(PARSER_DELAY_MAX),
        };
        (self.crashes <= PARSER_CRASHES_MAX).then(|| now + delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_in_a_row_are_delayed_and_bounded() {
        let now = Instant::now();
        let mut restarts = Restarts::new(now);
        assert_eq!(restarts.crashed(now, String::new()), Some(now));
        let mut before = Duration::ZERO;
        for _ in 1..PARSER_CRASHES_MAX {
            let next = restarts.crashed(now, String::new()).expect("again");
            let delay = next - now;
            assert!(delay >= before && delay <= PARSER_DELAY_MAX, "{delay:?}");
            before = delay;
        }
        assert_eq!(restarts.crashed(now, String::new()), None);
    }

    #[test]
    fn crash_of_a_stable_parser_is_the_first_one() {
        let now = Instant::now();
        let mut restarts = Restarts::new(now);
        for _ in 0..PARSER_CRASHES_MAX {
            restarts.crashed(now, String::new()).expect("again");
        }
        let later = now + PARSER_STABLE;
        assert_eq!(restarts.crashed(later, String::new()), Some(later));
        assert_eq!(restarts.count, PARSER_CRASHES_MAX + 1);
    }
}
