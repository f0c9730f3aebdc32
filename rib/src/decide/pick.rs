//! Selection of the paths to send where several of a prefix may be sent (RFC 7911).

use alloc::vec::Vec;

use super::select::select;
use super::steps::{Candidate, DecisionRules, Step};
use crate::export::SendPaths;

/// Puts the indices of the selected paths into `picked`.
pub(crate) fn pick(
    paths: &mut [Candidate],
    rules: &DecisionRules,
    send: SendPaths,
    picked: &mut Vec<u16>,
) {
    picked.clear();
    let eligible = (0..).zip(paths.iter()).filter(|(_, path)| path.eligible);
    picked.extend(eligible.map(|(at, _): (u16, _)| at));
    match send {
        SendPaths::All => {}
        SendPaths::EqualCost => keep_equal(paths, rules, picked),
        SendPaths::Best(most) if picked.len() > usize::from(most) => {
            picked.clear();
            keep_best(paths, rules, most.max(1), picked);
        }
        SendPaths::Best(_) => {}
    }
}

/// Selects the paths that are equal to the best one down to the cost of the next hop.
fn keep_equal(paths: &[Candidate], rules: &DecisionRules, picked: &mut Vec<u16>) {
    if picked.len() > 1 {
        select(paths, rules, 1, &mut |at, step| {
            if step <= Step::IgpCost {
                picked.retain(|&picked| usize::from(picked) != at);
            }
        });
    }
}

/// Selects the best path, then the best of the others, and so on.
fn keep_best(paths: &mut [Candidate], rules: &DecisionRules, most: u8, picked: &mut Vec<u16>) {
    for _ in 0..most {
        let Some(best) = select(paths, rules, 1, &mut |_, _| {}).best else {
            return;
        };
        paths[best].eligible = false;
        picked.push(best as u16);
    }
}
