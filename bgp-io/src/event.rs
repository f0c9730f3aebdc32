//! Events of the driver for its program.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bgp_speaker::bgp_proto::MessageKind;
use bgp_speaker::rib::{PeerId, Track};
use bgp_speaker::{Record, Refusal};

use crate::{Distance, IoError, PeerScope};

/// A message of a traced peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedMessage {
    /// The peer.
    pub peer: PeerId,
    /// Its address.
    pub address: IpAddr,
    /// Whether the message was sent, and not received.
    pub sent: bool,
    /// Its type.
    pub kind: MessageKind,
    /// Its length, with the header.
    pub octets: usize,
    /// Its content, on one line: at most
    /// [`TRACED_TEXT_OCTETS_MAX`](crate::limits::TRACED_TEXT_OCTETS_MAX) octets.
    pub text: String,
}

/// An event that a program may want to act on or log.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// An event of the speaker about its sessions.
    Speaker(bgp_speaker::Event),
    /// The tables need a next hop resolved, or no longer need it: answer with
    /// [`bgp_speaker::Input::Resolved`].
    Track(Track),
    /// A dynamic peer was removed; its ID is no longer valid.
    PeerRemoved(PeerId),
    /// An incoming connection was rejected.
    Refused {
        /// Local address of the connection.
        local: SocketAddr,
        /// Remote address of the connection.
        remote: SocketAddr,
        /// The reason.
        refusal: Refusal,
    },
    /// A connection could not be opened; the session tries again.
    DialFailed {
        /// The peer.
        peer: PeerId,
        /// Its address.
        remote: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// A flood of connections from addresses that are no neighbor's began: the kernel drops their SYNs,
    /// until few arrive. See [`crate::limits::STRANGER_EVERY`].
    StrangersDropped,
    /// The flood has ended, or the configuration has changed: such connections are accepted, and
    /// refused, again.
    StrangersAdmitted {
        /// Segments that the kernel dropped at the listening sockets meanwhile.
        dropped: u64,
    },
    /// Connections cannot be accepted for now; the driver tries again after
    /// [`crate::limits::ACCEPT_PAUSE`].
    AcceptFailed {
        /// The listening socket.
        local: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// TCP-MD5 or GTSM could not be set on a connection, which is closed for that reason.
    OptionFailed {
        /// Remote address of the connection.
        remote: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// A connection of a peer with a password was closed, because it may be unsigned: the key is not on
    /// the listening socket, or was set there after the connection was opened.
    Unsigned {
        /// Local address of the connection.
        local: SocketAddr,
        /// Remote address of the connection.
        remote: SocketAddr,
    },
    /// A connection of a peer with GTSM was closed, because it came from too far away or may have.
    TooFar {
        /// Local address of the connection.
        local: SocketAddr,
        /// Remote address of the connection.
        remote: SocketAddr,
        /// The reason.
        why: Distance,
    },
    /// A key could not be set on a listening socket, so connections of its peers are rejected. It is
    /// tried again every [`crate::limits::LISTEN_RETRY`]. Reported once, see [`crate::Io::keyless`].
    KeyFailed {
        /// The neighbors of the key.
        scope: PeerScope,
        /// The error.
        error: Arc<IoError>,
    },
    /// A key that had failed is set on all listening sockets, or is no longer wanted.
    KeyInstalled(PeerScope),
    /// Listening on an address failed, mostly because the machine does not have the address. It is tried
    /// again every [`crate::limits::LISTEN_RETRY`]. Reported once, see [`crate::Io::unbound`].
    ListenFailed(IoError),
    /// A record of the speaker's monitor, see [`bgp_speaker::Speaker::start_monitor`]. The records of
    /// a turn are in their order, after its other events.
    Monitor(Record),
    /// A message of a traced peer, see [`crate::Io::trace`].
    Message(Box<TracedMessage>),
    /// Messages of a traced peer were not reported in the last turn: there were too many.
    MessagesMissed {
        /// The address of the peer.
        address: IpAddr,
        /// How many.
        count: u64,
    },
    /// Listening on this address succeeded.
    Listening(SocketAddr),
}
