//! Whether a prefix would be lost with some peers: for whoever wants to close their sessions.

use alloc::collections::BTreeSet;

use crate::bite::Budget;
use crate::family::FamilyTable;
use crate::peer::PeerId;
use crate::shared::Shared;
use crate::table::Key;

/// How far a look for prefixes that depend on some peers has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependence {
    /// The prefix at this place can be reached by way of them only.
    At(u32),
    /// None so far: look on from this place.
    More(u32),
    /// No prefix depends on them.
    None,
}

impl<K: Key> FamilyTable<K> {
    /// Looks for the next prefix from a place on that can be used by way of these peers only.
    pub(crate) fn depend(
        &self,
        shared: &Shared,
        peers: &BTreeSet<PeerId>,
        place: u32,
        budget: Budget,
    ) -> Dependence {
        let end = self
            .prefixes
            .len()
            .min(place.saturating_add(budget.0.max(1)));
        for at in place..end {
            let Some(slot) = self.prefixes.used(at) else {
                continue;
            };
            let usable = slot.paths().iter().filter(|path| {
                let marks = self.received.of(path.peer());
                shared.ineligible(path, marks).is_none()
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
        match end < self.prefixes.len() {
            true => Dependence::More(end),
            false => Dependence::None,
        }
    }
}
