//! Cuts connections that a changed policy forbids: after each transaction of the packet filter, the
//! tracked connections of the workloads are listed and evaluated by the calculated rules. Forbidden
//! ones get a mark, by which the packet filter drops their packets in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use super::core::Agent;
use super::cutting::{Cutting, Step};
use super::host::{Failed, HostCommand};
use crate::explain::{Connection, is_forbidden};
use crate::limits::{CUT_EVALUATIONS_PER_TURN, CUT_GAP, CUT_SHARE};

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
        self.evaluate_connections(mark);
        let commits = self.rules.commits();
        let cutting = &mut self.cutting;
        let is_free = !cutting.is_evaluating() && !cutting.listing.is_under_way();
        let may_begin = cutting.not_before.is_none_or(|at| at <= now);
        let is_again = cutting.listing.timeout().is_some_and(|at| at <= now);
        if is_free && may_begin && (commits != cutting.listed_at || is_again) {
            cutting.listed_at = commits;
            let routes = &self.calculator.desired().routes;
            let addresses: BTreeSet<IpAddr> = routes.keys().copied().collect();
            let command = HostCommand::ListConnections { addresses, mark };
            cutting.listing.order(self.orders.push(command));
        }
    }

    /// Returns when the connections are listed next without an event.
    pub(super) fn cutting_timeout(&self) -> Option<Instant> {
        self.config.cut_mark?;
        let cutting = &self.cutting;
        if cutting.is_evaluating() {
            return Some(Instant(0));
        }
        let is_due = self.rules.commits() != cutting.listed_at;
        let at = is_due.then(|| cutting.not_before.unwrap_or(Instant(0)));
        at.or_else(|| cutting.listing.timeout())
            .filter(|_| !cutting.listing.is_under_way())
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
        let mut left = Vec::new();
        let outcome = listed.map(|found| left = found);
        if let Some(reason) = cutting.listing.note(now, outcome) {
            let reason = Text::new(reason);
            emit(Event::ConnectionsNotCut { reason });
        }
        if !left.is_empty() {
            cutting.step = Step::Evaluate {
                left,
                known: BTreeMap::new(),
                forbidden: Vec::new(),
            };
        }
    }

    /// Handles the number of connections that got the mark.
    pub(super) fn connections_cut(&mut self, count: Result<u64, Failed>) {
        match count {
            Ok(0) => {}
            Ok(count) => {
                self.cutting.cut += count;
                emit(Event::ConnectionsCut { count });
            }
            Err(reason) => {
                let reason = Text::new(reason);
                emit(Event::ConnectionsNotCut { reason });
            }
        }
    }

    /// Evaluates some connections, and orders the forbidden ones to be cut after the last.
    fn evaluate_connections(&mut self, mark: u32) {
        let Step::Evaluate {
            left,
            known,
            forbidden,
        } = &mut self.cutting.step
        else {
            return;
        };
        let mut evaluations = CUT_EVALUATIONS_PER_TURN;
        while let Some(connection) = left.pop() {
            let class = connection.class();
            let of_class = match known.get(&class) {
                Some(verdict) => *verdict,
                None => {
                    evaluations = evaluations.saturating_sub(1);
                    let verdict = is_forbidden(&self.calculator, &connection, false);
                    known.insert(class, verdict);
                    verdict
                }
            };
            let verdict = of_class.or_else(|| {
                evaluations = evaluations.saturating_sub(1);
                is_forbidden(&self.calculator, &connection, true)
            });
            if verdict == Some(true) {
                forbidden.push(connection);
            }
            if evaluations == 0 {
                return;
            }
        }
        let connections = std::mem::take(forbidden);
        self.cutting.step = Step::Rest;
        if !connections.is_empty() {
            self.orders
                .push(HostCommand::CutConnections { connections, mark });
        }
    }
}
