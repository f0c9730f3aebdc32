//! Limits of the bandwidth of workload interfaces: wanted, written, and rejected.
//!
//! An endpoint is up without them. A rejected limit is a problem of the endpoint, and is tried again. So is a
//! rejected removal, also after its endpoint was deleted.

use std::collections::BTreeMap;

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use super::host::{Failed, HostCommand, Orders};
use super::retry::Retry;
use crate::calc::{Bandwidth, shaper_name};
use crate::limits::{BANDWIDTH_CHECK_GAP, BANDWIDTH_COMMANDS_PER_TURN};

/// The limits of all workload interfaces, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    entries: BTreeMap<String, Entry>,
    /// The time of the next round of comparisons: all that are scheduled before it have this time.
    next_round: Option<Instant>,
    /// Commands that were issued in this turn.
    issued: usize,
}

/// The limits that an interface has or is to get.
#[derive(Clone, Debug)]
struct Entry {
    /// The link's index.
    index: u32,
    wanted: Bandwidth,
    written: Retry,
    /// When they are compared with those of the kernel.
    check_at: Option<Instant>,
}

impl Limits {
    /// Begins a turn.
    pub(super) const fn begin_turn(&mut self) {
        self.issued = 0;
    }

    /// Issues the command that is due for a workload interface. Returns the time of the next attempt.
    /// An interface without limits gets a command once, also without an endpoint: an earlier run may have left
    /// some.
    pub(super) fn put(
        &mut self,
        now: Instant,
        interface: &str,
        index: u32,
        wanted: Bandwidth,
        orders: &mut Orders,
    ) -> Option<Instant> {
        let new = || Entry {
            index,
            wanted,
            written: Retry::default(),
            check_at: None,
        };
        let entry = self.entries.entry(interface.into()).or_insert_with(new);
        if (entry.index, entry.wanted) != (index, wanted) {
            *entry = new();
        }
        if entry.check_at.take_if(|at| *at <= now).is_some() {
            entry.written.again();
        }
        if entry.written.is_due(now) {
            if self.issued >= BANDWIDTH_COMMANDS_PER_TURN {
                return Some(now);
            }
            self.issued += 1;
            let command = command(interface, wanted);
            entry.written.order(orders.push(command));
        }
        let both = [entry.written.timeout(), entry.check_at];
        both.into_iter().flatten().min()
    }

    /// Handles the answer to a command, if it is the awaited one. Returns whether it was.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        command: u64,
        interface: &str,
        outcome: Result<(), Failed>,
    ) -> bool {
        let entry = self.entries.get_mut(interface);
        let Some(entry) = entry.filter(|entry| entry.written.awaits(command)) else {
            return false;
        };
        if let Some(reason) = entry.written.note(now, outcome) {
            let reason = match entry.wanted.is_unlimited() {
                true => Text::new(format!("former limits are not removed: {reason}")),
                false => Text::new(reason),
            };
            emit(Event::InterfaceLimitFailed {
                interface: Text::new(interface),
                reason,
            });
        }
        true
    }

    /// Returns whether an interface has limits, or was without them before.
    pub(super) fn has(&self, interface: &str) -> bool {
        self.entries.contains_key(interface)
    }

    /// Removes the limits of an interface that does not exist any more. Returns the time of the next attempt.
    pub(super) fn remove(
        &mut self,
        now: Instant,
        interface: &str,
        orders: &mut Orders,
    ) -> Option<Instant> {
        let index = self.entries.get(interface)?.index;
        let is_removed = |entry: &Entry| entry.wanted.is_unlimited() && entry.written.is_settled();
        if self.entries.get(interface).is_some_and(is_removed) {
            self.entries.remove(interface);
            return None;
        }
        self.put(now, interface, index, Bandwidth::default(), orders)
    }

    /// Schedules a comparison of an interface's limits with those of the kernel, together with the others
    /// of [`BANDWIDTH_CHECK_GAP`].
    pub(super) fn check(&mut self, now: Instant, interface: &str) {
        if let Some(entry) = self.entries.get_mut(interface)
            && !entry.wanted.is_unlimited()
        {
            if self.next_round.is_none_or(|at| at <= now) {
                self.next_round = Some(now + BANDWIDTH_CHECK_GAP);
            }
            entry.check_at = entry.check_at.or(self.next_round);
        }
    }

    /// Schedules the same if a removed device was that of an interface. Returns the interface.
    pub(super) fn device_removed(&mut self, device: &str) -> Option<&str> {
        let mut entries = self.entries.iter_mut();
        let (interface, entry) = entries.find(|(interface, entry)| {
            entry.wanted.egress.is_some() && shaper_name(interface) == device
        })?;
        entry.written.again();
        Some(interface)
    }

    /// Returns why the limits of an interface are not in effect.
    pub(super) fn problem(&self, interface: &str) -> Option<String> {
        let entry = self.entries.get(interface)?;
        let reason = entry.written.reason()?;
        Some(match entry.wanted.is_unlimited() {
            true => format!("former limits of bandwidth are not removed: {reason}"),
            false => format!("the bandwidth is not limited: {reason}"),
        })
    }
}

fn command(interface: &str, bandwidth: Bandwidth) -> HostCommand {
    HostCommand::LimitBandwidth {
        interface: interface.to_owned(),
        bandwidth,
    }
}
