//! What a bite has to announce, put into runs of equal attributes from one peer.

use alloc::vec::Vec;

use bgp_proto::{Attributes, FamilyRow, Net};

use super::rules::{self, GroupRules, Origin};
use crate::attributes::AttrId;
use crate::path::Path;
use crate::peer::PeerId;
use crate::policy::{Direction, Policy, RouteContext, Verdict};
use crate::shared::Shared;

/// What the announcements of one run have in common. Runs come whole: all prefixes of one are
/// handed over before those of the next, so that a writer can fill messages with them.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Tells runs of one speaker apart; never used again.
    pub id: u64,
    /// The attributes, as the rules of the group have them.
    pub attributes: &'a Attributes,
    /// The peer the routes were learned from.
    pub source: PeerId,
}

/// One announcement: what makes the run first, so that sorting makes runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    attributes: AttrId,
    source: PeerId,
    slot: u32,
}

/// The announcements of a bite.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    items: Vec<Item>,
    /// Sets that a policy has made for this bite.
    edited: Vec<AttrId>,
}

impl Runs {
    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    pub(super) fn push(&mut self, attributes: AttrId, source: PeerId, slot: u32) {
        self.items.push(Item {
            attributes,
            source,
            slot,
        });
    }

    /// Hands the announcements to `reach`, run by run; `net` tells the destination of a slot.
    pub(super) fn emit<'t>(
        &mut self,
        shared: &mut Shared,
        rules: &GroupRules,
        row: &FamilyRow,
        net: impl Fn(u32) -> Net<'t>,
        reach: &mut dyn FnMut(Net<'_>, &Run<'_>),
    ) {
        self.items.sort_unstable();
        for run in self
            .items
            .chunk_by(|a, b| (a.attributes, a.source) == (b.attributes, b.source))
        {
            let Some(first) = run.first() else { continue };
            let origin = Origin::of(shared, first.source);
            let attributes = shared.interner.get(first.attributes);
            let attributes = rules::rewrite(attributes, &origin, rules, row);
            shared.runs += 1;
            let told = Run {
                id: shared.runs,
                attributes: &attributes,
                source: first.source,
            };
            for item in run {
                reach(net(item.slot), &told);
            }
        }
        for id in self.edited.drain(..) {
            shared.release(id);
        }
    }

    /// The attributes with which a path may be announced to a group, before the rewriting that
    /// all of a run share; `None` if it may not.
    pub(super) fn admit(
        &mut self,
        shared: &mut Shared,
        rules: &GroupRules,
        row: &FamilyRow,
        path: &Path,
        net: Net<'_>,
    ) -> Option<AttrId> {
        let accepted = path.accepted()?;
        let role = shared.role(path.peer());
        let scope = shared.interner.ranks(accepted).scope;
        if !rules.passes(role, scope) || rules.export == Policy::RejectAll {
            return None;
        }
        let attributes = shared.interner.get(accepted);
        if !rules::has_next_hop(attributes, rules, row) {
            return None;
        }
        if rules.export == Policy::AcceptAll {
            return Some(accepted);
        }
        let context = RouteContext {
            direction: Direction::Export,
            family: row.family,
            net,
            attributes,
            source: path.peer(),
            source_role: role,
        };
        match rules.export.judge(&context) {
            Verdict::Accept => Some(accepted),
            Verdict::Reject => None,
            Verdict::AcceptWith(attributes) => {
                let id = shared.intern(*attributes);
                self.edited.push(id);
                Some(id)
            }
        }
    }
}
