//! The state of the cutting of connections that a changed policy forbids.

use std::collections::BTreeMap;

use fib_sync::Instant;

use super::host::Failed;
use super::retry::Retry;
use crate::explain::{Begun, Class, Connection};

/// The cutting of connections.
#[derive(Debug, Default)]
pub(super) struct Cutting {
    /// Transactions of the packet filter at the last listing.
    pub(super) listed_at: u64,
    /// When the next listing may begin.
    pub(super) not_before: Option<Instant>,
    /// The listing, and its failures.
    pub(super) listing: Retry,
    /// The marking of all forbidden connections of a listing, and its failures: after one, they are
    /// listed again.
    pub(super) marking: Retry,
    pub(super) step: Step,
    /// Connections that were cut.
    pub(super) cut: u64,
}

/// The progress of the evaluation of listed connections.
#[derive(Debug, Default)]
pub(super) enum Step {
    #[default]
    Rest,
    Evaluate(Round),
}

/// Listed connections.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Connections that are to be evaluated, the next one last.
    pub(super) left: Vec<Connection>,
    /// Verdicts on classes of them by the rules after this number of transactions.
    pub(super) known: BTreeMap<Class, Option<bool>>,
    pub(super) known_at: u64,
    /// The evaluation of the next one has begun.
    pub(super) begun: Option<Begun>,
    /// Forbidden ones that are not ordered to be cut yet, because others are being cut.
    pub(super) forbidden: Vec<Connection>,
    /// The command that cuts others.
    pub(super) ordered: Option<u64>,
    /// The first failure.
    pub(super) failed: Option<Failed>,
}

impl Round {
    /// Returns whether the next turn can continue it.
    pub(super) const fn can_continue(&self) -> bool {
        !self.left.is_empty() || self.ordered.is_none()
    }

    /// Discards verdicts by rules before this number of transactions.
    pub(super) fn follow(&mut self, commits: u64) {
        if self.known_at != commits {
            self.known_at = commits;
            self.known.clear();
            self.begun = None;
            self.left.append(&mut self.forbidden);
        }
    }
}

impl Cutting {
    /// Returns the number of connections that were cut.
    pub(super) const fn count(&self) -> u64 {
        self.cut
    }

    /// Returns why connections cannot be cut.
    pub(super) fn problem(&self) -> Option<&str> {
        self.listing.reason().or_else(|| self.marking.reason())
    }

    /// Returns whether the next turn continues the evaluation.
    pub(super) const fn is_evaluating(&self) -> bool {
        matches!(&self.step, Step::Evaluate(round) if round.can_continue())
    }

    /// Returns whether connections may be listed.
    pub(super) const fn is_at_rest(&self) -> bool {
        matches!(self.step, Step::Rest) && !self.listing.is_under_way()
    }

    /// Returns when connections are listed again after a failure.
    pub(super) fn again_at(&self) -> Option<Instant> {
        let both = [self.listing.timeout(), self.marking.timeout()];
        both.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_of_older_rules_are_discarded() {
        let address = [10, 65, 0, 1].into();
        let connection = Connection {
            source: address,
            destination: address,
            protocol: 6,
            ports: Some((4000, 80)),
            icmp: None,
            is_translated: false,
            requested: (address, Some(80)),
            interfaces: [None, None],
            tuple: Vec::new(),
            zone: None,
        };
        let mut round = Round {
            known: [(connection.class(), Some(true))].into(),
            known_at: 1,
            forbidden: vec![connection.clone()],
            ordered: Some(7),
            ..Round::default()
        };
        round.follow(1);
        assert_eq!((round.known.len(), round.forbidden.len()), (1, 1));
        assert!(!round.can_continue(), "it waits for the command");
        round.follow(2);
        assert_eq!((round.known.len(), round.forbidden.len()), (0, 0));
        assert_eq!(round.left, [connection]);
        assert!(round.can_continue());
    }
}
