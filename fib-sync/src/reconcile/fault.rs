//! Keys of which the last write failed.

use super::backoff;
use super::delta::{Cause, Fault};
use super::reconciler::Reconciler;
use crate::route::RouteKey;
use instant::Instant;

impl Reconciler {
    /// Clears the fault of the key, so that it is tried at once.
    pub(super) fn clear_fault(&mut self, key: &RouteKey) {
        if let Some(entry) = self.entries.get_mut(key)
            && let Some(fault) = entry.fault.take()
        {
            self.retries.remove(&(fault.retry_at, *key));
            self.dirty.insert(*key);
        }
    }

    /// Records that the key failed, and the time of the next attempt.
    pub(super) fn set_fault(&mut self, now: Instant, key: RouteKey, cause: Cause) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let attempts = match entry.fault.take() {
            Some(fault) => {
                self.retries.remove(&(fault.retry_at, key));
                fault.attempts.saturating_add(1)
            }
            None => 1,
        };
        let retry_at = now + backoff::retry_delay(attempts);
        entry.fault = Some(Box::new(Fault {
            cause,
            attempts,
            retry_at,
        }));
        self.retries.insert((retry_at, key));
        self.free_beside(&key);
    }
}
