//! Update groups: peers that are told the same share one walk of the log.
//!
//! A group keeps, for every slot, the peer whose route its members were last told. That is all it
//! takes to leave a member's own routes out and to take back from it what it holds when its own
//! route becomes the best one.

use alloc::vec::Vec;

use bgp_proto::Net;

use super::cursor::Cursor;
use super::runs::{Run, Runs};
use crate::bite::{Budget, Progress};
use crate::family::FamilyTable;
use crate::peer::PeerId;
use crate::shared::Shared;
use crate::table::Key;

/// The number of an update group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// What the shared walk of a group hands over. Members that walk by themselves take no part.
pub trait ExportSink {
    /// All members but `run.source` are told of a route.
    fn reach(&mut self, net: Net<'_>, run: &Run<'_>);
    /// All members but `except` are told that there is no route; that one was never told of it.
    fn unreach(&mut self, net: Net<'_>, except: Option<PeerId>);
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
}

impl GroupState {
    /// A group that begins at the end of the log. Members are fed one by one, so of everything
    /// that is in the table already the group cannot be sure.
    fn new(next: u64, table_len: u32) -> Self {
        let mut state = Self {
            cursor: Cursor::following(next),
            told: Vec::new(),
            unsure: Vec::new(),
        };
        state
            .unsure
            .resize(table_len.div_ceil(64) as usize, u64::MAX);
        state
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

    fn take_unsure(&mut self, slot: u32) -> bool {
        let Some(bits) = self.unsure.get_mut(slot as usize / 64) else {
            return false;
        };
        let bit = 1 << (slot % 64);
        let was = *bits & bit != 0;
        *bits &= !bit;
        was
    }

    /// The slot is about to be given back.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.tell(slot, None);
        self.take_unsure(slot);
    }

    /// The table is empty.
    pub(crate) fn forget_all(&mut self) {
        self.told = Vec::new();
        self.unsure = Vec::new();
    }

    pub(crate) const fn cursor(&self) -> Cursor {
        self.cursor
    }
}

/// Withdrawals of one bite, by audience.
#[derive(Debug, Default)]
pub(crate) struct Withdrawals {
    /// For all but one, or for all.
    except: Vec<(Option<PeerId>, u32)>,
    /// For one alone.
    only: Vec<(PeerId, u32)>,
}

impl<K: Key> FamilyTable<K> {
    /// The state of a group, made when it is first asked for.
    pub(super) fn group(&mut self, group: GroupId) -> &mut GroupState {
        let (next, len) = (self.log.next(), self.table.len());
        self.groups
            .entry(group)
            .or_insert_with(|| GroupState::new(next, len))
    }

    pub(crate) fn group_cursor(&mut self, group: GroupId) -> Cursor {
        self.group(group).cursor
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
        let mut cursor = self.group(group).cursor;
        if self.tombstones.are_lost_to(cursor.heard()) {
            self.groups.remove(&group);
            return Progress::Lost;
        }
        let mut slots = core::mem::take(&mut self.scratch.slots);
        let step = self
            .log
            .read(&mut cursor, self.table.len(), budget.0, &mut slots);
        self.group(group).cursor = cursor;
        let mut runs = core::mem::take(&mut self.scratch.runs);
        runs.clear();
        for &slot in &slots {
            self.weigh(shared, group, &rules, slot, &mut runs);
        }
        self.withdraw_from(sink);
        runs.emit(
            shared,
            &rules,
            self.row,
            |slot| self.net(slot),
            &mut |net, run| {
                sink.reach(net, run);
            },
        );
        self.scratch.runs = runs;
        self.scratch.slots = slots;
        step.progress
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
        if !self.is_readable(at) {
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
                    withdrawals.only.push((source, at));
                }
            }
            None if unsure => withdrawals.except.push((None, at)),
            None if old.is_some() => withdrawals.except.push((old, at)),
            None => return,
        }
        state.tell(at, new.map(|(_, source)| source));
    }

    fn withdraw_from(&mut self, sink: &mut dyn ExportSink) {
        let mut withdrawals = core::mem::take(&mut self.scratch.withdrawals);
        withdrawals.except.sort_unstable();
        for (except, slot) in withdrawals.except.drain(..) {
            sink.unreach(self.net(slot), except);
        }
        withdrawals.only.sort_unstable();
        for (only, slot) in withdrawals.only.drain(..) {
            sink.unreach_only(self.net(slot), only);
        }
        self.scratch.withdrawals = withdrawals;
    }
}
