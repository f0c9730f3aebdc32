//! What goes into a session and what comes out of it.

use alloc::boxed::Box;
use core::{fmt, net::SocketAddr};

use bgp_proto::notification::{cease, code};
use bgp_proto::{Frame, Notification, RouteRefresh, SessionParams};
use bytes::Bytes;

use crate::{Duration, State};

/// The transports a session may have at once (RFC 4271 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conn {
    /// The one we dialled.
    Outbound,
    /// The one the peer dialled.
    Inbound,
    /// One more that the peer dialled while another one is in use. It waits: see
    /// [`crate::Session::admit`].
    Held,
}

impl Conn {
    /// The two that run a state machine.
    pub const ALL: [Self; 2] = [Self::Outbound, Self::Inbound];

    /// All places that a transport may have.
    pub const PLACES: [Self; 3] = [Self::Outbound, Self::Inbound, Self::Held];

    /// The other one of the two that run a state machine.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Outbound => Self::Inbound,
            Self::Inbound | Self::Held => Self::Outbound,
        }
    }
}

impl fmt::Display for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
            Self::Held => "held",
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
    /// The answer to [`Output::Promote`]: the transport has moved.
    Promoted,
    /// The answer to [`Output::Probe`], for a probe that goes on. A driver that cannot look at its
    /// transports gives none; then the hold timer decides.
    Probed(Probed),
    /// The instant of [`crate::Session::poll_timeout`] has come.
    Timeout,
}

/// What a transport has shown since a probe of it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// The peer's host has acknowledged or sent something.
    Answered,
    /// Nothing has come from the peer's host.
    Silent {
        /// How many segments in a row have had no answer, repetitions included, those of the time
        /// before the probe too.
        unanswered: u32,
        /// How many of them were sent since the probe began.
        sent: u32,
    },
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
    /// Move the transport in the place of [`Conn::Held`] to that of [`Conn::Inbound`], which is free
    /// by now, and answer with [`Input::Promoted`] before anything else.
    Promote,
    /// Look at the transport of this connection. If the probe begins, keep what its counters say now;
    /// otherwise compare with that, and answer with [`Input::Probed`].
    Probe {
        /// Which one.
        conn: Conn,
        /// Whether the probe begins.
        begins: bool,
    },
    /// A held connection has come to its end.
    HeldEnded(HeldEnd),
}

/// How a held connection came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldEnd {
    /// It took the place of the older one, which was dead or has ended.
    Promoted,
    /// The older connection is alive: the peer's host acknowledges it.
    OlderAlive,
    /// The older one is neither known to be dead nor to be alive, or no OPEN came, within
    /// [`crate::limits::HELD_TIME`].
    Expired,
    /// A newer one took its place before its OPEN came.
    Replaced,
    /// The session wants none, or the first message is not an OPEN of the speaker that the session
    /// is with. This was sent.
    Invalid(Notification),
    /// The peer closed it.
    Closed,
}

impl fmt::Display for HeldEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Promoted => f.write_str("it takes the place of the older one"),
            Self::OlderAlive => f.write_str("the older connection is alive"),
            Self::Expired => f.write_str("its time is over and the older connection is kept"),
            Self::Replaced => f.write_str("a newer one came before its OPEN"),
            Self::Invalid(sent) => write!(f, "refused: we sent {sent}"),
            Self::Closed => f.write_str("the peer closed it"),
        }
    }
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
    /// The peer opened a new connection, and its host no longer acknowledged the old one
    /// (RFC 4724 §5).
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
            Self::Reopened => f.write_str(
                "the connection was dead: the peer opened a new one and did not acknowledge the old one",
            ),
        }
    }
}
