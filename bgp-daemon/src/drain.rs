//! Draining a reflector: its clients move to other reflectors first, then it closes what is left. Pure.
//!
//! When an operator asks for a drain, the registration has this request and every route is sent again as the
//! last choice (RFC 8326). Clients that choose their reflectors through the datastore choose others, and
//! close their sessions here when the others carry all routes ([`crate::make_before_break`]): the closed
//! sessions show the reflector that these clients have moved. Statically configured clients do not close
//! their sessions. Of them the reflector can observe what `docs/design/drain.md` explains: that all routes
//! have been sent to them, and that their routes also arrive through other reflectors. When both have
//! held for a while, these clients have moved as far as they can. For a client without another
//! reflector the drain waits [`DRAIN_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bgp_io::Speaker;
use bgp_io::bgp_fsm::{Instant, State};
use bgp_io::bgp_speaker::{PeerView, SpeakerConfig};
use bgp_io::rib::{PeerId, Progress, Role};
use calico_model::ReflectorState;

use crate::limits::{
    DRAIN_LOOK_EVERY, DRAIN_MAX, DRAIN_NEEDED_PEERS_EVERY, DRAIN_SETTLE, DRAIN_SETTLE_UNSEEN,
};
use crate::needed_peers::NeededPeers;

#[cfg(test)]
mod tests;

/// Shutdown Communication that the last neighbors receive (RFC 9003).
pub const FAREWELL: &str = "drained by the operator";

/// Whether a reflector is being drained.
#[derive(Debug, Default)]
pub struct Drain {
    stage: Stage,
    /// The addresses of the other reflectors, with their cluster ids.
    others: BTreeMap<IpAddr, Ipv4Addr>,
    /// Clients that have been sent all routes since the drain began.
    up_to_date: BTreeSet<PeerId>,
    needed_peers: NeededPeers,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// No drain is requested.
    #[default]
    No,
    /// The drain waits until its clients have moved.
    Waits {
        /// When the drain began.
        since: Instant,
        /// When to look again.
        look_at: Instant,
        /// Time since which no remaining client depends on this reflector, as far as can be known.
        free_since: Option<Instant>,
    },
    /// All sessions are closed, and none is accepted.
    Done,
}

impl Drain {
    /// Sets whether a drain is requested, and the other reflectors with their cluster IDs.
    pub fn want(&mut self, now: Instant, asked: bool, others: &BTreeMap<IpAddr, Ipv4Addr>) {
        self.others.clone_from(others);
        self.stage = match (asked, self.stage) {
            (false, _) => Stage::No,
            (true, Stage::No) => {
                self.up_to_date.clear();
                self.needed_peers.forget();
                Stage::Waits {
                    since: now,
                    look_at: now,
                    free_since: None,
                }
            }
            (true, already) => already,
        };
    }

    /// Checks within one budget whether the clients have moved or no longer need the reflector. The
    /// first value is true when the drain completes.
    pub fn look(&mut self, now: Instant, speaker: &Speaker) -> (bool, Progress) {
        let Stage::Waits {
            since,
            look_at,
            free_since,
        } = self.stage
        else {
            return (false, Progress::Done);
        };
        if now < look_at {
            return (false, Progress::Done);
        }
        let clients: Vec<PeerView<'_>> = self.clients(speaker).collect();
        if clients.is_empty() || now >= since + DRAIN_MAX {
            self.stage = Stage::Done;
            return (true, Progress::Done);
        }
        self.note_up_to_date(now > since, speaker, &clients);
        let all_up_to_date = clients
            .iter()
            .all(|peer| self.up_to_date.contains(&peer.id));
        let witnessed = self.has_witness(speaker);
        let free = match (all_up_to_date, witnessed) {
            (false, _) => false,
            (true, false) => true,
            (true, true) => {
                let ids = || clients.iter().map(|peer| peer.id).collect();
                let Some(found) = self.needed_peers.step(speaker, ids) else {
                    return (false, Progress::More);
                };
                found.needed.is_empty()
            }
        };
        let free_since = free.then(|| free_since.unwrap_or(now));
        let by_hand = clients.iter().all(|peer| !peer.dynamic);
        let settle = match witnessed && by_hand {
            true => DRAIN_SETTLE,
            false => DRAIN_SETTLE_UNSEEN,
        };
        if free_since.is_some_and(|since| since + settle <= now) {
            self.stage = Stage::Done;
            return (true, Progress::Done);
        }
        let pause = match all_up_to_date && witnessed {
            true => DRAIN_NEEDED_PEERS_EVERY,
            false => DRAIN_LOOK_EVERY,
        };
        self.stage = Stage::Waits {
            since,
            look_at: now + pause,
            free_since,
        };
        (false, Progress::Done)
    }

    /// Records the clients that have nothing left to receive. While `begun` is false, no client is
    /// recorded, because nothing has been sent yet.
    fn note_up_to_date(&mut self, begun: bool, speaker: &Speaker, clients: &[PeerView<'_>]) {
        let has_all = |peer: &&PeerView<'_>| {
            let conn = peer.session.established();
            conn.is_some_and(|conn| !speaker.wants_write(peer.id, conn))
        };
        let up_to_date = clients.iter().filter(has_all).map(|peer| peer.id);
        let up_to_date: BTreeSet<PeerId> = up_to_date.filter(|_| begun).collect();
        let there: BTreeSet<PeerId> = clients.iter().map(|peer| peer.id).collect();
        self.up_to_date.retain(|id| there.contains(id));
        self.up_to_date.extend(up_to_date);
    }

    /// Returns whether a session with a reflector of another cluster is up, through which the routes of
    /// clients would arrive. Routes from the own cluster are rejected (RFC 4456 §8).
    fn has_witness(&self, speaker: &Speaker) -> bool {
        let own = speaker.config().cluster_id().0;
        speaker.peers().filter(is_up).any(|peer| {
            let cluster = self.others.get(&peer.config.remote);
            cluster.is_some_and(|cluster| *cluster != own)
        })
    }

    /// Returns the clients whose sessions are up. A reflector is never a client, whatever its configured
    /// role.
    pub fn clients<'s>(&self, speaker: &'s Speaker) -> impl Iterator<Item = PeerView<'s>> {
        let clients = speaker
            .peers()
            .filter(|peer| peer.config.role == Role::Client);
        let clients = clients.filter(|peer| !self.others.contains_key(&peer.config.remote));
        clients.filter(is_up)
    }

    /// When to [`look`](Self::look) again.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Waits { look_at, .. } => Some(*look_at),
            Stage::No | Stage::Done => None,
        }
    }

    /// Returns the state for the registration.
    pub const fn state(&self) -> ReflectorState {
        match self.stage {
            Stage::No => ReflectorState::Active,
            Stage::Waits { .. } => ReflectorState::Draining,
            Stage::Done => ReflectorState::Drained,
        }
    }

    /// Returns the operator's note about the drain.
    pub fn note(&self) -> Option<&'static str> {
        match self.stage {
            Stage::No => None,
            Stage::Waits {
                free_since: None, ..
            } => Some(
                "draining: waits until all clients have disconnected or no longer need this reflector",
            ),
            Stage::Waits { .. } => Some(
                "draining: the remaining clients no longer need this reflector; sessions are closed soon",
            ),
            Stage::Done => Some("drained: accepts no session until it is undrained"),
        }
    }

    /// Returns the configuration to apply: without any neighbor when the drain is done.
    pub fn effective(&self, mut wanted: SpeakerConfig) -> SpeakerConfig {
        if self.stage == Stage::Done {
            wanted.peers.clear();
            wanted.ranges.clear();
        }
        wanted
    }
}

fn is_up(peer: &PeerView<'_>) -> bool {
    peer.session.state() == State::Established
}
