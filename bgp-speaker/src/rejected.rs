//! Paths that policies reject, for watchers of single routes.

use bgp_proto::Family;
use rib::{GroupId, PeerId, PolicyDirection, PrefixSet, RejectedPath};

use crate::speaker::Speaker;

impl Speaker {
    /// Records the paths that policies reject from now on, see [`rib::Rib::watch_rejected`].
    pub fn watch_rejected(&mut self, by: PolicyDirection, destinations: Option<PrefixSet>) {
        self.rib.watch_rejected(by, destinations);
    }

    /// Stops recording rejected paths.
    pub fn unwatch_rejected(&mut self, by: PolicyDirection) {
        self.rib.unwatch_rejected(by);
    }

    /// Takes the oldest rejected path, see [`rib::Rib::poll_rejected`].
    pub fn poll_rejected(&mut self, by: PolicyDirection) -> Option<(u64, RejectedPath)> {
        self.rib.poll_rejected(by)
    }

    /// Returns the members of an update group that may receive a path from `source`, and their
    /// number: all but the source itself. See [`RejectedPath::group`].
    pub fn receivers(
        &self,
        group: GroupId,
        family: Family,
        source: PeerId,
    ) -> (usize, impl Iterator<Item = PeerId> + '_) {
        let out = self.groups.iter().flatten().find(|out| out.id() == group);
        let found = out.map(|out| out.receivers(family, source));
        let count = found.as_ref().map_or(0, |(count, _)| *count);
        (count, found.into_iter().flat_map(|(_, peers)| peers))
    }
}
