//! What a program hears from the driver.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bgp_speaker::Refusal;
use bgp_speaker::bgp_proto::MessageKind;
use bgp_speaker::rib::{PeerId, Track};

use crate::{Distance, IoError, Whose};

/// A message of a traced peer.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// What it says, on one line: at most [`TRACED_TEXT_OCTETS_MAX`](crate::limits::TRACED_TEXT_OCTETS_MAX) octets.
    pub text: String,
    /// Messages of traced peers that are missing before this one.
    pub lost: u64,
}

/// One thing a program may want to act on or log.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// An event of the speaker about its sessions.
    Speaker(bgp_speaker::Event),
    /// The tables want to know about a next hop, or no longer: answer with
    /// [`bgp_speaker::Input::Resolved`].
    Track(Track),
    /// A dynamic peer has gone; its id means nothing any more.
    Gone(PeerId),
    /// An incoming connection was refused.
    Refused {
        /// The address it was made to.
        local: SocketAddr,
        /// Remote address of the connection.
        remote: SocketAddr,
        /// Why it was not wanted.
        refusal: Refusal,
    },
    /// A connection could not be opened; the session tries again.
    DialFailed {
        /// The peer.
        peer: PeerId,
        /// Its address.
        remote: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
    /// Connections cannot be accepted for now; we try again after
    /// [`crate::limits::ACCEPT_PAUSE`].
    AcceptFailed {
        /// The listening socket.
        local: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
    /// TCP-MD5 or GTSM could not be set on a connection, which is closed for that.
    OptionFailed {
        /// The peer's end.
        remote: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
    /// A connection of a peer with a password was closed, because it may be unsigned: the key is not on
    /// the listening socket, or was set there after the connection was opened.
    Unsigned {
        /// The address it was made to.
        local: SocketAddr,
        /// Remote address of the connection.
        remote: SocketAddr,
    },
    /// A connection of a peer with GTSM was closed, because it came from too far away or may have.
    TooFar {
        /// The address it was made to.
        local: SocketAddr,
        /// The other end.
        remote: SocketAddr,
        /// What is wrong with it.
        why: Distance,
    },
    /// A key could not be set on a listening socket, so connections of its peers are rejected. It is
    /// tried again every [`crate::limits::LISTEN_RETRY`]. Reported once, see [`crate::Io::keyless`].
    KeyFailed {
        /// Whose key.
        whose: Whose,
        /// Why.
        error: Arc<IoError>,
    },
    /// A key that had failed is on all listening sockets, or is no longer wanted.
    KeySettled(Whose),
    /// Listening on an address failed, mostly because the machine does not have the address. It is tried
    /// again every [`crate::limits::LISTEN_RETRY`]. Reported once, see [`crate::Io::unheard`].
    ListenFailed(IoError),
    /// A message of a traced peer, see [`crate::Io::trace`].
    Message(Box<TracedMessage>),
    /// Listening on this address succeeded.
    Listening(SocketAddr),
}
