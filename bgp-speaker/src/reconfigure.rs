//! A new configuration on a running speaker: only the sessions it must touch are touched.
//!
//! Policies, next hops, limits and names change under a session that stays up: an update group is
//! left for another, and routes are asked for again.

use alloc::{collections::BTreeSet, string::String, vec::Vec};
use core::net::IpAddr;

use bgp_fsm::Instant;
use bgp_proto::{ClusterId, Notification, Prefix, notification::cease};
use rib::PeerId;

use crate::{
    config::{PeerConfig, SpeakerConfig},
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
}

/// Why a new configuration cannot be taken while running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsRestart {
    /// Our AS number differs.
    LocalAsn,
    /// Our BGP Identifier differs.
    RouterId,
    /// Our CLUSTER_ID differs.
    ClusterId,
    /// The families differ.
    Families,
    /// The multipath limit differs.
    Multipath,
}

impl NeedsRestart {
    /// The key of the configuration file this is about.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::LocalAsn => "asn",
            Self::RouterId => "router_id",
            Self::ClusterId => "cluster_id",
            Self::Families => "families",
            Self::Multipath => "multipath",
        }
    }
}

impl Speaker {
    /// Takes over a new configuration. Sessions whose peer is configured as before stay up.
    ///
    /// # Errors
    /// Nothing changes when the speaker itself would become another one.
    pub fn reconfigure(
        &mut self,
        now: Instant,
        new: SpeakerConfig,
    ) -> Result<Reconfigured, NeedsRestart> {
        self.same_speaker(&new)?;
        let mut done = Reconfigured::default();
        let old_ranges = core::mem::replace(&mut self.config, new.clone()).ranges;
        let wanted: BTreeSet<IpAddr> = new.peers.iter().map(|peer| peer.remote).collect();
        for id in self.roster.ids() {
            let Some(peer) = self.roster.get(id) else {
                continue;
            };
            let remote = peer.config.remote;
            let config = match peer.range.and_then(|range| old_ranges.get(range)) {
                _ if wanted.contains(&remote) => peer.range.is_none().then_some(None),
                Some(range) => self.of_range(range.prefix, remote).map(Some),
                None => None,
            };
            match config {
                Some(None) => {} // Its turn comes with the configured ones.
                Some(Some((range, config))) if self.adapts(id, &config) => {
                    self.adapt(id, config);
                    if let Some(peer) = self.roster.get_mut(id) {
                        peer.range = Some(range);
                    }
                }
                _ => {
                    done.removed.push(self.peer_name(id).into());
                    self.deconfigure(now, id);
                }
            }
        }
        let clusters = new.cluster_ids();
        for peer in new.peers {
            self.configure(now, peer, &mut done);
        }
        self.join_clusters(clusters);
        Ok(done)
    }

    /// Routes that have come by way of a cluster that is ours from now on are no use: whoever may
    /// have sent such is asked to send all again (RFC 4456 §8).
    fn join_clusters(&mut self, clusters: BTreeSet<ClusterId>) {
        let old = &self.rib.config().cluster_ids;
        if *old == clusters {
            return;
        }
        self.rib.set_cluster_ids(clusters);
        for id in self.roster.ids() {
            let internal = |peer: &crate::peer::Peer| peer.config.role.is_internal();
            if self.roster.get(id).is_some_and(internal) {
                let _ = self.ask_refresh(id, None); // Who cannot is asked in vain.
            }
        }
    }

    fn same_speaker(&self, new: &SpeakerConfig) -> Result<(), NeedsRestart> {
        let old = &self.config;
        let checks = [
            (old.local_asn == new.local_asn, NeedsRestart::LocalAsn),
            (old.router_id == new.router_id, NeedsRestart::RouterId),
            (
                old.cluster_id() == new.cluster_id(),
                NeedsRestart::ClusterId,
            ),
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

    fn configure(&mut self, now: Instant, config: PeerConfig, done: &mut Reconfigured) {
        if let Some(id) = self.roster.at(config.remote) {
            if self.adapts(id, &config) {
                return self.adapt(id, config);
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
            self.session_input(now, id, bgp_fsm::Input::Start);
        }
    }

    /// What a neighbour out of a range of this prefix becomes, and the range's new place, if no
    /// longer range covers it now.
    fn of_range(&self, prefix: Prefix, remote: IpAddr) -> Option<(usize, PeerConfig)> {
        let (at, range) = self.config.range_of(remote)?;
        (range.prefix == prefix).then(|| (at, range.peer(remote)))
    }

    /// Whether a peer can take a new configuration with its session up: what the two OPENs and the
    /// transport depend on is the same, and whoever has to send its routes again does so when asked.
    fn adapts(&self, id: PeerId, new: &PeerConfig) -> bool {
        let Some(peer) = self.roster.get(id) else {
            return false;
        };
        let old = &peer.config;
        let adapted = PeerConfig {
            name: new.name.clone(),
            import: new.import.clone(),
            export: new.export.clone(),
            next_hop: new.next_hop,
            prefix_limits: new.prefix_limits.clone(),
            ..old.clone()
        };
        let Some(params) = peer.params.as_ref() else {
            return adapted == *new;
        };
        // Path identifiers are a group's own, and would mean something else in another.
        let regroups = old.export != new.export || old.next_hop != new.next_hop;
        let moves = !regroups || params.add_path_send.is_empty();
        adapted == *new && moves && (old.import == new.import || params.route_refresh)
    }

    /// Gives a peer a new configuration with its session up.
    fn adapt(&mut self, id: PeerId, new: PeerConfig) {
        let Some(peer) = self.roster.get_mut(id) else {
            return;
        };
        let old = core::mem::replace(&mut peer.config, new);
        let new = &peer.config;
        let limits = old.prefix_limits != new.prefix_limits;
        let (import, judged) = (new.import.clone(), old.import != new.import);
        let regroups = old.export != new.export || old.next_hop != new.next_hop;
        let up = peer.params.is_some();
        self.rib.set_import(id, import);
        if !up {
            return; // Whoever comes up does so by the new configuration.
        }
        if limits {
            self.limit_paths(id);
        }
        if judged || limits {
            // What was refused comes again, what is accepted no more is judged anew.
            let _ = self.ask_refresh(id, None);
        }
        if regroups {
            self.regroup(id);
        }
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
        self.session_input(now, id, bgp_fsm::Input::Stop(why));
        self.expire_stale(Instant(u64::MAX), id);
    }
}
