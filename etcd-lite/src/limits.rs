//! Every limit of the embedded store.

use std::time::Duration;

/// Operations in a branch of a transaction, and its comparisons; etcd's default limit.
pub const TXN_OPERATIONS_MAX: usize = 128;

/// Default limit of octets of keys and values in a core, including the history.
pub const CORE_OCTETS_MAX: usize = 512 * 1024 * 1024;

/// Default number of revisions of history in a core; older ones are compacted.
pub const HISTORY_REVISIONS_MAX: usize = 20_000;

/// Default limit of octets of history in a core.
pub const HISTORY_OCTETS_MAX: usize = 64 * 1024 * 1024;

/// Events in one batch of a watch; a revision is never split, so a batch may exceed it by one.
pub const BATCH_EVENTS_MAX: usize = 1000;

/// Octets in one batch of a watch; a revision is never split, so a batch may exceed it by one.
pub const BATCH_OCTETS_MAX: usize = 1024 * 1024;

/// Leases that a core holds.
pub const LEASES_MAX: usize = 100_000;

/// Longest time to live of a lease, in seconds (about 285 years; etcd's limit).
pub const LEASE_TTL_MAX_S: i64 = 9_000_000_000;

/// Queued commands for the task of a core.
pub const MAILBOX_COMMANDS_MAX: usize = 256;

/// Watches of one client stream of the served store.
pub const STREAM_WATCHES_MAX: usize = 1024;

/// Queued replies for a client stream of the served store.
pub const STREAM_REPLIES_MAX: usize = 16;

/// Streams of one client connection of the served store.
pub const CLIENT_STREAMS_MAX: u32 = 1024;

/// Interval of progress notifications for watches of the served store that requested them.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);

/// Time that the served store waits for its clients to disconnect when it stops.
pub const SHUTDOWN_MAX: Duration = Duration::from_secs(3);

/// Approximate octets of a frame of the initial state in a store's file.
pub const KEPT_PIECE_OCTETS: usize = 1024 * 1024;

/// Octets by which the file of a store may exceed twice the size of a rewritten one.
pub const KEPT_SLACK_OCTETS: u64 = 4 * 1024 * 1024;

/// Octets of disk space that a store holds back, for deletions on a full disk.
pub const RESERVE_OCTETS: u64 = 8 * 1024 * 1024;

/// Octets that must be free beside the reserve before a store accepts writes again.
pub const RESERVE_MARGIN_OCTETS: u64 = 1024 * 1024;

/// Octets of changes that share one write to the disk; less than [`RESERVE_OCTETS`], so that they
/// fit on a disk that has just become full.
pub const KEPT_FRAME_OCTETS: usize = 2 * 1024 * 1024;

/// Interval at which a store with a full disk looks for space.
pub const FULL_DISK_RECHECK: Duration = Duration::from_secs(5);
