//! The route targets that each peer wants (RFC 4684): counted while its memberships enter and leave
//! the Adj-RIB-In, so that none is searched for.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use bgp_proto::{Attributes, ExtendedCommunity, RouteTargetMembership, RouteTargetPrefix};

use crate::eligible::Ineligible;
use crate::path::Path;
use crate::peer::PeerId;

/// The route targets that a peer wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTargets {
    /// The number of paths for each; more than one if several ASes originate a membership.
    wanted: BTreeMap<RouteTargetPrefix, u32>,
}

impl RouteTargets {
    /// Returns whether a route with these attributes is wanted: it has a wanted route target, or all
    /// routes are wanted. RFC 4684 §6
    ///
    /// A route target for an IPv6 address (RFC 5701) does not fit into a membership.
    #[must_use]
    pub fn wants(&self, attributes: &Attributes) -> bool {
        let targets = attributes.extended_communities.iter();
        let mut targets = targets.filter(|each| each.is_route_target() || each.is_es_import());
        self.wanted.contains_key(&RouteTargetPrefix::ALL)
            || targets.any(|&target| self.contains(target))
    }

    /// Returns the number of different wanted route targets and prefixes of them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Returns whether no route is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Looks up once for each number of bits that occurs, which mostly is 64 alone.
    fn contains(&self, target: ExtendedCommunity) -> bool {
        let mut next = self.wanted.first_key_value();
        while let Some((first, _)) = next {
            let wanted = RouteTargetPrefix::of(target, first.bits());
            if self.wanted.contains_key(&wanted) {
                return true;
            }
            let last = RouteTargetPrefix::of(ExtendedCommunity([u8::MAX; 8]), first.bits());
            let behind = (
                core::ops::Bound::Excluded(last),
                core::ops::Bound::Unbounded,
            );
            next = self.wanted.range(behind).next();
        }
        false
    }

    /// Adds a path; returns whether that matters.
    fn add(&mut self, targets: RouteTargetPrefix) -> bool {
        let paths = self.wanted.entry(targets).or_default();
        *paths += 1;
        *paths == 1
    }

    /// Removes a path; returns whether that matters.
    fn remove(&mut self, targets: RouteTargetPrefix) -> bool {
        let Some(paths) = self.wanted.get_mut(&targets) else {
            return false;
        };
        *paths -= 1;
        *paths == 0 && self.wanted.remove(&targets).is_some()
    }
}

/// The route targets of all peers.
#[derive(Debug, Default)]
pub(crate) struct Memberships {
    of: BTreeMap<PeerId, Arc<RouteTargets>>,
    /// The peers with changes that [`poll`](Self::poll) has not returned.
    changed: BTreeSet<PeerId>,
}

impl Memberships {
    /// Records that a path of a peer for this NLRI was added, or removed.
    pub(crate) fn count(&mut self, peer: PeerId, nlri: &[u8], is_added: bool) {
        let Some(membership) = RouteTargetMembership::from_nlri(nlri) else {
            return;
        };
        let targets = Arc::make_mut(self.of.entry(peer).or_default());
        let is_changed = match is_added {
            true => targets.add(membership.targets()),
            false => targets.remove(membership.targets()),
        };
        if targets.is_empty() {
            self.of.remove(&peer);
        }
        if is_changed {
            self.changed.insert(peer);
        }
    }

    /// Returns the route targets that a peer wants.
    pub(crate) fn of(&self, peer: PeerId) -> Arc<RouteTargets> {
        self.of.get(&peer).cloned().unwrap_or_default()
    }

    /// Returns a peer with changes, until there is none.
    pub(crate) fn poll(&mut self) -> Option<PeerId> {
        self.changed.pop_first()
    }
}

/// Returns whether a path of the family is a wish of its peer.
///
/// The import policy and the checks of its attributes apply as to any path. But a peer that reflects
/// a membership of this speaker's clients back to it wants these routes, although a CLUSTER_LIST with
/// the local cluster keeps the path out of the decision process: other clients of that peer may have
/// the same membership, and it advertises one path.
pub(crate) const fn is_counted(path: &Path) -> bool {
    path.accepted().is_some()
        && matches!(path.reason(), None | Some(Ineligible::ClusterLoop))
        && path.peer().0 != PeerId::LOCAL.0
}

#[cfg(test)]
mod tests {
    use std::vec;

    use bgp_proto::Asn;

    use super::*;

    const PEER: PeerId = PeerId(3);

    fn nlri(asn: u32, target: ExtendedCommunity, bits: u8) -> vec::Vec<u8> {
        let mut nlri = vec::Vec::new();
        RouteTargetMembership::new(Asn(asn), target).put_nlri(&mut nlri);
        nlri.truncate(1 + usize::from(bits).div_ceil(8));
        nlri[0] = bits;
        nlri
    }

    fn route(targets: &[ExtendedCommunity]) -> Attributes {
        Attributes {
            extended_communities: targets.to_vec(),
            ..Attributes::default()
        }
    }

    #[test]
    fn membership_of_two_ases_ends_with_the_second() {
        let target = ExtendedCommunity::route_target_as2(64_512, 7);
        let mut all = Memberships::default();
        for (asn, is_added, changes, wants) in [
            (1, true, true, true),
            (2, true, false, true),
            (1, false, false, true),
            (2, false, true, false),
            (2, false, false, false),
        ] {
            all.count(PEER, &nlri(asn, target, 96), is_added);
            assert_eq!(all.poll(), changes.then_some(PEER));
            assert_eq!(all.of(PEER).wants(&route(&[target])), wants);
        }
        assert!(all.of.is_empty());
    }

    #[test]
    fn wanted_targets_are_those_of_any_length() {
        let targets = [
            ExtendedCommunity::route_target_as2(64_512, 6),
            ExtendedCommunity::route_target_as2(64_512, 7),
            ExtendedCommunity::route_target_as4(64_512, 7),
            ExtendedCommunity([6, 2, 0, 1, 2, 3, 4, 5]),
        ];
        let no_target = ExtendedCommunity([0, 3, 0xfc, 0, 0, 0, 0, 7]);
        for bits in core::iter::once(0).chain(32..=96) {
            for other in [None, Some(40), Some(96)] {
                let mut all = Memberships::default();
                let far = ExtendedCommunity([0x77; 8]);
                all.count(PEER, &nlri(1, targets[1], bits), true);
                if let Some(other) = other {
                    all.count(PEER, &nlri(1, far, other), true);
                }
                let wanted = all.of(PEER);
                for target in targets {
                    let same = u64::from_be_bytes(target.0) ^ u64::from_be_bytes(targets[1].0);
                    let same = same.leading_zeros() >= u32::from(bits.saturating_sub(32));
                    assert_eq!(wanted.wants(&route(&[no_target, target])), same, "{bits}");
                }
                let takes_all = bits <= 32;
                assert_eq!(wanted.wants(&route(&[no_target])), takes_all);
                assert_eq!(wanted.wants(&route(&[])), takes_all);
            }
        }
    }
}
