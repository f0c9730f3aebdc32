//! Members of a group that walk by themselves: they have just come up, or could not keep pace.
//! Members that stand at the same place may take the same walk, even at different times: what one
//! of them has been handed from one cursor to the next stays true for another that stands at the
//! first and goes on from the second.
//!
//! Such a member is always told the state of now, which may be ahead of what the group was told
//! last. Where it is, the group is made unsure of the slot; when it gets there it tells everybody
//! everything about it, so that the member may join the shared walk at any moment at which it has
//! read the log to its end.

use bgp_proto::Nlri;

use super::cursor::Cursor;
use super::group::{ExportSink, GroupId};
use super::rules::GroupRules;
use super::runs::Runs;
use crate::attributes::AttrId;
use crate::bite::{Budget, Progress};
use crate::family::FamilyTable;
use crate::peer::PeerId;
use crate::shared::Shared;
use crate::table::Key;

impl<K: Key> FamilyTable<K> {
    pub(crate) fn export_private(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        cursor: &mut Cursor,
        budget: Budget,
        sink: &mut dyn ExportSink,
    ) -> Progress {
        let Some(rules) = shared.rules(group) else {
            return Progress::Done;
        };
        if self.tombstones.are_lost_to(cursor.heard()) {
            *cursor = Cursor::feed();
            return Progress::Lost;
        }
        // What changes from now on is for the group, too.
        self.group(shared, group);
        if let Some(send) = rules.send_paths(self.prefixes.family()) {
            let place = (cursor, budget);
            return self.export_paths_private(shared, group, (&rules, send), place, sink);
        }
        let mut slots = core::mem::take(&mut self.scratch.slots);
        let step = self
            .log
            .read(cursor, self.prefixes.len(), budget.0, &mut slots);
        let mut runs = core::mem::take(&mut self.scratch.runs);
        runs.clear();
        for &at in &slots {
            if self.prefixes.used(at).is_none() {
                continue;
            }
            if !self.prefixes.is_readable(at) {
                // The group will come by it after the decision, and the member with it.
                self.group(shared, group).set_unsure(at);
                continue;
            }
            let version = self.prefixes.slot(at).version();
            let state = self.group(shared, group);
            if state.cursor.is_ahead(at, version) {
                state.set_unsure(at);
            }
            let new = self.admitted(shared, &rules, at, &mut runs);
            let may_hold = !step.fresh && version != 0;
            let withdrawals = &mut self.scratch.withdrawals;
            match new {
                Some((attributes, source)) => {
                    runs.push(attributes, source, at);
                    if may_hold && shared.role(source) == rules.role {
                        withdrawals.push_only(source, at);
                    }
                }
                None if may_hold => withdrawals.push(None, at, 0),
                None => {}
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

    /// The route of a slot as a group may be told it: attributes and source.
    pub(super) fn admitted(
        &self,
        shared: &mut Shared,
        rules: &GroupRules,
        at: u32,
        runs: &mut Runs,
    ) -> Option<(AttrId, PeerId)> {
        let slot = self.prefixes.used(at)?;
        let path = slot.best_path()?;
        let place = (self.prefixes.net(at), self.prefixes.interface(at, path));
        let attributes = runs.admit(shared, rules, self.prefixes.row(), path, place)?;
        Some((attributes, path.peer()))
    }
}
