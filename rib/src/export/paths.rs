//! Groups whose members are sent several paths of a prefix (RFC 7911).
//!
//! Such a group reads the log of all paths, and stores for each slot the identifiers that its
//! members may hold (see [`super::sent`]). Each visit of a slot updates the members to the
//! currently selected paths; paths that they already hold are not sent again.

use alloc::vec::Vec;

use super::group::AdjRibOut;
use super::rules::{GroupRules, SendPaths};
use super::runs::{Runs, evaluate};
use super::sent::{Chosen, SentIds};
use super::visit::View;
use crate::adj_rib_in::AdjRibsIn;
use crate::decide::{Candidate, pick};
use crate::peer::PeerId;
use crate::policy::Verdict;
use crate::prefixes::Prefixes;
use crate::shared::Shared;
use crate::table::Key;

/// A path that the members of a group must hold, except its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentPath {
    /// The peer it was received from.
    pub source: PeerId,
    /// Its path identifier as received; 0 for none.
    pub received_id: u32,
    /// The path identifier towards members; `None` if they are sent one path per prefix, or if this
    /// one has not been sent yet.
    pub path_id: Option<u32>,
}

/// The selection of the paths of a slot for a group; its memory is reused.
#[derive(Debug, Default)]
pub(super) struct Choice {
    candidates: Vec<Candidate>,
    picked: Vec<u16>,
    chosen: Vec<Chosen>,
}

impl Choice {
    /// Selects the paths of a slot for a group, in the order of their keys.
    pub(super) fn choose<K: Key>(
        &mut self,
        view: &mut View<'_, K>,
        (rules, send): (&GroupRules, SendPaths),
        sent: Option<&SentIds>,
        (at, version): (u32, u64),
        runs: &mut Runs,
    ) -> &[Chosen] {
        self.pick(view, send, sent, (at, version));
        self.chosen.clear();
        let prefixes = &*view.prefixes;
        let paths = prefixes.paths(at);
        for path in self.picked.iter().map(|&at| &paths[usize::from(at)]) {
            let net = prefixes.path_net(at, path.peer(), path.path_id());
            let place = (net, prefixes.interface(at, path));
            if let Some(attributes) = runs.admit(view.shared, rules, prefixes.row(), path, place) {
                self.chosen.push(Chosen {
                    source: path.peer(),
                    received_id: path.path_id(),
                    stamp: view.shared.interner.stamp(attributes),
                });
            }
        }
        self.chosen.sort_unstable_by_key(Chosen::key);
        &self.chosen
    }

    /// Puts the indices of the selected paths at this version of a slot into `picked`.
    fn pick<K: Key>(
        &mut self,
        view: &View<'_, K>,
        send: SendPaths,
        sent: Option<&SentIds>,
        (at, version): (u32, u64),
    ) {
        self.picked.clear();
        let slot = view.prefixes.slot(at);
        let paths = slot.paths();
        if let Some(keys) = sent.and_then(|sent| sent.chosen(at, version)) {
            let each = (0..).zip(paths);
            let same = each.filter(|(_, path)| keys.contains((path.peer(), path.path_id())));
            self.picked.extend(same.map(|(at, _): (u16, _)| at));
        } else if slot.best().is_some() {
            // Without a best path, no decision has been made about newly usable paths.
            let candidates = &mut self.candidates;
            candidates.clear();
            let each = paths.iter();
            candidates.extend(each.map(|path| view.received.candidate(view.shared, path)));
            let rules = &view.shared.config.decision;
            pick(candidates, rules, send, &mut self.picked);
        }
    }
}

/// Returns the paths of a slot that the members of a group must hold now.
pub(super) fn sent_paths<K: Key>(
    (prefixes, received): (&Prefixes<K>, &AdjRibsIn),
    shared: &Shared,
    rules: &GroupRules,
    at: u32,
    held: Option<&AdjRibOut>,
) -> Vec<SentPath> {
    let slot = prefixes.slot(at);
    let paths = slot.paths();
    let mut picked = Vec::new();
    match (slot.best(), rules.send_paths(prefixes.family())) {
        (None, _) => {}
        (Some(best), None) => picked.push(best as u16),
        (Some(_), Some(send)) => {
            let each = paths.iter();
            let each = each.map(|path| received.candidate(shared, path));
            let mut candidates: Vec<_> = each.collect();
            pick(&mut candidates, &shared.config.decision, send, &mut picked);
        }
    }
    let picked = picked.iter().map(|&at| &paths[usize::from(at)]);
    let admitted = picked.filter(|path| {
        let net = prefixes.path_net(at, path.peer(), path.path_id());
        let place = (net, prefixes.interface(at, path));
        let verdict = evaluate(shared, rules, prefixes.row(), path, place);
        !matches!(verdict, Verdict::Reject)
    });
    let sent = admitted.map(|path| SentPath {
        source: path.peer(),
        received_id: path.path_id(),
        path_id: held.and_then(|held| {
            let key = (path.peer(), path.path_id());
            held.sent()?.path_id(at, key, held.is_stale(at))
        }),
    });
    sent.collect()
}
