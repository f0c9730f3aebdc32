//! Publication of decisions to readers: the log of changes, withdrawn prefixes, and the state of
//! each group.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use bgp_proto::{Family, Net};

use super::advertise::Step;
use super::changes::{Change, Route};
use super::cursor::Cursor;
use super::group::{AdjRibOut, Withdrawals};
use super::log::Log;
use super::meter::{Charged, Meter};
use super::path_log::PathLog;
use super::paths::{Choice, SentPath, sent_paths};
use super::rules::GroupId;
use super::runs::Runs;
use super::sent::SentIds;
use super::sink::ExportSink;
use super::visit::{View, Visit, advance};
use crate::adj_rib_in::AdjRibsIn;
use crate::budget::{Budget, Progress};
use crate::config::{RibLimits, RibStats};
use crate::decide::Outcome;
use crate::limits::{CHUNK, PATH_STEP_PREFIXES};
use crate::prefixes::Prefixes;
use crate::shared::Shared;
use crate::table::Key;
use crate::tombstones::Tombstones;

/// The export side of one family.
#[derive(Debug)]
pub(crate) struct Exporter {
    family: Family,
    limits: RibLimits,
    log: Log,
    /// The log for groups that send several paths of a prefix, while there are any.
    path_log: Option<Box<PathLog>>,
    tombstones: Tombstones,
    groups: BTreeMap<GroupId, AdjRibOut>,
    scratch: Scratch,
}

/// Reused memory of steps.
#[derive(Debug, Default)]
struct Scratch {
    slots: Vec<u32>,
    runs: Runs,
    withdrawals: Withdrawals,
    choice: Choice,
    charged: Charged,
}

impl Exporter {
    pub(crate) fn new(family: Family, limits: RibLimits) -> Self {
        Self {
            family,
            limits,
            log: Log::default(),
            path_log: None,
            tombstones: Tombstones::default(),
            groups: BTreeMap::new(),
            scratch: Scratch::default(),
        }
    }

    pub(crate) fn add_stats(&self, stats: &mut RibStats) {
        stats.log_entries += self.log.len();
        stats.log_entries += self.path_log.as_ref().map_or(0, |paths| paths.log.len());
        let sent = self.groups.values().filter_map(AdjRibOut::sent);
        stats.sent_ids += sent.map(SentIds::len).sum::<usize>();
    }

    // --- outcomes of decisions -----------------------------------------------------------------

    /// Publishes the result of a change of a slot.
    #[inline]
    pub(crate) fn publish<K: Key>(
        &mut self,
        prefixes: &mut Prefixes<K>,
        at: u32,
        outcome: Outcome,
    ) {
        match outcome {
            Outcome::Pending => {}
            Outcome::Route => self.publish_route(prefixes, at),
            Outcome::Paths => self.publish_paths(prefixes, at),
            Outcome::Gone { is_due } => {
                if is_due {
                    self.publish_route(prefixes, at);
                }
                self.retain(prefixes, at);
            }
        }
    }

    /// Adds the route of a slot, or its removal, to the log.
    fn publish_route<K: Key>(&mut self, prefixes: &mut Prefixes<K>, at: u32) {
        let slot = prefixes.slot_mut(at);
        slot.publish(self.log.push(at, slot.version()));
        prefixes.keep_published(at);
        self.log.cut_to(self.log_entries_max(prefixes));
        if self.path_log.is_some() {
            self.log_paths(prefixes, at);
        }
    }

    /// Publishes a change of a path that does not change the route: relevant for readers of all
    /// paths, if there are any.
    fn publish_paths<K: Key>(&mut self, prefixes: &Prefixes<K>, at: u32) {
        if self.path_log.is_some() && prefixes.slot(at).is_published() {
            self.log.skip();
            self.log.cut_to(self.log_entries_max(prefixes));
            self.log_paths(prefixes, at);
        }
    }

    /// Adds a slot to the log of readers of all paths.
    fn log_paths<K: Key>(&mut self, prefixes: &Prefixes<K>, at: u32) {
        let max = self.log_entries_max(prefixes);
        let Some(paths) = self.path_log.as_deref_mut() else {
            return;
        };
        let old = paths.push(at);
        paths.log.cut_to(max);
        debug_assert_eq!(paths.log.next(), self.log.next(), "the logs are in step");
        // Once all readers have read the slot in its former state, none holds the routes withdrawn
        // then.
        if self.tombstones.all_have_read(old) {
            let mut pruned = false;
            for group in self.groups.values_mut() {
                pruned |= group.prune(at);
            }
            if pruned {
                self.tombstones.forget(old);
            }
        }
    }

    fn log_entries_max<K: Key>(&self, prefixes: &Prefixes<K>) -> usize {
        self.limits.log_entries_min.max(2 * prefixes.used_len())
    }

    // --- slots without paths -------------------------------------------------------------------

    /// Keeps a slot that has lost its last path until all readers have read its withdrawal.
    fn retain<K: Key>(&mut self, prefixes: &mut Prefixes<K>, at: u32) {
        let slot = prefixes.slot_mut(at);
        let version = slot.version();
        if version == 0 || self.tombstones.all_have_read(version) {
            if !slot.is_tombstone() {
                self.release(prefixes, &[at]);
            }
        } else if slot.entomb() {
            self.tombstones.push(version, at);
            if let Some(oldest) = self.tombstones.pop_excess(self.limits.tombstones_max)
                && self.exhume(prefixes, oldest, true)
            {
                self.release(prefixes, &[oldest]);
            }
        }
    }

    /// Removes a slot from the tombstones. Returns whether it is to be released.
    fn exhume<K: Key>(&mut self, prefixes: &mut Prefixes<K>, at: u32, forced: bool) -> bool {
        let slot = prefixes.slot_mut(at);
        slot.exhume();
        if !slot.paths().is_empty() || slot.is_queued() {
            return false;
        }
        let version = slot.version();
        if forced || self.tombstones.all_have_read(version) {
            self.log.blank(version);
            return true;
        }
        slot.entomb();
        self.tombstones.push(version, at);
        false
    }

    /// Releases slots without paths.
    fn release<K: Key>(&mut self, prefixes: &mut Prefixes<K>, slots: &[u32]) {
        for &at in slots {
            let version = prefixes.slot(at).version();
            if version != 0 {
                self.tombstones.forget(version);
            }
        }
        prefixes.release(slots);
        let is_empty = prefixes.len() == 0;
        if let Some(paths) = self.path_log.as_deref_mut() {
            slots.iter().for_each(|&at| paths.forget(at));
            if is_empty {
                paths.forget_all();
            }
        }
        for group in self.groups.values_mut() {
            if is_empty {
                group.forget_all();
            } else {
                slots.iter().for_each(|&at| group.forget(at));
            }
        }
    }

    /// Drops state that no reader needs any more: see [`crate::Rib::trim`].
    pub(crate) fn trim<K: Key>(&mut self, prefixes: &mut Prefixes<K>, held: &[Cursor]) {
        let groups = self.groups.values().map(AdjRibOut::cursor);
        let (mut at, mut read_below) = (self.log.next(), self.log.next());
        for cursor in groups.chain(held.iter().copied()) {
            at = at.min(cursor.at());
            read_below = read_below.min(cursor.read_below());
        }
        self.log.trim(at);
        if let Some(paths) = self.path_log.as_deref_mut() {
            paths.log.trim(at);
        }
        self.tombstones.set_read(read_below);
        loop {
            let mut chunk = core::mem::take(&mut self.scratch.slots);
            chunk.clear();
            self.tombstones.take_read(CHUNK, &mut chunk);
            let more = chunk.len() == CHUNK;
            chunk.retain(|&slot| self.exhume(prefixes, slot, false));
            prefixes.warm_slots(&chunk);
            self.release(prefixes, &chunk);
            self.scratch.slots = chunk;
            if !more {
                return;
            }
        }
    }

    // --- groups --------------------------------------------------------------------------------

    /// Returns the state of a group, made at its first use.
    fn group(&mut self, shared: &Shared, table_len: u32, group: GroupId) -> &mut AdjRibOut {
        let (family, next) = (self.family, self.log.next());
        let Self {
            groups, path_log, ..
        } = self;
        groups.entry(group).or_insert_with(|| {
            let sends_paths = shared.send_paths(group, family).is_some();
            if sends_paths {
                path_log.get_or_insert_with(|| Box::new(PathLog::new(next)));
            }
            AdjRibOut::new(next, table_len, sends_paths.then(SentIds::default))
        })
    }

    /// Returns the cursor that the members of a group share.
    pub(crate) fn group_cursor(
        &mut self,
        shared: &Shared,
        table_len: u32,
        group: GroupId,
    ) -> Cursor {
        self.group(shared, table_len, group).cursor()
    }

    /// Prepares a group for members of another one: see [`crate::Rib::adopt`].
    pub(crate) fn adopt(
        &mut self,
        shared: &Shared,
        table_len: u32,
        (to, from): (GroupId, GroupId),
    ) {
        let Some(other) = self.groups.remove(&from) else {
            return;
        };
        let next = self.log.next();
        let group = self.group(shared, table_len, to);
        if let Some(sent) = other.sent() {
            group.adopt(sent, (next, table_len));
        }
        self.groups.insert(from, other);
    }

    pub(crate) fn remove_group(&mut self, group: GroupId) {
        self.groups.remove(&group);
        if !self.groups.values().any(AdjRibOut::sends_paths) {
            self.path_log = None;
        }
    }

    /// Marks all entries stale: equal attributes no longer imply an equal output.
    pub(crate) fn mark_sent_stale(&mut self, table_len: u32) {
        let next = self.log.next();
        let groups = self.groups.values_mut();
        for group in groups.filter(|group| group.sends_paths()) {
            group.mark_all_stale(next, table_len);
        }
    }

    /// Restarts a group that has lost its position. It keeps the path identifiers that private
    /// members may hold.
    fn restart_group(&mut self, group: GroupId, table_len: u32) {
        let sent = self.groups.remove(&group).and_then(AdjRibOut::into_sent);
        if sent.is_some() {
            let new = AdjRibOut::new(self.log.next(), table_len, sent);
            self.groups.insert(group, new);
        }
    }

    // --- readers -------------------------------------------------------------------------------

    /// Returns the position of a reader that has read everything so far.
    pub(crate) fn latest(&self) -> Cursor {
        Cursor::following(self.log.next())
    }

    /// Advances a reader that has lost its position: see [`crate::Rib::skip_missed`].
    pub(crate) fn skip_missed(&self, cursor: &mut Cursor) -> u64 {
        if !self.log.is_cut_before(cursor) && !self.tombstones.are_lost_to(cursor.read_below()) {
            return 0;
        }
        let latest = self.latest();
        let missed = latest.at().saturating_sub(cursor.at());
        *cursor = latest;
        missed.max(1)
    }

    /// Performs one step of a reader of routes: see [`crate::Rib::changes`].
    pub(crate) fn changes<K: Key>(
        &mut self,
        view: &mut View<'_, K>,
        (cursor, budget): (&mut Cursor, Budget),
        reader: &mut dyn FnMut(Change<'_>),
    ) -> Progress {
        if self.tombstones.are_lost_to(cursor.read_below()) {
            *cursor = Cursor::initial();
            return Progress::Lost;
        }
        let visit = |view: &mut View<'_, K>, visit: Visit| {
            if visit.is_readable {
                let slot = view.prefixes.slot(visit.at);
                let route = Route::of((view.shared, view.received), slot);
                if route.is_some() || !visit.fresh && slot.version() != 0 {
                    let net = view.prefixes.net(visit.at);
                    reader(Change { net, route });
                }
            }
            ControlFlow::Continue(1)
        };
        let place = (cursor, budget.0);
        advance(&self.log, view, place, &mut self.scratch.slots, visit).0
    }

    /// Performs one step for the members of a group: at its shared cursor, or for private members at
    /// `own`. See [`crate::Rib::export`] and [`crate::Rib::export_private`].
    pub(crate) fn export<K: Key>(
        &mut self,
        view: &mut View<'_, K>,
        group: GroupId,
        (mut own, budget): (Option<&mut Cursor>, Budget),
        sink: &mut dyn ExportSink,
    ) -> Progress {
        let Some(rules) = view.shared.rules(group) else {
            return Progress::Done;
        };
        let rules = rules.in_family(view.prefixes.row());
        if let Some(cursor) = own.as_deref_mut()
            && self.tombstones.are_lost_to(cursor.read_below())
        {
            *cursor = Cursor::initial();
            return Progress::Lost;
        }
        // Later changes are relevant for the group, too.
        let table_len = view.prefixes.len();
        let shared = self.group(view.shared, table_len, group).cursor();
        if own.is_none() && self.tombstones.are_lost_to(shared.read_below()) {
            self.restart_group(group, table_len);
            return Progress::Lost;
        }
        let mut cursor = own.as_deref().copied().unwrap_or(shared);
        let Self {
            family,
            log,
            path_log,
            groups,
            scratch,
            ..
        } = self;
        let Some(held) = groups.get_mut(&group) else {
            return Progress::Done;
        };
        scratch.runs.begin(group);
        let mut step = Step {
            rules: &rules,
            held,
            by_themselves: own.is_some(),
            echoes: rules.echoes(view.prefixes.row()),
            runs: &mut scratch.runs,
            withdrawals: &mut scratch.withdrawals,
            meter: Meter::new(sink.room(), &mut scratch.charged),
        };
        let slots = &mut scratch.slots;
        let progress = match rules.send_paths(*family) {
            None => {
                let place = (&mut cursor, budget.0);
                advance(log, view, place, slots, |view, visit| {
                    let announcements = step.route(view, visit);
                    step.count(announcements)
                })
                .0
            }
            Some(send) => {
                let paths = path_log.as_deref();
                let log = paths.map_or(&*log, |paths| &paths.log);
                let mut left = budget.0.max(1);
                loop {
                    let place = (&mut cursor, left.min(PATH_STEP_PREFIXES));
                    let (progress, cost) = advance(log, view, place, slots, |view, visit| {
                        let version = paths.map_or(0, |paths| paths.version(visit.at));
                        let announcements =
                            step.paths(view, visit, (send, version), &mut scratch.choice);
                        step.count(announcements)
                    });
                    left = left.saturating_sub(cost);
                    if progress == Progress::Done || left == 0 || step.meter.is_full() {
                        break progress;
                    }
                }
            }
        };
        match own {
            Some(own) => *own = cursor,
            None => step.held.set_cursor(cursor),
        }
        scratch.withdrawals.send(view.prefixes, sink);
        scratch.runs.send(view, &rules, sink);
        progress
    }

    /// Returns the paths of a prefix that the members of a group must hold now.
    pub(crate) fn sent<K: Key>(
        &self,
        (prefixes, received): (&Prefixes<K>, &AdjRibsIn),
        shared: &Shared,
        group: GroupId,
        net: Net<'_>,
    ) -> Vec<SentPath> {
        let (Some(at), Some(rules)) = (prefixes.look_up(net), shared.rules(group)) else {
            return Vec::new();
        };
        sent_paths(
            (prefixes, received),
            shared,
            &rules,
            at,
            self.groups.get(&group),
        )
    }
}
