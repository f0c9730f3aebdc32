//! Every limit of the speaker, in one place.

/// Octets of encoded UPDATEs that one group keeps per family for members that are still writing.
/// A member further behind than this walks the log by itself.
pub const RING_OCTETS_MAX: usize = 4 << 20;

/// Octets after which messages for the same members begin a new piece; room for them is taken in
/// this size, too.
pub const PIECE_OCTETS: usize = 32 << 10;

/// Octets of what a newcomer was fed that one group keeps per family for others that come soon.
/// Who finds the beginning gone walks the tables by itself.
pub const FEED_OCTETS_MAX: usize = 4 << 20;

/// How long they are kept after the last one came.
pub const FEED_KEPT: core::time::Duration = core::time::Duration::from_secs(1);

/// Octets of UPDATEs handed to one session before its socket has to take some.
pub const SESSION_OCTETS_MAX: usize = 256 << 10;

/// Pieces of UPDATEs handed to one session before its socket has to take some. A write takes half
/// as many.
pub const SESSION_PIECES_MAX: usize = 128;

/// Prefixes that one call of [`crate::Speaker::run`] decides or exports per family and group.
pub const BITE_PREFIXES: u32 = 8192;

/// Prefixes that a feeding member walks per bite, so that one feed does not hold up the others.
pub const FEED_PREFIXES: u32 = 4096;

/// How often failed handshakes of a neighbor or range are reported, at most.
pub const HANDSHAKE_REPORT_EVERY: core::time::Duration = core::time::Duration::from_secs(10);

/// Sessions, configured and dynamic, one speaker can hold: peer ids are 16 bits wide and 0 is
/// the speaker itself.
pub const PEERS_MAX: usize = 65_000;

/// Malformed messages kept for the operator to look at.
pub const MALFORMED_KEPT: usize = 32;

/// Octets kept of each malformed message.
pub const MALFORMED_OCTETS_MAX: usize = 4096;

/// How long stale paths of a peer that has come back are kept while its End-of-RIB marker is
/// awaited (RFC 4724 §4.2 asks for a bound).
pub const STALE_PATHS_MAX: core::time::Duration = core::time::Duration::from_secs(360);

/// How long a peer may take from the beginning of a refresh to its end (RFC 7313 §4.1 asks for a
/// bound): what it has not sent again by then goes.
pub const REFRESH_MAX: core::time::Duration = core::time::Duration::from_secs(360);

/// The port of BGP (RFC 4271 §8.2.1).
pub const BGP_PORT: u16 = 179;

/// Ids of forgotten peers that rest before the one forgotten the longest ago is given out again.
pub const IDS_RESTING: usize = 64;

/// Octets of the name of a peer or a range.
pub const NAME_OCTETS_MAX: usize = 64;

/// Octets of the description of a peer.
pub const DESCRIPTION_OCTETS_MAX: usize = 255;

/// Octets of a TCP-MD5 key: what the kernel takes.
pub const PASSWORD_OCTETS_MAX: usize = 80;

/// The restart time where graceful restart is `true`, in seconds.
pub const RESTART_TIME_S: u16 = 120;

/// The greatest restart time that fits its twelve bits (RFC 4724 §3), in seconds.
pub const RESTART_TIME_S_MAX: u16 = 4095;

/// Hops that a peer under TTL security may be away (RFC 5082).
pub const TTL_SECURITY_HOPS_MAX: u8 = 254;

/// The share of a prefix limit from which on the log warns when `warn` is not given, in per cent.
pub const LIMIT_WARN_PERCENT: u8 = 75;

/// The idle hold time of a session that a prefix limit has ended when `restart_after` is not given,
/// in seconds.
pub const LIMIT_REST_S: u32 = 300;

/// The longest `restart_after`, in seconds: a day.
pub const LIMIT_REST_S_MAX: u32 = 86_400;
