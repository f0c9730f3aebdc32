//! The announcements of a step, grouped into runs of equal attributes from one peer.

use alloc::vec::Vec;
use core::cell::LazyCell;

use bgp_proto::{FamilyRow, Net, Nlri};

use super::rules::{self, GroupId, GroupRules, Origin};
use super::sent::Chosen;
use super::sink::{ExportSink, Run};
use super::visit::View;
use crate::attributes::{AttrId, LOCAL_PREF_DEFAULT};
use crate::path::Path;
use crate::peer::PeerId;
use crate::policy::{InterfaceName, Policy, RouteContext, Verdict};
use crate::role::Role;
use crate::shared::Shared;
use crate::table::Key;

/// An announcement of one path among several of a prefix.
#[derive(Clone, Copy, Debug)]
struct PathRef {
    slot: u32,
    source: PeerId,
    /// Its received path identifier.
    received_id: u32,
    /// Its sent path identifier.
    path_id: u32,
}

/// Consecutive announcements of one run. The fields that identify the run come first, so that
/// sorting forms runs; the source is the very first, so that runs for the same members are
/// adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    source: PeerId,
    attributes: AttrId,
    /// Their start in [`Runs::places`].
    from: u32,
    len: u32,
}

/// The announcements of a step.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    parts: Vec<Part>,
    /// The slot of each announcement; with several paths per prefix, an index into [`Runs::paths`].
    places: Vec<u32>,
    paths: Vec<PathRef>,
    /// Sets that a policy has made for this step.
    edited: Vec<AttrId>,
    /// The group of this step.
    group: Option<GroupId>,
}

impl Runs {
    /// Begins a step of a group.
    pub(super) fn begin(&mut self, group: GroupId) {
        self.group = Some(group);
        self.parts.clear();
        self.places.clear();
        self.paths.clear();
    }

    /// Adds the announcement of a slot; returns whether it begins a part.
    pub(super) fn push(&mut self, attributes: AttrId, source: PeerId, slot: u32) -> bool {
        let from = self.len();
        self.places.push(slot);
        match self.parts.last_mut() {
            Some(part) if (part.attributes, part.source) == (attributes, source) => {
                part.len += 1;
                false
            }
            _ => {
                self.parts.push(Part {
                    source,
                    attributes,
                    from,
                    len: 1,
                });
                true
            }
        }
    }

    /// Adds one path of several, sent with the identifier `path_id`; returns whether it begins a
    /// part.
    pub(super) fn push_path(&mut self, path: &Chosen, slot: u32, path_id: u32) -> bool {
        let place = self.len();
        self.paths.push(PathRef {
            slot,
            source: path.source,
            received_id: path.received_id,
            path_id,
        });
        self.push(path.stamp.id(), path.source, place)
    }

    /// Returns the number of announcements so far.
    pub(super) fn len(&self) -> u32 {
        self.places.len() as u32
    }

    /// Passes the announcements to the sink, run by run.
    pub(super) fn send<K: Key>(
        &mut self,
        view: &mut View<'_, K>,
        rules: &GroupRules,
        sink: &mut dyn ExportSink,
    ) {
        let prefixes = &*view.prefixes;
        let row = prefixes.row();
        if self.paths.is_empty() {
            let nlri = |slot: u32| Nlri::new(prefixes.net(slot));
            return self.emit(view.shared, (rules, row), nlri, sink);
        }
        let paths = core::mem::take(&mut self.paths);
        let nlri = |place: u32| {
            let PathRef {
                slot,
                source,
                received_id,
                path_id,
            } = paths[place as usize];
            Nlri {
                path_id,
                net: prefixes.path_net(slot, source, received_id),
            }
        };
        self.emit(view.shared, (rules, row), nlri, sink);
        self.paths = paths;
    }

    /// Does the same, with `nlri` as the NLRI of a place.
    fn emit<'t>(
        &mut self,
        shared: &mut Shared,
        (rules, row): (&GroupRules, &FamilyRow),
        nlri: impl Fn(u32) -> Nlri<'t>,
        sink: &mut dyn ExportSink,
    ) {
        self.parts.sort_unstable();
        let echoes = rules.echoes(row);
        for parts in self
            .parts
            .chunk_by(|a, b| (a.attributes, a.source) == (b.attributes, b.source))
        {
            let Some(first) = parts.first() else { continue };
            let origin = Origin::of(shared.peer(first.source), shared.config.router_id);
            let attributes = shared.interner.get(first.attributes);
            let next_hop = || shared.interner.ranks(first.attributes).next_hop;
            let distance = || shared.next_hops.cost(next_hop()).unwrap_or_default();
            let mut attributes = rules::rewrite(attributes, &origin, rules, row, distance);
            let mut source = first.source;
            if echoes {
                // RFC 4684 §3.2.
                attributes.originator_id = Some(shared.config.router_id);
                attributes.local_pref = Some(LOCAL_PREF_DEFAULT);
                source = PeerId::LOCAL;
            }
            shared.runs += 1;
            let run = Run {
                id: shared.runs,
                attributes: &attributes,
                source,
            };
            for part in parts {
                let places = self.places.iter().skip(part.from as usize);
                for &place in places.take(part.len as usize) {
                    sink.reach(&nlri(place), &run);
                }
            }
        }
        for id in self.edited.drain(..) {
            shared.release(id);
        }
    }

    /// Returns the attributes with which a path may be advertised to a group, before the rewriting
    /// that is common to a run; `None` if it may not.
    pub(super) fn admit(
        &mut self,
        shared: &mut Shared,
        rules: &GroupRules,
        row: &FamilyRow,
        path: &Path,
        place: (Net<'_>, Option<InterfaceName>),
    ) -> Option<AttrId> {
        match evaluate(shared, rules, row, path, place) {
            Verdict::Accept => path.accepted(),
            Verdict::Reject => {
                if shared.rejected.export.is_some() {
                    record_rejected(shared, (self.group, rules), row, path, place);
                }
                None
            }
            Verdict::AcceptWith(attributes) => {
                let id = shared.intern(PeerId::LOCAL, *attributes);
                self.edited.push(id);
                Some(id)
            }
        }
    }
}

/// Evaluates whether a path may be advertised to a group, and with which attributes.
pub(super) fn evaluate(
    shared: &Shared,
    rules: &GroupRules,
    row: &FamilyRow,
    path: &Path,
    (net, interface): (Net<'_>, Option<InterfaceName>),
) -> Verdict {
    let Some(accepted) = path.accepted() else {
        return Verdict::Reject;
    };
    let role = shared.role(path.peer());
    match &rules.export {
        _ if !passes(shared, rules, row, (role, accepted)) => Verdict::Reject,
        Policy::AcceptAll => Verdict::Accept,
        export => export.evaluate(&RouteContext {
            family: row.family,
            net,
            attributes: &LazyCell::new(|| shared.interner.get(accepted)),
            source: role,
            peer: rules.role,
            interface,
        }),
    }
}

/// Returns whether the rules of the RFCs allow a route to a group, before its policy.
#[inline]
fn passes(
    shared: &Shared,
    rules: &GroupRules,
    row: &FamilyRow,
    (source, accepted): (Role, AttrId),
) -> bool {
    let ranks = shared.interner.ranks(accepted);
    rules.passes(source, ranks.scope, ranks.well_known.is_llgr_stale())
        && rules::has_next_hop(ranks.next_hop_form, rules, row)
}

/// Records for watchers that the export policy of a group rejected a path.
#[cold]
fn record_rejected(
    shared: &mut Shared,
    (group, rules): (Option<GroupId>, &GroupRules),
    row: &FamilyRow,
    path: &Path,
    (net, interface): (Net<'_>, Option<InterfaceName>),
) {
    let Some(accepted) = path.accepted() else {
        return;
    };
    let Some(mut rejections) = shared.rejected.export.take() else {
        return;
    };
    let source = shared.role(path.peer());
    if rejections.wants(net) && passes(shared, rules, row, (source, accepted)) {
        let evaluation = match &rules.export {
            Policy::Rules(export) => Some(export.explain(&RouteContext {
                family: row.family,
                net,
                attributes: &LazyCell::new(|| shared.interner.get(accepted)),
                source,
                peer: rules.role,
                interface,
            })),
            _ => None,
        };
        let path_id = path.path_id();
        let of = (path.peer(), group, row.family);
        rejections.push(of, Nlri { path_id, net }, evaluation);
    }
    shared.rejected.export = Some(rejections);
}
