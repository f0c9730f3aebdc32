//! What goes into a session and what comes out of it.

use alloc::boxed::Box;
use core::{fmt, net::SocketAddr};

use bgp_proto::notification::{cease, code};
use bgp_proto::{Frame, Notification, RouteRefresh, SessionParams};
use bytes::Bytes;

use crate::{Duration, State};

/// The two transports a session may have at once (RFC 4271 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conn {
    /// The one we dialled.
    Outbound,
    /// The one the peer dialled.
    Inbound,
}

impl Conn {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Outbound, Self::Inbound];

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Outbound => Self::Inbound,
            Self::Inbound => Self::Outbound,
        }
    }
}

impl fmt::Display for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        })
    }
}

/// One thing that happened, handed to [`crate::Session::handle`].
#[derive(Clone, Debug)]
pub enum Input {
    /// Bring the session up, also right away while an idle hold runs (RFC 4271 §8.1.2, events 1 and 4).
    Start,
    /// Take the session down and leave it down until the next `Start` (event 2). The peer is told
    /// with this NOTIFICATION, which may carry a text (RFC 9003). If it is meant for good it becomes
    /// a hard reset where the peer would wait for us otherwise (RFC 8538 §4).
    Stop(Notification),
    /// Take the session down to come back soon, and leave it down until the next `Start`: a peer
    /// that would keep our routes over a restart is given no reason to drop them (RFC 4724 §4,
    /// RFC 8538 §3). Others are told with this NOTIFICATION.
    Leave(Notification),
    /// A transport is open: a dial has succeeded, or an accepted connection that
    /// [`crate::Session::admit`] let in (events 16 and 17).
    Opened {
        /// Which one.
        conn: Conn,
        /// Our end.
        local: SocketAddr,
        /// The peer's end.
        remote: SocketAddr,
    },
    /// A dial has failed (event 18).
    Failed(Conn),
    /// The peer has closed or reset an open transport, or the kernel has given it up (event 18).
    Closed(Conn),
    /// A whole message has arrived.
    Received {
        /// On this transport.
        conn: Conn,
        /// The message.
        frame: Frame,
    },
    /// The octets that arrived are no message (event 21, RFC 4271 §6.1).
    FrameError {
        /// On this transport.
        conn: Conn,
        /// What the peer is told.
        notification: Notification,
    },
    /// The established session must end although its machine sees nothing wrong: a fault in an UPDATE
    /// that resets the session (event 28), or a limit of ours that was passed (event 8). It comes
    /// back after an idle hold.
    Rejected(Notification),
    /// The established session must end because of a limit that the peer has passed (event 8), and
    /// is not to come back before this time is over, whoever dials.
    Limited {
        /// What the peer is told.
        notification: Notification,
        /// How long the session rests.
        rest: Duration,
    },
    /// We do not read the established connection for now although octets are known to wait
    /// (`unread`), or we read on (not `unread`). While octets wait unread the hold timer does not
    /// fire, up to [`crate::limits::READ_PAUSE_HOLDS_MAX`] hold times.
    ReadPaused {
        /// Whether octets lie unread in the socket.
        unread: bool,
    },
    /// The instant of [`crate::Session::poll_timeout`] has come.
    Timeout,
}

/// One thing for the caller to do or to know.
#[derive(Clone, Debug)]
pub enum Output {
    /// Open a transport to the peer; answer with `Opened` or `Failed` of [`Conn::Outbound`].
    Dial,
    /// Write out what [`crate::Session::fill`] still gives for it, then close the transport (or give
    /// up the dial). No `Closed` need follow.
    Close(Conn),
    /// The session has moved to another state.
    State(State),
    /// The session is up; UPDATEs may be queued.
    Established(Box<SessionParams>),
    /// The body of an UPDATE, a slice of the frame received.
    Update(Bytes),
    /// The peer asks for its routes again (RFC 2918), or marks such a resending (RFC 7313).
    Refresh(RouteRefresh),
    /// An open transport is gone that was not Established.
    Unopened {
        /// Which one.
        conn: Conn,
        /// Why.
        reason: DownReason,
    },
    /// The session that was established no longer is. Comes exactly once after each `Established`.
    Down(DownReason),
}

/// Why a session or an attempt at one ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// We ended it and said so, or tried to.
    Sent(Notification),
    /// The peer ended it and said so.
    Received(Notification),
    /// The transport was lost without a word.
    TransportLost,
    /// The peer opened a new connection as one does after a restart (RFC 4724 §5).
    Reopened,
    /// We left without a word, to come back.
    Left,
}

impl DownReason {
    /// Whether the peer's routes may be kept for a graceful restart. `notification` says whether
    /// both sides set the N bit (RFC 8538).
    #[must_use]
    pub fn is_graceful(&self, notification: bool) -> bool {
        match self {
            Self::TransportLost | Self::Reopened | Self::Left => true, // RFC 4724 §4.2
            // RFC 8538 §3: all but a Hard Reset.
            Self::Sent(n) | Self::Received(n) => {
                notification && (n.code, n.subcode) != (code::CEASE, cease::HARD_RESET)
            }
        }
    }
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(n) => write!(f, "we sent {n}"),
            Self::Received(n) => write!(f, "the peer sent {n}"),
            Self::TransportLost => f.write_str("the connection was lost"),
            Self::Left => f.write_str("we left without a word, for a restart"),
            Self::Reopened => f.write_str("the peer connected anew after a restart"),
        }
    }
}
