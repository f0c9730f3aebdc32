//! Whether a prefix would be lost together with some peers: for a caller that wants to close their
//! sessions.

use alloc::collections::BTreeSet;

use crate::adj_rib_in::AdjRibsIn;
use crate::budget::Budget;
use crate::peer::PeerId;
use crate::prefixes::Prefixes;
use crate::shared::Shared;
use crate::table::Key;

/// The progress of a search for prefixes that depend on some peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependence {
    /// The prefix at this place is reachable through these peers only.
    At(u32),
    /// None so far: continue from this place.
    More(u32),
    /// No prefix depends on them.
    None,
}

/// Searches from a place on for the next prefix that is usable through these peers only.
pub(crate) fn depend<K: Key>(
    (prefixes, received): (&Prefixes<K>, &AdjRibsIn),
    shared: &Shared,
    peers: &BTreeSet<PeerId>,
    (place, budget): (u32, Budget),
) -> Dependence {
    let end = prefixes.len().min(place.saturating_add(budget.0.max(1)));
    for at in place..end {
        let Some(slot) = prefixes.used(at) else {
            continue;
        };
        let usable = slot.paths().iter().filter(|path| {
            let marks = received.of(path.peer());
            shared.is_usable(path, marks)
        });
        let (mut through, mut beside) = (false, false);
        for path in usable {
            match peers.contains(&path.peer()) {
                true => through = true,
                false => beside = true,
            }
        }
        if through && !beside {
            return Dependence::At(at);
        }
    }
    match end < prefixes.len() {
        true => Dependence::More(end),
        false => Dependence::None,
    }
}
