//! The consequences of a failed path to a peer (RFC 5882 §4).

use core::net::IpAddr;

use bgp_fsm::Instant;
use bgp_proto::{Notification, notification::cease};
use rib::{NextHops, PeerId, Role};

use crate::{
    config::BfdGraceful,
    event::{Event, Output},
    limits::FAILED_PEER_KEPT,
    path_state::{PathConsequence, PathState},
    peer::Peer,
    speaker::Speaker,
};

impl Speaker {
    /// Handles a state of the path to the peer at an address.
    pub(crate) fn path_state(&mut self, now: Instant, remote: IpAddr, path: PathState) {
        let found = self.roster.at(remote);
        let Some(peer) = found.or_else(|| self.failed_former(remote, path)) else {
            return;
        };
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        let is_new = core::mem::replace(&mut state.path, path) != path;
        match path {
            PathState::Failed {
                control_plane_independent,
            } => {
                let consequence = self.path_failed(now, peer, control_plane_independent);
                let name = self.peer_name(peer).into();
                let event = Event::PathFailed {
                    peer,
                    name,
                    consequence,
                };
                self.outputs.push_back(Output::Event(event));
                self.session_input(now, peer, bgp_fsm::Input::PathFailed);
                self.rearm(peer);
                self.retire(peer);
            }
            PathState::Alive | PathState::Unknown => {
                let is_up = path == PathState::Alive;
                self.session_input(now, peer, bgp_fsm::Input::PathIsUp(is_up));
                if let Some(state) = self.roster.get_mut(peer)
                    && is_up
                    && is_new
                {
                    state.path_history.works(now);
                    self.dial_path(now, peer);
                }
                self.path_works(peer);
                self.rearm(peer);
                self.retire(peer);
            }
        }
    }

    /// Returns a peer for a dynamic neighbor of the former process that has failed before it had a session
    /// with this one, so that its next hop can be excluded.
    fn failed_former(&mut self, remote: IpAddr, path: PathState) -> Option<PeerId> {
        let has_failed = matches!(path, PathState::Failed { .. });
        if !has_failed || !self.is_former_dynamic(remote) {
            return None;
        }
        let peer = self.roster.take_place(&self.config, remote).ok();
        match peer {
            Some(peer) => self.introduce(peer),
            // Its range is full: at least it is not waited for.
            None => self.forget_awaited(remote),
        }
        peer
    }

    fn path_failed(
        &mut self,
        now: Instant,
        peer: PeerId,
        control_plane_independent: bool,
    ) -> PathConsequence {
        let Some(state) = self.roster.get_mut(peer) else {
            return PathConsequence::None;
        };
        let graceful = state.config.bfd_graceful;
        let is_next_hop_of_all = is_next_hop_of_all(state);
        if state.session.established().is_some() {
            // A restarting peer closes its connection, or its kernel does: silence is no restart.
            let is_dead = graceful != BfdGraceful::Always;
            state.retains = match graceful {
                BfdGraceful::Auto => !is_next_hop_of_all,
                BfdGraceful::Always => true,
                BfdGraceful::Never => false,
            };
            let why = Notification::cease(cease::BFD_DOWN);
            // RFC 9384 §3, RFC 8538 §4. The peer may retain routes where this speaker does.
            let why = match !state.retains && has_notification_bit(state) {
                true => Notification::hard_reset(&why),
                false => why,
            };
            let hold = state.path_history.failed(now);
            let has_excluded = is_dead && self.fail_next_hop(now, peer);
            if let Some(hold) = hold {
                self.session_input(now, peer, bgp_fsm::Input::Hold(hold));
            }
            self.session_input(now, peer, bgp_fsm::Input::Rejected(why));
            return match (self.has_stale(peer), has_excluded) {
                (true, true) => PathConsequence::SessionClosedNextHopFailed,
                (true, false) => PathConsequence::SessionClosedForRestart,
                (false, _) => PathConsequence::SessionClosed,
            };
        }
        let (has_stale, remote) = (state.stale_until.is_some(), state.config.remote);
        if !has_stale && self.deferred_until().is_none() {
            return PathConsequence::None;
        }
        let is_restart = match graceful {
            BfdGraceful::Auto => !control_plane_independent,
            BfdGraceful::Always => true,
            BfdGraceful::Never => false,
        };
        if is_restart {
            return PathConsequence::Restart;
        }
        if !has_stale {
            self.forget_awaited(remote);
            self.fail_next_hop(now, peer);
            if let Some(state) = self
                .roster
                .get_mut(peer)
                .filter(|state| state.range.is_some())
            {
                state.failed_until = Some(now + FAILED_PEER_KEPT);
            }
            return PathConsequence::FormerRemoved;
        }
        let has_excluded = self.fail_next_hop(now, peer);
        if is_next_hop_of_all || graceful == BfdGraceful::Never {
            self.remove_stale(peer);
            return PathConsequence::StaleRemoved;
        }
        match has_excluded {
            true => PathConsequence::NextHopFailed,
            false => PathConsequence::StaleRetained,
        }
    }

    /// Opens a connection to a peer whose path has come up, if it is due (RFC 5882 §3.2).
    pub(crate) fn dial_path(&mut self, now: Instant, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        if state.path_history.take_dial(now) {
            self.session_input(now, peer, bgp_fsm::Input::PathUp);
        }
    }

    fn has_stale(&self, peer: PeerId) -> bool {
        let state = self.roster.get(peer);
        state.is_some_and(|state| state.stale_until.is_some())
    }

    /// Excludes all paths with an internal peer as next hop, whichever peer has sent them, and all stale paths
    /// that it originates, until the peer has a session again or its path works. Returns whether the former are
    /// excluded.
    ///
    /// Only a speaker that forwards packets excludes them: the path of a route reflector to a host is not
    /// the path of other hosts. But a stale path has no other sign of life.
    fn fail_next_hop(&mut self, now: Instant, peer: PeerId) -> bool {
        let tracks = self.config.next_hops == NextHops::Track;
        let origin = self.rib.peer_id(peer);
        let Some(state) = self.roster.get_mut(peer) else {
            return false;
        };
        if !state.config.role.is_internal() {
            return false;
        }
        state.next_hop_failed = tracks && state.config.role == Role::Internal;
        state.failed_origin = origin;
        let (next_hop, is_next_hop) = (state.config.remote, state.next_hop_failed);
        if state.range.is_some() && (is_next_hop || origin.is_some()) {
            state.failed_until = Some(now + FAILED_PEER_KEPT);
        }
        if let Some(origin) = origin {
            self.rib.fail_origin(origin, true);
        }
        if is_next_hop {
            self.rib.fail_next_hop(next_hop, true);
        }
        is_next_hop
    }

    /// Ends the time for which a dynamic peer with a failed path is kept.
    pub(crate) fn expire_failed(&mut self, now: Instant, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        state.failed_until = state.failed_until.filter(|until| *until > now);
    }

    /// Accepts paths with the peer as next hop again.
    pub(crate) fn restore_next_hop(&mut self, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        state.failed_until = None;
        let next_hop = core::mem::take(&mut state.next_hop_failed).then_some(state.config.remote);
        if let Some(origin) = state.failed_origin.take() {
            self.rib.fail_origin(origin, false);
        }
        if let Some(next_hop) = next_hop {
            self.rib.fail_next_hop(next_hop, false);
        }
    }

    /// Handles a path that does not count as failed any more. Stale paths through a host that has
    /// failed are not used again: it may have lost its routes.
    pub(crate) fn path_works(&mut self, peer: PeerId) {
        let is_over = |state: &Peer| {
            state.stale_until.is_none() && !matches!(state.path, PathState::Failed { .. })
        };
        if self.roster.get(peer).is_some_and(is_over) {
            self.restore_next_hop(peer);
        }
    }
}

/// Returns whether packets along all routes of a peer pass the peer itself. A peer of the own AS may be a
/// route reflector, which is on the way of none.
pub(crate) fn is_next_hop_of_all(state: &Peer) -> bool {
    state.config.role != Role::Internal
}

/// Returns whether both sides have set the N bit (RFC 8538 §2).
fn has_notification_bit(state: &Peer) -> bool {
    let theirs = state.params.as_ref();
    let theirs = theirs.and_then(|params| params.peer_graceful.as_ref());
    let is_offered = state.config.session.graceful_restart.is_some();
    is_offered && theirs.is_some_and(|graceful| graceful.notification)
}
