//! A new configuration of a running speaker: only the affected sessions change.
//!
//! A session is reset if its transport must change, or if its two OPENs would negotiate another
//! result. The latter includes a new local AS or BGP Identifier; then it is reset as in a graceful
//! restart: both sides retain each other's routes if they can (RFC 4724). Everything else changes
//! without a reset: a peer moves to another update group, its received routes are evaluated again,
//! keys and intervals are replaced, and a dynamic neighbor is configured by address or vice versa.
//! [`crate::keys`] lists the effect of each key.

use alloc::{collections::BTreeSet, string::String, vec::Vec};
use core::{fmt, net::IpAddr};

use bgp_fsm::{Instant, PeerAs, SessionConfig, negotiate};
use bgp_proto::{Notification, SessionParams, notification::cease};
use rib::PeerId;

use crate::{
    config::SpeakerConfig,
    event::Output,
    keys::{Effect, PEER_KEYS, PeerConfig, changes},
    peer::Peer,
    speaker::Speaker,
};

/// The effects of a new configuration, by peer name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconfigured {
    /// Peers that are new.
    pub added: Vec<String>,
    /// Removed peers, which receive Cease/Peer De-configured (RFC 4486).
    pub removed: Vec<String>,
    /// Peers with a reset session, which receive Cease/Other Configuration Change.
    pub reset: Vec<String>,
    /// Peers with a session that stays established, and with a change that takes effect in their
    /// next session.
    pub later: Vec<String>,
}

/// The reason why a new configuration requires a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NeedsRestart {
    /// The source of next hop reachability differs.
    NextHops,
    /// The families differ.
    Families,
    /// The multipath limit differs.
    Multipath,
    /// The options of the decision process differ.
    Decision,
    /// How much the tables keep differs.
    Limits,
}

/// Returns a session with only those keys of a peer that its two OPENs negotiate: the other keys
/// are for the next session, whatever their values are.
fn settling(peer: &PeerConfig) -> SessionConfig {
    let mut settling = PeerConfig::vacant();
    let keys = PEER_KEYS.iter();
    for key in keys.filter(|key| key.effect == Effect::Renegotiated) {
        (key.copy)(peer, &mut settling);
    }
    settling.session
}

impl NeedsRestart {
    /// Returns the field of [`SpeakerConfig`] that differs, as the configuration file calls it where
    /// it has a key.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::NextHops => "next_hops",
            Self::Families => "families",
            Self::Multipath => "multipath",
            Self::Decision => "decision",
            Self::Limits => "limits",
        }
    }
}

impl fmt::Display for NeedsRestart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` cannot change while running", self.key())
    }
}

impl core::error::Error for NeedsRestart {}

impl Speaker {
    /// Applies a new configuration. Sessions of peers with an unchanged configuration stay
    /// established.
    ///
    /// # Errors
    /// Nothing changes if the tables would have to change.
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
                continue; // A peer being removed has no state to lose, nor a claim to its address.
            };
            let remote = peer.config.remote;
            let came = peer.range.take().is_some() || peer.is_there();
            if wanted.contains(&remote) {
                continue; // It is handled with the configured ones.
            }
            self.unconfigure(now, (id, remote), came, &mut done);
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

    /// Adds a peer, or gives the one at its address another configuration: what
    /// [`reconfigure`](Self::reconfigure) does for a whole configuration. The work for a new peer does
    /// not depend on how many others there are.
    pub fn set_peer(&mut self, now: Instant, peer: PeerConfig) -> Reconfigured {
        let remote = peer.remote;
        let known = self.roster.at(remote);
        if let Some(state) = known.and_then(|id| self.roster.get_mut(id)) {
            state.range = None;
        }
        // A configured peer without a place in the roster is known to the configuration alone.
        let is_new = known.is_none() && !self.roster.was_full();
        let mut peers = self.config.peers.iter_mut();
        let old = match peers.find(|old| !is_new && old.remote == remote) {
            Some(old) => core::mem::replace(old, peer.clone()).cluster_id,
            None => {
                self.config.peers.push(peer.clone());
                None
            }
        };
        let has_cluster = peer.cluster_id != old;
        let mut done = Reconfigured::default();
        self.configure(now, peer, &mut done);
        self.settle_peer(remote, has_cluster);
        done
    }

    /// Removes the configured peer at an address: see [`set_peer`](Self::set_peer). Returns `None` if
    /// there is none.
    pub fn remove_peer(&mut self, now: Instant, remote: IpAddr) -> Option<Reconfigured> {
        let mut peers = self.config.peers.iter();
        let at = peers.position(|peer| peer.remote == remote)?;
        let old = self.config.peers.swap_remove(at);
        let mut done = Reconfigured::default();
        if let Some(id) = self.roster.at(remote) {
            let came = self.roster.get(id).is_some_and(Peer::is_there);
            self.unconfigure(now, (id, remote), came, &mut done);
        }
        self.settle_peer(remote, old.cluster_id.is_some());
        self.review_awaited();
        self.forget_failures_of(remote);
        Some(done)
    }

    /// Completes the change of one peer in the tables. `has_cluster`: its CLUSTER_ID is another one.
    fn settle_peer(&mut self, remote: IpAddr, has_cluster: bool) {
        if has_cluster {
            self.rib.set_cluster_ids(self.config.cluster_ids());
        }
        if let Some(id) = self.roster.at(remote) {
            self.align_peer(id);
            self.regroup(id, &mut BTreeSet::new());
        }
    }

    /// Applies the configuration of the range that covers a peer which is not configured by address
    /// any more, or removes the peer. `came`: it has dialed, or has state to lose.
    fn unconfigure(
        &mut self,
        now: Instant,
        (id, remote): (PeerId, IpAddr),
        came: bool,
        done: &mut Reconfigured,
    ) {
        // A limit applies to new peers, not to existing ones.
        match self.config.range_of(remote).filter(|_| came) {
            Some((at, range)) => self.revise(now, id, at, range.peer(remote), done),
            None => {
                done.removed.push(self.peer_name(id).into());
                self.deconfigure(now, id);
            }
        }
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
            (old.decision == new.decision, NeedsRestart::Decision),
            (old.limits == new.limits, NeedsRestart::Limits),
        ];
        checks
            .into_iter()
            .find(|(same, _)| !same)
            .map_or(Ok(()), |(_, what)| Err(what))
    }

    /// Applies the configuration of the range that now covers a neighbor, or removes the neighbor.
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
        self.retire(id); // Together with its session, if there are no routes to retain.
    }

    /// Resets a session of an unchanged peer, so that both sides may retain each other's routes
    /// (RFC 4724). It is started again with the next step of work: by then the driver has sent the
    /// NOTIFICATION.
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
        self.session_input(now, id, bgp_fsm::Input::StopForRestart(why));
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
            self.await_non_client(id);
            self.session_input(now, id, bgp_fsm::Input::Start);
        }
    }

    /// Returns whether a peer can take a new configuration with its session established: its
    /// transport and the negotiated result are the same. A session that is not established has
    /// nothing to lose.
    fn adapts(&self, id: PeerId, new: &PeerConfig) -> bool {
        let Some(peer) = self.roster.get(id) else {
            return false;
        };
        let (Some(params), Some(open)) = (&peer.params, peer.session.peer_open()) else {
            return true;
        };
        let settled = negotiate(&settling(new), open).is_ok_and(|new| {
            // The OPENs of this session negotiated both; new values are for the next session.
            let new = SessionParams {
                hold_time_s: params.hold_time_s,
                extended_receive: params.extended_receive,
                peer_graceful: params.peer_graceful.clone(),
                ..new
            };
            new == *params
        });
        settled && !peer.crosses(new) && !peer.moves(new)
    }

    /// Gives a peer a new configuration with its session established.
    fn adapt(&mut self, now: Instant, id: PeerId, new: PeerConfig, done: &mut Reconfigured) {
        let Some(peer) = self.roster.get_mut(id) else {
            return;
        };
        let old = core::mem::replace(&mut peer.config, new);
        let new = &peer.config;
        let dials = |peer: &PeerConfig| (peer.port, peer.local);
        let keys = |peer: &PeerConfig| (peer.password.clone(), peer.second_password.clone());
        let secure = |peer: &PeerConfig| (peer.ttl_security_hops, keys(peer));
        let secured = secure(&old) != secure(new);
        let limits = old.prefix_limits != new.prefix_limits;
        peer.shorten_stale(now);
        let new = &peer.config;
        let up = peer.params.is_some();
        if up && changes(&old, new).any(|row| row.effect.waits()) {
            done.later.push(new.name.clone());
        }
        if up && secured {
            self.outputs.push_back(Output::Secure {
                peer: id,
                ttl_security_hops: new.ttl_security_hops,
                password: new.password.clone(),
                second_password: new.second_password.clone(),
            });
        }
        if old.session != new.session || !up && (secured || dials(&old) != dials(new)) {
            peer.session.reconfigure(now, new.session.clone());
            self.settle(now, id);
        }
        if up && limits {
            self.limit_paths(id);
            // The peer sends rejected routes again, if it supports route refresh.
            let _ = self.request_refresh(id, None);
        }
    }

    /// Updates every peer's settings in the tables and its update group to match the configuration.
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
            info.origin = config.origin();
            info.import = config.import;
            info.as_path = config.as_path;
            info.domain = domain;
            info.role = config.role;
            info.cluster_id = config.cluster_id.unwrap_or(own);
        });
    }

    /// Ends a peer's session and removes the peer.
    fn deconfigure(&mut self, now: Instant, id: PeerId) {
        self.stop(now, id, Notification::cease(cease::PEER_DECONFIGURED));
        if let Some(address) = self.roster.get(id).map(|peer| peer.config.remote) {
            self.forget_awaited(address);
        }
        self.roster.doom(id);
        self.retire(id);
    }

    /// Ends every session with this NOTIFICATION (including the text of RFC 9003).
    pub fn stop_all(&mut self, now: Instant, why: &Notification) {
        for id in self.roster.ids() {
            self.stop(now, id, why.clone());
        }
    }

    /// Ends every session of a speaker that will restart: peers that retain its routes receive no
    /// Cease that would end the retention.
    pub fn stop_all_for_restart(&mut self, now: Instant, why: &Notification) {
        for id in self.roster.ids() {
            self.session_input(now, id, bgp_fsm::Input::StopForRestart(why.clone()));
        }
    }

    /// Ends one session; it is not started again.
    pub fn stop(&mut self, now: Instant, id: PeerId, why: Notification) {
        self.parted.retain(|parted| *parted != id);
        self.session_input(now, id, bgp_fsm::Input::Stop(why));
        self.remove_stale(id);
        self.path_works(id);
    }
}
