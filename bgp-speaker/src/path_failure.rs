//! The consequences of a failed path to a peer (RFC 5882 §4).

use bgp_fsm::Instant;
use bgp_proto::{Notification, notification::cease};
use rib::{PeerId, Role};

use crate::{
    config::BfdGraceful,
    event::{Event, Output},
    path_state::{PathConsequence, PathState},
    peer::Peer,
    speaker::Speaker,
};

impl Speaker {
    /// Handles a state of the path to a peer.
    pub(crate) fn path_state(&mut self, now: Instant, peer: PeerId, path: PathState) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        state.path = path;
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
                self.rearm(peer);
                self.retire(peer);
            }
            PathState::Alive | PathState::Unknown => self.path_works(peer),
        }
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
        if state.session.established().is_some() {
            // A restarting peer closes its connection, or its kernel does: silence is no restart.
            let is_dead = graceful != BfdGraceful::Always;
            let why = Notification::cease(cease::BFD_DOWN);
            // RFC 9384 §3, RFC 8538 §4.
            let why = match is_dead && has_notification_bit(state) {
                true => Notification::hard_reset(&why),
                false => why,
            };
            state.retains = !is_dead || !is_next_hop_of_all(state);
            if is_dead {
                self.fail_next_hop(peer);
            }
            self.session_input(now, peer, bgp_fsm::Input::Rejected(why));
            return match is_dead {
                true => PathConsequence::SessionClosed,
                false => PathConsequence::SessionClosedForRestart,
            };
        }
        if state.stale_until.is_none() {
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
        match is_next_hop_of_all(state) {
            true => self.remove_stale(peer),
            false => self.fail_next_hop(peer),
        }
        PathConsequence::StaleRemoved
    }

    /// Excludes all paths with the peer as next hop, whichever peer has sent them, until the peer has a
    /// session again or its path works.
    fn fail_next_hop(&mut self, peer: PeerId) {
        if let Some(state) = self.roster.get_mut(peer) {
            state.next_hop_failed = true;
            let next_hop = state.config.remote;
            self.rib.fail_next_hop(next_hop, true);
        }
    }

    /// Accepts paths with the peer as next hop again.
    pub(crate) fn restore_next_hop(&mut self, peer: PeerId) {
        if let Some(state) = self.roster.get_mut(peer)
            && core::mem::take(&mut state.next_hop_failed)
        {
            let next_hop = state.config.remote;
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
fn is_next_hop_of_all(state: &Peer) -> bool {
    state.config.role != Role::Internal
}

/// Returns whether both sides have set the N bit (RFC 8538 §2).
fn has_notification_bit(state: &Peer) -> bool {
    let theirs = state.params.as_ref();
    let theirs = theirs.and_then(|params| params.peer_graceful.as_ref());
    let is_offered = state.config.session.graceful_restart.is_some();
    is_offered && theirs.is_some_and(|graceful| graceful.notification)
}
