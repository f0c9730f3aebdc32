//! Make before break: a session that the fabric no longer asks for ends when other peers carry its routes.
//!
//! The peers of the node-to-node mesh, the reflectors that a node has chosen and the nodes that a
//! `peerSelector` selects change because the fabric changes, not because an operator removes one of
//! them. Such a peer that is no longer wanted stays configured, *leaving*, until
//!
//! * every wanted peer is Established and has sent its End-of-RIB markers (RFC 4724 §2), and
//! * no prefix, except for prefixes that have just arrived, is reached through leaving peers only, and
//! * both conditions have held for [`MAKE_BEFORE_BREAK_SETTLE`]. By then the other hosts are ready too: a
//!   host that has received routes through the wanted peers has also received the routes of this host.
//!
//! or until its session ends by itself, or its host is removed, or [`MAKE_BEFORE_BREAK_MAX`] has passed and
//! at least one wanted peer is ready. Its policies and its password follow the current configuration
//! where that still names them. Only the existence of the session, and whether this daemon reflects
//! for the peer, stay as before. Without any wanted peer, no leaving peer is kept. Peers that had
//! selected *this* node end the session themselves, because they choose the replacement; they are kept
//! in any case, but at most for [`MAKE_BEFORE_BREAK_MAX`].
//! Pure: it reads a speaker and a clock and returns the peers to configure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bgp_io::Speaker;
use bgp_io::bgp_fsm::{Instant, State};
use bgp_io::bgp_speaker::{Event, PeerConfig, PeerView, SpeakerConfig};
use bgp_io::rib::Progress;
use calico_bgp::Chosen;

use crate::AwaitedEndOfRib;
use crate::limits::{
    MAKE_BEFORE_BREAK_LOOK_EVERY, MAKE_BEFORE_BREAK_MAX, MAKE_BEFORE_BREAK_SETTLE,
};
use crate::needed_peers::NeededPeers;

#[cfg(test)]
pub(crate) mod tests;

/// Decides the peers to configure while one choice takes the place of another.
#[derive(Debug, Default)]
pub struct MakeBeforeBreak {
    /// The peers of the last choice that was wanted.
    chosen: BTreeMap<IpAddr, PeerConfig>,
    /// Of these, the peers that have selected this node.
    selecting: BTreeSet<IpAddr>,
    /// Wanted peers that must be ready before leaving peers are removed.
    successors: BTreeSet<IpAddr>,
    leaving: BTreeMap<IpAddr, Leaving>,
    awaited: AwaitedEndOfRib,
    needed_peers: NeededPeers,
    /// When to look again.
    look_at: Option<Instant>,
}

/// A peer that is no longer wanted.
#[derive(Debug)]
struct Leaving {
    config: PeerConfig,
    /// Whether the peer had selected this node, so that it ends the session itself.
    selects: bool,
    /// Since when it has not been wanted.
    since: Instant,
    /// Since when it has not been needed.
    free_since: Option<Instant>,
    /// Whether the last look found a doubt about that.
    doubted: bool,
}

impl Leaving {
    /// Takes the current configuration from the datastore, except for the role of an internal peer.
    /// The daemon still reflects for a former client, because no other reflector may do so yet.
    fn renew(&mut self, today: &PeerConfig) {
        let role = self.config.role;
        self.config.clone_from(today);
        if role.is_internal() && today.role.is_internal() {
            self.config.role = role;
        }
    }
}

impl MakeBeforeBreak {
    /// Sets the wanted peers.
    pub fn want(&mut self, now: Instant, wanted: &SpeakerConfig, choice: &Chosen) {
        let peers: BTreeMap<IpAddr, &PeerConfig> = wanted
            .peers
            .iter()
            .map(|peer| (peer.remote, peer))
            .collect();
        let (chosen, others): (Vec<_>, Vec<_>) = peers
            .iter()
            .partition(|(remote, _)| choice.peers.contains(remote));
        let before: BTreeSet<IpAddr> = self.leaving().collect();
        let successors = if chosen.is_empty() { &others } else { &chosen };
        let successors = successors.iter().map(|(remote, _)| **remote).collect();
        let waited_for = std::mem::replace(&mut self.successors, successors);
        let chosen = chosen
            .into_iter()
            .map(|(remote, peer)| (*remote, (*peer).clone()));
        let selecting = std::mem::replace(&mut self.selecting, choice.selecting.clone());
        for (remote, config) in std::mem::replace(&mut self.chosen, chosen.collect()) {
            let leaving = self.leaving.entry(remote);
            leaving.or_insert_with(|| Leaving {
                config,
                selects: selecting.contains(&remote),
                since: now,
                free_since: None,
                doubted: false,
            });
        }
        self.leaving
            .retain(|remote, _| !peers.contains_key(remote) && choice.hosts.contains(remote));
        for (remote, leaving) in &mut self.leaving {
            if let Some(config) = choice.former.get(remote) {
                leaving.renew(config);
            }
        }
        if self.successors.is_empty() {
            self.leaving.retain(|_, leaving| leaving.selects); // No peer will ever carry the routes.
        }
        if waited_for == self.successors && self.leaving().eq(before) {
            return; // The current pass continues.
        }
        self.needed_peers.begin_again();
        self.look_at = (!self.leaving.is_empty()).then_some(now);
    }

    /// Returns the configuration to apply: the wanted peers and the leaving peers.
    pub fn effective(&self, mut wanted: SpeakerConfig) -> SpeakerConfig {
        let leaving = self.leaving.values().map(|leaving| leaving.config.clone());
        wanted.peers.extend(leaving);
        wanted
    }

    /// Returns the addresses of the leaving peers.
    pub fn leaving(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.leaving.keys().copied()
    }

    /// Returns the leaving peers, with the time since when.
    pub fn leaving_since(&self) -> impl Iterator<Item = (IpAddr, Instant)> + '_ {
        let leaving = self.leaving.iter();
        leaving.map(|(remote, leaving)| (*remote, leaving.since))
    }

    /// Returns the addresses of the peers that come from the fabric, wanted or leaving.
    pub fn placed(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.chosen.keys().chain(self.leaving.keys()).copied()
    }

    /// Records the state changes of sessions.
    pub fn observe(&mut self, event: &Event) {
        self.awaited.observe(event);
    }

    /// When to [`look`](Self::look) again.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }

    /// Returns the leaving peers that can be removed, within one budget. They are no longer part of
    /// [`effective`](Self::effective).
    pub fn look(&mut self, now: Instant, speaker: &Speaker) -> (Vec<IpAddr>, Progress) {
        if self.look_at.is_none_or(|at| now < at) {
            return (Vec::new(), Progress::Done);
        }
        let mut gone = self.take_gone(speaker);
        let ready = self.successors_ready(speaker);
        let progress = match ready {
            Ready::All => self.find_needed(now, speaker),
            Ready::Some | Ready::None => {
                self.needed_peers.forget();
                self.leaving
                    .values_mut()
                    .for_each(|leaving| leaving.free_since = None);
                Progress::Done
            }
        };
        if progress == Progress::Done {
            self.look_at = Some(now + MAKE_BEFORE_BREAK_LOOK_EVERY);
            gone.extend(self.take_free(now, ready != Ready::None));
        }
        if self.leaving.is_empty() {
            self.look_at = None;
            self.needed_peers.begin_again();
        }
        (gone, progress)
    }

    /// Removes and returns the leaving peers whose sessions have ended and that have no stale
    /// routes.
    fn take_gone(&mut self, speaker: &Speaker) -> Vec<IpAddr> {
        let peers = self.peers(speaker);
        let kept = |remote: &IpAddr| {
            let peer = peers.get(remote);
            peer.is_some_and(|peer| is_up(peer) || peer.stale_until.is_some())
        };
        let gone: Vec<IpAddr> = self
            .leaving
            .keys()
            .copied()
            .filter(|at| !kept(at))
            .collect();
        self.leaving.retain(|remote, _| !gone.contains(remote));
        gone
    }

    /// Removes and returns the leaving peers that were unneeded for the settle time or reached
    /// their maximum time. `any_ready`: at least one wanted peer is ready.
    fn take_free(&mut self, now: Instant, any_ready: bool) -> Vec<IpAddr> {
        let alone = self.successors.is_empty();
        let may_go = |leaving: &Leaving| {
            let settle = match leaving.doubted {
                true => MAKE_BEFORE_BREAK_SETTLE * 2, // Where routes come all the time, doubts do not end.
                false => MAKE_BEFORE_BREAK_SETTLE,
            };
            let free_since = leaving.free_since;
            let settled = free_since.is_some_and(|since| since + settle <= now);
            let settled = settled && !leaving.selects; // The peer ends this session itself.
            settled || ((any_ready || alone) && leaving.since + MAKE_BEFORE_BREAK_MAX <= now)
        };
        let (gone, left) = std::mem::take(&mut self.leaving)
            .into_iter()
            .partition(|(_, leaving)| may_go(leaving));
        self.leaving = left;
        let gone: BTreeMap<IpAddr, Leaving> = gone;
        gone.into_keys().collect()
    }

    /// Returns whether all, some or none of the successors are up and have sent their End-of-RIB markers.
    fn successors_ready(&self, speaker: &Speaker) -> Ready {
        let ready = |peer: &PeerView<'_>| is_up(peer) && self.awaited.has_all_of(peer.id);
        let peers = speaker.peers();
        let successors = peers.filter(|peer| self.successors.contains(&peer.config.remote));
        match successors.filter(ready).count() {
            0 => Ready::None,
            ready if ready >= self.successors.len() => Ready::All,
            _ => Ready::Some,
        }
    }

    /// Continues the search of the tables; at its end the needed peers are known.
    fn find_needed(&mut self, now: Instant, speaker: &Speaker) -> Progress {
        let peers = self.peers(speaker);
        let ids = || peers.values().map(|peer| peer.id).collect();
        let Some(found) = self.needed_peers.step(speaker, ids) else {
            return Progress::More;
        };
        for (remote, peer) in peers {
            let Some(leaving) = self.leaving.get_mut(&remote) else {
                continue;
            };
            leaving.doubted = found.doubted.contains(&peer.id);
            leaving.free_since = match found.needed.contains(&peer.id) {
                true => None,
                false => leaving.free_since.or(Some(now)),
            };
        }
        Progress::Done
    }

    /// Returns the speaker's views of the leaving peers.
    fn peers<'s>(&self, speaker: &'s Speaker) -> BTreeMap<IpAddr, PeerView<'s>> {
        let peers = speaker.peers();
        let leaving = peers.filter(|peer| self.leaving.contains_key(&peer.config.remote));
        leaving.map(|peer| (peer.config.remote, peer)).collect()
    }
}

/// How many of the awaited peers are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    None,
    Some,
    All,
}

fn is_up(peer: &PeerView<'_>) -> bool {
    peer.session.state() == State::Established
}
