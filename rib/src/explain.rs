//! Views of the tables for operators: every path of a prefix and why it is not the best.

use alloc::vec::Vec;

use bgp_proto::{Attributes, Net};

use crate::adj_rib_in::AdjRibsIn;
use crate::decide::{Candidate, Selection, Step, select};
use crate::eligible::Ineligible;
use crate::family::Arrival;
use crate::path::Path;
use crate::peer::PeerId;
use crate::policy::{Evaluation, Policy, RouteContext};
use crate::prefixes::Prefixes;
use crate::shared::Shared;
use crate::table::Key;

/// One prefix and all paths to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RouteView<'a> {
    /// The destination.
    pub net: Net<'a>,
    /// Its paths, the best one first, the others in the order of peers and path identifiers.
    pub paths: Vec<PathView>,
}

/// One path and its status.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PathView {
    /// The peer it was received from; [`PeerId::LOCAL`] for locally originated ones.
    pub peer: PeerId,
    /// Its path identifier; 0 for none (RFC 7911 §3).
    pub path_id: u32,
    /// Its attributes as received.
    pub received: Attributes,
    /// Its attributes after import; `None` if the import policy rejected it.
    pub accepted: Option<Attributes>,
    /// The matching rules of the import policy, if that consists of rules.
    pub evaluation: Option<Evaluation>,
    /// Why it cannot be used at all.
    pub ineligible: Option<Ineligible>,
    /// The step of the decision process at which it lost; `None` for the best.
    pub lost: Option<Step>,
    /// Whether it is the best path.
    pub best: bool,
    /// Whether it is in use: the best one, or an equal one of the multipath set.
    pub multipath: bool,
    /// Whether it would be in use without the locally originated route. A forwarder may keep it
    /// ready, so that no packet is lost when the local route is removed; without a local route this
    /// is `multipath`.
    pub fallback: bool,
    /// Whether it is from before its peer's restart (RFC 4724 §4.2).
    pub stale: bool,
    /// Whether a refresh is in progress in which its peer has not sent it again yet (RFC 7313 §4).
    pub awaits_refresh: bool,
}

impl RouteView<'_> {
    /// Returns the best path, if there is one.
    #[must_use]
    pub fn best(&self) -> Option<&PathView> {
        self.paths.iter().find(|path| path.best)
    }
}

fn is_used(selection: &Selection, index: usize) -> bool {
    let mut used = selection.multipath.iter();
    used.any(|&used| usize::from(used) == index)
}

/// Evaluates the import rules for a path again and returns the matching ones.
pub(crate) fn evaluation<K: Key>(
    prefixes: &Prefixes<K>,
    shared: &Shared,
    at: u32,
    (path, is_long_lived): (&Path, bool),
) -> Option<Evaluation> {
    let info = shared.peer(path.peer())?;
    let Policy::Rules(rules) = &info.import else {
        return None;
    };
    let mut attributes = shared.interner.get(path.received());
    if let Some(arrival) = Arrival::of(
        shared,
        (info, prefixes.row()),
        path.received(),
        is_long_lived,
    ) {
        arrival.apply(&mut attributes);
    }
    let route = RouteContext {
        family: prefixes.family(),
        net: prefixes.path_net(at, path.peer(), path.path_id()),
        attributes: &&attributes,
        source: info.role,
        peer: info.role,
        interface: None,
    };
    Some(rules.explain(&route))
}

/// Returns the view of a slot; `None` if it has no paths. The decision is repeated, so that the
/// steps are those of the actual decision process.
pub(crate) fn view<'a, K: Key>(
    (prefixes, received): (&'a Prefixes<K>, &AdjRibsIn),
    shared: &'a Shared,
    at: u32,
) -> Option<RouteView<'a>> {
    let slot = prefixes.used(at)?;
    let paths = slot.paths();
    if paths.is_empty() {
        return None;
    }
    let candidates: Vec<Candidate> = paths
        .iter()
        .map(|path| received.candidate(shared, path))
        .collect();
    let mut lost = alloc::vec![None; paths.len()];
    let max = shared.config.multipath_max;
    let selection = select(
        &candidates,
        &shared.config.decision,
        max,
        &mut |at, step| {
            lost[at] = Some(step);
        },
    );
    let fallback = if candidates.iter().any(|candidate| candidate.local) {
        let mut learned = candidates.clone();
        for candidate in &mut learned {
            candidate.eligible &= !candidate.local;
        }
        select(&learned, &shared.config.decision, max, &mut |_, _| {})
    } else {
        selection.clone()
    };
    let views = paths
        .iter()
        .zip(lost)
        .enumerate()
        .map(|(index, (path, lost))| {
            let marks = received.of(path.peer());
            let is_long_lived = marks.is_some_and(|marks| marks.is_long_lived(path));
            PathView {
                peer: path.peer(),
                path_id: path.path_id(),
                received: shared.interner.get(path.received()),
                accepted: path.accepted().map(|id| shared.interner.get(id)),
                evaluation: evaluation(prefixes, shared, at, (path, is_long_lived)),
                ineligible: shared.ineligible(path, marks),
                lost,
                best: selection.best == Some(index),
                multipath: is_used(&selection, index),
                fallback: is_used(&fallback, index),
                stale: marks.is_some_and(|marks| marks.is_stale(path)),
                awaits_refresh: marks.is_some_and(|marks| marks.awaits_refresh(path)),
            }
        });
    let mut views: Vec<_> = views.collect();
    views.sort_by_key(|view| (!view.best, view.peer, view.path_id));
    Some(RouteView {
        net: prefixes.net(at),
        paths: views,
    })
}
