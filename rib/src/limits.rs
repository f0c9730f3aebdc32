//! Every limit of the tables, in one place.

/// Peers a table can tell apart, this speaker's own routes among them: ids are 16 bits wide, and
/// the greatest means "nobody".
pub const PEERS_MAX: usize = 65_535;

/// Paths one peer may have for one prefix (RFC 7911 sets no bound). What exceeds it is refused and
/// counted in [`crate::Ingested::refused`]. It also bounds the path identifiers that a group keeps
/// of one source and prefix (16 octets each), those included that only members which lag may still
/// hold.
pub const PATHS_PER_PEER_MAX: usize = 64;

/// Paths of one prefix, over all peers: the index of the best is 16 bits wide.
pub const PATHS_PER_PREFIX_MAX: usize = 65_534;

/// Attribute blocks as received that are remembered, so that their next coming needs no parsing.
/// There are two generations of this size.
pub const RAW_SETS_MAX: usize = 8192;

/// Octets of the longest attribute block that is remembered as received.
pub const RAW_OCTETS_MAX: usize = 1024;

/// Octets after which a generation of remembered blocks is full, whatever their number.
pub const RAW_TOTAL_OCTETS_MAX: usize = 1 << 20;

/// Prefixes whose look-ups wait for memory together.
pub(crate) const CHUNK: usize = 32;

/// A change log is never cut below this many entries. Above, it is cut when it is longer than
/// twice the table: the readers it was kept for then walk the table instead.
pub const LOG_ENTRIES_MIN: usize = 65_536;

/// Withdrawn prefixes kept for readers that have not heard of the withdrawal. When there are more,
/// the oldest are forgotten, and readers that still missed them are told [`crate::Progress::Lost`].
pub const TOMBSTONES_MAX: usize = 1 << 21;

/// Prefixes that a sweep may look at for each unit of a [`crate::Budget`]: looking is cheaper than
/// deciding.
pub const SWEEP_PER_UNIT: u32 = 8;

/// Ranges of prefixes that may wait for [`crate::Rib::reevaluate`] in one family. With more, the
/// whole family is evaluated again.
pub const REEVALUATE_RANGES_MAX: usize = 4096;

/// Restarts and refreshes of one peer that may overlap in one family before their marks are
/// rewritten in one go.
pub const EPOCHS_MAX: u8 = 200;

/// Prefixes that a group which sends several paths of a prefix looks at before it counts what it
/// has to tell: a bite exceeds its [`crate::Budget`] by no more than the paths of these.
pub const PATH_BITE_PREFIXES: u32 = 32;

/// The greatest number of best paths that may be asked for: each takes a decision of its own. With
/// more, [`crate::SendPaths::All`] is cheaper.
pub const BEST_PATHS_MAX: u8 = 64;

/// Rejected paths that are recorded for a watcher that has not taken them yet; the oldest ones make
/// room.
pub const REJECTED_PATHS_MAX: usize = 4096;

/// Octets of these, the names of the rules that rejected them included.
pub const REJECTED_OCTETS_MAX: usize = 1 << 20;

/// Octets of the longest interface name, as in the kernel (`IFNAMSIZ` without its end mark).
pub const INTERFACE_NAME_OCTETS_MAX: usize = 15;
