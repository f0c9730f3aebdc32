//! The table of one family and everything that hangs on its slots.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt::Debug;

use bgp_proto::{Attributes, FamilyRow, Net, RouteBatch};

use crate::adj_rib_in::AdjRibsIn;
use crate::bite::{Budget, Progress};
use crate::decide::Candidate;
use crate::depend::Dependence;
use crate::explain::RouteView;
use crate::export::{
    Change, Chosen, Cursor, ExportSink, GroupId, GroupState, Log, PathLog, Runs, SentPath,
    Withdrawals,
};
use crate::import::{CHUNK, Ingested};
use crate::peer::{PathLimit, PeerCounters, PeerId};
use crate::policy::{InterfaceName, PrefixRange};
use crate::prefixes::Prefixes;
use crate::rib::{RibLimits, RibStats};
use crate::shared::Shared;
use crate::stale::{Mark, Reevaluate};
use crate::sweep::Sweep;
use crate::table::Key;
use crate::tombstones::Tombstones;

/// What a table can do, whatever its keys are.
pub(crate) trait Tables: Debug + Send {
    fn ingest(&mut self, shared: &mut Shared, peer: PeerId, batch: &RouteBatch<'_>) -> Ingested;
    fn announce(
        &mut self,
        shared: &mut Shared,
        net: Net<'_>,
        attributes: Attributes,
        interface: Option<InterfaceName>,
    );
    fn withdraw(&mut self, shared: &mut Shared, net: Net<'_>);
    fn mark(&mut self, shared: &mut Shared, peer: PeerId, how: Mark);
    fn reevaluate_peer(&mut self, peer: PeerId, how: Reevaluate);
    fn reevaluate(&mut self, shared: &mut Shared, range: &PrefixRange);
    fn limit(&mut self, peer: PeerId, limit: Option<PathLimit>);
    fn is_settled(&self, peer: PeerId) -> bool;
    fn next_hops_changed(&mut self, clock: u64);
    fn decide(&mut self, shared: &mut Shared, budget: &mut u32) -> Progress;
    fn changes(
        &mut self,
        shared: &Shared,
        cursor: &mut Cursor,
        budget: Budget,
        reader: &mut dyn FnMut(Change<'_>),
    ) -> Progress;
    fn export(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        budget: Budget,
        sink: &mut dyn ExportSink,
    ) -> Progress;
    fn export_private(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        cursor: &mut Cursor,
        budget: Budget,
        sink: &mut dyn ExportSink,
    ) -> Progress;
    fn group_cursor(&mut self, shared: &Shared, group: GroupId) -> Cursor;
    fn adopt(&mut self, shared: &Shared, to: GroupId, from: GroupId);
    fn remove_group(&mut self, group: GroupId);
    /// Equal attributes no longer mean that members are told the same.
    fn doubt_sent(&mut self);
    fn sent(&self, shared: &Shared, group: GroupId, net: Net<'_>) -> Vec<SentPath>;
    fn trim(&mut self, held: &[Cursor]);
    fn len(&self) -> u32;
    fn view<'a>(&'a self, shared: &'a Shared, at: u32) -> Option<RouteView<'a>>;
    fn lookup<'a>(&'a self, shared: &'a Shared, net: Net<'_>) -> Option<RouteView<'a>>;
    fn depend(
        &self,
        shared: &Shared,
        peers: &BTreeSet<PeerId>,
        place: u32,
        budget: Budget,
    ) -> Dependence;
    fn counters(&self, peer: PeerId) -> PeerCounters;
    fn add_stats(&self, stats: &mut RibStats);
}

/// Memory used again from bite to bite.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) slots: Vec<u32>,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) runs: Runs,
    pub(crate) withdrawals: Withdrawals,
    pub(crate) picked: Vec<u16>,
    pub(crate) chosen: Vec<Chosen>,
}

/// The table of one family.
#[derive(Debug)]
pub(crate) struct FamilyTable<K: Key> {
    limits: RibLimits,
    pub(crate) prefixes: Prefixes<K>,
    pub(crate) received: AdjRibsIn,
    pub(crate) log: Log,
    /// The log for groups that send several paths of a prefix, while there are any.
    pub(crate) path_log: Option<Box<PathLog>>,
    pub(crate) tombstones: Tombstones,
    /// Slots that wait for a decision.
    pub(crate) pending: VecDeque<u32>,
    pub(crate) sweep: Sweep,
    pub(crate) groups: BTreeMap<GroupId, GroupState>,
    pub(crate) scratch: Scratch,
}

impl<K: Key> FamilyTable<K> {
    pub(crate) fn new(row: &'static FamilyRow, seed: u64, limits: RibLimits) -> Self {
        Self {
            limits,
            prefixes: Prefixes::new(row, seed),
            received: AdjRibsIn::default(),
            log: Log::default(),
            path_log: None,
            tombstones: Tombstones::default(),
            pending: VecDeque::new(),
            sweep: Sweep::default(),
            groups: BTreeMap::new(),
            scratch: Scratch::default(),
        }
    }

    pub(crate) fn queue(&mut self, at: u32) {
        if self.prefixes.slot_mut(at).enqueue() {
            self.pending.push_back(at);
        }
    }

    /// Puts the route of a slot, or that it has none any more, into the log.
    pub(crate) fn publish(&mut self, at: u32) {
        let version = self.log.push(at, self.prefixes.slot(at).version());
        self.prefixes.publish(at, version);
        self.log.cut_to(self.log_entries_max());
        if self.path_log.is_some() {
            self.note_paths(at);
        }
    }

    /// The route of a slot is as it was, but some path of it has changed: readers of all paths
    /// have to be told, if there are any.
    pub(crate) fn publish_paths(&mut self, at: u32) {
        if self.path_log.is_some() && self.prefixes.slot(at).is_published() {
            self.log.skip();
            self.log.cut_to(self.log_entries_max());
            self.note_paths(at);
        }
    }

    /// Puts a slot into the log of those who read all paths.
    fn note_paths(&mut self, at: u32) {
        let max = self.log_entries_max();
        let Some(paths) = self.path_log.as_deref_mut() else {
            return;
        };
        let old = paths.push(at);
        paths.log.cut_to(max);
        debug_assert_eq!(paths.log.next(), self.log.next(), "the logs are in step");
        // When all readers have come by the slot as it was, none holds what was withdrawn then.
        if self.tombstones.all_heard(old) {
            let mut pruned = false;
            for state in self.groups.values_mut() {
                pruned |= state.prune(at);
            }
            if pruned {
                self.tombstones.forget(old);
            }
        }
    }

    fn log_entries_max(&self) -> usize {
        self.limits
            .log_entries_min
            .max(2 * self.prefixes.used_len())
    }

    /// A slot has lost its last path: it stays until all readers know.
    pub(crate) fn rest(&mut self, at: u32) {
        let slot = self.prefixes.slot_mut(at);
        let version = slot.version();
        if version == 0 || self.tombstones.all_heard(version) {
            if !slot.is_tombstone() {
                self.free(&[at]);
            }
        } else if slot.entomb() {
            self.tombstones.push(version, at);
            if let Some(oldest) = self.tombstones.pop_excess(self.limits.tombstones_max)
                && self.bury(oldest, true)
            {
                self.free(&[oldest]);
            }
        }
    }

    /// A slot has been taken from the tombstones. Returns whether it is to be given back.
    fn bury(&mut self, at: u32, forced: bool) -> bool {
        let slot = self.prefixes.slot_mut(at);
        slot.exhume();
        if !slot.paths().is_empty() || slot.is_queued() {
            return false;
        }
        let version = slot.version();
        if forced || self.tombstones.all_heard(version) {
            self.log.blank(version);
            return true;
        }
        slot.entomb();
        self.tombstones.push(version, at);
        false
    }

    /// Gives slots without paths back.
    fn free(&mut self, slots: &[u32]) {
        for &at in slots {
            let version = self.prefixes.slot(at).version();
            if version != 0 {
                self.tombstones.forget(version);
            }
        }
        self.prefixes.release(slots);
        if let Some(paths) = self.path_log.as_deref_mut() {
            slots.iter().for_each(|&at| paths.forget(at));
            if self.prefixes.len() == 0 {
                paths.forget_all();
            }
        }
        for state in self.groups.values_mut() {
            if self.prefixes.len() == 0 {
                state.forget_all();
            } else {
                slots.iter().for_each(|&at| state.forget(at));
            }
        }
    }
}

impl<K: Key + Send> Tables for FamilyTable<K> {
    fn ingest(&mut self, shared: &mut Shared, peer: PeerId, batch: &RouteBatch<'_>) -> Ingested {
        Self::ingest(self, shared, peer, batch)
    }

    fn announce(
        &mut self,
        shared: &mut Shared,
        net: Net<'_>,
        attributes: Attributes,
        interface: Option<InterfaceName>,
    ) {
        Self::announce(self, shared, net, attributes, interface);
    }

    fn withdraw(&mut self, shared: &mut Shared, net: Net<'_>) {
        Self::withdraw(self, shared, net);
    }

    fn mark(&mut self, shared: &mut Shared, peer: PeerId, how: Mark) {
        Self::mark(self, shared, peer, how);
    }

    fn reevaluate_peer(&mut self, peer: PeerId, how: Reevaluate) {
        Self::reevaluate_peer(self, peer, how);
        if how == Reevaluate::All {
            self.doubt_sent();
        }
    }

    fn reevaluate(&mut self, shared: &mut Shared, range: &PrefixRange) {
        Self::reevaluate(self, shared, range);
    }

    fn limit(&mut self, peer: PeerId, limit: Option<PathLimit>) {
        self.received.set_limit(peer, limit);
    }

    fn is_settled(&self, peer: PeerId) -> bool {
        self.received.is_settled(peer)
    }

    fn next_hops_changed(&mut self, clock: u64) {
        self.sweep.request_next_hops(clock, self.prefixes.len());
    }

    fn decide(&mut self, shared: &mut Shared, budget: &mut u32) -> Progress {
        Self::decide(self, shared, budget)
    }

    fn changes(
        &mut self,
        shared: &Shared,
        cursor: &mut Cursor,
        budget: Budget,
        reader: &mut dyn FnMut(Change<'_>),
    ) -> Progress {
        Self::changes(self, shared, cursor, budget, reader)
    }

    fn export(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        budget: Budget,
        sink: &mut dyn ExportSink,
    ) -> Progress {
        Self::export(self, shared, group, budget, sink)
    }

    fn export_private(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        cursor: &mut Cursor,
        budget: Budget,
        sink: &mut dyn ExportSink,
    ) -> Progress {
        Self::export_private(self, shared, group, cursor, budget, sink)
    }

    fn group_cursor(&mut self, shared: &Shared, group: GroupId) -> Cursor {
        self.group(shared, group).cursor()
    }

    fn adopt(&mut self, shared: &Shared, to: GroupId, from: GroupId) {
        Self::adopt(self, shared, to, from);
    }

    fn remove_group(&mut self, group: GroupId) {
        self.groups.remove(&group);
        if !self.groups.values().any(GroupState::sends_paths) {
            self.path_log = None;
        }
    }

    fn doubt_sent(&mut self) {
        let (next, len) = (self.log.next(), self.prefixes.len());
        let states = self.groups.values_mut();
        for state in states.filter(|state| state.sends_paths()) {
            state.doubt(next, len);
        }
    }

    fn sent(&self, shared: &Shared, group: GroupId, net: Net<'_>) -> Vec<SentPath> {
        Self::sent(self, shared, group, net)
    }

    fn trim(&mut self, held: &[Cursor]) {
        let groups = self.groups.values().map(GroupState::cursor);
        let (mut at, mut heard) = (self.log.next(), self.log.next());
        for cursor in groups.chain(held.iter().copied()) {
            at = at.min(cursor.at());
            heard = heard.min(cursor.heard());
        }
        self.log.trim(at);
        if let Some(paths) = self.path_log.as_deref_mut() {
            paths.log.trim(at);
        }
        self.tombstones.set_heard(heard);
        loop {
            let mut chunk = core::mem::take(&mut self.scratch.slots);
            chunk.clear();
            self.tombstones.take_heard(CHUNK, &mut chunk);
            let more = chunk.len() == CHUNK;
            chunk.retain(|&slot| self.bury(slot, false));
            self.prefixes.warm_slots(&chunk);
            self.free(&chunk);
            self.scratch.slots = chunk;
            if !more {
                return;
            }
        }
    }

    fn len(&self) -> u32 {
        self.prefixes.len()
    }

    fn view<'a>(&'a self, shared: &'a Shared, at: u32) -> Option<RouteView<'a>> {
        Self::view(self, shared, at)
    }

    fn lookup<'a>(&'a self, shared: &'a Shared, net: Net<'_>) -> Option<RouteView<'a>> {
        Self::view(self, shared, self.prefixes.look_up(net)?)
    }

    fn depend(
        &self,
        shared: &Shared,
        peers: &BTreeSet<PeerId>,
        place: u32,
        budget: Budget,
    ) -> Dependence {
        Self::depend(self, shared, peers, place, budget)
    }

    fn counters(&self, peer: PeerId) -> PeerCounters {
        self.received.counters(peer)
    }

    fn add_stats(&self, stats: &mut RibStats) {
        stats.prefixes += self.prefixes.occupied();
        stats.tombstones += self.prefixes.used_len() - self.prefixes.occupied();
        stats.log_entries += self.log.len();
        stats.log_entries += self.path_log.as_ref().map_or(0, |paths| paths.log.len());
        let groups = self.groups.values();
        stats.sent_ids += groups.map(GroupState::sent_len).sum::<usize>();
        stats.pending += self.pending.len();
        stats.octet_strings += self.prefixes.wire_len();
        stats.paths += self.received.paths_len();
    }
}
