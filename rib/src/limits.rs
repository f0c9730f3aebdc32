//! Every limit of the tables, in one place.

/// Peers of a table, including this speaker as the source of its own routes: ids are 16 bits wide,
/// and the greatest means "no peer".
pub const PEERS_MAX: usize = 65_535;

/// Paths of one peer for one prefix (RFC 7911 sets no limit). Further ones are rejected and counted
/// in [`crate::Ingested::refused`]. It also limits the path identifiers that a group stores for one
/// source and prefix (16 octets each), including those that only slow members may still hold.
pub const PATHS_PER_PEER_MAX: usize = 64;

/// Paths of one prefix, over all peers: the index of the best is 16 bits wide.
pub const PATHS_PER_PREFIX_MAX: usize = 65_534;

/// Attribute blocks cached as received, so that a repeated block needs no parsing. There are two
/// generations of this size.
pub const RAW_SETS_MAX: usize = 8192;

/// Octets of the longest attribute block in the cache.
pub const RAW_OCTETS_MAX: usize = 1024;

/// Octets after which a generation of cached blocks is full, whatever their number.
pub const RAW_TOTAL_OCTETS_MAX: usize = 1 << 20;

/// Octets of an attribute set beside its packed octets, as the account of its peer has them: the
/// overhead of its allocation, its ranks and its place in the index.
pub const SET_OCTETS: usize = 128;

/// Octets of a path in the account of its peer: those of a prefix with one path. The octets of
/// opaque NLRI and interfaces are not counted.
pub const PATH_OCTETS: usize = 117;

/// Prefixes with lookups that wait for memory together.
pub(crate) const CHUNK: usize = 32;

/// Slots that a reader takes from a change log at once. A step that ends early because its output
/// is long reads at most these in vain.
pub(crate) const READ_SLOTS: u32 = 512;

/// A change log is never cut below this many entries. Above, it is cut when it is longer than twice
/// the table: the readers it was kept for then read the whole table instead.
pub const LOG_ENTRIES_MIN: usize = 65_536;

/// Runs (a set of attributes from one peer) that a step of export charges once, although their
/// routes are not adjacent in the tables; with more, some are charged more often, and the step is
/// shorter. 16 octets each in every family.
pub(crate) const CHARGED_RUNS: usize = 256;

/// Withdrawn prefixes kept for readers that have not read the withdrawal. If there are more, the
/// oldest are dropped, and readers that still needed them get [`crate::Progress::Lost`].
pub const TOMBSTONES_MAX: usize = 1 << 21;

/// Prefixes that a sweep may visit for each unit of a [`crate::Budget`]: a visit costs less than a
/// decision.
pub const SWEEP_PER_UNIT: u32 = 8;

/// Ranges of prefixes that may wait for [`crate::Rib::reevaluate`] in one family. With more, the
/// whole family is evaluated again.
pub const REEVALUATE_RANGES_MAX: usize = 4096;

/// Restarts and refreshes of one peer that may overlap in one family before their marks are
/// rewritten at once.
pub const EPOCHS_MAX: u8 = 200;

/// Prefixes that a group with several paths per prefix visits before it counts its output: a step
/// exceeds its [`crate::Budget`] by at most the paths of these.
pub const PATH_STEP_PREFIXES: u32 = 32;

/// The greatest configurable number of best paths: each needs a decision of its own. For more,
/// [`crate::SendPaths::All`] costs less.
pub const BEST_PATHS_MAX: u8 = 64;

/// Prefixes of which one message of a peer ends the doubts about the peer's paths; the next message continues.
pub const TRUSTED_PER_MESSAGE: usize = 4096;

/// Rejected paths that are recorded for a watcher that has not taken them yet; the oldest ones are
/// dropped first.
pub const REJECTED_PATHS_MAX: usize = 4096;

/// Octets of these, including the names of the rules that rejected them.
pub const REJECTED_OCTETS_MAX: usize = 1 << 20;

/// Routes that are recorded until [`crate::Rib::take_recorded`] takes them; later ones are counted.
pub const RECORDED_ROUTES_MAX: usize = 1 << 18;

/// Octets of these, with their attributes.
pub const RECORDED_OCTETS_MAX: usize = 16 << 20;

/// Routes of one record.
pub const RECORD_ROUTES_MAX: usize = 1024;

/// A prefix with more paths is not decided again to find why the next best path lost.
pub const NEXT_BEST_PATHS_MAX: usize = 1024;

/// Octets of the longest interface name, as in the kernel (`IFNAMSIZ` without the terminating
/// zero).
pub const INTERFACE_NAME_OCTETS_MAX: usize = 15;
