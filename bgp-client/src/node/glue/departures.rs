//! Answers to Felix about routes that it is about to remove.
//!
//! Felix marks a workload's route before it removes it. A marked route is not imported, so its prefix is
//! withdrawn. When the other hosts must have received that, a route in the table of
//! [`kernel_events::marker`] shows it to Felix; it stays as long as the marked route.

use std::collections::BTreeMap;

use bgp_io::bgp_fsm::State;
use fib_sync::{FibStatus, FibSummary, Instant};
use ipnet::IpNet;
use kernel_events::marker;

use super::{Node, Tables};
use crate::limits::{SENT_LOOK_EVERY, WITHDRAWN_AFTER};

/// Prefixes with a marked route, and how far their withdrawal is.
#[derive(Debug, Default)]
pub(in crate::node) struct Departures {
    stages: BTreeMap<IpNet, Stage>,
    /// When to look again.
    look_at: Option<Instant>,
}

/// The stages of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The speaker may not have processed it.
    New,
    /// The speaker has processed it, and sends it.
    Sending,
    /// It was sent, and is answered at this time.
    Sent(Instant),
    Answered,
}

impl Departures {
    /// Returns when [`Node::answer`] is due without an event.
    pub(in crate::node) const fn timeout(&self) -> Option<Instant> {
        self.look_at
    }
}

impl Node {
    /// Shows Felix that marked routes are answered.
    pub(in crate::node) fn show_answerer(&mut self) {
        if self.config.answers_felix() {
            let route = marker::route(self.config.owner);
            self.reconciler.want(marker::answerer_key(), route);
        }
    }

    /// Returns the routes in numbers, without those that Felix reads.
    pub(crate) fn summary(&self) -> FibSummary {
        let mut sum = self.reconciler.summary();
        let departing = self.departures.stages.keys();
        let answers = departing.map(|prefix| marker::answer_key(*prefix));
        for key in answers.chain([marker::answerer_key()]) {
            if let Some(shown) = self.reconciler.lookup(&key) {
                sum.wanted -= usize::from(shown.want.is_some());
                sum.acked -= usize::from(shown.status == FibStatus::Acked);
            }
        }
        sum
    }

    /// Records that a prefix is withdrawn, if that is because its route is marked.
    pub(in crate::node) fn depart(&mut self, prefix: IpNet) {
        if self.config.answers_felix() && self.watcher.is_leaving(prefix) {
            self.departures.stages.insert(prefix, Stage::New);
        }
    }

    /// Records that a prefix is advertised.
    pub(in crate::node) fn stay(&mut self, prefix: IpNet) {
        if self.departures.stages.remove(&prefix) == Some(Stage::Answered) {
            self.reconciler.unwant(&marker::answer_key(prefix));
        }
    }

    /// Answers about the prefixes that the other hosts no longer use, and removes the answers about former
    /// routes.
    pub(in crate::node) fn answer(&mut self, now: Instant, tables: &impl Tables) {
        self.departures.look_at = None;
        if self.departures.stages.is_empty() {
            return;
        }
        let stages = self.departures.stages.keys().copied();
        let over: Vec<IpNet> = stages
            .filter(|prefix| !self.watcher.is_leaving(*prefix))
            .collect();
        over.into_iter().for_each(|prefix| self.stay(prefix));
        let is_sent = tables.all_sent();
        let mut sessions = tables.speaker().peers();
        let has_session = sessions.any(|peer| peer.session.state() == State::Established);
        let mut next = None;
        for (prefix, stage) in &mut self.departures.stages {
            *stage = match *stage {
                Stage::New => Stage::Sending,
                Stage::Sending if !has_session => Stage::Sent(now),
                Stage::Sending if is_sent => Stage::Sent(now + WITHDRAWN_AFTER),
                stage => stage,
            };
            let look_at = match *stage {
                Stage::New | Stage::Sending => now + SENT_LOOK_EVERY,
                Stage::Sent(at) if at > now => at,
                Stage::Sent(_) => {
                    *stage = Stage::Answered;
                    let route = marker::route(self.config.owner);
                    self.reconciler.want(marker::answer_key(*prefix), route);
                    continue;
                }
                Stage::Answered => continue,
            };
            next = Some(next.map_or(look_at, |next: Instant| next.min(look_at)));
        }
        self.departures.look_at = next;
    }
}
