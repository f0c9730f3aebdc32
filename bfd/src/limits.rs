//! Every limit and fixed value of the crate, in one place.

use core::ops::RangeInclusive;

use crate::Duration;

/// The version of the protocol (RFC 5880 §4.1).
pub const VERSION: u8 = 1;

/// The octets of a packet without an authentication section (RFC 5880 §4.1).
pub const HEADER_OCTETS: usize = 24;

/// The longest password or key, in octets: the key of SHA1 (RFC 5880 §4.4).
pub const SECRET_OCTETS_MAX: usize = 20;

/// The octets of an authentication section before its digest (RFC 5880 §4.3, §4.4).
pub const DIGEST_AT: usize = 8;

/// The octets of a section with a password before the password (RFC 5880 §4.2).
pub const PASSWORD_AT: usize = 3;

/// The longest packet that is sent, in octets: with a digest of SHA1.
pub const PACKET_OCTETS_MAX: usize = HEADER_OCTETS + DIGEST_AT + SECRET_OCTETS_MAX;

/// The keys of a session: the one that signs, and others that are accepted while keys change.
pub const KEYS_MAX: usize = 16;

/// The shortest interval that a session may be configured with, in microseconds: a limit of the
/// packets that a mistake in a configuration can cause.
pub const INTERVAL_US_MIN: u32 = 1_000;

/// The shortest transmit interval of a session that is not Up, in microseconds (RFC 5880 §6.8.3).
pub const SLOW_INTERVAL_US: u32 = 1_000_000;

/// The default of both intervals, in microseconds.
pub const INTERVAL_US: u32 = 300_000;

/// The default of the detection multiplier.
pub const DETECT_MULTIPLIER: u8 = 3;

/// The longest time that a Final is expected to be on its way. A poll that was not answered for longer
/// was lost.
pub const ROUND_TRIP_MAX: Duration = Duration::from_secs(2);

/// The parts of an interval that jitter removes at most, in percent (RFC 5880 §6.8.7).
pub const JITTER_PERCENT_MAX: u64 = 25;

/// The parts of an interval that jitter removes at least with the multiplier 1, in percent: a packet
/// must arrive before the detection time is over (RFC 5880 §6.8.7).
pub const JITTER_PERCENT_MIN_SINGLE: u64 = 10;

/// The steps into which the range of the jitter is divided.
pub const JITTER_STEPS: u64 = 1 << 16;

/// The sequence numbers that may be missing between two accepted packets, in multiples of the
/// detection multiplier (RFC 5880 §6.7.3).
pub const SEQUENCE_WINDOW: u32 = 3;

/// The detection times without a packet after which any sequence number is accepted (RFC 5880
/// §6.8.1, bfd.AuthSeqKnown).
pub const SEQUENCE_KNOWN_TIMES: u32 = 2;

/// The time to live of all sent packets, and the least of received ones on a single hop (RFC 5881 §5).
pub const TTL_SINGLE_HOP: u8 = 255;

/// The UDP port of packets over a single hop (RFC 5881 §4).
pub const PORT_SINGLE_HOP: u16 = 3784;

/// The UDP port of packets over routers (RFC 5883 §5).
pub const PORT_MULTIHOP: u16 = 4784;

/// The permitted source ports. All packets of a session have the same one (RFC 5881 §4).
pub const SOURCE_PORTS: RangeInclusive<u16> = 49_152..=65_535;

/// The most sessions of a set.
pub const SESSIONS_MAX: usize = 65_536;

/// The members of a set for each of its sessions: the session, and a removed one that still sends
/// AdminDown.
pub const MEMBERS_FOR_EACH: usize = 2;

/// The longest time that a removed session repeats AdminDown: intervals of the remote system do not
/// extend it.
pub const LEAVING_TIME_MAX: Duration = Duration::from_secs(30);

/// The format of an encoded snapshot of a session.
pub const SNAPSHOT_VERSION: u8 = 1;

/// The longest encoded snapshot, in octets.
pub const SNAPSHOT_OCTETS_MAX: usize = 151;

/// The packets that a session in Down or Init sends at once in each [`SLOW_INTERVAL_US`] because their
/// contents have changed. A start needs two. Answers to polls do not count.
pub const URGENT_MAX: u32 = 5;
