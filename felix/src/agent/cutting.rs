//! The state of the cutting of connections that a changed policy forbids.

use std::collections::BTreeMap;

use fib_sync::Instant;

use super::retry::Retry;
use crate::explain::{Class, Connection};

/// The cutting of connections.
#[derive(Debug, Default)]
pub(super) struct Cutting {
    /// Transactions of the packet filter at the last listing.
    pub(super) listed_at: u64,
    /// When the next listing may begin.
    pub(super) not_before: Option<Instant>,
    /// The listing, and its failures.
    pub(super) listing: Retry,
    pub(super) step: Step,
    /// Connections that were cut.
    pub(super) cut: u64,
}

/// The progress of the evaluation of listed connections.
#[derive(Debug, Default)]
pub(super) enum Step {
    #[default]
    Rest,
    /// Connections that are to be evaluated, verdicts on classes of them, and forbidden ones.
    Evaluate {
        left: Vec<Connection>,
        known: BTreeMap<Class, Option<bool>>,
        forbidden: Vec<Connection>,
    },
}

impl Cutting {
    /// Returns the number of connections that were cut.
    pub(super) const fn count(&self) -> u64 {
        self.cut
    }

    /// Returns why connections cannot be cut.
    pub(super) fn problem(&self) -> Option<&str> {
        self.listing.reason()
    }

    /// Returns whether the next turn continues the evaluation.
    pub(super) const fn is_evaluating(&self) -> bool {
        matches!(self.step, Step::Evaluate { .. })
    }
}
