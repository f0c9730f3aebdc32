//! Every limit and fixed time of the session, in one place.

use crate::Duration;

/// How long we wait for the peer's OPEN after ours is sent: the "large value" that
/// RFC 4271 §8.2.2 suggests for the hold timer in OpenSent.
pub const OPEN_HOLD: Duration = Duration::from_secs(240);

/// Seconds from an open transport to Established, unless the configuration says otherwise. A peer
/// that sends an octet a second, or an OPEN and never a KEEPALIVE, holds its place no longer.
pub const HANDSHAKE_S: u16 = 15;

/// The longest handshake that can be configured, in seconds: [`OPEN_HOLD`].
pub const HANDSHAKE_S_MAX: u16 = 240;

/// The least time a peer may refuse to read before it is given up (RFC 9687 §3.1), unless the
/// configuration says otherwise.
pub const SEND_HOLD_MIN: Duration = Duration::from_secs(480);

/// While we refuse to read, the peer's KEEPALIVEs lie unread and must not be missed; but a peer
/// whose octets we leave lying for this many hold times is given up all the same.
pub const READ_PAUSE_HOLDS_MAX: u32 = 3;

/// Failures in a row up to which an incoming connection ends the idle hold: a peer that restarts
/// comes back before our own back-off is over, and waiting then would only cost routes.
pub const INBOUND_FAILURES_MAX: u32 = 1;

/// How long a new connection of a peer whose older one is in use is held at most, its OPEN
/// included.
pub const HELD_TIME: Duration = Duration::from_secs(15);

/// How long the established connection must leave what was sent since a probe began without any
/// answer before it is dead. KEEPALIVEs are sent for as long.
pub const PROBE_TIME: Duration = Duration::from_millis(600);

/// How often a probe sends a KEEPALIVE and looks at the transport. TCP's delayed acknowledgement is
/// no longer than this, so each KEEPALIVE has an acknowledgement of its own.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(40);

/// How many segments in a row, repetitions included, must be unanswered before the established
/// connection is dead. On a path that loses one packet in ten in each direction a segment stays
/// unanswered with a probability of 0.19, nine in a row with 3 in ten million. After a host has died
/// without anything on its way, the ninth is sent at 610 ms.
pub const PROBE_UNANSWERED_MIN: u32 = 9;

/// The least and greatest jitter, in 1/256 of the configured time: 0.75 to 1.0 (RFC 4271 §10).
pub const JITTER_MIN: u64 = 192;
/// See [`JITTER_MIN`].
pub const JITTER_MAX: u64 = 256;

/// Messages of its own (OPEN, KEEPALIVE, NOTIFICATION) a connection holds unsent at most: one of
/// each kind, since a KEEPALIVE is not queued behind another.
pub const OWN_MESSAGES_MAX: usize = 3;

/// Pieces of queued octets for which an idle session keeps room.
pub const CHUNKS_KEPT: usize = 32;
