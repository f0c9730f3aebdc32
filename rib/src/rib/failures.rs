//! Paths over failed next hops and of failed origins.

use core::net::IpAddr;

use bgp_proto::RouterId;

use super::Rib;
use crate::peer::PeerId;

impl Rib {
    /// Excludes all paths with this next hop, also in tables that do not track next hops, because the host
    /// with this address has failed; or accepts them again.
    pub fn fail_next_hop(&mut self, next_hop: IpAddr, has_failed: bool) {
        if self.shared.next_hops.fail(next_hop, has_failed) {
            self.sweep_next_hops();
        }
    }

    /// Records that a peer has sent a message. It has withdrawn none of its paths that another peer has withdrawn
    /// before, so that these stay if they become stale later.
    #[inline]
    pub fn message_received(&mut self, peer: PeerId) {
        for table in self.families.iter_mut().flatten() {
            if table.received().has_doubted(peer) {
                table.trust(peer);
            }
        }
    }

    /// Returns the BGP Identifier of a peer that has had a session.
    #[must_use]
    pub fn peer_id(&self, peer: PeerId) -> Option<RouterId> {
        self.shared.peer(peer).map(|info| info.id)
    }

    /// Excludes the stale paths of internal peers that this speaker originates, because its host has failed; or
    /// accepts them again. Paths that are not stale stay: their peers would withdraw them.
    pub fn fail_origin(&mut self, origin: RouterId, has_failed: bool) {
        let failed = &mut self.shared.failed_origins;
        let is_changed = match has_failed {
            true => failed.insert(origin),
            false => failed.remove(&origin),
        };
        if is_changed {
            for table in self.families.iter_mut().flatten() {
                table.sweep_mut().decide_all();
            }
        }
    }

    /// Requests another decision on the paths whose next hops have changed.
    pub(super) fn sweep_next_hops(&mut self) {
        let clock = self.shared.next_hops.clock();
        for table in self.families.iter_mut().flatten() {
            let len = table.len();
            table.sweep_mut().request_next_hops(clock, len);
        }
    }
}
