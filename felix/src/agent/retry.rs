//! Something that is to be done, and is tried again with growing delay while it fails.

use fib_sync::Instant;

use crate::limits::{REFUSAL_ATTEMPTS, RETRY_MAX, RETRY_MIN};

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Retry {
    /// To be done now.
    #[default]
    Due,
    /// Done.
    Done,
    /// It failed.
    Failed {
        /// Why.
        reason: String,
        /// Times in a row.
        attempts: u32,
        /// When to try again.
        at: Instant,
    },
}

impl Retry {
    /// Whether it is to be done at `now`.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match self {
            Self::Due => true,
            Self::Done => false,
            Self::Failed { at, .. } => *at <= now,
        }
    }

    pub(crate) const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Takes note of an outcome. Returns the reason if it is a new one, worth a line in the log.
    pub(crate) fn note<E: ToString>(
        &mut self,
        now: Instant,
        outcome: Result<(), E>,
    ) -> Option<&str> {
        let Err(error) = outcome else {
            *self = Self::Done;
            return None;
        };
        let reason = error.to_string();
        let (attempts, new) = match self {
            Self::Failed {
                attempts,
                reason: old,
                ..
            } => (attempts.saturating_add(1), *old != reason),
            Self::Due | Self::Done => (1, true),
        };
        let delay = RETRY_MIN
            .saturating_mul(1 << (attempts - 1).min(16))
            .min(RETRY_MAX);
        *self = Self::Failed {
            reason,
            attempts,
            at: now + delay,
        };
        self.reason().filter(|_| new)
    }

    /// Why it failed last.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Failed { reason, .. } => Some(reason),
            Self::Due | Self::Done => None,
        }
    }

    /// Whether it failed so often in a row that it is no matter of a moment.
    pub(crate) const fn is_lasting(&self) -> bool {
        matches!(self, Self::Failed { attempts, .. } if *attempts >= REFUSAL_ATTEMPTS)
    }

    /// When it is to be tried again.
    pub(crate) const fn timeout(&self) -> Option<Instant> {
        match self {
            Self::Failed { at, .. } => Some(*at),
            Self::Due | Self::Done => None,
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
}
