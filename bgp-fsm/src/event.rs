//! Inputs and outputs of a session.

use alloc::boxed::Box;
use core::{fmt, net::SocketAddr};

use bgp_proto::notification::{cease, code};
use bgp_proto::{Frame, Notification, RouteRefresh, SessionParams};
use bytes::Bytes;

use crate::{Duration, State};

/// The transports a session may have at once (RFC 4271 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conn {
    /// The one dialed by this speaker.
    Outbound,
    /// The one dialed by the peer.
    Inbound,
    /// A further one dialed by the peer while another one is in use. It waits: see
    /// [`crate::Session::admit`].
    Held,
}

impl Conn {
    /// The two with a state machine.
    pub const ALL: [Self; 2] = [Self::Outbound, Self::Inbound];

    /// All places of transports.
    pub const PLACES: [Self; 3] = [Self::Outbound, Self::Inbound, Self::Held];

    /// Returns the other one of the two with a state machine.
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

/// One input of [`crate::Session::handle`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// Start the session, also at once during an idle hold (RFC 4271 §8.1.2, events 1 and 4).
    Start,
    /// Stop the session until the next `Start` (event 2). The peer receives this NOTIFICATION,
    /// which may contain a text (RFC 9003). If the stop is for good, it becomes a hard reset where
    /// the peer would otherwise retain routes (RFC 8538 §4).
    Stop(Notification),
    /// Stop the session until the next `Start` for a restart: a helper that retains the routes
    /// receives no message that would end the retention (RFC 4724 §4, RFC 8538 §3). Other peers
    /// receive this NOTIFICATION.
    StopForRestart(Notification),
    /// A transport is open: a dial has succeeded, or a connection was accepted by
    /// [`crate::Session::admit`] (events 16 and 17).
    Opened {
        /// The transport.
        conn: Conn,
        /// Local address and port.
        local: SocketAddr,
        /// Remote address and port.
        remote: SocketAddr,
    },
    /// A dial has failed (event 18).
    Failed(Conn),
    /// The peer has closed or reset an open transport, or the kernel has timed it out (event 18).
    Closed(Conn),
    /// A complete message was received.
    Received {
        /// The transport.
        conn: Conn,
        /// The message.
        frame: Frame,
    },
    /// Received octets are not a message (event 21, RFC 4271 §6.1).
    FrameError {
        /// The transport.
        conn: Conn,
        /// The NOTIFICATION for the peer.
        notification: Notification,
    },
    /// End the established session although its machine has no error: an UPDATE error that resets
    /// the session (event 28), or an exceeded local limit (event 8). It is started again after an
    /// idle hold.
    Rejected(Notification),
    /// End the established session because the peer has exceeded a limit (event 8), and do not
    /// start it again before this time, whichever side dials.
    Limited {
        /// The NOTIFICATION for the peer.
        notification: Notification,
        /// The duration of the idle hold.
        idle_hold: Duration,
    },
    /// The path to the peer works again: dial at once, past the ConnectRetry timer and an idle hold after
    /// errors (events 9 and 3). A stopped session, and one in [`Input::Hold`] or [`Input::Limited`], stays
    /// down.
    PathUp,
    /// Whether the path to the peer is up, as BFD sees it. In strict mode a connection waits for it in
    /// OpenConfirm ([`crate::SessionConfig::bfd_strict`]).
    PathIsUp(bool),
    /// BFD was up and is down: [`Self::PathIsUp`] with `false`. In addition, it ends a connection in strict mode
    /// that is not established.
    PathFailed,
    /// Do not start the established session again before this time once it has ended, whichever side dials.
    Hold(Duration),
    /// Reading of the established connection is paused although octets are known to wait
    /// (`unread`), or continues (not `unread`). While octets are unread the hold timer does not
    /// fire, for at most [`crate::limits::READ_PAUSE_HOLDS_MAX`] hold times.
    ReadPaused {
        /// Whether octets are unread in the socket.
        unread: bool,
    },
    /// The response to [`Output::Promote`]: the transport has moved.
    Promoted,
    /// The response to [`Output::Probe`], for a probe in progress. A driver that cannot inspect its
    /// transports sends none; then the hold timer decides.
    Probed(Probed),
    /// The instant of [`crate::Session::poll_timeout`] has been reached.
    Timeout,
}

/// The activity of a transport since a probe of it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Probed {
    /// The peer's host has acknowledged or sent data.
    Answered,
    /// The peer's host has sent nothing.
    Silent {
        /// How many consecutive segments are unacknowledged, including retransmissions and segments
        /// from before the probe.
        unanswered: u32,
        /// How many of them were sent since the probe began.
        sent: u32,
    },
}

/// One output for the caller.
#[derive(Clone, Debug)]
pub enum Output {
    /// Open a transport to the peer; report the result as `Opened` or `Failed` of
    /// [`Conn::Outbound`].
    Dial,
    /// Write the octets that [`crate::Session::fill`] still returns, then close the transport (or
    /// abandon the dial). No `Closed` need follow.
    Close(Conn),
    /// The session has changed its state.
    State(State),
    /// The session is established; UPDATEs may be queued.
    Established(Box<SessionParams>),
    /// The body of an UPDATE, a slice of the frame received.
    Update(Bytes),
    /// The peer requests the routes again (RFC 2918), or marks its own resending (RFC 7313).
    Refresh(RouteRefresh),
    /// An open transport that was not Established has ended.
    Unopened {
        /// The transport.
        conn: Conn,
        /// The reason.
        reason: DownReason,
    },
    /// The established session has ended. Exactly one follows each `Established`.
    Down(DownReason),
    /// Move the transport at [`Conn::Held`] to [`Conn::Inbound`], which is free now, and report
    /// [`Input::Promoted`] before any other input.
    Promote,
    /// Inspect the transport of this connection. If the probe begins, store its counters; otherwise
    /// compare with the stored ones, and report [`Input::Probed`].
    Probe {
        /// The connection.
        conn: Conn,
        /// Whether the probe begins.
        begins: bool,
    },
    /// A held connection has ended.
    HeldEnded(HeldEnd),
}

/// The way in which a held connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldEnd {
    /// It replaced the older one, which was dead or has ended.
    Promoted,
    /// The older connection is alive: the peer's host acknowledges it.
    OlderAlive,
    /// The older one was found neither dead nor alive, or no OPEN was received, within
    /// [`crate::limits::HELD_TIME`].
    Expired,
    /// A newer one replaced it before its OPEN was received.
    Replaced,
    /// The session accepts none, or the first message is not an OPEN of the session's speaker. This
    /// NOTIFICATION was sent.
    Invalid(Notification),
    /// The peer closed it.
    Closed,
}

impl fmt::Display for HeldEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Promoted => f.write_str("it replaces the older one"),
            Self::OlderAlive => f.write_str("the older connection is alive"),
            Self::Expired => f.write_str("its time limit is over; the older connection is kept"),
            Self::Replaced => f.write_str("a newer connection replaced it before its OPEN"),
            Self::Invalid(sent) => write!(f, "rejected: sent {sent}"),
            Self::Closed => f.write_str("the peer closed it"),
        }
    }
}

/// The reason why a session or an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// This side ended it with a NOTIFICATION, sent if possible.
    Sent(Notification),
    /// The peer ended it with a NOTIFICATION.
    Received(Notification),
    /// The transport was lost without a NOTIFICATION.
    TransportLost,
    /// The peer opened a new connection, and its host no longer acknowledged the old one
    /// (RFC 4724 §5).
    Reopened,
    /// This side ended it without a NOTIFICATION, for a restart.
    LocalRestart,
}

impl DownReason {
    /// Returns whether the peer's routes may be retained for a graceful restart. `notification`
    /// states whether both sides set the N bit (RFC 8538).
    #[must_use]
    pub fn is_graceful(&self, notification: bool) -> bool {
        match self {
            Self::TransportLost | Self::Reopened | Self::LocalRestart => true, // RFC 4724 §4.2
            // RFC 8538 §3: all except a Hard Reset.
            Self::Sent(n) | Self::Received(n) => {
                notification && (n.code, n.subcode) != (code::CEASE, cease::HARD_RESET)
            }
        }
    }
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(n) => write!(f, "sent {n}"),
            Self::Received(n) => write!(f, "received {n}"),
            Self::TransportLost => f.write_str("the connection was lost"),
            Self::LocalRestart => f.write_str("closed without a NOTIFICATION, for a restart"),
            Self::Reopened => f.write_str(
                "the connection was dead: the peer opened a new one and did not acknowledge the old one",
            ),
        }
    }
}

impl core::error::Error for DownReason {}
