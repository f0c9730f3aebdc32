//! Something that is to be done, and is tried again with growing delay while it fails.

use fib_sync::Instant;

use crate::limits::{REFUSAL_ATTEMPTS, RETRY_MAX, RETRY_MIN};

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retry {
    step: Step,
    past: Past,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// To be done now.
    #[default]
    Due,
    /// Ordered of the host by the command of this number, and not answered yet.
    UnderWay(u64),
    /// To be done at this time.
    Later(Instant),
    /// Nothing is to be done.
    Rest,
}

/// How it ended last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Past {
    #[default]
    New,
    Done,
    Failed(Box<Failure>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    reason: String,
    /// Times in a row.
    attempts: u32,
}

impl Retry {
    /// Whether it is to be done at `now`.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match self.step {
            Step::Due => true,
            Step::Later(at) => at <= now,
            Step::UnderWay(_) | Step::Rest => false,
        }
    }

    /// Whether it was done, also while it is done again.
    pub(crate) const fn is_done(&self) -> bool {
        matches!(self.past, Past::Done)
    }

    pub(crate) const fn is_under_way(&self) -> bool {
        matches!(self.step, Step::UnderWay(_))
    }

    /// Whether the command of this number is what is waited for: an answer to another one is void.
    pub(crate) fn awaits(&self, number: u64) -> bool {
        self.step == Step::UnderWay(number)
    }

    /// Notes that it is ordered by the command of this number.
    pub(crate) const fn order(&mut self, command: u64) {
        self.step = Step::UnderWay(command);
    }

    /// Has it done again if it was done, and nothing is to be done.
    pub(crate) const fn again(&mut self) {
        if matches!(self.step, Step::Rest) {
            self.step = Step::Due;
        }
    }

    /// Has it done again in any case: what was done before may be void, under way or not.
    pub(crate) const fn doubt(&mut self) {
        self.step = Step::Due;
    }

    /// Takes note of an outcome. Returns the reason if it is a new one, worth a line in the log.
    pub(crate) fn note<E: ToString>(
        &mut self,
        now: Instant,
        outcome: Result<(), E>,
    ) -> Option<&str> {
        let Err(error) = outcome else {
            (self.step, self.past) = (Step::Rest, Past::Done);
            return None;
        };
        let reason = error.to_string();
        let (attempts, new) = match &self.past {
            Past::Failed(before) => (before.attempts.saturating_add(1), before.reason != reason),
            Past::New | Past::Done => (1, true),
        };
        let delay = RETRY_MIN
            .saturating_mul(1 << (attempts - 1).min(16))
            .min(RETRY_MAX);
        self.step = Step::Later(now + delay);
        self.past = Past::Failed(Box::new(Failure { reason, attempts }));
        self.reason().filter(|_| new)
    }

    /// Why it failed last, also while it is tried again.
    pub(crate) fn reason(&self) -> Option<&str> {
        match &self.past {
            Past::Failed(failure) => Some(&failure.reason),
            Past::New | Past::Done => None,
        }
    }

    /// Whether it failed so often in a row that it is no matter of a moment.
    pub(crate) const fn is_lasting(&self) -> bool {
        match &self.past {
            Past::Failed(failure) => failure.attempts >= REFUSAL_ATTEMPTS,
            Past::New | Past::Done => false,
        }
    }

    /// When it is to be tried again.
    pub(crate) const fn timeout(&self) -> Option<Instant> {
        match self.step {
            Step::Later(at) => Some(at),
            Step::Due | Step::UnderWay(_) | Step::Rest => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit_and_a_reason_is_told_once() {
        let mut retry = Retry::default();
        let mut now = Instant(0);
        assert!(retry.is_due(now));
        assert_eq!(retry.note(now, Err("no")), Some("no"));
        assert!(!retry.is_due(now));
        assert!(retry.is_due(now + RETRY_MIN) && !retry.is_lasting());
        for _ in 0..40 {
            now = retry.timeout().unwrap();
            assert_eq!(retry.note(now, Err("no")), None);
        }
        assert_eq!(retry.timeout(), Some(now + RETRY_MAX));
        assert!(retry.is_lasting());
        assert_eq!(retry.note(now, Err("other")), Some("other"));
        assert_eq!(retry.note::<&str>(now, Ok(())), None);
        assert!(retry.is_done());
    }

    #[test]
    fn ordered_attempt_keeps_its_reason_and_awaits_one_answer() {
        let mut retry = Retry::default();
        let now = Instant(0);
        retry.order(1);
        assert!(retry.awaits(1) && !retry.awaits(2) && !retry.is_due(now));
        retry.note(now, Err("no"));
        retry.order(2);
        assert_eq!(retry.reason(), Some("no"));
        assert_eq!(retry.timeout(), None);
        assert_eq!(retry.note(now, Err("no")), None, "the same reason");
        assert_eq!(retry.timeout(), Some(now + RETRY_MIN * 2));
    }

    #[test]
    fn repeated_work_counts_as_done_until_it_fails() {
        let mut retry = Retry::default();
        retry.again();
        assert!(retry.is_due(Instant(0)) && !retry.is_done());
        retry.note::<&str>(Instant(0), Ok(()));
        assert!(!retry.is_due(Instant(0)));
        retry.again();
        assert!(retry.is_due(Instant(0)) && retry.is_done());
        retry.order(7);
        retry.again();
        assert!(retry.awaits(7) && retry.is_done());
        assert_eq!(retry.note(Instant(0), Err("no")), Some("no"));
        assert!(!retry.is_done());
    }
}
