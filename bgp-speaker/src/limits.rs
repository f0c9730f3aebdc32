//! Every limit of the speaker, in one place.

/// Octets of encoded UPDATEs that one group keeps per family for members that are still writing,
/// with [`SEGMENT_OCTETS`] for each segment. A member that is further behind reads the log itself.
pub const RING_OCTETS_MAX: usize = 4 << 20;

/// Octets that a segment takes beside its messages.
pub const SEGMENT_OCTETS: usize = 80;

/// Octets after which messages for the same members begin a new piece; also the unit of allocation.
pub const PIECE_OCTETS: usize = 32 << 10;

/// Octets of a full table dump that one group keeps per family for members that join soon after. A
/// member that finds its beginning dropped reads the tables itself.
pub const FEED_OCTETS_MAX: usize = 4 << 20;

/// How long they are kept after the last member joined.
pub const FEED_KEPT: core::time::Duration = core::time::Duration::from_secs(1);

/// Octets of UPDATEs queued in one session. Nothing more is queued as long as a step of
/// [`FEED_STEP_OCTETS_MAX`] might not fit.
pub const SESSION_OCTETS_MAX: usize = 512 << 10;

/// Pieces of UPDATEs queued in one session before its socket has to accept some; the last step may
/// add more of them. A write takes half as many.
pub const SESSION_PIECES_MAX: usize = 128;

/// Prefixes that one call of [`crate::Speaker::run`] decides or exports per family and group.
pub const STEP_PREFIXES: u32 = 8192;

/// Octets that one call of [`crate::Speaker::run`] encodes per family and group, as estimated: each
/// different set of attributes, and about 10 (IPv4) or 25 (IPv6) for each prefix. With fewer than
/// 128 for each prefix, sets included, [`STEP_PREFIXES`] is reached first.
pub const STEP_OCTETS_MAX: usize = 1 << 20;

/// Prefixes per step of a member's full table dump, so that one dump does not delay the others.
pub const FEED_PREFIXES: u32 = 4096;

/// Octets of such a step.
pub const FEED_STEP_OCTETS_MAX: usize = 256 << 10;

/// The least interval between two reports of failed handshakes of a neighbor or range.
pub const HANDSHAKE_REPORT_EVERY: core::time::Duration = core::time::Duration::from_secs(10);

/// Sessions, configured and dynamic, that one speaker can hold: peer IDs are 16 bits wide and 0 is
/// the speaker itself.
pub const PEERS_MAX: usize = 65_000;

/// The default of the routes and events that wait for a monitor: the oldest are dropped first. A
/// driver that reads at most 64 KiB at once and reads no more while
/// [`crate::Speaker::is_monitor_busy`] loses no received route.
pub const MONITOR_ENTRIES_MAX: usize = 1 << 18;

/// The default of the octets that they take, with their attributes.
pub const MONITOR_OCTETS_MAX: usize = 32 << 20;

/// Malformed messages recorded for the operator.
pub const MALFORMED_KEPT: usize = 32;

/// Recorded octets of each malformed message.
pub const MALFORMED_OCTETS_MAX: usize = 4096;

/// How long stale paths of a re-established peer are retained without its End-of-RIB marker (RFC 4724
/// §4.2), in seconds, unless its configuration has another value.
pub const STALE_TIME_S: u32 = 360;

/// The longest such time, in seconds.
pub const STALE_TIME_S_MAX: u32 = 86_400;

/// How long a dynamic peer with a failed path is kept without a session, so that paths through it stay
/// excluded. Other speakers have removed them by then, because of their hold and restart times.
pub const FAILED_PEER_KEPT: core::time::Duration = core::time::Duration::from_secs(360);

/// The longest time from BoRR to EoRR (RFC 7313 §4.1 requires a limit): paths that were not sent
/// again by then are removed.
pub const REFRESH_MAX: core::time::Duration = core::time::Duration::from_secs(360);

/// The port of BGP (RFC 4271 §8.2.1).
pub const BGP_PORT: u16 = 179;

/// Released peer IDs that stay unused before the one that was released first is assigned again.
pub const IDS_RESTING: usize = 64;

/// Octets of the name of a peer or a range.
pub const NAME_OCTETS_MAX: usize = 64;

/// Octets of the description of a peer.
pub const DESCRIPTION_OCTETS_MAX: usize = 255;

/// Octets of a TCP-MD5 key: the kernel's limit.
pub const PASSWORD_OCTETS_MAX: usize = 80;

/// The restart time in seconds if graceful restart is `true`.
pub const RESTART_TIME_S: u16 = 120;

/// The greatest restart time in seconds that fits into twelve bits (RFC 4724 §3).
pub const RESTART_TIME_S_MAX: u16 = 4095;

/// The greatest distance in hops of a peer with TTL security (RFC 5082).
pub const TTL_SECURITY_HOPS_MAX: u8 = 254;

/// The default of `prefix_limit`: the paths of a peer in one family. Twice a full table of the
/// internet, which has about a million prefixes.
pub const PREFIXES_MAX: u32 = 2_000_000;

/// The default of `warn`: the share of a prefix limit, in percent, from which on a warning is
/// logged.
pub const LIMIT_WARN_PERCENT: u8 = 75;

/// The greatest share of a prefix limit, in percent, at which a peer is asked for the paths that were
/// rejected above the limit. A peer that stays near its limit is not asked.
pub const LIMIT_CLEARED_PERCENT: u32 = 90;

/// Octets of a sent path in the account of its peer, in families with a limit of sent paths: its
/// place in an ordered set.
pub const SENT_PATH_OCTETS: usize = 51;

/// Octets of a sent path whose key is neither an IPv4 nor an IPv6 prefix, beside those of the key: its
/// place in the set, and the allocation of the key.
pub const SENT_KEY_OCTETS: usize = 70;

/// The least interval between two passes over a table for one peer with a limit of sent paths, to
/// find the paths that were suppressed and have room now.
pub const SENT_PASS_EVERY: core::time::Duration = core::time::Duration::from_secs(1);

/// Steps of [`FEED_PREFIXES`] without output that a peer with a limit of sent paths performs before
/// others have their turn.
pub const SILENT_STEPS_MAX: u32 = 4;

/// How long routes that a peer's route targets select wait for the End-of-RIB marker of its
/// memberships (RFC 4684 §6).
pub const TARGETS_WAIT_MAX: core::time::Duration = core::time::Duration::from_secs(60);

/// The default of `prefix_limit` in the family `route-target`.
pub const ROUTE_TARGETS_MAX: u32 = 100_000;

/// The interval between two checks whether a family with rejected paths has room again, and so the
/// least interval between two route refreshes that a prefix limit causes in one family of a peer.
pub const LIMIT_CHECK_EVERY: core::time::Duration = core::time::Duration::from_secs(60);

/// The default of `restart_after`: the idle hold time in seconds of a session that a prefix limit
/// has ended.
pub const LIMIT_REST_S: u32 = 300;

/// The longest `restart_after`, in seconds: a day.
pub const LIMIT_REST_S_MAX: u32 = 86_400;

/// The share of `memory_max`, in percent, from which on new paths of the peer with the most octets
/// are rejected: the accounts do not have everything that the process takes.
pub const MEMORY_REJECT_PERCENT: usize = 85;

/// The share of `memory_max`, in percent, from which on the session of such a peer ends if the octets
/// have grown nevertheless.
pub const MEMORY_END_PERCENT: usize = 95;

/// The greatest share of `memory_max`, in percent, at which rejected paths are requested again.
pub const MEMORY_CLEARED_PERCENT: usize = 75;

/// The sum of all accounts is measured when routes have changed it by one of this many parts of
/// `memory_max`, and at least after [`MEMORY_CHECK_EVERY`].
pub const MEMORY_STEPS: usize = 256;

/// The longest interval between two measurements, while there is work.
pub const MEMORY_CHECK_EVERY: core::time::Duration = core::time::Duration::from_secs(1);

/// The smallest `memory_max`: with less, a neighbor with few routes would be rejected.
pub const MEMORY_OCTETS_MIN: usize = 1 << 20;

/// The default interval of packets of BFD, in milliseconds.
pub const BFD_INTERVAL_MS: u32 = 300;

/// The longest such interval.
pub const BFD_INTERVAL_MS_MAX: u32 = 60_000;

/// The shortest time between two connections that are opened because BFD finds the path of a peer up.
pub const PATH_DIAL_INTERVAL: core::time::Duration = core::time::Duration::from_secs(5);

/// The hold of a session after two failures of its path within [`PATH_DAMPING_FORGET`]. It doubles with
/// each further failure.
pub const PATH_DAMPING: core::time::Duration = core::time::Duration::from_secs(10);

/// The longest hold of a session after repeated failures of its path.
pub const PATH_DAMPING_MAX: core::time::Duration = core::time::Duration::from_secs(320);

/// The time without a failure after which earlier failures of a path do not count.
pub const PATH_DAMPING_FORGET: core::time::Duration = core::time::Duration::from_secs(600);

/// The most keys of a session of BFD: one that signs, and others that are accepted while keys change.
pub const BFD_KEYS_MAX: usize = 8;

/// The longest text with the keys of a session of BFD, in octets.
pub const BFD_KEYS_OCTETS_MAX: usize = 256;

/// The default of the packets of BFD that may be missing.
pub const BFD_MULTIPLIER: u8 = 3;

/// The largest bandwidth of a link, in Mbit/s.
pub const LINK_BANDWIDTH_MAX: u32 = 4_000_000;
