//! Route target membership (RFC 4684): a peer with the family is sent the VPN routes that its
//! memberships select. The selection itself is in [`crate::limited`].

use bgp_fsm::Instant;
use bgp_proto::{Attributes, Family, FamilySet, Net, SessionParams};
use rib::PeerId;

use crate::{peer::Peer, speaker::Speaker};

/// The families with routes that have route targets. A specification of flows in a VPN has the
/// targets of the VPN (RFC 8955 §8).
const WITH_TARGETS: FamilySet = FamilySet::EMPTY
    .with(Family::IPV4_VPN)
    .with(Family::IPV6_VPN)
    .with(Family::L2VPN_EVPN)
    .with(Family::IPV4_VPN_FLOWSPEC)
    .with(Family::IPV6_VPN_FLOWSPEC)
    .with(Family::L2VPN_FLOWSPEC);

/// The NLRI of the default membership (RFC 4684 §4).
const DEFAULT_MEMBERSHIP: Net<'static> = Net::Opaque(&[0]);

/// Returns the families of a session in which memberships select the routes.
pub(crate) fn selected(params: &SessionParams) -> FamilySet {
    match params.families.contains(Family::ROUTE_TARGET) {
        true => params.families.intersection(WITH_TARGETS),
        false => FamilySet::EMPTY,
    }
}

impl Peer {
    /// Returns the families that are not advertised yet because the peer's memberships are awaited.
    pub(crate) fn waits_for_targets(&self) -> FamilySet {
        let params = self
            .params
            .as_ref()
            .filter(|_| self.targets_until.is_some());
        params.map_or(FamilySet::EMPTY, selected)
    }
}

impl Speaker {
    /// Applies changed memberships to the output of their peers.
    pub(crate) fn reselect(&mut self) {
        while let Some(peer) = self.rib.poll_route_targets() {
            let group = self.roster.get(peer).and_then(|state| state.group);
            let group = group.and_then(|group| self.groups.get_mut(group)?.as_mut());
            let Some(group) = group else { continue };
            for limited in group.limited_mut(peer) {
                limited.reselect();
            }
            self.watch_sent(peer);
        }
    }

    /// Begins to advertise the families that have waited for a peer's memberships: all of these have
    /// arrived, or the wait has expired.
    pub(crate) fn targets_complete(&mut self, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        let role = state.config.role;
        if state.targets_until.take().is_none() {
            return;
        }
        if let Some(families) = state.params.as_ref().map(selected) {
            self.join(peer, families.difference(self.withheld(role)));
        }
        self.rearm(peer);
    }

    /// Ends the wait for a peer's memberships if it has expired.
    pub(crate) fn expire_targets(&mut self, now: Instant, peer: PeerId) {
        let until = self.roster.get(peer).and_then(|state| state.targets_until);
        if until.is_some_and(|until| until <= now) {
            self.targets_complete(peer);
        }
    }

    /// Advertises the default membership from now on if a peer without the family is sent routes with
    /// route targets: it wants all of them. It is not withdrawn, because each change makes all peers
    /// send their routes again.
    pub(crate) fn want_all_routes(&mut self, negotiated: FamilySet) {
        let selects = negotiated.contains(Family::ROUTE_TARGET);
        if self.wants_all
            || selects
            || negotiated.intersection(WITH_TARGETS).is_empty()
            || !self.config.families.contains(Family::ROUTE_TARGET)
        {
            return;
        }
        self.wants_all = true;
        let attributes = Attributes::default();
        (self.rib).announce(Family::ROUTE_TARGET, DEFAULT_MEMBERSHIP, attributes, None);
    }
}
