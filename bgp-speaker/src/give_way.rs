//! The limit of the octets in all accounts. The peer with the most octets gives way: first its new
//! paths are rejected, then its session ends.

use alloc::vec::Vec;
use core::time::Duration;

use bgp_fsm::Instant;
use bgp_proto::{Family, FamilySet, Notification};
use rib::{PathLimit, PeerId};

use crate::{
    config::LimitAction,
    event::{Event, Output},
    limits::{
        LIMIT_CHECK_EVERY, LIMIT_REST_S, MEMORY_CLEARED_PERCENT, MEMORY_END_PERCENT,
        MEMORY_REJECT_PERCENT,
    },
    memory::MemoryAction,
    outgroup::OutGroup,
    peer::Peer,
    speaker::Speaker,
};

impl Speaker {
    /// Limits the octets in the accounts of all peers and groups ([`crate::Usage::octets`]), with those
    /// of [`set_octets_beside`](Self::set_octets_beside); `None` is no limit.
    ///
    /// From [`MEMORY_REJECT_PERCENT`] of it on, new paths of the peer with the most octets are
    /// rejected, as above a prefix limit: [`Event::MemoryLimit`]. They are requested again when the
    /// octets have fallen below [`MEMORY_CLEARED_PERCENT`]. If the octets grow to
    /// [`MEMORY_END_PERCENT`] nevertheless, and those of that peer have grown, too, its session ends
    /// with Cease, Out of Resources (RFC 4486 §4), and is in idle hold. If others have grown, the
    /// next one of them is limited.
    ///
    /// The peer with the most octets is the one with the most received paths, waiting messages and
    /// listed sent paths together ([`crate::PeerOctets::total`]). Messages that wait for several peers
    /// are in the account of each, and count once in the sum.
    pub fn limit_memory(&mut self, octets_max: Option<usize>) {
        self.memory.limit(octets_max);
    }

    /// Sets the octets that the driver holds for routes, such as those for the kernel's routes. They
    /// count for [`limit_memory`](Self::limit_memory). Returns whether their number has changed: only
    /// then there is work.
    pub fn set_octets_beside(&mut self, octets: usize) -> bool {
        core::mem::replace(&mut self.memory.beside, octets) != octets
    }

    /// Measures the accounts if they may have changed much, and acts on the peer with the most
    /// octets if there are too many.
    pub(crate) fn watch_memory(&mut self, now: Instant) {
        if self.memory.octets_max.is_none() {
            return;
        }
        let octets = self.octets_of_routes();
        if !self.memory.is_due(now, octets) {
            return;
        }
        self.memory.measure(now, octets);
        self.memory.ended = (self.memory.ended).filter(|&peer| !self.rib.is_settled(peer));
        if self.memory.ended.is_some() || !self.memory.has_reached(MEMORY_REJECT_PERCENT) {
            return;
        }
        let Some((peer, octets)) = self.largest(|_| true) else {
            return;
        };
        let capped = self.roster.get(peer).filter(|state| state.is_capped());
        let Some(before) = capped.map(|state| state.capped_octets) else {
            self.cap(now, peer, octets);
            return;
        };
        if !self.memory.has_reached(MEMORY_END_PERCENT) {
            return;
        }
        if octets <= before {
            // Others have grown.
            if let Some((next, octets)) = self.largest(|state| !state.is_capped()) {
                self.cap(now, next, octets);
            }
        } else {
            self.report_memory(peer, octets, MemoryAction::End);
            self.memory.ended = Some(peer);
            let input = bgp_fsm::Input::Limited {
                notification: Notification::out_of_resources("memory_max is reached"),
                idle_hold: Duration::from_secs(LIMIT_REST_S.into()),
            };
            self.session_input(now, peer, input);
        }
    }

    /// Returns the octets of tables, messages, lists of sent paths, and the driver.
    fn octets_of_routes(&self) -> usize {
        // Messages that no ring keeps wait in queues of sessions.
        let messages = self.ring_octets().max(self.encoded.octets());
        let groups = self.groups.iter().flatten();
        let sent: usize = groups.map(OutGroup::sent_octets).sum();
        self.rib.octets_held() + messages + sent + self.memory.beside
    }

    /// Returns the established peer with the most octets among some; the first of them if there are
    /// several.
    fn largest(&self, among: impl Fn(&Peer) -> bool) -> Option<(PeerId, usize)> {
        let up = (self.roster.iter()).filter(|(_, peer)| peer.params.is_some() && among(peer));
        let octets = up.map(|(id, peer)| (id, self.octets_of(id, peer).total()));
        octets.reduce(|most, next| if next.1 > most.1 { next } else { most })
    }

    /// Rejects new paths of a peer beyond the number that it has.
    fn cap(&mut self, now: Instant, peer: PeerId, octets: usize) {
        if let Some(state) = self.roster.get_mut(peer) {
            state.capped = Some(now + LIMIT_CHECK_EVERY);
            state.capped_octets = octets;
        }
        self.set_path_limits(peer);
        self.rearm(peer);
        self.report_memory(peer, octets, MemoryAction::Reject);
    }

    /// Accepts new paths of a peer again once there is room, and requests those that were rejected.
    pub(crate) fn check_capped(&mut self, now: Instant, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        if state.capped.is_none_or(|at| at > now) {
            return;
        }
        let octets = self.octets_of_routes();
        self.memory.measure(now, octets);
        let is_full = self.memory.has_reached(MEMORY_CLEARED_PERCENT);
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        if is_full {
            state.capped = Some(now + LIMIT_CHECK_EVERY);
            return;
        }
        state.capped = None;
        // Families without room in their own limit stay in the list of those that are checked.
        let rejected: FamilySet = state.limited.iter().map(|&(family, _)| family).collect();
        self.set_path_limits(peer);
        let mut refresh = Ok(());
        let has_room = |family: &Family| self.has_room_for(peer, *family);
        let asked: Vec<Family> = rejected.iter().filter(has_room).collect();
        for family in asked {
            if let Err(error) = self.request_refresh(peer, Some(family)) {
                refresh = refresh.and(Err(error));
            }
            if let Some(state) = self.roster.get_mut(peer) {
                state.limited.retain(|&(of, _)| of != family);
            }
        }
        let name = self.peer_name(peer).into();
        let event = Event::MemoryCleared {
            peer,
            name,
            refresh,
        };
        self.outputs.push_back(Output::Event(event));
    }

    /// Sets the limits of a peer's paths in the tables: those of its configuration, or its number of
    /// paths while it is capped.
    pub(crate) fn set_path_limits(&mut self, peer: PeerId) {
        let Some(state) = self.roster.get(peer) else {
            return;
        };
        for family in self.config.families.iter() {
            let limit = state.config.prefix_limits.get(family);
            let limit =
                limit.map(|limit| PathLimit::new(limit.max, limit.action == LimitAction::Drop));
            let paths = self.rib.counters(peer, family).paths;
            let own_max = limit.filter(|limit| limit.refuse).map(|limit| limit.max);
            let cap = state
                .is_capped()
                .then(|| PathLimit::new(paths.min(own_max.unwrap_or(paths)), true));
            self.rib.limit_paths(peer, family, cap.or(limit));
        }
    }

    fn report_memory(&mut self, peer: PeerId, octets: usize, action: MemoryAction) {
        let event = Event::MemoryLimit {
            peer,
            name: self.peer_name(peer).into(),
            action,
            octets,
            total: self.memory.now,
            octets_max: self.memory.octets_max.unwrap_or_default(),
        };
        self.outputs.push_back(Output::Event(event));
    }
}
