//! Draining a reflector: its clients go elsewhere first, then it closes what is left. Pure.
//!
//! Once somebody asks for it, the registration says so and every route is sent again as the last
//! choice (RFC 8326). Clients that choose their reflectors by the store choose others, and close
//! their sessions here when those carry everything ([`crate::handover`]): that is how a reflector
//! knows that they have moved. Clients that were told by hand to peer with it do not go by
//! themselves: they are waited for [`DRAIN_MAX`], in which their best paths have moved to other
//! reflectors if they have any.

use bgp_io::Speaker;
use bgp_io::bgp_fsm::{Instant, State};
use bgp_io::bgp_speaker::SpeakerConfig;
use bgp_io::rib::Role;
use model::ReflectorState;

use crate::limits::{DRAIN_LOOK_EVERY, DRAIN_MAX};

/// What the last neighbours are told (RFC 9003).
pub const FAREWELL: &str = "drained by the operator";

/// Whether a reflector is being drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// It is not.
    #[default]
    No,
    /// It waits for its clients to go.
    Waits {
        /// Since when.
        since: Instant,
        /// When to look again.
        look_at: Instant,
    },
    /// It has closed all sessions, and takes none.
    Done,
}

impl Drain {
    /// Whether somebody wants it drained, from now on.
    pub fn want(&mut self, now: Instant, asked: bool) {
        *self = match (asked, *self) {
            (false, _) => Self::No,
            (true, Self::No) => Self::Waits {
                since: now,
                look_at: now,
            },
            (true, already) => already,
        };
    }

    /// Looks whether the clients have gone. True: from now on it is drained.
    pub fn look(&mut self, now: Instant, speaker: &Speaker) -> bool {
        let Self::Waits { since, look_at } = self else {
            return false;
        };
        if now < *look_at {
            return false;
        }
        if clients(speaker) > 0 && now < *since + DRAIN_MAX {
            *look_at = now + DRAIN_LOOK_EVERY;
            return false;
        }
        *self = Self::Done;
        true
    }

    /// When to [`look`](Self::look) again.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Waits { look_at, .. } => Some(*look_at),
            Self::No | Self::Done => None,
        }
    }

    /// What the registration says of it.
    pub const fn state(&self) -> ReflectorState {
        match self {
            Self::No => ReflectorState::Active,
            Self::Waits { .. } => ReflectorState::Draining,
            Self::Done => ReflectorState::Drained,
        }
    }

    /// The configuration to have: nobody's neighbour when it is done.
    pub fn effective(&self, mut wanted: SpeakerConfig) -> SpeakerConfig {
        if *self == Self::Done {
            wanted.peers.clear();
            wanted.ranges.clear();
        }
        wanted
    }
}

/// Clients whose sessions are up.
pub fn clients(speaker: &Speaker) -> usize {
    let clients = speaker
        .peers()
        .filter(|peer| peer.config.role == Role::Client);
    clients
        .filter(|peer| peer.session.state() == State::Established)
        .count()
}
