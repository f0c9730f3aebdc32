//! An action that is repeated with growing delay while it fails.

use fib_sync::Instant;

use crate::limits::{REFUSAL_ATTEMPTS, RETRY_MAX, RETRY_MIN};

/// The progress of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retry {
    step: Step,
    past: Past,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// To be performed now.
    #[default]
    Due,
    /// Issued to the host as the command of this number, and not answered yet.
    UnderWay(u64),
    /// To be performed at this time.
    Later(Instant),
    /// Nothing to do.
    Rest,
}

/// The last outcome.
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
    /// Failures in a row.
    attempts: u32,
}

impl Retry {
    /// Returns whether it is due at `now`.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match self.step {
            Step::Due => true,
            Step::Later(at) => at <= now,
            Step::UnderWay(_) | Step::Rest => false,
        }
    }

    /// Returns whether it has succeeded, also while it is repeated.
    pub(crate) const fn is_done(&self) -> bool {
        matches!(self.past, Past::Done)
    }

    /// Returns whether it has succeeded and is not to be repeated.
    pub(crate) const fn is_settled(&self) -> bool {
        matches!((&self.step, &self.past), (Step::Rest, Past::Done))
    }

    pub(crate) const fn is_under_way(&self) -> bool {
        matches!(self.step, Step::UnderWay(_))
    }

    /// Returns whether the command of this number is the awaited one: an answer to another one is
    /// ignored.
    pub(crate) fn awaits(&self, number: u64) -> bool {
        self.step == Step::UnderWay(number)
    }

    /// Records that it is issued as the command of this number.
    pub(crate) const fn order(&mut self, command: u64) {
        self.step = Step::UnderWay(command);
    }

    /// Repeats it if it has succeeded and is not pending.
    pub(crate) const fn again(&mut self) {
        if matches!(self.step, Step::Rest) {
            self.step = Step::Due;
        }
    }

    /// Records that its result exists, unless it is to be performed again.
    pub(crate) fn take_as_done(&mut self) {
        if !self.is_under_way() {
            (self.step, self.past) = (Step::Rest, Past::Done);
        }
    }

    /// Repeats it in any case: the earlier result may be void, pending or not.
    pub(crate) const fn doubt(&mut self) {
        self.step = Step::Due;
    }

    /// Records an outcome. Returns the reason of a failure if it is a new one, to be logged.
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

    /// Returns why it failed last, also while it is repeated.
    pub(crate) fn reason(&self) -> Option<&str> {
        match &self.past {
            Past::Failed(failure) => Some(&failure.reason),
            Past::New | Past::Done => None,
        }
    }

    /// Returns whether it failed so often in a row that the failure counts as permanent.
    pub(crate) const fn is_lasting(&self) -> bool {
        match &self.past {
            Past::Failed(failure) => failure.attempts >= REFUSAL_ATTEMPTS,
            Past::New | Past::Done => false,
        }
    }

    /// Returns the time of the next attempt.
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
    fn delays_grow_to_a_limit_and_reason_is_returned_once() {
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
