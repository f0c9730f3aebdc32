//! A new configuration on a running speaker: only the sessions it must touch are touched.
//!
//! A session starts over when its transport has to be another, or when its two OPENs would settle
//! on something else. In the latter case, which includes that we are another speaker from now on, by
//! our AS or our BGP Identifier, it does so as after a graceful restart: both sides keep each other's
//! routes meanwhile if they can (RFC 4724). All the rest changes under it: an update group is left
//! for another, what the peer has sent is judged again, keys and intervals are exchanged, and what
//! came out of a range is configured by name or the other way round. [`crate::keys`] has it key by
//! key.

use alloc::{collections::BTreeSet, string::String, vec::Vec};
use core::net::IpAddr;

use bgp_fsm::{Instant, PeerAs, SessionConfig, negotiate};
use bgp_proto::{Notification, SessionParams, notification::cease};
use rib::PeerId;

use crate::{
    config::SpeakerConfig,
    event::Output,
    keys::{Effect, PEER_KEYS, PeerConfig, changes},
    speaker::Speaker,
};

/// What a new configuration did, by peer name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconfigured {
    /// Peers that are new.
    pub added: Vec<String>,
    /// Peers that are gone: told Cease/Peer De-configured (RFC 4486).
    pub removed: Vec<String>,
    /// Peers whose session had to start over: told Cease/Other Configuration Change.
    pub reset: Vec<String>,
    /// Peers whose session is up and stays so, and for which something has changed that is in force
    /// from their next session on.
    pub later: Vec<String>,
}

/// Why a new configuration cannot be taken while running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsRestart {
    /// Where the reachability of next hops comes from differs.
    NextHops,
    /// The families differ.
    Families,
    /// The multipath limit differs.
    Multipath,
}

/// Returns a session with the keys of a peer that its two OPENs settle, and no others: those are for
/// the next session, whatever they are by now.
fn settling(peer: &PeerConfig) -> SessionConfig {
    let mut settling = PeerConfig::vacant();
    let keys = PEER_KEYS.iter();
    for key in keys.filter(|key| key.effect == Effect::Renegotiated) {
        (key.copy)(peer, &mut settling);
    }
    settling.session
}

impl NeedsRestart {
    /// The key of the configuration file this is about.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::NextHops => "next_hops",
            Self::Families => "families",
            Self::Multipath => "multipath",
        }
    }
}

impl Speaker {
    /// Takes over a new configuration. Sessions whose peer is configured as before stay up.
    ///
    /// # Errors
    /// Nothing changes when the tables would have to be others.
    pub fn reconfigure(
        &mut self,
        now: Instant,
        new: SpeakerConfig,
    ) -> Result<Reconfigured, NeedsRestart> {
        self.same_tables(&new)?;
        let mut done = Reconfigured::default();
        self.config = new.clone();
        let wanted: BTreeSet<IpAddr> = new.peers.iter().map(|peer| peer.remote).collect();
        for id in self.roster.ids() {
            let Some(peer) = self.roster.get_mut(id).filter(|peer| !peer.doomed) else {
                continue; // Who is told to go has no more to lose, nor the say over its address.
            };
            let remote = peer.config.remote;
            let came = peer.range.take().is_some() || peer.is_there();
            if wanted.contains(&remote) {
                continue; // Its turn comes with the configured ones.
            }
            // A limit is for those who come, not for those who are there.
            match self.config.range_of(remote).filter(|_| came) {
                Some((at, range)) => self.revise(now, id, at, range.peer(remote), &mut done),
                None => {
                    done.removed.push(self.peer_name(id).into());
                    self.deconfigure(now, id);
                }
            }
        }
        let clusters = new.cluster_ids();
        self.rib.set_identity(new.local_asn, new.router_id);
        for peer in new.peers {
            self.configure(now, peer, &mut done);
        }
        self.rib.set_cluster_ids(clusters);
        self.align();
        self.review_awaited();
        self.forget_failures();
        Ok(done)
    }

    fn same_tables(&self, new: &SpeakerConfig) -> Result<(), NeedsRestart> {
        let old = &self.config;
        let checks = [
            (old.next_hops == new.next_hops, NeedsRestart::NextHops),
            (old.families == new.families, NeedsRestart::Families),
            (
                old.multipath_max == new.multipath_max,
                NeedsRestart::Multipath,
            ),
        ];
        checks
            .into_iter()
            .find(|(same, _)| !same)
            .map_or(Ok(()), |(_, what)| Err(what))
    }

    /// A neighbor that a range covers now takes the configuration that this gives it, or is gone.
    fn revise(
        &mut self,
        now: Instant,
        id: PeerId,
        range: usize,
        config: PeerConfig,
        done: &mut Reconfigured,
    ) {
        self.part(now, id, &config, done);
        if !self.adapts(id, &config) {
            done.removed.push(self.peer_name(id).into());
            return self.deconfigure(now, id);
        }
        self.adapt(now, id, config, done);
        if let Some(peer) = self.roster.get_mut(id) {
            peer.range = Some(range);
        }
        self.retire(id); // With its session, if there is nothing to keep.
    }

    /// Ends a session that has to start over although the peer is the same, so that both sides may
    /// keep each other's routes (RFC 4724). It comes back with the next bite of work: by then the
    /// driver has told the peer.
    fn part(&mut self, now: Instant, id: PeerId, new: &PeerConfig, done: &mut Reconfigured) {
        let Some(peer) = self.roster.get(id) else {
            return;
        };
        let (Some(params), Some(open)) = (&peer.params, peer.session.peer_open()) else {
            return;
        };
        let named = |config: &PeerConfig| (config.session.local_asn, config.session.local_id);
        let same_peer =
            named(&peer.config) != named(new) || negotiate(&settling(new), open).is_ok();
        let fewer = !params.families.difference(new.session.families).is_empty();
        let apart = peer.crosses(new) || peer.moves(new) || fewer;
        if self.adapts(id, new) || !same_peer || apart {
            return;
        }
        done.reset.push(new.name.clone());
        let why = Notification::cease(cease::OTHER_CONFIGURATION_CHANGE);
        self.session_input(now, id, bgp_fsm::Input::Leave(why));
        self.parted.push(id);
    }

    fn configure(&mut self, now: Instant, config: PeerConfig, done: &mut Reconfigured) {
        if let Some(id) = self.roster.at(config.remote) {
            self.part(now, id, &config, done);
            if self.adapts(id, &config) {
                return self.adapt(now, id, config, done);
            }
            done.reset.push(config.name.clone());
            self.stop(
                now,
                id,
                Notification::cease(cease::OTHER_CONFIGURATION_CHANGE),
            );
            self.roster.doom(id);
            self.retire(id);
        } else {
            done.added.push(config.name.clone());
        }
        if let Some(id) = self.roster.insert(config, None) {
            self.introduce(id);
            self.await_fellow(id);
            self.session_input(now, id, bgp_fsm::Input::Start);
        }
    }

    /// Whether a peer can take a new configuration with its session up: its transport and what the
    /// two OPENs have settled are the same. A session that is not up has nothing to lose.
    fn adapts(&self, id: PeerId, new: &PeerConfig) -> bool {
        let Some(peer) = self.roster.get(id) else {
            return false;
        };
        let (Some(params), Some(open)) = (&peer.params, peer.session.peer_open()) else {
            return true;
        };
        let settled = negotiate(&settling(new), open).is_ok_and(|new| {
            // Both are what the OPENs of this session settled; the new ones are for the next session.
            let (hold_time_s, extended_receive) = (params.hold_time_s, params.extended_receive);
            let new = SessionParams {
                hold_time_s,
                extended_receive,
                ..new
            };
            new == *params
        });
        settled && !peer.crosses(new) && !peer.moves(new)
    }

    /// Gives a peer a new configuration with its session up.
    fn adapt(&mut self, now: Instant, id: PeerId, new: PeerConfig, done: &mut Reconfigured) {
        let Some(peer) = self.roster.get_mut(id) else {
            return;
        };
        let old = core::mem::replace(&mut peer.config, new);
        let new = &peer.config;
        let dials = |peer: &PeerConfig| (peer.port, peer.local);
        let secure = |peer: &PeerConfig| (peer.ttl_security_hops, peer.password.clone());
        let secured = secure(&old) != secure(new);
        let limits = old.prefix_limits != new.prefix_limits;
        let up = peer.params.is_some();
        if up && changes(&old, new).any(|row| row.effect.waits()) {
            done.later.push(new.name.clone());
        }
        if up && secured {
            self.outputs.push_back(Output::Secure {
                peer: id,
                ttl_security_hops: new.ttl_security_hops,
                password: new.password.clone(),
            });
        }
        if old.session != new.session || !up && (secured || dials(&old) != dials(new)) {
            peer.session.reconfigure(now, new.session.clone());
            self.settle(now, id);
        }
        if up && limits {
            self.limit_paths(id);
            // What was refused comes again; who cannot is asked in vain.
            let _ = self.ask_refresh(id, None);
        }
    }

    /// Brings the tables' view of every peer and its update group in line with the configuration.
    fn align(&mut self) {
        let mut ways = BTreeSet::new();
        for id in self.roster.ids() {
            self.align_peer(id);
            self.regroup(id, &mut ways);
        }
    }

    fn align_peer(&mut self, id: PeerId) {
        let Some(peer) = self.roster.get(id) else {
            return;
        };
        let config = peer.config.clone();
        let awaited = match config.session.peer_asn {
            _ if peer.params.is_some() => None,
            PeerAs::Exactly(asn) => Some(asn),
            PeerAs::Internal => Some(config.session.local_asn),
            PeerAs::External | PeerAs::Any => None,
        };
        let own = self.config.cluster_id();
        let (link, domain) = (self.link_of(&config), config.domain());
        self.rib.change_peer(id, |info| {
            info.link = link;
            info.asn = awaited.unwrap_or(info.asn);
            info.local_asn = config.session.local_asn;
            info.import = config.import;
            info.as_path = config.as_path;
            info.domain = domain;
            info.role = config.role;
            info.cluster_id = config.cluster_id.unwrap_or(own);
        });
    }

    /// Ends a peer's session and forgets the peer.
    fn deconfigure(&mut self, now: Instant, id: PeerId) {
        self.stop(now, id, Notification::cease(cease::PEER_DECONFIGURED));
        if let Some(address) = self.roster.get(id).map(|peer| peer.config.remote) {
            self.forget_awaited(address);
        }
        self.roster.doom(id);
        self.retire(id);
    }

    /// Ends every session, telling the peers why (RFC 9003 text and all).
    pub fn stop_all(&mut self, now: Instant, why: &Notification) {
        for id in self.roster.ids() {
            self.stop(now, id, why.clone());
        }
    }

    /// Ends every session of a speaker that is about to come back: peers that keep our routes over
    /// a restart are given no reason to drop them.
    pub fn leave_all(&mut self, now: Instant, why: &Notification) {
        for id in self.roster.ids() {
            self.session_input(now, id, bgp_fsm::Input::Leave(why.clone()));
        }
    }

    /// Ends one session and leaves it down.
    pub fn stop(&mut self, now: Instant, id: PeerId, why: Notification) {
        self.parted.retain(|parted| *parted != id);
        self.session_input(now, id, bgp_fsm::Input::Stop(why));
        self.expire_stale(Instant(u64::MAX), id);
    }
}
