//! Paths that a policy rejects, recorded while they are watched.
//!
//! The tables store a path that an import policy rejects like others, and count it; one that an
//! export policy rejects is not sent. Each rejection is recorded for a watcher only: without one, a
//! rejection costs one check of [`Shared::rejected`].
//!
//! [`Shared::rejected`]: crate::shared::Shared::rejected

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;

use bgp_proto::{Family, Net, Nlri};

use crate::destination::Destination;
use crate::export::GroupId;
use crate::limits::{REJECTED_OCTETS_MAX, REJECTED_PATHS_MAX};
use crate::peer::PeerId;
use crate::policy::{Evaluation, PrefixSet};

/// The policy that rejects a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyDirection {
    /// The import policy of the peer that announced it.
    Import,
    /// The export policy of an update group.
    Export,
}

/// A path that a policy rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedPath {
    /// The peer that announced it.
    pub peer: PeerId,
    /// The update group with the export policy that rejected it; `None` if the import policy did.
    pub group: Option<GroupId>,
    /// The family.
    pub family: Family,
    /// Its path identifier; 0 for none (RFC 7911 §3).
    pub path_id: u32,
    /// The rules that rejected it; `None` if the policy has none and rejects all.
    pub evaluation: Option<Evaluation>,
    destination: Destination,
}

impl RejectedPath {
    /// Returns the destination.
    #[must_use]
    pub fn net(&self) -> Net<'_> {
        self.destination.net()
    }

    /// Returns its octets.
    fn octets(&self) -> usize {
        let terms = |evaluation: &Evaluation| {
            let terms = evaluation.terms.iter();
            evaluation.rules.len()
                + terms
                    .map(|term| term.len() + size_of::<String>())
                    .sum::<usize>()
        };
        size_of::<Self>()
            + self.destination.heap_octets()
            + self.evaluation.as_ref().map_or(0, terms)
    }
}

/// The rejected paths of both directions, while they are watched.
#[derive(Debug, Default)]
pub(crate) struct Rejected {
    pub(crate) import: Option<Box<Rejections>>,
    pub(crate) export: Option<Box<Rejections>>,
}

impl Rejected {
    pub(crate) const fn is_watched(&self, by: PolicyDirection) -> bool {
        match by {
            PolicyDirection::Import => self.import.is_some(),
            PolicyDirection::Export => self.export.is_some(),
        }
    }

    pub(crate) const fn of(&mut self, by: PolicyDirection) -> &mut Option<Box<Rejections>> {
        match by {
            PolicyDirection::Import => &mut self.import,
            PolicyDirection::Export => &mut self.export,
        }
    }
}

/// Rejected paths that wait for their watcher: bounded, the oldest ones are dropped first.
#[derive(Debug)]
pub(crate) struct Rejections {
    /// The watched destinations; `None` for all.
    watched: Option<PrefixSet>,
    waiting: VecDeque<RejectedPath>,
    octets: usize,
    lost: u64,
}

impl Rejections {
    pub(crate) fn new(watched: Option<PrefixSet>) -> Self {
        Self {
            watched,
            waiting: VecDeque::new(),
            octets: 0,
            lost: 0,
        }
    }

    /// Replaces the watched destinations.
    pub(crate) fn watch(&mut self, watched: Option<PrefixSet>) {
        self.watched = watched;
    }

    pub(crate) fn wants(&self, net: Net<'_>) -> bool {
        let watched = self.watched.as_ref();
        watched.is_none_or(|watched| watched.contains(net))
    }

    pub(crate) fn push(
        &mut self,
        (peer, group, family): (PeerId, Option<GroupId>, Family),
        nlri: Nlri<'_>,
        evaluation: Option<Evaluation>,
    ) {
        let path = RejectedPath {
            peer,
            group,
            family,
            path_id: nlri.path_id,
            evaluation,
            destination: Destination::new(nlri.net),
        };
        self.octets += path.octets();
        self.waiting.push_back(path);
        while self.waiting.len() > REJECTED_PATHS_MAX || self.octets > REJECTED_OCTETS_MAX {
            let Some(oldest) = self.waiting.pop_front() else {
                return;
            };
            self.octets -= oldest.octets();
            self.lost += 1;
        }
    }

    /// Takes the oldest one, with the number of those that were dropped before it.
    pub(crate) fn pop(&mut self) -> Option<(u64, RejectedPath)> {
        let path = self.waiting.pop_front()?;
        self.octets -= path.octets();
        Some((core::mem::take(&mut self.lost), path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(rejections: &mut Rejections, octets: &[u8]) {
        let nlri = Nlri::new(Net::Opaque(octets));
        let of = (PeerId(1), None, Family::L2VPN_EVPN);
        rejections.push(of, nlri, None);
    }

    #[test]
    fn rejected_paths_are_bounded_and_losses_counted() {
        let mut rejections = Rejections::new(None);
        let count = REJECTED_PATHS_MAX + 3;
        (0..count).for_each(|_| push(&mut rejections, &[1]));
        assert_eq!(rejections.waiting.len(), REJECTED_PATHS_MAX);
        assert_eq!(rejections.pop().map(|(lost, _)| lost), Some(3));
        assert_eq!(rejections.pop().map(|(lost, _)| lost), Some(0));
        while rejections.pop().is_some() {}
        assert_eq!(rejections.octets, 0);
        let long = alloc::vec![0; REJECTED_OCTETS_MAX / 4];
        (0..8).for_each(|_| push(&mut rejections, &long));
        assert!(rejections.octets <= REJECTED_OCTETS_MAX);
        assert_eq!(rejections.pop().map(|(lost, _)| lost), Some(5));
    }
}
