//! The table of offloaded connections, and whether the kernel has it.

use std::collections::BTreeMap;

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use super::super::host::{Failed, HostCommand, Orders};
use super::super::retry::Retry;
use crate::limits::{OFFLOAD_GAP, OFFLOAD_INTERFACES_MAX, OFFLOAD_RETURN};

/// The table of offloaded connections.
///
/// A write ends all offloaded connections. So an interface that is removed causes none: the kernel removes it
/// from the table. If it returns soon, it is added later, together with others.
#[derive(Debug, Default)]
pub(in crate::agent) struct OffloadSync {
    /// The interfaces of the last write, each with its index until it was removed.
    table: BTreeMap<String, Option<u32>>,
    /// Transactions of the packet filter at the last write.
    commits: u64,
    /// Interfaces of the table that were removed.
    removed: BTreeMap<String, Removed>,
    /// When such an interface was added again.
    returned: Option<Instant>,
    /// When the next one is added again.
    returns_at: Option<Instant>,
    /// The kernel may have a table.
    may_exist: bool,
    written: Retry,
    /// When it may be written again after a change.
    not_before: Option<Instant>,
    /// Why nothing, or not everything, is offloaded although it is requested.
    pub(super) refused: Option<String>,
}

/// An interface that was removed.
#[derive(Clone, Copy, Debug)]
struct Removed {
    /// When it was removed last.
    at: Instant,
    /// Its index, if it has returned.
    index: Option<u32>,
}

/// The wanted content of the table.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The interfaces that exist, each with its index, in the order of their precedence.
    pub(super) present: Vec<(String, u32)>,
    /// Transactions of the packet filter.
    pub(super) commits: u64,
}

impl OffloadSync {
    /// Writes the table if it is due. `is_eligible` returns whether connections of an interface may be
    /// offloaded, also of one that does not exist. Returns the number of interfaces without a place.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        wanted: &Wanted,
        is_eligible: impl Fn(&str) -> bool,
        orders: &mut Orders,
    ) -> usize {
        self.note_removed(now, wanted);
        let stable: Vec<&(String, u32)> = {
            let may = |one: &&(String, u32)| self.returns(&one.0).is_none_or(|at| at <= now);
            wanted.present.iter().filter(may).collect()
        };
        let left_out = stable.len().saturating_sub(OFFLOAD_INTERFACES_MAX);
        let next: BTreeMap<String, u32> = stable
            .into_iter()
            .take(OFFLOAD_INTERFACES_MAX)
            .cloned()
            .collect();
        let returns = wanted.present.iter();
        let returns = returns.filter_map(|(name, _)| self.returns(name));
        self.returns_at = returns.filter(|at| *at > now).min();
        let is_other = self.table.keys().any(|name| !is_eligible(name));
        let mut joins = next.iter();
        let joins = joins.any(|(name, index)| self.table.get(name) != Some(&Some(*index)));
        // Without a table, no connection is offloaded. Interfaces of the table that wait for their return
        // are not among the next ones.
        let has_table = self.may_exist && !self.table.is_empty();
        let is_older = self.commits != wanted.commits && has_table;
        if is_other || joins || is_older {
            self.written.doubt();
        }
        let may_begin = self.not_before.is_none_or(|at| at <= now);
        if may_begin && self.written.is_due(now) {
            self.not_before = Some(now + OFFLOAD_GAP);
            if next.keys().any(|name| self.removed.contains_key(name)) {
                self.returned = Some(now);
                self.removed.retain(|name, _| !next.contains_key(name));
            }
            let interfaces = next.keys().cloned().collect();
            let next = next.into_iter().map(|(name, index)| (name, Some(index)));
            (self.table, self.commits) = (next.collect(), wanted.commits);
            self.may_exist = true;
            self.written
                .order(orders.push(HostCommand::Offload(interfaces)));
        }
        left_out
    }

    /// Records the interfaces of the table that were removed, or replaced by another one with the name.
    fn note_removed(&mut self, now: Instant, wanted: &Wanted) {
        let present: BTreeMap<&str, u32> = wanted
            .present
            .iter()
            .map(|(name, index)| (name.as_str(), *index))
            .collect();
        for (name, index) in &mut self.table {
            if index.is_some() && *index != present.get(name.as_str()).copied() {
                *index = None;
                let removed = Removed {
                    at: now,
                    index: None,
                };
                self.removed.insert(name.clone(), removed);
            }
        }
        for (name, removed) in &mut self.removed {
            let index = present.get(name.as_str()).copied();
            if removed.index.is_some() && removed.index != index {
                removed.at = now;
            }
            removed.index = index;
        }
        // One that stays away for longer is a new one later.
        self.removed
            .retain(|_, removed| removed.index.is_some() || removed.at + OFFLOAD_RETURN > now);
    }

    /// Returns when an interface that was removed may be added again.
    fn returns(&self, name: &str) -> Option<Instant> {
        let removed = self.removed.get(name)?.at;
        let last = self.returned.map_or(removed, |at| at.max(removed));
        Some(last + OFFLOAD_RETURN)
    }

    /// Handles the answer to a command, if it is the awaited one. `may_exist`: the kernel may have a table
    /// after a failure.
    pub(in crate::agent) fn answer(
        &mut self,
        now: Instant,
        command: u64,
        outcome: Result<(), Failed>,
        may_exist: bool,
    ) {
        if !self.written.awaits(command) {
            return;
        }
        self.may_exist = may_exist;
        if let Some(reason) = self.written.note(now, outcome) {
            let reason = Text::new(reason);
            emit(Event::OffloadFailed { reason });
        }
    }

    /// Returns why nothing, or not everything, is offloaded although it is requested.
    pub(in crate::agent) fn problem(&self) -> Option<&str> {
        self.refused.as_deref().or_else(|| self.written.reason())
    }

    /// Returns when the next action is due without an event.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let write = match self.is_due() {
            true => Some(self.not_before.unwrap_or(Instant(0))),
            false => self.written.timeout(),
        };
        write.into_iter().chain(self.returns_at).min()
    }

    fn is_due(&self) -> bool {
        !self.written.is_under_way()
            && !self.written.is_settled()
            && self.written.timeout().is_none()
    }
}
