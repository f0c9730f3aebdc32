//! Finds the needed ones of a set of peers: some prefix is reached through no peer outside the set. Pure.
//!
//! Each step reads a bounded part of the tables. A route that arrives through two peers arrives through
//! one of them first, so a peer is needed only if two passes in a row find that the same prefix depends
//! on it.

use std::collections::{BTreeMap, BTreeSet};

use bgp_io::Speaker;
use bgp_io::bgp_proto::{Family, Prefix};
use bgp_io::rib::{Budget, Dependence, PeerId, Progress};

use crate::limits::{NEEDED_PEERS_DOUBTS_MAX, NEEDED_PEERS_STEP};

/// Successive passes of the tables.
#[derive(Debug, Default)]
pub(crate) struct NeededPeers {
    pass: Option<Pass>,
    /// The prefixes that depended on the peers in the last pass.
    doubts: BTreeSet<Spot>,
}

/// The result of a pass.
#[derive(Debug)]
pub(crate) struct Found {
    /// Peers without which a prefix would become unreachable.
    pub(crate) needed: BTreeSet<PeerId>,
    /// Peers that the next pass may find to be needed.
    pub(crate) doubted: BTreeSet<PeerId>,
}

/// A prefix, or its index in the table of a family with opaque prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Spot {
    Prefix(Prefix),
    Place(Family, u32),
}

/// A pass over the tables, in bounded steps.
#[derive(Debug)]
struct Pass {
    peers: BTreeSet<PeerId>,
    needed: BTreeSet<PeerId>,
    /// The prefixes that are reached through the peers only, with these peers.
    found: BTreeMap<Spot, BTreeSet<PeerId>>,
    families: Vec<Family>,
    place: u32,
}

impl NeededPeers {
    /// Continues the pass; returns the needed peers at its end. `peers` is called only when a new pass
    /// begins.
    pub(crate) fn step(
        &mut self,
        speaker: &Speaker,
        peers: impl FnOnce() -> BTreeSet<PeerId>,
    ) -> Option<Found> {
        let mut pass = self
            .pass
            .take()
            .unwrap_or_else(|| Pass::new(speaker, peers()));
        if pass.step(speaker) == Progress::More {
            self.pass = Some(pass);
            return None;
        }
        let Pass {
            mut needed, found, ..
        } = pass;
        let again = found.iter().filter(|(spot, _)| self.doubts.contains(spot));
        needed.extend(again.flat_map(|(_, peers)| peers));
        let doubted = found.values().flatten().copied().collect();
        self.doubts = found.into_keys().collect();
        Some(Found { needed, doubted })
    }

    /// Restarts the current pass, because the set of peers has changed.
    pub(crate) fn begin_again(&mut self) {
        self.pass = None;
    }

    /// Restarts the pass and discards earlier results.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    #[cfg(test)]
    pub(crate) fn is_under_way(&self) -> bool {
        self.pass.is_some()
    }

    #[cfg(test)]
    pub(crate) fn set_under_way(&mut self) {
        self.pass = Some(Pass {
            peers: BTreeSet::new(),
            needed: BTreeSet::new(),
            found: BTreeMap::new(),
            families: Vec::new(),
            place: 8192,
        });
    }
}

impl Pass {
    fn new(speaker: &Speaker, peers: BTreeSet<PeerId>) -> Self {
        Self {
            peers,
            needed: BTreeSet::new(),
            found: BTreeMap::new(),
            families: speaker.config().families.iter().collect(),
            place: 0,
        }
    }

    /// Reads the tables for one bounded step. A peer that is found to be needed stays, and so can carry
    /// routes for others.
    fn step(&mut self, speaker: &Speaker) -> Progress {
        let mut left = NEEDED_PEERS_STEP;
        while let Some(&family) = self.families.last() {
            let from = self.place;
            let unneeded = self.peers.difference(&self.needed).copied().collect();
            let next = match speaker.rib().depend(family, &unneeded, from, Budget(left)) {
                Dependence::None => {
                    self.families.pop();
                    self.place = 0;
                    continue;
                }
                Dependence::More(place) => place,
                Dependence::At(place) => {
                    self.note(speaker, family, place);
                    place.saturating_add(1)
                }
            };
            self.place = next;
            left = left.saturating_sub(next.saturating_sub(from).max(1));
            if left == 0 {
                return Progress::More;
            }
        }
        Progress::Done
    }

    /// Records the peers through which a prefix is reached.
    fn note(&mut self, speaker: &Speaker, family: Family, place: u32) {
        let Some((_, view)) = speaker.rib().prefixes_from(family, place).next() else {
            return;
        };
        let usable = view.paths.iter().filter(|path| path.ineligible.is_none());
        let peers = usable.map(|path| path.peer);
        if self.found.len() >= NEEDED_PEERS_DOUBTS_MAX {
            return self.needed.extend(peers);
        }
        let prefix = view.net.prefix();
        let spot = prefix.map_or(Spot::Place(family, place), Spot::Prefix);
        self.found.insert(spot, peers.collect());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::make_before_break::tests::network::Network;
    use crate::make_before_break::tests::node;

    /// A peer is needed after the second pass. With too many doubts to remember, it is needed after
    /// the first.
    #[test]
    fn peer_with_too_many_doubts_is_needed_at_once() {
        for (routes, at_once) in [
            (NEEDED_PEERS_DOUBTS_MAX, false),
            (NEEDED_PEERS_DOUBTS_MAX + 1, true),
        ] {
            let mut network = Network::default();
            network.add(1, node(1, &[1, 2]));
            network.add(2, node(2, &[1, 2]));
            network.announce_many(2, routes);
            network.advance(Duration::from_secs(20));
            let speaker = network.speaker(1);
            let peers: BTreeSet<PeerId> = speaker.peers().map(|peer| peer.id).collect();
            let mut needed_peers = NeededPeers::default();
            let mut pass = || loop {
                if let Some(found) = needed_peers.step(speaker, || peers.clone()) {
                    assert!(needed_peers.doubts.len() <= NEEDED_PEERS_DOUBTS_MAX);
                    break found;
                }
            };
            let first = pass();
            assert_eq!(first.doubted, peers);
            assert_eq!(first.needed == peers, at_once, "{routes} routes");
            assert_eq!(pass().needed, peers, "{routes} routes");
        }
    }
}
