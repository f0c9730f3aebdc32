//! Route refresh in both directions (RFC 2918), with BoRR and EoRR if both sides support them (RFC
//! 7313).

use bgp_fsm::Instant;
use bgp_proto::{Family, FamilySet, RefreshSubtype, RouteRefresh};
use bytes::BytesMut;
use rib::PeerId;

use crate::{
    event::{Event, NoRefresh, Output},
    limits::REFRESH_MAX,
    member::RefreshMarkers,
    speaker::Speaker,
};

impl Speaker {
    /// Sends a ROUTE-REFRESH to a peer (RFC 2918 §3): for one family, or for all families of the
    /// session. Returns the requested families.
    ///
    /// # Errors
    /// The peer would not answer.
    pub fn request_refresh(
        &mut self,
        peer: PeerId,
        family: Option<Family>,
    ) -> Result<FamilySet, NoRefresh> {
        let state = self.roster.get_mut(peer).ok_or(NoRefresh::NotUp)?;
        let params = state.params.as_ref().ok_or(NoRefresh::NotUp)?;
        if !params.route_refresh {
            return Err(NoRefresh::NotSupported);
        }
        let wanted = family.map_or(params.families, |family| {
            params.families.intersection(family.into())
        });
        if wanted.is_empty() {
            return Err(NoRefresh::OtherFamilies);
        }
        let mut octets = BytesMut::new();
        for family in wanted.iter() {
            RouteRefresh::request(family).encode(&mut octets);
        }
        state.session.queue(octets.freeze());
        self.list(peer);
        Ok(wanted)
    }

    /// Handles a peer's ROUTE-REFRESH: a request, BoRR or EoRR. Families that the session does not
    /// carry, markers of a peer without the capability, and unknown subtypes are ignored (RFC 2918
    /// §4, RFC 7313 §5).
    pub(crate) fn refresh(&mut self, now: Instant, peer: PeerId, refresh: RouteRefresh) {
        let RouteRefresh { family, subtype } = refresh;
        let Some(params) = self
            .roster
            .get(peer)
            .and_then(|state| state.params.as_ref())
        else {
            return;
        };
        if !params.families.contains(family) {
            return;
        }
        let marked = params.enhanced_route_refresh;
        match subtype {
            RefreshSubtype::Request if marked => self.resend(peer, family, RefreshMarkers::Marked),
            RefreshSubtype::Request => self.resend(peer, family, RefreshMarkers::Unmarked),
            RefreshSubtype::Begin if marked => self.refresh_begins(now, peer, family),
            RefreshSubtype::End if marked => self.refresh_ends(peer, family),
            _ => {}
        }
    }

    fn resend(&mut self, peer: PeerId, family: Family, markers: RefreshMarkers) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        if let Some(group) = state
            .group
            .and_then(|group| self.groups.get_mut(group)?.as_mut())
        {
            group.refeed(&mut self.rib, (peer, &mut state.session), family, markers);
        }
        self.list(peer);
    }

    /// Handles BoRR: from here on the peer sends everything again (RFC 7313 §4.1).
    fn refresh_begins(&mut self, now: Instant, peer: PeerId, family: Family) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        state.refreshes.retain(|&(of, _)| of != family);
        state.refreshes.push((family, now + REFRESH_MAX));
        self.rib.begin_refresh(peer, family);
    }

    /// Handles EoRR: paths that the peer did not send again are removed (RFC 7313 §4.1).
    fn refresh_ends(&mut self, peer: PeerId, family: Family) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        let begun = state.refreshes.len();
        state.refreshes.retain(|&(of, _)| of != family);
        if state.refreshes.len() == begun {
            return; // There was no BoRR.
        }
        let name = state.config.name.clone();
        self.rib.end_refresh(peer, family);
        self.outputs
            .push_back(Output::Event(Event::Refreshed { peer, name, family }));
    }

    /// Ends the refreshes without an EoRR in time.
    pub(crate) fn expire_refreshes(&mut self, now: Instant, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        let overdue: FamilySet = (state.refreshes.iter())
            .filter(|(_, until)| *until <= now)
            .map(|&(family, _)| family)
            .collect();
        state.refreshes.retain(|(_, until)| *until > now);
        let name = state.config.name.clone();
        for family in overdue.iter() {
            self.rib.end_refresh(peer, family);
            let name = name.clone();
            self.outputs
                .push_back(Output::Event(Event::RefreshOverdue { peer, name, family }));
        }
    }
}
