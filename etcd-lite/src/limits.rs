//! Every limit of the embedded store (invariant I7 of ARCHITECTURE.md).

use std::time::Duration;

/// Operations in a branch of a transaction, and its comparisons; what etcd allows by default.
pub const TXN_OPERATIONS_MAX: usize = 128;

/// Octets of keys and values, history included, that a core holds unless told otherwise.
pub const CORE_OCTETS_MAX: usize = 512 * 1024 * 1024;

/// Revisions of history that a core keeps unless told otherwise; older ones are compacted.
pub const HISTORY_REVISIONS_MAX: usize = 20_000;

/// Octets of history that a core keeps unless told otherwise.
pub const HISTORY_OCTETS_MAX: usize = 64 * 1024 * 1024;

/// Events in one batch of a watch; a revision is never split, so a batch may exceed it by one.
pub const BATCH_EVENTS_MAX: usize = 1000;

/// Octets in one batch of a watch; a revision is never split, so a batch may exceed it by one.
pub const BATCH_OCTETS_MAX: usize = 1024 * 1024;

/// Leases that a core holds.
pub const LEASES_MAX: usize = 100_000;

/// Longest time to live of a lease, in seconds (about 285 years; what etcd allows).
pub const LEASE_TTL_MAX_S: i64 = 9_000_000_000;

/// Commands waiting for the owner of a core.
pub const MAILBOX_COMMANDS_MAX: usize = 256;

/// Watches of one client stream of the served store.
pub const STREAM_WATCHES_MAX: usize = 1024;

/// Replies waiting for a client stream of the served store to be read.
pub const STREAM_REPLIES_MAX: usize = 16;

/// Streams of one client connection of the served store.
pub const CLIENT_STREAMS_MAX: u32 = 1024;

/// How often a watch of the served store that asked for it is told how far the store is.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);

/// How long the served store waits for its clients to let go when it stops.
pub const SHUTDOWN_MAX: Duration = Duration::from_secs(3);

/// Octets of a frame of what the file of a store is begun with, about.
pub const KEPT_PIECE_OCTETS: usize = 1024 * 1024;

/// Octets by which the file of a store may exceed twice what it would take anew.
pub const KEPT_SLACK_OCTETS: u64 = 4 * 1024 * 1024;
