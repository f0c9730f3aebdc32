//! What a program hears from the driver.

use std::io;
use std::net::SocketAddr;

use bgp_speaker::Refusal;
use bgp_speaker::rib::{PeerId, Track};

/// One thing a program may want to act on or log.
#[derive(Debug)]
pub enum Event {
    /// What the speaker tells of its sessions.
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
        /// Who made it.
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
    /// An option could not be set on a connection, which goes on without it.
    OptionFailed {
        /// The peer's end.
        remote: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
}
