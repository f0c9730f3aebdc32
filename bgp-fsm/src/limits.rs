//! Every limit and fixed time of the session, in one place.

use crate::Duration;

/// How long to wait for the peer's OPEN after the local one is sent: the "large value" that RFC
/// 4271 §8.2.2 suggests for the hold timer in OpenSent.
pub const OPEN_HOLD: Duration = Duration::from_secs(240);

/// The default of the longest time from an open transport to Established, in seconds. A peer that
/// sends one octet per second, or an OPEN and never a KEEPALIVE, occupies its place no longer.
pub const HANDSHAKE_S: u16 = 15;

/// The greatest configurable handshake time, in seconds: [`OPEN_HOLD`].
pub const HANDSHAKE_S_MAX: u16 = 240;

/// The default of the least time a peer may refuse to read before the session ends (RFC 9687 §3.1).
pub const SEND_HOLD_MIN: Duration = Duration::from_secs(480);

/// While reading is paused, unread KEEPALIVEs of the peer must not count as missing; but after this
/// many hold times with unread octets the session ends nevertheless.
pub const READ_PAUSE_HOLDS_MAX: u32 = 3;

/// Consecutive failures up to which an incoming connection ends the idle hold: a peer that restarts
/// comes back before the local back-off is over, and waiting would only cost routes.
pub const INBOUND_FAILURES_MAX: u32 = 1;

/// How long a new connection of a peer with an older one in use is held at most, including the wait
/// for its OPEN.
pub const HELD_TIME: Duration = Duration::from_secs(15);

/// How long all segments sent since the start of a probe must be unacknowledged before the
/// established connection counts as dead. KEEPALIVEs are sent during this time.
pub const PROBE_TIME: Duration = Duration::from_millis(600);

/// How often a probe sends a KEEPALIVE and inspects the transport. TCP's delayed acknowledgment is
/// no longer than this, so each KEEPALIVE has an acknowledgment of its own.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(40);

/// How many consecutive segments, including retransmissions, must be unacknowledged before the
/// established connection counts as dead. On a path that loses one packet in ten in each direction
/// a segment stays unacknowledged with a probability of 0.19, nine consecutive ones with 3 in ten
/// million. If a host dies with no segment in flight, the ninth is sent after 610 ms.
pub const PROBE_UNANSWERED_MIN: u32 = 9;

/// The least and greatest jitter factor, in 1/256: 0.75 to 1.0 (RFC 4271 §10).
pub const JITTER_MIN: u64 = 192;
/// See [`JITTER_MIN`].
pub const JITTER_MAX: u64 = 256;

/// The most unsent messages of its own (OPEN, KEEPALIVE, NOTIFICATION) in a connection: one of each
/// kind, since a KEEPALIVE is not queued behind another.
pub const OWN_MESSAGES_MAX: usize = 3;

/// Pieces of queued octets for which an idle session keeps capacity.
pub const CHUNKS_KEPT: usize = 32;
