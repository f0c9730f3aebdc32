//! Members of a group that walk by themselves: they have just come up, or could not keep pace.
//!
//! Such a member is always told the state of now, which may be ahead of what the group was told
//! last. Where it is, the group is made unsure of the slot; when it gets there it tells everybody
//! everything about it, so that the member may join the shared walk at any moment at which it has
//! read the log to its end.

use bgp_proto::Nlri;

use super::cursor::Cursor;
use super::group::GroupId;
use super::rules::GroupRules;
use super::runs::{Run, Runs};
use crate::attributes::AttrId;
use crate::bite::{Budget, Progress};
use crate::family::FamilyTable;
use crate::peer::PeerId;
use crate::shared::Shared;
use crate::table::Key;

/// What the walk of a single member hands over; see [`super::ExportSink`] for path identifiers.
pub trait PrivateSink {
    /// The member is told of a route.
    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>);
    /// The member is told that there is no route, of which it may never have heard.
    fn unreach(&mut self, nlri: &Nlri<'_>);
}

impl<K: Key> FamilyTable<K> {
    pub(crate) fn export_private(
        &mut self,
        shared: &mut Shared,
        (group, member): (GroupId, PeerId),
        cursor: &mut Cursor,
        budget: Budget,
        sink: &mut dyn PrivateSink,
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
        if let Some(send) = rules.send_paths(self.row.family) {
            let place = (cursor, budget);
            return self.export_paths_private(shared, (group, member), (&rules, send), place, sink);
        }
        let mut slots = core::mem::take(&mut self.scratch.slots);
        let step = self
            .log
            .read(cursor, self.table.len(), budget.0, &mut slots);
        let mut runs = core::mem::take(&mut self.scratch.runs);
        runs.clear();
        for &at in &slots {
            if self.table.used(at).is_none() {
                continue;
            }
            if !self.is_readable(at) {
                // The group will come by it after the decision, and the member with it.
                self.group(shared, group).set_unsure(at);
                continue;
            }
            let version = self.table.slot(at).version;
            let state = self.group(shared, group);
            if state.cursor.is_ahead(at, version) {
                state.set_unsure(at);
            }
            match self.admitted(shared, &rules, at, &mut runs) {
                Some((attributes, source)) if source != member => {
                    runs.push(attributes, source, at);
                }
                _ if step.fresh || version == 0 => {}
                _ => sink.unreach(&Nlri::new(self.net(at))),
            }
        }
        runs.emit(
            shared,
            &rules,
            self.row,
            |slot| Nlri::new(self.net(slot)),
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
        let slot = self.table.used(at)?;
        let path = slot.paths.as_slice().get(slot.best()?)?;
        let attributes = runs.admit(shared, rules, self.row, path, self.net(at))?;
        Some((attributes, path.peer()))
    }
}
