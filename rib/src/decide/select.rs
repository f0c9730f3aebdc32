//! Selection among all paths of a prefix.

use bgp_proto::Asn;
use smallvec::SmallVec;

use super::steps::{Candidate, DecisionRules, Step};

/// The selected paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Selection {
    /// Index of the best path.
    pub best: Option<usize>,
    /// Indices of the paths to use at once, the best first: equal to it down to the cost of the
    /// next hop, each with a distinct next hop. Empty if no path was selected.
    pub multipath: SmallVec<[u16; 8]>,
}

type Indices = SmallVec<[u16; 32]>;

/// Selects the best path, and up to `multipath_max` to be used at once, by elimination (RFC 4271
/// §9.1.2.2): each step keeps its best paths. Every path that is not the best is reported to `lost`
/// once, with the step that eliminated it.
///
/// The outcome does not depend on the order of the paths as long as no two paths have the same peer
/// address and path identifier.
pub fn select(
    paths: &[Candidate],
    rules: &DecisionRules,
    multipath_max: u16,
    lost: &mut dyn FnMut(usize, Step),
) -> Selection {
    let mut left: Indices = (0..u16::try_from(paths.len()).unwrap_or(u16::MAX)).collect();
    let mut selection = Selection::default();
    let mut equal = Indices::new();
    for step in Step::ALL {
        match step {
            Step::Ineligible => keep(&mut left, step, lost, |at| paths[at].eligible),
            Step::Med if !rules.always_compare_med => keep_least_med(&mut left, paths, lost),
            _ => {
                let least = left
                    .iter()
                    .map(|&at| step.key(&paths[usize::from(at)]))
                    .min();
                keep(&mut left, step, lost, |at| {
                    Some(step.key(&paths[at])) == least
                });
            }
        }
        if step == Step::IgpCost && multipath_max > 1 {
            equal.clone_from(&left);
        }
        if left.is_empty() {
            return selection;
        }
    }
    selection.best = left.first().map(|&at| usize::from(at));
    selection.multipath.extend(left.first().copied());
    add_multipath(&mut selection, equal, paths, multipath_max);
    selection
}

fn keep(
    left: &mut Indices,
    step: Step,
    lost: &mut dyn FnMut(usize, Step),
    stays: impl Fn(usize) -> bool,
) {
    left.retain(|at| {
        let stays = stays(usize::from(*at));
        if !stays {
            lost(usize::from(*at), step);
        }
        stays
    });
}

/// RFC 4271 §9.1.2.2 c: eliminates a path if there is one with a lower MULTI_EXIT_DISC from the
/// same neighboring AS. All remaining paths are compared together, so their order does not matter.
fn keep_least_med(left: &mut Indices, paths: &[Candidate], lost: &mut dyn FnMut(usize, Step)) {
    let Some((first, rest)) = left.split_first() else {
        return;
    };
    let med = paths[usize::from(*first)].med;
    if rest.iter().all(|&at| paths[usize::from(at)].med == med) {
        return;
    }
    let mut least: SmallVec<[(Asn, u32); 16]> = left
        .iter()
        .map(|&at| &paths[usize::from(at)])
        .map(|path| (path.neighbor_as, path.med))
        .collect();
    least.sort_unstable();
    least.dedup_by_key(|(asn, _)| *asn);
    keep(left, Step::Med, lost, |at| {
        let path = &paths[at];
        let found = least.binary_search_by_key(&path.neighbor_as, |(asn, _)| *asn);
        let least = found
            .ok()
            .and_then(|at| least.get(at))
            .map_or(path.med, |&(_, med)| med);
        path.neighbor_as == Asn::ZERO || path.med <= least
    });
}

/// Adds paths equal to the best, in the order of the remaining steps.
fn add_multipath(
    selection: &mut Selection,
    mut equal: Indices,
    paths: &[Candidate],
    multipath_max: u16,
) {
    const LAST: [Step; 4] = [
        Step::BgpIdentifier,
        Step::ClusterListLength,
        Step::PeerAddress,
        Step::PathId,
    ];
    equal.sort_unstable_by_key(|&at| LAST.map(|step| step.key(&paths[usize::from(at)])));
    for at in equal {
        if selection.multipath.len() >= usize::from(multipath_max) {
            return;
        }
        let next_hop = |at: &u16| paths[usize::from(*at)].next_hop;
        if !selection
            .multipath
            .iter()
            .any(|chosen| next_hop(chosen) == next_hop(&at))
        {
            selection.multipath.push(at);
        }
    }
}
