//! The table of offloaded connections, and whether the kernel has it.

use std::collections::BTreeSet;

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use super::super::host::{Failed, HostCommand, Orders};
use super::super::retry::Retry;
use crate::limits::OFFLOAD_GAP;

/// The table of offloaded connections.
#[derive(Debug, Default)]
pub(in crate::agent) struct OffloadSync {
    wanted: Wanted,
    written: Retry,
    /// When it may be written again after a change.
    not_before: Option<Instant>,
    /// Why nothing, or not everything, is offloaded although it is requested.
    pub(super) refused: Option<String>,
}

/// The content of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) interfaces: BTreeSet<String>,
    /// Transactions of the packet filter.
    pub(super) commits: u64,
}

impl OffloadSync {
    pub(super) fn turn(&mut self, now: Instant, wanted: Wanted, orders: &mut Orders) {
        let is_other = self.wanted.interfaces != wanted.interfaces;
        // Without a table, no connection is offloaded.
        let has_table = self.written.reason().is_none();
        if is_other || (has_table && self.wanted != wanted) {
            self.written.doubt();
        }
        self.wanted = wanted;
        let may_begin = self.not_before.is_none_or(|at| at <= now);
        if may_begin && self.written.is_due(now) {
            self.not_before = Some(now + OFFLOAD_GAP);
            let interfaces = self.wanted.interfaces.clone();
            self.written
                .order(orders.push(HostCommand::Offload(interfaces)));
        }
    }

    /// Handles the answer to a command, if it is the awaited one.
    pub(in crate::agent) fn answer(
        &mut self,
        now: Instant,
        command: u64,
        outcome: Result<(), Failed>,
    ) {
        if self.written.awaits(command)
            && let Some(reason) = self.written.note(now, outcome)
        {
            let reason = Text::new(reason);
            emit(Event::OffloadFailed { reason });
        }
    }

    /// Returns why nothing, or not everything, is offloaded although it is requested.
    pub(in crate::agent) fn problem(&self) -> Option<&str> {
        self.refused.as_deref().or_else(|| self.written.reason())
    }

    /// Returns when the next action is due without an event.
    pub(in crate::agent) fn timeout(&self, now_due: bool) -> Option<Instant> {
        match now_due {
            true => Some(self.not_before.unwrap_or(Instant(0))),
            false => self.written.timeout(),
        }
    }

    pub(super) fn is_due(&self) -> bool {
        !self.written.is_under_way()
            && !self.written.is_settled()
            && self.written.timeout().is_none()
    }
}
