//! Cuts connections that a changed policy forbids: after each transaction of the packet filter, the
//! tracked connections of workloads and host endpoints are listed and evaluated by the calculated rules. Forbidden
//! ones get a mark, by which the packet filter drops their packets in both directions.

use std::time::Duration;

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use super::core::Agent;
use super::cutting::{Cutting, Round, Step};
use super::host::{Failed, HostCommand};
use crate::explain::{Begun, Connection, Evaluator, wanted};
use crate::limits::{CUT_CONNECTIONS_PER_TURN, CUT_EVALUATIONS_PER_TURN, CUT_GAP, CUT_SHARE};

impl Agent {
    /// Lists the connections if the packet filter has changed, and continues their evaluation.
    pub(super) fn turn_cutting(&mut self, now: Instant) {
        let Some(mark) = self.config.cut_mark else {
            self.cutting = Cutting {
                cut: self.cutting.cut,
                ..Cutting::default()
            };
            return;
        };
        self.evaluate_connections(now, mark);
        let commits = self.rules.commits();
        let cutting = &mut self.cutting;
        let may_begin = cutting.not_before.is_none_or(|at| at <= now);
        let is_again = cutting.again_at().is_some_and(|at| at <= now);
        if cutting.is_at_rest() && may_begin && (commits != cutting.listed_at || is_again) {
            cutting.listed_at = commits;
            let wanted = wanted(&self.calculator);
            let command = HostCommand::ListConnections { wanted, mark };
            let number = self.orders.push(command);
            cutting.listing.order(number);
            cutting.marking.order(number);
        }
    }

    /// Returns when the connections are listed next without an event.
    pub(super) fn cutting_timeout(&self) -> Option<Instant> {
        self.config.cut_mark?;
        let cutting = &self.cutting;
        if cutting.is_evaluating() {
            return Some(Instant(0));
        }
        if !cutting.is_at_rest() {
            return None;
        }
        let not_before = cutting.not_before.unwrap_or(Instant(0));
        match self.rules.commits() != cutting.listed_at {
            true => Some(not_before),
            false => cutting.again_at().map(|at| at.max(not_before)),
        }
    }

    /// Handles the list of connections.
    pub(super) fn connections_listed(
        &mut self,
        now: Instant,
        command: u64,
        listed: Result<Vec<Connection>, Failed>,
        took: Duration,
    ) {
        let cutting = &mut self.cutting;
        if !cutting.listing.awaits(command) {
            return;
        }
        cutting.not_before = Some(now + CUT_GAP.max(took * CUT_SHARE));
        let outcome = listed.map(|left| {
            cutting.step = Step::Evaluate(Round {
                left,
                known_at: self.rules.commits(),
                ..Round::default()
            });
        });
        if let Some(reason) = cutting.listing.note(now, outcome) {
            let reason = Text::new(reason);
            emit(Event::ConnectionsNotCut { reason });
        }
    }

    /// Handles the number of connections that got the mark, and a failure.
    pub(super) fn connections_cut(
        &mut self,
        command: u64,
        count: u64,
        outcome: Result<(), Failed>,
    ) {
        if count > 0 {
            self.cutting.cut += count;
            emit(Event::ConnectionsCut { count });
        }
        if let Step::Evaluate(round) = &mut self.cutting.step
            && round.ordered == Some(command)
        {
            round.ordered = None;
            round.failed = round.failed.take().or_else(|| outcome.err());
        }
    }

    /// Evaluates some connections, and orders the forbidden ones to be cut.
    fn evaluate_connections(&mut self, now: Instant, mark: u32) {
        let Step::Evaluate(round) = &mut self.cutting.step else {
            return;
        };
        round.follow(self.rules.commits());
        if !round.can_continue() {
            return;
        }
        let evaluator = Evaluator::of(&self.calculator);
        evaluate(round, &evaluator);
        if round.ordered.is_some() {
            return;
        }
        if !round.forbidden.is_empty() {
            let forbidden = std::mem::take(&mut round.forbidden).into_iter();
            let (of_host, connections) = forbidden.partition(|one| evaluator.ends_at_host(one));
            let command = HostCommand::CutConnections {
                connections,
                of_host,
                mark,
            };
            round.ordered = Some(self.orders.push(command));
        } else if round.left.is_empty() {
            let outcome = round.failed.take().map_or(Ok(()), Err);
            self.cutting.step = Step::Rest;
            if let Some(reason) = self.cutting.marking.note(now, outcome) {
                let reason = Text::new(reason);
                emit(Event::ConnectionsNotCut { reason });
            }
        }
    }
}

/// Returns the verdict on a connection: that of its class, or else its own.
fn verdict(
    round: &mut Round,
    evaluator: &Evaluator<'_>,
    connection: &Connection,
    left: &mut usize,
) -> Result<Option<bool>, Begun> {
    let class = connection.class();
    let mut begun = round.begun.take();
    let of_class = match round.known.get(&class) {
        Some(known) => *known,
        None => {
            let found = evaluator.is_forbidden(connection, false, begun.take(), left)?;
            round.known.insert(class, found);
            found
        }
    };
    match of_class {
        Some(found) => Ok(Some(found)),
        None => evaluator.is_forbidden(connection, true, begun, left),
    }
}

/// Evaluates the next connections of a round.
fn evaluate(round: &mut Round, evaluator: &Evaluator<'_>) {
    let mut evaluations = CUT_EVALUATIONS_PER_TURN;
    for _ in 0..CUT_CONNECTIONS_PER_TURN {
        if evaluations == 0 {
            return;
        }
        let Some(connection) = round.left.pop() else {
            return;
        };
        match verdict(round, evaluator, &connection, &mut evaluations) {
            Ok(Some(true)) => round.forbidden.push(connection),
            Ok(_) => {}
            Err(begun) => {
                round.begun = Some(begun);
                round.left.push(connection);
                return;
            }
        }
    }
}
