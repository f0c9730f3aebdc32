//! Inputs, outputs and events of a speaker.

use alloc::{boxed::Box, format, string::String};
use core::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use bgp_fsm::{Conn, DownReason, HeldEnd, State};
use bgp_proto::notification::cease;
use bgp_proto::{
    Attributes, Family, FamilySet, Fault, Net, Notification, Prefix, Remedy, SessionParams,
};
use bytes::Bytes;
use rib::{InterfaceName, PeerId, PrefixRange, Reach, Track};

use crate::{
    config::{Password, PrefixLimit, PrefixLimitOut},
    handshake::{HandshakeFailure, HandshakeFailures},
    memory::MemoryAction,
    path_state::{PathConsequence, PathState},
    prefix_limit::LimitLevel,
};

/// One input of [`crate::Speaker::handle`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// An input of a peer's session or one of its connections.
    Session(PeerId, bgp_fsm::Input),
    /// A locally originated route: announced with attributes, withdrawn without. Without a next
    /// hop, each peer receives the local address of its session.
    Local {
        /// The table.
        family: Family,
        /// The prefix.
        net: Net<'a>,
        /// Its attributes, or `None` to withdraw.
        attributes: Option<Attributes>,
        /// The interface of the route, for export policies.
        interface: Option<InterfaceName>,
    },
    /// The result, or a changed result, for [`Output::Track`].
    Resolved {
        /// The tracked next hop.
        next_hop: IpAddr,
        /// Its reachability and cost.
        reach: Reach,
    },
    /// Requests another evaluation of received routes because data of import policies has changed
    /// for these prefixes, such as a ROA or a datastore record. [`crate::Speaker::run`] does it in
    /// bounded steps, and no peer sends its routes again. See [`rib::Rib::reevaluate`].
    Reevaluate {
        /// The table.
        family: Family,
        /// The prefixes.
        range: PrefixRange,
    },
    /// The state of the path to the peer at an address, from a session of BFD. A failed neighbor of
    /// [`Speaker::former_dynamic`](crate::Speaker::former_dynamic) becomes a peer; other addresses are ignored.
    Path(IpAddr, PathState),
    /// The instant of [`crate::Speaker::poll_timeout`] has been reached.
    Timeout,
}

/// One action for the driver, or one event for the operator. Routes are not among them: readers
/// pull those from the log. A driver acts on every one of them, so a new one is a breaking change.
#[derive(Debug)]
pub enum Output {
    /// Open a connection to the peer; report the result as `Opened` or `Failed` on
    /// [`Conn::Outbound`].
    Dial {
        /// The peer.
        peer: PeerId,
        /// Remote address and port.
        remote: SocketAddr,
        /// Local address, if configured.
        local: Option<IpAddr>,
        /// GTSM (RFC 5082): the maximum distance of the peer in hops.
        ttl_security_hops: Option<u8>,
        /// The TCP-MD5 key.
        password: Option<Password>,
        /// Another key that the peer may have.
        second_password: Option<Password>,
    },
    /// Apply this security to the connections of the peer from now on.
    Secure {
        /// The peer.
        peer: PeerId,
        /// GTSM (RFC 5082): the maximum distance of the peer in hops.
        ttl_security_hops: Option<u8>,
        /// The TCP-MD5 key.
        password: Option<Password>,
        /// Another key that the peer may have for a connection which this speaker dialed.
        second_password: Option<Password>,
    },
    /// Write the remaining octets of [`crate::Speaker::fill`], then close the connection.
    Close {
        /// The peer.
        peer: PeerId,
        /// The connection.
        conn: Conn,
    },
    /// Move the peer's connection at [`Conn::Held`] to [`Conn::Inbound`]: see
    /// [`bgp_fsm::Output::Promote`].
    Promote(PeerId),
    /// Probe the transport of a connection: see [`bgp_fsm::Output::Probe`].
    Probe {
        /// The peer.
        peer: PeerId,
        /// The connection.
        conn: Conn,
        /// Whether the probe begins.
        begins: bool,
    },
    /// A dynamic peer was removed; its id is no longer valid.
    PeerRemoved(PeerId),
    /// Start or stop tracking a next hop.
    Track(Track),
    /// An event for the log.
    Event(Event),
}

/// An event for the operator.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A session moved to another state of RFC 4271 §8.2.2.
    State {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The new state.
        state: State,
    },
    /// A session was established.
    Up {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The negotiated parameters.
        params: Box<SessionParams>,
    },
    /// An established session ended.
    Down {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The reason.
        reason: DownReason,
    },
    /// The restart time of a peer has expired. Its stale paths in these families are retained as the
    /// least preferred ones (RFC 9494 §4.2).
    LongLivedStale {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The families.
        families: FamilySet,
    },
    /// BFD has found the path to a peer failed.
    PathFailed {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The consequence.
        consequence: PathConsequence,
    },
    /// A connection that the peer opened while another one was in use has ended.
    HeldEnded {
        /// The peer.
        peer: PeerId,
        /// The way in which it ended.
        end: HeldEnd,
    },
    /// A malformed message was handled (RFC 7606).
    Malformed {
        /// The sender.
        peer: PeerId,
        /// Its name.
        name: String,
        /// The error and its position.
        fault: Fault,
        /// The action that was taken.
        remedy: Remedy,
    },
    /// The peer sent a family's End-of-RIB marker (RFC 4724 §2).
    EndOfRib {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The family.
        family: Family,
    },
    /// The peer has approached a limit of paths, or has exceeded it. Reported once until the number
    /// falls below the warning share.
    PrefixLimit {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The family.
        family: Family,
        /// The level reached.
        level: LimitLevel,
        /// Its limit.
        limit: PrefixLimit,
    },
    /// Paths of the peer were rejected above a limit, and the number of its paths has fallen to
    /// [`crate::limits::LIMIT_CLEARED_PERCENT`] of it. The rejected paths arrive again if the peer
    /// supports route refresh.
    PrefixLimitCleared {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The family.
        family: Family,
        /// Its limit.
        limit: PrefixLimit,
        /// Whether a ROUTE-REFRESH was sent, or the reason why not.
        refresh: Result<(), NoRefresh>,
    },
    /// The peer was sent so many paths that the warning share of its limit of sent paths is reached,
    /// or paths are suppressed because of it. Reported once until the number falls below the warning
    /// share, or all paths are sent.
    SentLimit {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The family.
        family: Family,
        /// The level reached.
        level: LimitLevel,
        /// Its limit.
        limit: PrefixLimitOut,
    },
    /// Paths were suppressed because of the peer's limit of sent paths, and now all of them are
    /// sent.
    SentLimitCleared {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The family.
        family: Family,
        /// Its limit.
        limit: PrefixLimitOut,
    },
    /// The octets in all accounts have reached a share of their limit, and this peer has the most of
    /// them: see [`crate::Speaker::limit_memory`].
    MemoryLimit {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The action that was taken.
        action: MemoryAction,
        /// The octets in its account.
        octets: usize,
        /// The octets in all accounts.
        total: usize,
        /// Their limit.
        octets_max: usize,
    },
    /// New paths of the peer are accepted again, because the octets in all accounts have fallen.
    /// Rejected paths arrive again if the peer supports route refresh.
    MemoryCleared {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// Whether a ROUTE-REFRESH was sent if paths were rejected, or the reason why not.
        refresh: Result<(), NoRefresh>,
    },
    /// After a restart of this speaker, all awaited routes of a family have been received, or the
    /// wait has expired (RFC 4724 §4.1): its routes are advertised from now on.
    Selected {
        /// The family.
        family: Family,
    },
    /// The peer has sent a family again, and the paths that it did not send again were removed (RFC
    /// 7313 §4.1).
    Refreshed {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The family.
        family: Family,
    },
    /// The peer sent BoRR for a family and no EoRR in time: the paths that it had not sent again by
    /// then were removed (RFC 7313 §4.1).
    RefreshOverdue {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be removed before this is read.
        name: String,
        /// The family.
        family: Family,
    },
    /// Connections of a range, or of a neighbor with GTSM or a key, failed before they were
    /// Established. The first failure is reported at once, further ones every
    /// [`crate::limits::HANDSHAKE_REPORT_EVERY`].
    Handshakes {
        /// The configured name of the neighbor or the range.
        of: String,
        /// Failures since the last report, by reason.
        failures: HandshakeFailures,
        /// The source of the last one.
        remote: IpAddr,
        /// The reason of the last one.
        last: HandshakeFailure,
    },
}

/// A malformed message recorded for the operator.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Malformed {
    /// When it was received.
    pub at: bgp_fsm::Instant,
    /// The sender's name.
    pub peer: String,
    /// The UPDATE's body, truncated to [`crate::limits::MALFORMED_OCTETS_MAX`].
    pub body: Bytes,
    /// The length of the body in octets.
    pub octets: usize,
    /// The first error.
    pub fault: Fault,
    /// The action that was taken.
    pub remedy: Remedy,
}

/// A reason why an incoming connection is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No peer and no range covers the address.
    Unknown,
    /// The range that covers it has reached its limit of peers.
    RangeFull {
        /// The range.
        range: Prefix,
        /// Its limit.
        limit: u16,
    },
    /// The peer is configured for another local address.
    WrongLocal,
    /// The speaker holds [`crate::limits::PEERS_MAX`] peers.
    TooManyPeers,
    /// The peer's session does not accept another connection now.
    Session(Notification),
}

impl Refusal {
    /// Returns the NOTIFICATION that is sent before the connection is closed (RFC 4486).
    #[must_use]
    pub fn notification(&self) -> Notification {
        match self {
            Self::Unknown | Self::WrongLocal => Notification::cease(cease::CONNECTION_REJECTED),
            Self::RangeFull { .. } | Self::TooManyPeers => {
                Notification::out_of_resources(&format!("{self}"))
            }
            Self::Session(notification) => notification.clone(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no neighbor and no neighbor_range covers this address"),
            Self::RangeFull { range, limit } => {
                write!(f, "neighbor_range {range} is full: limit = {limit}")
            }
            Self::WrongLocal => f.write_str("it dialed another address than the neighbor's source"),
            Self::TooManyPeers => f.write_str("this speaker holds no more peers"),
            Self::Session(notification) => {
                write!(f, "the session does not want it now: {notification}")
            }
        }
    }
}

impl core::error::Error for Refusal {}

/// The reason why a peer cannot be asked for its routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoRefresh {
    /// Its session is not established.
    NotUp,
    /// It has not advertised the route refresh capability (RFC 2918 §2).
    NotSupported,
    /// The session does not carry the family.
    OtherFamilies,
}

impl fmt::Display for NoRefresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUp => "its session is not up",
            Self::NotSupported => "it does not offer route refresh",
            Self::OtherFamilies => "its session does not carry this family",
        })
    }
}

impl core::error::Error for NoRefresh {}
