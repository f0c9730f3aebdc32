//! Update groups: peers that are told the same share one walk of the log.
//!
//! A group keeps, for every slot, the peer whose route its members were last told. That is all it
//! takes to leave a member's own routes out and to take back from it what it holds when its own
//! route becomes the best one.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bgp_proto::{Net, Nlri};

use super::cursor::Cursor;
use super::path_log::PathLog;
use super::runs::{Run, Runs};
use super::sent::SentIds;
use crate::bite::{Budget, Progress};
use crate::family::FamilyTable;
use crate::import::CHUNK;
use crate::peer::PeerId;
use crate::shared::Shared;
use crate::table::Key;

/// The number of an update group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// What a walk hands over: the shared one of a group, or that of members which walk by themselves,
/// in which the group's other members take no part. "All" are those who take this walk.
///
/// Where members are told one path a prefix, all path identifiers are 0. Where they are told
/// several (RFC 7911), a withdrawal is about the path with its identifier alone.
pub trait ExportSink {
    /// All members but `run.source` are told of a route.
    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>);
    /// All members but `except` are told that there is no route; that one was never told of it.
    fn unreach(&mut self, nlri: &Nlri<'_>, except: Option<PeerId>);
    /// This member alone is told that there is no route: from now on its own is the best. It may
    /// have nothing to forget, and need not be a member at all.
    fn unreach_only(&mut self, net: Net<'_>, to: PeerId);
}

/// Nobody's route was told.
const NOBODY: u16 = u16::MAX;

/// Where a group stands in one family, and what its members hold.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(super) cursor: Cursor,
    /// By slot: the peer whose route the members were last told. That peer itself holds nothing.
    told: Vec<u16>,
    /// By slot, as bits: single members may hold something else than `told` says, because they
    /// were told of a change that still lies ahead of the group.
    unsure: Vec<u64>,
    /// What the members were told where they are told several paths of a prefix, in place of
    /// `told`.
    pub(super) sent: Option<SentIds>,
    /// Below this version, slots stay unsure: members may have been told something that the tables
    /// no longer know of.
    doubted: u64,
}

impl GroupState {
    /// A group that begins at the end of the log. Members are fed one by one, so of everything
    /// that is in the table already the group cannot be sure.
    fn new(next: u64, table_len: u32, sent: Option<SentIds>) -> Self {
        let mut state = Self {
            cursor: Cursor::following(next),
            told: Vec::new(),
            unsure: Vec::new(),
            sent,
            doubted: 0,
        };
        state.doubt(0, table_len);
        state
    }

    /// Becomes unsure of everything that is in the table, until it goes into the log with this
    /// version or a later one.
    pub(crate) fn doubt(&mut self, version: u64, table_len: u32) {
        self.doubted = version;
        self.unsure.clear();
        self.unsure
            .resize(table_len.div_ceil(64) as usize, u64::MAX);
    }

    fn told(&self, slot: u32) -> Option<PeerId> {
        let told = self
            .told
            .get(slot as usize)
            .copied()
            .filter(|&told| told != NOBODY);
        told.map(PeerId)
    }

    fn tell(&mut self, slot: u32, source: Option<PeerId>) {
        let at = slot as usize;
        let source = source.map_or(NOBODY, |source| source.0);
        if at >= self.told.len() {
            if source == NOBODY {
                return;
            }
            self.told.resize(at + 1, NOBODY);
        }
        self.told[at] = source;
    }

    pub(super) fn set_unsure(&mut self, slot: u32) {
        let at = slot as usize / 64;
        if at >= self.unsure.len() {
            self.unsure.resize(at + 1, 0);
        }
        self.unsure[at] |= 1 << (slot % 64);
    }

    pub(super) fn is_unsure(&self, slot: u32) -> bool {
        let bits = self.unsure.get(slot as usize / 64);
        bits.is_some_and(|bits| bits & 1 << (slot % 64) != 0)
    }

    fn take_unsure(&mut self, slot: u32) -> bool {
        let Some(bits) = self.unsure.get_mut(slot as usize / 64) else {
            return false;
        };
        let bit = 1 << (slot % 64);
        let was = *bits & bit != 0;
        *bits &= !bit;
        was
    }

    /// The same at a version of the slot, of which everything is about to be said.
    pub(super) fn take_unsure_at(&mut self, slot: u32, version: u64) -> bool {
        if version < self.doubted {
            return self.is_unsure(slot);
        }
        self.take_unsure(slot)
    }

    /// The slot is about to be given back.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.tell(slot, None);
        self.take_unsure(slot);
        if let Some(sent) = &mut self.sent {
            sent.forget(slot);
        }
    }

    /// The table is empty.
    pub(crate) fn forget_all(&mut self) {
        self.told = Vec::new();
        self.unsure = Vec::new();
        if let Some(sent) = &mut self.sent {
            sent.forget_all();
        }
    }

    /// All readers have come by the slot since the group did: what its members do not hold, nobody
    /// holds. Returns whether identifiers are forgotten that a reader nobody knows of may hold.
    pub(crate) fn prune(&mut self, slot: u32) -> bool {
        !self.is_unsure(slot) && self.sent.as_mut().is_some_and(|sent| sent.prune(slot))
    }

    /// Whether members are told several paths of a prefix.
    pub(crate) const fn sends_paths(&self) -> bool {
        self.sent.is_some()
    }

    /// Path identifiers kept.
    pub(crate) fn sent_len(&self) -> usize {
        self.sent.as_ref().map_or(0, SentIds::len)
    }

    pub(crate) const fn cursor(&self) -> Cursor {
        self.cursor
    }
}

/// Withdrawals of one bite, by audience.
#[derive(Debug, Default)]
pub(crate) struct Withdrawals {
    /// For all but one, or for all: slot and path identifier.
    except: Vec<(Option<PeerId>, u32, u32)>,
    /// For one alone.
    only: Vec<(PeerId, u32)>,
}

impl Withdrawals {
    pub(super) fn push(&mut self, except: Option<PeerId>, slot: u32, path_id: u32) {
        self.except.push((except, slot, path_id));
    }

    pub(super) fn push_only(&mut self, only: PeerId, slot: u32) {
        self.only.push((only, slot));
    }
}

impl<K: Key> FamilyTable<K> {
    /// The state of a group, made when it is first asked for.
    pub(crate) fn group(&mut self, shared: &Shared, group: GroupId) -> &mut GroupState {
        let (next, len) = (self.log.next(), self.prefixes.len());
        let Self {
            groups,
            path_log,
            prefixes,
            ..
        } = self;
        groups.entry(group).or_insert_with(|| {
            let sends_paths = shared.send_paths(group, prefixes.family()).is_some();
            if sends_paths {
                path_log.get_or_insert_with(|| Box::new(PathLog::new(next)));
            }
            GroupState::new(next, len, sends_paths.then(SentIds::default))
        })
    }

    /// Members of one group come to another: see [`crate::Rib::adopt`].
    pub(crate) fn adopt(&mut self, shared: &Shared, to: GroupId, from: GroupId) {
        let Some(theirs) = self.groups.get_mut(&from).map(|from| from.sent.take()) else {
            return;
        };
        let (next, len) = (self.log.next(), self.prefixes.len());
        let state = self.group(shared, to);
        if let (Some(ours), Some(theirs)) = (&mut state.sent, &theirs) {
            ours.adopt(theirs);
            // Whoever comes has heard of the slots as they are, not of what is taken back here:
            // that is kept until it has heard of a later version of the slot.
            state.doubt(next, len);
        }
        if let Some(from) = self.groups.get_mut(&from) {
            from.sent = theirs;
        }
    }

    /// A group has lost its place. It begins anew, but keeps the identifiers that members which
    /// walk by themselves may hold.
    fn start_over(&mut self, group: GroupId) {
        let sent = self.groups.remove(&group).and_then(|state| state.sent);
        if sent.is_some() {
            let state = GroupState::new(self.log.next(), self.prefixes.len(), sent);
            self.groups.insert(group, state);
        }
    }

    pub(crate) fn export(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        budget: Budget,
        sink: &mut dyn ExportSink,
    ) -> Progress {
        let Some(rules) = shared.rules(group) else {
            return Progress::Done;
        };
        let mut cursor = self.group(shared, group).cursor;
        if self.tombstones.are_lost_to(cursor.heard()) {
            self.start_over(group);
            return Progress::Lost;
        }
        if let Some(send) = rules.send_paths(self.prefixes.family()) {
            return self.export_paths(shared, group, (&rules, send), budget, sink);
        }
        let mut slots = core::mem::take(&mut self.scratch.slots);
        let step = self
            .log
            .read(&mut cursor, self.prefixes.len(), budget.0, &mut slots);
        self.group(shared, group).cursor = cursor;
        let mut runs = core::mem::take(&mut self.scratch.runs);
        runs.clear();
        for chunk in slots.chunks(CHUNK) {
            self.warm_paths(shared, chunk);
            for &slot in chunk {
                self.weigh(shared, group, &rules, slot, &mut runs);
            }
        }
        self.withdraw_from(sink);
        runs.emit(
            shared,
            &rules,
            self.prefixes.row(),
            |slot| Nlri::new(self.prefixes.net(slot)),
            &mut |nlri, run| {
                sink.reach(nlri, run);
            },
        );
        self.scratch.runs = runs;
        self.scratch.slots = slots;
        step.progress
    }

    /// Sees to it that the processor waits for what telling of all these slots reads at once, and
    /// not for one after the other.
    fn warm_paths(&self, shared: &Shared, slots: &[u32]) {
        let read = |&at: &u32| {
            let slot = self.prefixes.used(at)?;
            let path = slot.best_path()?;
            Some(shared.interner.ranks(path.accepted()?).next_hop)
        };
        let all = slots.iter().filter_map(read);
        core::hint::black_box(all.fold(0, core::ops::BitXor::bitxor));
    }

    /// Finds out what the members have to be told of a slot.
    fn weigh(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        rules: &super::GroupRules,
        at: u32,
        runs: &mut Runs,
    ) {
        if !self.prefixes.is_readable(at) {
            return;
        }
        let new = self.admitted(shared, rules, at, runs);
        let Some(state) = self.groups.get_mut(&group) else {
            return;
        };
        let unsure = state.take_unsure(at);
        let old = state.told(at);
        let withdrawals = &mut self.scratch.withdrawals;
        match new {
            Some((attributes, source)) => {
                runs.push(attributes, source, at);
                // The source held another peer's route until now, or may have.
                let holds = unsure || old.is_some_and(|old| old != source);
                if holds && shared.role(source) == rules.role {
                    withdrawals.push_only(source, at);
                }
            }
            None if unsure => withdrawals.push(None, at, 0),
            None if old.is_some() => withdrawals.push(old, at, 0),
            None => return,
        }
        state.tell(at, new.map(|(_, source)| source));
    }

    pub(super) fn withdraw_from(&mut self, sink: &mut dyn ExportSink) {
        let mut withdrawals = core::mem::take(&mut self.scratch.withdrawals);
        withdrawals.except.sort_unstable();
        for (except, slot, path_id) in withdrawals.except.drain(..) {
            let net = self.prefixes.net(slot);
            sink.unreach(&Nlri { path_id, net }, except);
        }
        withdrawals.only.sort_unstable();
        for (only, slot) in withdrawals.only.drain(..) {
            sink.unreach_only(self.prefixes.net(slot), only);
        }
        self.scratch.withdrawals = withdrawals;
    }
}
