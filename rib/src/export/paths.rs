//! Groups whose members are told several paths of a prefix (RFC 7911).
//!
//! Such a group reads the log of all paths, and keeps for each slot the identifiers that its
//! members may hold (see [`super::sent`]). Each visit of a slot brings what the members hold in
//! line with the paths that are to be sent now; what they hold already is not said again.

use alloc::vec::Vec;
use core::fmt;

use bgp_proto::{Net, Nlri};

use super::cursor::Cursor;
use super::group::{ExportSink, GroupId};
use super::log::Step;
use super::rules::GroupRules;
use super::runs::{PathRef, Runs, judge};
use super::sent::{Chosen, Repeat, Word};
use crate::bite::{Budget, Progress};
use crate::decide::pick;
use crate::family::FamilyTable;
use crate::limits::PATH_BITE_PREFIXES;
use crate::peer::PeerId;
use crate::policy::Verdict;
use crate::shared::Shared;
use crate::table::Key;

/// Which paths of a prefix are sent where several may be (RFC 7911).
///
/// Paths are counted before anything is left out: by what may be announced to a peer at all, and
/// because nothing goes back to where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendPaths {
    /// The best one, the best of the others, and so on, up to this many; 0 counts as 1.
    Best(u8),
    /// Those as good as the best one down to the cost of the next hop, which is before BGP
    /// Identifiers and the like are compared: what may be used at once.
    EqualCost,
    /// All that can be used.
    All,
}

impl fmt::Display for SendPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best(most) => write!(f, "best {most}"),
            Self::EqualCost => f.write_str("equal-cost"),
            Self::All => f.write_str("all"),
        }
    }
}

/// A path that the members of a group are to hold, but for the one it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPath {
    /// The peer it was learned from.
    pub source: PeerId,
    /// Its path identifier as received; 0 for none.
    pub received_id: u32,
    /// The path identifier that members know it by; `None` if they are told one path a prefix, or
    /// if no one was told of this one yet.
    pub path_id: Option<u32>,
}

impl<K: Key> FamilyTable<K> {
    /// One bite of a group's shared walk.
    pub(super) fn export_paths(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        (rules, send): (&GroupRules, SendPaths),
        budget: Budget,
        sink: &mut dyn ExportSink,
    ) -> Progress {
        let mut cursor = self.group(shared, group).cursor;
        let mut runs = core::mem::take(&mut self.scratch.runs);
        runs.clear();
        let progress = self.read_paths(&mut cursor, budget, |this, at, _| {
            this.weigh_paths(shared, group, (rules, send), at, &mut runs)
        });
        self.group(shared, group).cursor = cursor;
        self.withdraw_from(sink);
        self.emit_paths(shared, rules, &mut runs, &mut |nlri, run| {
            sink.reach(nlri, run);
        });
        self.scratch.runs = runs;
        progress
    }

    /// One bite of the walk of members that go by themselves.
    pub(super) fn export_paths_private(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        (rules, send): (&GroupRules, SendPaths),
        (cursor, budget): (&mut Cursor, Budget),
        sink: &mut dyn ExportSink,
    ) -> Progress {
        let mut runs = core::mem::take(&mut self.scratch.runs);
        runs.clear();
        let progress = self.read_paths(cursor, budget, |this, at, fresh| {
            this.weigh_paths_private(shared, (group, fresh), (rules, send), at, &mut runs)
        });
        self.withdraw_from(sink);
        self.emit_paths(shared, rules, &mut runs, &mut |nlri, run| {
            sink.reach(nlri, run);
        });
        self.scratch.runs = runs;
        progress
    }

    /// Reads the log of all paths in small steps until as many prefixes are read, or paths told of
    /// them, as the budget has. `weigh` is handed a slot, and whether the reader holds nothing of
    /// it; it returns how many paths there were to tell.
    fn read_paths(
        &mut self,
        cursor: &mut Cursor,
        budget: Budget,
        mut weigh: impl FnMut(&mut Self, u32, bool) -> u32,
    ) -> Progress {
        let mut slots = core::mem::take(&mut self.scratch.slots);
        let mut left = budget.0.max(1);
        let progress = loop {
            let step = self.step_paths(cursor, left.min(PATH_BITE_PREFIXES), &mut slots);
            for &at in &slots {
                let told = weigh(self, at, step.fresh);
                left = left.saturating_sub(told.max(1));
            }
            if step.progress == Progress::Done || left == 0 {
                break step.progress;
            }
        };
        self.scratch.slots = slots;
        progress
    }

    fn step_paths(&self, cursor: &mut Cursor, budget: u32, slots: &mut Vec<u32>) -> Step {
        let log = self.path_log.as_deref().map(|paths| &paths.log);
        log.unwrap_or(&self.log)
            .read(cursor, self.prefixes.len(), budget, slots)
    }

    /// Finds out what the members have to be told of a slot; returns how many paths that is.
    fn weigh_paths(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        rules: (&GroupRules, SendPaths),
        at: u32,
        runs: &mut Runs,
    ) -> u32 {
        if !self.prefixes.is_readable(at) {
            return 0;
        }
        let version = self.path_version(at);
        let chosen = self.choose(shared, group, rules, (at, version), runs);
        let before = runs.len();
        if let Some(state) = self.groups.get_mut(&group) {
            let repeat = Repeat {
                all: state.take_unsure_at(at, version),
                reach: self.prefixes.keeps_wire(),
            };
            let withdrawals = &mut self.scratch.withdrawals;
            if let Some(sent) = &mut state.sent {
                sent.tell_group((at, version), &chosen, repeat, &mut |word| match word {
                    Word::Reach(path, id) => runs.push_path(path, at, id),
                    Word::Unreach(source, id) => withdrawals.push(Some(source), at, id),
                });
            }
        }
        self.scratch.chosen = chosen;
        runs.len() - before
    }

    /// The same for members that go by themselves; `fresh`: they hold nothing of the slot.
    fn weigh_paths_private(
        &mut self,
        shared: &mut Shared,
        (group, fresh): (GroupId, bool),
        rules: (&GroupRules, SendPaths),
        at: u32,
        runs: &mut Runs,
    ) -> u32 {
        if self.prefixes.used(at).is_none() {
            return 0;
        }
        if !self.prefixes.is_readable(at) {
            // The group will come by it after the decision, and the member with it.
            self.group(shared, group).set_unsure(at);
            return 0;
        }
        let version = self.path_version(at);
        let chosen = self.choose(shared, group, rules, (at, version), runs);
        let before = runs.len();
        if let Some(state) = self.groups.get_mut(&group) {
            let withdrawals = &mut self.scratch.withdrawals;
            let differs = state.sent.as_mut().is_some_and(|sent| {
                sent.tell_member((at, version), &chosen, &mut |word| match word {
                    Word::Reach(path, id) => runs.push_path(path, at, id),
                    Word::Unreach(source, id) if !fresh => {
                        withdrawals.push(Some(source), at, id);
                    }
                    Word::Unreach(..) => {}
                })
            });
            if differs {
                state.set_unsure(at);
            }
        }
        self.scratch.chosen = chosen;
        runs.len() - before
    }

    /// The version of a slot in the log of all paths.
    fn path_version(&self, at: u32) -> u64 {
        let log = self.path_log.as_deref();
        log.map_or(0, |paths| paths.version(at))
    }

    /// The paths of a slot that a group may be told, in the order of their keys.
    fn choose(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        (rules, send): (&GroupRules, SendPaths),
        (at, version): (u32, u64),
        runs: &mut Runs,
    ) -> Vec<Chosen> {
        let mut chosen = core::mem::take(&mut self.scratch.chosen);
        chosen.clear();
        let mut picked = core::mem::take(&mut self.scratch.picked);
        self.pick(shared, group, send, (at, version), &mut picked);
        let paths = self.prefixes.paths(at);
        for path in picked.iter().map(|&at| &paths[usize::from(at)]) {
            let net = self.prefixes.path_net(at, path.peer(), path.path_id());
            let place = (net, self.prefixes.interface(at, path));
            if let Some(attributes) = runs.admit(shared, rules, self.prefixes.row(), path, place) {
                chosen.push(Chosen {
                    source: path.peer(),
                    received_id: path.path_id(),
                    stamp: shared.interner.stamp(attributes),
                });
            }
        }
        chosen.sort_unstable_by_key(Chosen::key);
        self.scratch.picked = picked;
        chosen
    }

    /// Puts the indices of the paths that are to be sent at this version of a slot into `picked`.
    fn pick(
        &mut self,
        shared: &Shared,
        group: GroupId,
        send: SendPaths,
        (at, version): (u32, u64),
        picked: &mut Vec<u16>,
    ) {
        picked.clear();
        let slot = self.prefixes.slot(at);
        let paths = slot.paths();
        let sent = self
            .groups
            .get(&group)
            .and_then(|state| state.sent.as_ref());
        if let Some(keys) = sent.and_then(|sent| sent.chosen(at, version)) {
            let each = (0..).zip(paths);
            let same = each.filter(|(_, path)| keys.contains((path.peer(), path.path_id())));
            picked.extend(same.map(|(at, _): (u16, _)| at));
        } else if slot.best().is_some() {
            // Without a best path, what could be used by now has not been decided about.
            let mut candidates = core::mem::take(&mut self.scratch.candidates);
            candidates.clear();
            let each = paths.iter();
            candidates.extend(each.map(|path| self.received.candidate(shared, path)));
            pick(&mut candidates, &shared.config.decision, send, picked);
            self.scratch.candidates = candidates;
        }
    }

    fn emit_paths(
        &self,
        shared: &mut Shared,
        rules: &GroupRules,
        runs: &mut Runs,
        reach: &mut dyn FnMut(&Nlri<'_>, &super::Run<'_>),
    ) {
        let paths = runs.take_paths();
        let nlri = |place: u32| {
            let PathRef {
                slot,
                source,
                received_id,
                path_id,
            } = paths[place as usize];
            Nlri {
                path_id,
                net: self.prefixes.path_net(slot, source, received_id),
            }
        };
        runs.emit(shared, rules, self.prefixes.row(), nlri, reach);
        runs.give_back(paths);
    }

    /// The paths of a prefix that the members of a group are to hold now.
    pub(crate) fn sent(&self, shared: &Shared, group: GroupId, net: Net<'_>) -> Vec<SentPath> {
        let (Some(at), Some(rules)) = (self.prefixes.look_up(net), shared.rules(group)) else {
            return Vec::new();
        };
        let slot = self.prefixes.slot(at);
        let paths = slot.paths();
        let send = rules.send_paths(self.prefixes.family());
        let mut picked = Vec::new();
        match (slot.best(), send) {
            (None, _) => {}
            (Some(best), None) => picked.push(best as u16),
            (Some(_), Some(send)) => {
                let each = paths.iter();
                let each = each.map(|path| self.received.candidate(shared, path));
                let mut candidates: Vec<_> = each.collect();
                pick(&mut candidates, &shared.config.decision, send, &mut picked);
            }
        }
        let picked = picked.iter().map(|&at| &paths[usize::from(at)]);
        let admitted = picked.filter(|path| {
            let net = self.prefixes.path_net(at, path.peer(), path.path_id());
            let place = (net, self.prefixes.interface(at, path));
            !matches!(
                judge(shared, &rules, self.prefixes.row(), path, place),
                Verdict::Reject
            )
        });
        let sent = admitted.map(|path| SentPath {
            source: path.peer(),
            received_id: path.path_id(),
            path_id: self.groups.get(&group).and_then(|state| {
                let key = (path.peer(), path.path_id());
                let unsure = state.is_unsure(at);
                state.sent.as_ref()?.path_id(at, key, unsure)
            }),
        });
        sent.collect()
    }
}
