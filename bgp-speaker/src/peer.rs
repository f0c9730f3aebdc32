//! One peer: its configuration, its session and its place in the export.

use alloc::{collections::BTreeMap, vec::Vec};
use core::{net::IpAddr, time::Duration};

use bgp_fsm::{Conn, Instant, Session, State};
use bgp_proto::{Family, FamilySet, RouterId, SessionParams};

use rib::{PeerCounters, PeerId, Rib, Role};

use crate::{
    keys::PeerConfig, limited::SentPaths, octets::PeerOctets, path_history::PathHistory,
    path_state::PathState, prefix_limit::LimitLevel,
};

/// The state a speaker keeps of one peer.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The configuration by the operator, or from the range's template.
    pub(crate) config: PeerConfig,
    /// The index of the range a dynamic peer came from.
    pub(crate) range: Option<usize>,
    /// The session machine; it outlives every connection.
    pub(crate) session: Session,
    /// The session's next timeout, as in the speaker's timer index.
    pub(crate) armed: Option<Instant>,
    /// The negotiated parameters of an established session.
    pub(crate) params: Option<SessionParams>,
    /// The local address of the established connection.
    pub(crate) local: Option<IpAddr>,
    /// The update group of an established session.
    pub(crate) group: Option<usize>,
    /// When something happens to stale paths next: [`Peer::schedule_stale`].
    pub(crate) stale_until: Option<Instant>,
    /// When the restart time ends, or in a session the wait for End-of-RIB markers.
    pub(crate) restart_until: Option<Instant>,
    /// The families whose paths are stale.
    pub(crate) stale: FamilySet,
    /// The long-lived stale time of the ended session by family, in seconds (RFC 9494 §3.1).
    pub(crate) long_lived_s: BTreeMap<Family, u32>,
    /// The families whose restart time has expired, and until when their stale paths are retained.
    /// An instant stays until the peer has sent its routes again, however many sessions that takes
    /// (RFC 9494 §4.2).
    pub(crate) long_lived_until: BTreeMap<Family, Instant>,
    /// The path to the peer, as BFD sees it.
    pub(crate) path: PathState,
    /// Recent failures of the path, and connections that it has caused.
    pub(crate) path_history: PathHistory,
    /// Whether the paths of a session that BFD ends are retained, although a NOTIFICATION ends it.
    pub(crate) retains: bool,
    /// Whether paths with this peer as next hop are excluded.
    pub(crate) next_hop_failed: bool,
    /// Its BGP Identifier, if stale paths that it originates are excluded.
    pub(crate) failed_origin: Option<RouterId>,
    /// Until when a dynamic peer is kept for these excluded paths.
    pub(crate) failed_until: Option<Instant>,
    /// The families with a refresh in progress, with their deadlines (RFC 7313 §4.1).
    pub(crate) refreshes: Vec<(Family, Instant)>,
    /// The last reported level of each limit.
    pub(crate) limit_levels: BTreeMap<Family, LimitLevel>,
    /// The families with paths that were rejected above a limit, with the next check for room.
    pub(crate) limited: Vec<(Family, Instant)>,
    /// While new paths are rejected because of the speaker's memory: the next check for room.
    pub(crate) capped: Option<Instant>,
    /// The octets in its account when new paths began to be rejected.
    pub(crate) capped_octets: usize,
    /// The last reported level of each limit of sent paths.
    pub(crate) sent_levels: BTreeMap<Family, LimitLevel>,
    /// When the output continues in families with a limit of sent paths.
    pub(crate) sent_resume: Option<Instant>,
    /// Until when routes that its route targets select wait for the End-of-RIB marker of these
    /// (RFC 4684 §6).
    pub(crate) targets_until: Option<Instant>,
    /// The highest number of paths in families with a limit.
    pub(crate) path_peaks: BTreeMap<Family, u32>,
    /// No longer configured: removed as soon as its remaining octets are written.
    pub(crate) doomed: bool,
    /// The number of its last incoming connection, in the order of all connections.
    pub(crate) knock: u64,
    /// Whether the peer is in the speaker's list of peers with octets to write.
    pub(crate) listed: bool,
}

impl Peer {
    pub(crate) fn new(config: PeerConfig, range: Option<usize>, seed: u64) -> Self {
        let session = Session::new(config.session.clone(), seed);
        Self {
            config,
            range,
            session,
            armed: None,
            params: None,
            local: None,
            group: None,
            stale_until: None,
            restart_until: None,
            stale: FamilySet::default(),
            long_lived_s: BTreeMap::new(),
            long_lived_until: BTreeMap::new(),
            path: PathState::default(),
            path_history: PathHistory::default(),
            retains: false,
            next_hop_failed: false,
            failed_origin: None,
            failed_until: None,
            refreshes: Vec::new(),
            limit_levels: BTreeMap::new(),
            limited: Vec::new(),
            capped: None,
            capped_octets: 0,
            sent_levels: BTreeMap::new(),
            sent_resume: None,
            targets_until: None,
            path_peaks: BTreeMap::new(),
            doomed: false,
            knock: 0,
            listed: false,
        }
    }

    /// Returns the next instant at which this peer has a timeout.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let families = self.refreshes.iter().chain(&self.limited);
        let families = families.map(|&(_, until)| until);
        let timers = [
            self.session.poll_timeout(),
            self.stale_until,
            self.failed_until,
            self.path_history.dial_at,
            self.capped,
            self.sent_resume,
            self.targets_until,
        ];
        timers.into_iter().flatten().chain(families).min()
    }

    /// Sets when stale paths are removed, or their long-lived stale time begins.
    pub(crate) fn schedule_stale(&mut self) {
        let long_lived = self.long_lived_until.iter();
        let long_lived = long_lived.filter(|(family, _)| self.stale.contains(**family));
        let all = long_lived
            .map(|(_, until)| *until)
            .chain(self.restart_until);
        self.stale_until = all.min().filter(|_| !self.stale.is_empty());
    }

    /// Applies smaller long-lived stale times to paths that are stale already.
    pub(crate) fn shorten_stale(&mut self, now: Instant) {
        let session = &self.config.session;
        let is_graceful = session.graceful_restart.is_some();
        let allowed = |family: &Family| match session.long_lived_stale_time_s.get(family) {
            Some(time_s) if is_graceful => *time_s,
            _ => 0,
        };
        self.long_lived_s.retain(|family, time_s| {
            *time_s = allowed(family).min(*time_s);
            *time_s > 0
        });
        for (family, until) in &mut self.long_lived_until {
            let latest = now + Duration::from_secs(allowed(family).into());
            *until = latest.min(*until);
        }
        self.schedule_stale();
    }

    /// Returns whether a new configuration changes it from an internal to an external peer, or vice
    /// versa.
    pub(crate) fn crosses(&self, new: &PeerConfig) -> bool {
        (new.role == Role::External) != (self.config.role == Role::External)
    }

    /// Returns whether a new configuration requires another local address for its established
    /// session.
    pub(crate) fn moves(&self, new: &PeerConfig) -> bool {
        new.local.is_some() && new.local != self.local
    }

    /// Returns whether it has a session or retained routes, which would be lost.
    pub(crate) fn is_there(&self) -> bool {
        self.params.is_some() || self.stale_until.is_some()
    }

    /// Returns whether it is in idle hold after a prefix limit.
    pub(crate) fn is_in_back_off(&self) -> bool {
        self.session.idle_hold_until().is_some()
    }

    /// Returns whether its new paths are rejected because of the speaker's memory.
    pub(crate) fn is_capped(&self) -> bool {
        self.capped.is_some()
    }

    /// Returns whether a peer that is dynamic or no longer configured can be removed without losing
    /// state.
    pub(crate) fn is_spent(&self) -> bool {
        (self.doomed || self.range.is_some())
            && self.stale_until.is_none()
            && (self.doomed || self.failed_until.is_none())
            && self.session.idle_hold_until().is_none()
            && (self.session.state() == State::Idle || self.session.is_abandoned())
            && Conn::PLACES
                .iter()
                .all(|&conn| !self.session.wants_write(conn))
    }

    /// Returns the state of the peer, with the paths that it was sent in families with a limit.
    pub(crate) fn view<'a>(
        &'a self,
        id: PeerId,
        rib: &Rib,
        octets: PeerOctets,
        sent: Vec<SentPaths>,
    ) -> PeerView<'a> {
        let families = self
            .params
            .as_ref()
            .map_or(self.config.session.families, |p| p.families);
        PeerView {
            id,
            config: &self.config,
            dynamic: self.range.is_some(),
            session: &self.session,
            params: self.params.as_ref(),
            local: self.local,
            stale_until: self.stale_until,
            long_lived_until: &self.long_lived_until,
            families: families
                .iter()
                .map(|family| (family, rib.counters(id, family)))
                .collect(),
            path_peaks: &self.path_peaks,
            octets,
            capped: self.is_capped(),
            sent,
        }
    }
}

/// The state of one peer, for `show neighbors`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeerView<'a> {
    /// Its id within the speaker.
    pub id: PeerId,
    /// Its configuration.
    pub config: &'a PeerConfig,
    /// Whether it comes from a range.
    pub dynamic: bool,
    /// Its session.
    pub session: &'a Session,
    /// The negotiated parameters of an established session.
    pub params: Option<&'a SessionParams>,
    /// The local address of the established connection.
    pub local: Option<IpAddr>,
    /// Until when its paths are retained as stale, if they are.
    pub stale_until: Option<Instant>,
    /// The families with paths that are stale beyond the restart time, and until when these are
    /// retained (RFC 9494 §4.2).
    pub long_lived_until: &'a BTreeMap<Family, Instant>,
    /// The counters of the tables, by family of the session.
    pub families: Vec<(Family, PeerCounters)>,
    /// The highest number of paths, in families with a limit.
    pub path_peaks: &'a BTreeMap<Family, u32>,
    /// The octets in its account.
    pub octets: PeerOctets,
    /// Whether its new paths are rejected because of the speaker's memory:
    /// [`crate::Speaker::limit_memory`].
    pub capped: bool,
    /// The paths that it was sent in the families of its session with a limit of them.
    pub sent: Vec<SentPaths>,
}
