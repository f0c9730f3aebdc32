//! What goes into a speaker and what comes out of it.

use alloc::{boxed::Box, format, string::String};
use core::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use bgp_fsm::{Conn, DownReason, HeldEnd, State};
use bgp_proto::notification::cease;
use bgp_proto::{Attributes, Family, Fault, Net, Notification, Prefix, Remedy, SessionParams};
use bytes::Bytes;
use rib::{InterfaceName, PeerId, PrefixRange, Reach, Track};

use crate::{
    config::{Password, PrefixLimit},
    handshake::{HandshakeFailure, HandshakeFailures},
    prefix_limit::LimitLevel,
};

/// One thing that happened, handed to [`crate::Speaker::handle`].
#[derive(Debug)]
pub enum Input<'a> {
    /// Something about a peer's session or one of its connections.
    Session(PeerId, bgp_fsm::Input),
    /// A route of our own: announced with attributes, withdrawn without. The next hop may be left
    /// out: each peer is then told our own address.
    Local {
        /// The table.
        family: Family,
        /// The prefix.
        net: Net<'a>,
        /// Its attributes, or `None` to withdraw.
        attributes: Option<Attributes>,
        /// The interface it leads to, for export policies.
        interface: Option<InterfaceName>,
    },
    /// The answer, or a changed answer, to [`Output::Track`].
    Resolved {
        /// The next hop asked about.
        next_hop: IpAddr,
        /// Whether and at what cost it can be reached.
        reach: Reach,
    },
    /// Data that import policies refer to has changed for these prefixes, such as a ROA or a record
    /// of a store: received routes are evaluated again, in bites of [`crate::Speaker::run`], and no
    /// peer sends them again. See [`rib::Rib::reevaluate`].
    Reevaluate {
        /// The table.
        family: Family,
        /// The prefixes.
        range: PrefixRange,
    },
    /// The instant of [`crate::Speaker::poll_timeout`] has come.
    Timeout,
}

/// One thing for the driver to do or the operator to know. Routes are not among them: readers
/// pull those from the log.
#[derive(Debug)]
pub enum Output {
    /// Open a connection to the peer; answer with `Opened` or `Failed` on [`Conn::Outbound`].
    Dial {
        /// The peer.
        peer: PeerId,
        /// Where to.
        remote: SocketAddr,
        /// Where from, if that is configured.
        local: Option<IpAddr>,
        /// GTSM (RFC 5082): the hops the peer may be away.
        ttl_security_hops: Option<u8>,
        /// The TCP-MD5 key.
        password: Option<Password>,
    },
    /// From now on the connections of the peer are to be secured so.
    Secure {
        /// The peer.
        peer: PeerId,
        /// GTSM (RFC 5082): the hops the peer may be away.
        ttl_security_hops: Option<u8>,
        /// The TCP-MD5 key.
        password: Option<Password>,
    },
    /// Write out what [`crate::Speaker::fill`] still gives, then close the connection.
    Close {
        /// The peer.
        peer: PeerId,
        /// Which of its connections.
        conn: Conn,
    },
    /// Move the peer's connection in the place of [`Conn::Held`] to that of [`Conn::Inbound`]: see
    /// [`bgp_fsm::Output::Promote`].
    Promote(PeerId),
    /// Look at the transport of a connection: see [`bgp_fsm::Output::Probe`].
    Probe {
        /// The peer.
        peer: PeerId,
        /// Which of its connections.
        conn: Conn,
        /// Whether the probe begins.
        begins: bool,
    },
    /// A dynamic peer has gone; its id means nothing any more.
    Gone(PeerId),
    /// Follow a next hop, or stop following it.
    Track(Track),
    /// Something to log.
    Event(Event),
}

/// What an operator would want to read about.
#[derive(Debug)]
pub enum Event {
    /// A session moved to another state of RFC 4271 §8.2.2.
    State {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be forgotten by the time this is read.
        name: String,
        /// The state it is in now.
        state: State,
    },
    /// A session came up.
    Up {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be forgotten by the time this is read.
        name: String,
        /// What the two OPENs settled.
        params: Box<SessionParams>,
    },
    /// An established session ended.
    Down {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be forgotten by the time this is read.
        name: String,
        /// Why.
        reason: DownReason,
    },
    /// A connection that the peer opened while another one of its was in use has come to its end.
    HeldEnded {
        /// The peer.
        peer: PeerId,
        /// How.
        end: HeldEnd,
    },
    /// A malformed message was dealt with (RFC 7606).
    Malformed {
        /// The peer it came from.
        peer: PeerId,
        /// Its name.
        name: String,
        /// What was wrong and where.
        fault: Fault,
        /// What was done about it.
        remedy: Remedy,
    },
    /// The peer sent a family's End-of-RIB marker (RFC 4724 §2).
    EndOfRib {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be forgotten by the time this is read.
        name: String,
        /// The family it has sent whole.
        family: Family,
    },
    /// The peer has come near a limit of paths, or has passed it. Told once until it is below the
    /// share that is warned of.
    PrefixLimit {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be forgotten by the time this is read.
        name: String,
        /// The family.
        family: Family,
        /// How far it has come.
        level: LimitLevel,
        /// Its limit.
        limit: PrefixLimit,
    },
    /// After a restart of ours, all whose routes were awaited in a family have sent them, or have
    /// had time to (RFC 4724 §4.1): from now on its routes are passed on.
    Selected {
        /// The family.
        family: Family,
    },
    /// The peer has sent a family once more, and what it did not send again is gone
    /// (RFC 7313 §4.1).
    Refreshed {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be forgotten by the time this is read.
        name: String,
        /// The family it has sent again.
        family: Family,
    },
    /// The peer began to send a family once more and did not mark the end in time: what it had
    /// not sent again by then is gone (RFC 7313 §4.1).
    RefreshOverdue {
        /// The peer.
        peer: PeerId,
        /// Its name: the peer may be forgotten by the time this is read.
        name: String,
        /// The family.
        family: Family,
    },
    /// Connections of a range, or of a neighbor with GTSM or a key, never became sessions. The first
    /// is reported at once, those that follow every [`crate::limits::HANDSHAKE_REPORT_EVERY`].
    Handshakes {
        /// The neighbor or the range, as the configuration calls it.
        of: String,
        /// How many since the last report, and why.
        failures: HandshakeFailures,
        /// Where the last one came from.
        remote: IpAddr,
        /// Why that one failed.
        last: HandshakeFailure,
    },
}

/// A malformed message kept for the operator.
#[derive(Clone, Debug)]
pub struct Malformed {
    /// When it came.
    pub at: bgp_fsm::Instant,
    /// Who sent it: the peer's name.
    pub peer: String,
    /// The UPDATE's body, cut at [`crate::limits::MALFORMED_OCTETS_MAX`].
    pub body: Bytes,
    /// How many octets the body had.
    pub octets: usize,
    /// The first fault found.
    pub fault: Fault,
    /// What was done.
    pub remedy: Remedy,
}

/// Why an incoming connection is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No peer and no range covers the address.
    Unknown,
    /// The range that covers it already holds as many sessions as it may.
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
    /// The peer's session does not want another connection now.
    Session(Notification),
}

impl Refusal {
    /// What the other side is told before its connection is closed (RFC 4486).
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
            Self::WrongLocal => {
                f.write_str("it dialled another address than the neighbor's source")
            }
            Self::TooManyPeers => f.write_str("this speaker holds no more peers"),
            Self::Session(notification) => {
                write!(f, "the session does not want it now: {notification}")
            }
        }
    }
}
