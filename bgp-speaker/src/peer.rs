//! One peer: its configuration, its session and where it stands in the export.

use alloc::{collections::BTreeMap, vec::Vec};
use core::net::IpAddr;

use bgp_fsm::{Conn, Instant, Session, State};
use bgp_proto::{Family, FamilySet, SessionParams};

use rib::{PeerCounters, PeerId, Rib, Role};

use crate::{keys::PeerConfig, prefix_limit::LimitLevel};

/// The state a speaker keeps of one peer.
#[derive(Debug)]
pub(crate) struct Peer {
    /// What the operator (or the range's template) says.
    pub(crate) config: PeerConfig,
    /// The index of the range a dynamic peer came from.
    pub(crate) range: Option<usize>,
    /// The session machine; it outlives every connection.
    pub(crate) session: Session,
    /// When the session last asked to be woken, as noted in the speaker's timer index.
    pub(crate) armed: Option<Instant>,
    /// What the OPENs settled, while the session is up.
    pub(crate) params: Option<SessionParams>,
    /// The local address of the established connection.
    pub(crate) local: Option<IpAddr>,
    /// The update group, while the session is up.
    pub(crate) group: Option<usize>,
    /// Until when paths of a session that went down are kept as stale (RFC 4724 §4.2).
    pub(crate) stale_until: Option<Instant>,
    /// The families whose paths are stale.
    pub(crate) stale: FamilySet,
    /// The families that the peer is sending again, and until when it may take (RFC 7313 §4.1).
    pub(crate) refreshes: Vec<(Family, Instant)>,
    /// How far the peer has come towards its limits, as the operator was told.
    pub(crate) limit_levels: BTreeMap<Family, LimitLevel>,
    /// The most paths it ever had in families with a limit.
    pub(crate) path_peaks: BTreeMap<Family, u32>,
    /// No longer configured: forgotten as soon as its last words are written.
    pub(crate) doomed: bool,
    /// When it last dialled, counted in connections.
    pub(crate) knock: u64,
    /// Whether the peer waits in the speaker's list of peers with something to write.
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
            stale: FamilySet::default(),
            refreshes: Vec::new(),
            limit_levels: BTreeMap::new(),
            path_peaks: BTreeMap::new(),
            doomed: false,
            knock: 0,
            listed: false,
        }
    }

    /// The next instant at which this peer needs the clock.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let refreshes = self.refreshes.iter().map(|&(_, until)| until);
        let timers = [self.session.poll_timeout(), self.stale_until];
        timers.into_iter().flatten().chain(refreshes).min()
    }

    /// Whether a new configuration makes it a peer of another AS than ours, or no longer one.
    pub(crate) fn crosses(&self, new: &PeerConfig) -> bool {
        (new.role == Role::External) != (self.config.role == Role::External)
    }

    /// Whether a new configuration wants its session, which is up, from another address of ours.
    pub(crate) fn moves(&self, new: &PeerConfig) -> bool {
        new.local.is_some() && new.local != self.local
    }

    /// Whether it has something to lose: a session, or routes that are kept for the next one.
    pub(crate) fn is_there(&self) -> bool {
        self.params.is_some() || self.stale_until.is_some()
    }

    /// Whether it rests for a limit that it has passed.
    pub(crate) fn is_barred(&self) -> bool {
        self.session.barred_until().is_some()
    }

    /// Whether nothing would be lost by forgetting a peer that is dynamic or no longer configured.
    pub(crate) fn is_spent(&self) -> bool {
        (self.doomed || self.range.is_some())
            && self.stale_until.is_none()
            && self.session.barred_until().is_none()
            && (self.session.state() == State::Idle || self.session.is_deserted())
            && Conn::PLACES
                .iter()
                .all(|&conn| !self.session.wants_write(conn))
    }

    pub(crate) fn view<'a>(&'a self, id: PeerId, rib: &Rib) -> PeerView<'a> {
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
            families: families
                .iter()
                .map(|family| (family, rib.counters(id, family)))
                .collect(),
            path_peaks: &self.path_peaks,
        }
    }
}

/// What `show neighbors` needs of one peer.
#[derive(Clone, Debug)]
pub struct PeerView<'a> {
    /// Its id within the speaker.
    pub id: PeerId,
    /// Its configuration.
    pub config: &'a PeerConfig,
    /// Whether it came from a range rather than from the configuration.
    pub dynamic: bool,
    /// Its session.
    pub session: &'a Session,
    /// What the OPENs settled, while the session is up.
    pub params: Option<&'a SessionParams>,
    /// The local address of the established connection.
    pub local: Option<IpAddr>,
    /// Until when its paths are kept as stale, if they are.
    pub stale_until: Option<Instant>,
    /// What the tables count of it, per family of the session.
    pub families: Vec<(Family, PeerCounters)>,
    /// The most paths it ever had, in families with a limit.
    pub path_peaks: &'a BTreeMap<Family, u32>,
}
