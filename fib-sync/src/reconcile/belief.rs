//! Updates the believed state of the kernel from its events.

use super::backoff;
use super::delta::{Cause, Entry, Found};
use super::reconciler::{Reconciler, Round};
use crate::limits::{DUMP_GAP_MAX, LINK_SETTLE};
use crate::port::Command;
use crate::route::{Route, RouteKey};
use instant::Instant;

impl Reconciler {
    /// Handles a row of a dump.
    pub(super) fn row(&mut self, key: RouteKey, route: &Route) {
        let number = self.dumps.round;
        let Some(round) = &self.dumps.current else {
            return;
        };
        self.nexthops.used(route.nexthop);
        let ours = route.owner() == self.config.owner;
        if round.touched.contains(&(key, ours)) {
            return;
        }
        if ours && !self.owns(&key) {
            self.foreigners.note(key, route, number, &mut self.notices);
            return;
        }
        if ours {
            self.foreigners.forget(&key);
        }
        if !ours {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.foreign = Some(route.owner());
                entry.foreign_round = number;
            }
            return;
        }
        let void = self.dumps.void;
        let known = self.entries.contains_key(&key);
        self.metrics.note(key.metric);
        let entry = self.entries.entry(key).or_default();
        let before = core::mem::take(&mut entry.found);
        let mut route = route.clone();
        self.nexthops.resolve(&mut route);
        entry.observe(&key, Some(route));
        entry.round = number;
        if !void && before != Found::Unknown && (!known || before != entry.found) {
            self.counters.drift += 1;
        }
    }

    /// Handles the end of the dump of one table.
    pub(super) fn dump_done(&mut self, now: Instant, table: u32, complete: bool) {
        if !self.reads(table) {
            return;
        }
        let Some(round) = &mut self.dumps.current else {
            return;
        };
        round.waiting = false;
        round.spoilt |= !complete;
        if !round.left.is_empty() && !round.spoilt {
            return;
        }
        let Some(round) = self.dumps.current.take() else {
            return;
        };
        if round.spoilt {
            self.dumps.void = true;
            self.force_dump(now);
            return;
        }
        self.sweep(&round);
        let known = |key: &RouteKey| round.touched.contains(&(*key, true));
        self.foreigners.sweep(self.dumps.round, known);
        self.dumps.void = false;
        // Routes of other programs may use an object too, so only a full dump shows that none does.
        if round.owner.is_none() && self.config.install && self.nexthops.is_read() {
            let unused = self.nexthops.sweep();
            self.outbox.extend(unused.into_iter().map(Command::Nexthop));
        }
        if !self.config.period.is_zero() {
            self.dumps.periodic = Some(now + self.config.period);
        }
    }

    fn reads(&self, table: u32) -> bool {
        let config = &self.config;
        config.tables.contains(&table) || config.tables_read.contains(&table)
    }

    /// Marks the routes that a complete round has not seen as absent.
    fn sweep(&mut self, round: &Round) {
        let number = self.dumps.round;
        self.entries.retain(|key, entry| {
            let known = |ours| round.touched.contains(&(*key, ours));
            if entry.round != number && entry.found != Found::Absent && !known(true) {
                if entry.found != Found::Unknown {
                    self.counters.drift += 1;
                }
                entry.found = Found::Absent;
            }
            if entry.foreign_round != number && round.owner.is_none() && !known(false) {
                entry.foreign = None;
            }
            let settled = entry.is_settled();
            if !settled {
                self.dirty.insert(*key);
            }
            !settled || entry.want.is_some()
        });
        self.adopt();
    }

    /// Clears the faults that the dump has resolved: the own route is in the kernel after all.
    fn adopt(&mut self) {
        let settled = |entry: &Entry| entry.found == Found::AsWanted && entry.fault.is_some();
        let keys: Vec<RouteKey> = self
            .entries
            .iter()
            .filter(|(_, entry)| settled(entry))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.clear_fault(&key);
        }
    }

    /// Handles a route that another program added or changed.
    pub(super) fn changed(&mut self, key: RouteKey, route: &Route, replaced: bool) {
        if !self.reads(key.table) {
            return;
        }
        let ours = route.owner() == self.config.owner;
        if ours && !self.owns(&key) {
            self.touch(key, true);
            let round = self.dumps.round;
            self.foreigners.note(key, route, round, &mut self.notices);
            return;
        }
        if !ours && replaced {
            self.foreigners.forget(&key);
        }
        if !ours && !self.entries.contains_key(&key) {
            return;
        }
        self.nexthops.used(route.nexthop);
        self.touch(key, ours);
        if replaced {
            self.touch(key, !ours);
        }
        let number = self.dumps.round;
        self.metrics.note(key.metric);
        let entry = self.entries.entry(key).or_default();
        if ours {
            let mut route = route.clone();
            self.nexthops.resolve(&mut route);
            entry.observe(&key, Some(route));
            entry.round = number;
            if replaced {
                entry.foreign = None;
            }
        } else {
            entry.foreign = Some(route.owner());
            entry.foreign_round = number;
            if replaced && entry.found != Found::Absent {
                self.counters.drift += u64::from(entry.found != Found::Unknown);
                entry.found = Found::Absent;
            }
        }
        if let Some(flight) = entry.flight.as_deref_mut() {
            flight.disturbed = true;
        }
        self.dirty.insert(key);
        if ours {
            self.clear_fault(&key);
            self.free_beside(&key);
        }
    }

    /// Handles a route, or hops of it, that another program or the kernel removed.
    pub(super) fn gone(&mut self, now: Instant, key: RouteKey, route: &Route) {
        let ours = route.owner() == self.config.owner;
        if ours && !self.owns(&key) {
            self.touch(key, true);
            self.foreigners.forget(&key);
            return;
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if let Some(flight) = entry.flight.as_deref_mut() {
            flight.disturbed = true;
        }
        let mut certain = true;
        if !ours {
            if entry.foreign == Some(route.owner()) {
                entry.foreign = None;
            }
        } else if let Some(present) = entry.present() {
            // A route over an object is removed as a whole.
            let left = match route.nexthop {
                Some(_) => Some(None),
                None => present.without(route),
            };
            match left {
                Some(left) => entry.observe(&key, left),
                None => certain = false,
            }
            self.counters.drift += 1;
        } else if entry.found == Found::Unknown {
            certain = !key.is_ipv6() || !route.kind.forwards();
            if certain {
                entry.found = Found::Absent;
            }
        }
        if certain {
            self.touch(key, ours);
        } else {
            entry.found = Found::Unknown;
            self.force_dump(now);
        }
        // The obstacle may have been removed: try at once.
        self.clear_fault(&key);
        self.dirty.insert(key);
    }

    /// Records that an event has reported the own or the foreign route at this key, so that rows of
    /// the dump in progress do not override it.
    fn touch(&mut self, key: RouteKey, ours: bool) {
        if let Some(round) = &mut self.dumps.current {
            round.touched.insert((key, ours));
        }
    }

    /// Handles a link that went down or was removed: the kernel has removed, or is about to remove,
    /// the routes over it, and sends no notification for the IPv4 ones.
    pub(super) fn link_lost(&mut self, now: Instant, index: u32) {
        self.nexthops.link_lost(index);
        if self
            .entries
            .values()
            .any(|entry| entry.present().is_some_and(|r| r.uses(index)))
        {
            self.settle_and_dump(now);
        }
    }

    /// Schedules a read of the tables after `LINK_SETTLE`.
    pub(super) fn settle_and_dump(&mut self, now: Instant) {
        self.dumps.needed = true;
        self.dumps.not_before = self.dumps.not_before.max(now + LINK_SETTLE);
    }

    /// Retries refused routes at once: a link or an address appeared, so they may be accepted now.
    pub(super) fn forgive(&mut self) {
        let refused = |entry: &Entry| {
            entry
                .fault
                .as_ref()
                .is_some_and(|fault| matches!(fault.cause, Cause::Refused(_)))
        };
        let keys: Vec<RouteKey> = self
            .entries
            .iter()
            .filter(|(_, entry)| refused(entry))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.clear_fault(&key);
        }
    }

    /// Handles the loss of notifications.
    pub(super) fn overrun(&mut self, now: Instant) {
        self.counters.overruns += 1;
        self.dumps.void = true;
        for entry in self.entries.values_mut() {
            if let Some(flight) = entry.flight.as_deref_mut() {
                flight.disturbed = true;
            }
        }
        if let Some(round) = &mut self.dumps.current {
            round.spoilt = true;
        } else {
            self.force_dump(now);
        }
    }

    /// Schedules a dump, with a longer delay the more dumps were forced in a row.
    pub(super) fn force_dump(&mut self, now: Instant) {
        if self.dumps.needed {
            return;
        }
        if now.saturating_duration_since(self.dumps.not_before) > DUMP_GAP_MAX {
            self.dumps.in_a_row = 0;
        }
        self.dumps.needed = true;
        self.dumps.not_before = now + backoff::dump_gap(self.dumps.in_a_row);
        self.dumps.in_a_row = self.dumps.in_a_row.saturating_add(1);
    }
}
