//! Every limit of the store and its clients.

use std::time::Duration;

/// How deep transactions may hold transactions.
pub const TXN_DEPTH_MAX: usize = 8;

/// Octets of one request that writes: what etcd allows by default.
pub const REQUEST_OCTETS_MAX: usize = 1_572_864;

/// Keys that one page of a list asks for.
pub const LIST_PAGE_KEYS: usize = 1000;

/// How long a client waits for one answer of the store, whichever member gives it.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client waits for one member to answer a question that it can ask another one.
pub const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a client waits for a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How often an HTTP/2 ping is sent on a client's connection that has something under way (etcd
/// takes offence below 5 s) …
pub const PING_INTERVAL: Duration = Duration::from_secs(10);

/// … and how long its answer may take.
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Octets of one answer that a client accepts: a page of large values.
pub const ANSWER_OCTETS_MAX: usize = 64 * 1024 * 1024;

/// First wait of a mirror after a failure; doubles with each further one.
pub const RETRY_MIN: Duration = Duration::from_millis(250);

/// Longest wait of a mirror between two tries.
pub const RETRY_MAX: Duration = Duration::from_secs(5);

/// How long a watch must have held for the next failure to count as the first again.
pub const STEADY_AFTER: Duration = Duration::from_secs(10);

/// How long a watch may be silent before it is asked for a sign of life, at most; half of it at
/// least. That its connection lives is known from pings.
pub const QUIET_MAX: Duration = Duration::from_secs(60);

/// How long that sign may take before the watch counts as lost.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a range may be quiet before the store is asked whether that is so, at most; half of it at
/// least. The store's history must last longer than this and an outage.
pub const CONFIRM_MAX: Duration = Duration::from_secs(20 * 60);

/// How long a mirror waits for an answer before it asks anew; longer than [`CALL_TIMEOUT`], so that
/// it matters only for stores that never answer at all.
pub const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Within how long mirrors begin a list that all may need at the same moment; shorter than
/// [`LOST_AFTER`].
pub const LIST_SPREAD: Duration = Duration::from_secs(3);

/// How long contact may be lost before a mirror says so.
pub const LOST_AFTER: Duration = Duration::from_secs(5);

/// How long a picture must have been in sync before its first snapshot is written.
pub const SNAPSHOT_SETTLE: Duration = Duration::from_secs(1);

/// How long after a snapshot the next one is written at the earliest.
pub const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(30);

/// How long after a snapshot the next one is written although nothing has changed, so that its age
/// tells when the store was last there.
pub const SNAPSHOT_REFRESH: Duration = Duration::from_secs(600);

/// Oldest snapshot that is taken at the start, unless told otherwise.
pub const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// How far ahead of the clock a snapshot may have been written: beyond, its age is not known.
pub const SNAPSHOT_AHEAD_MAX: Duration = Duration::from_secs(300);

/// How long after the start nothing older than the snapshot is taken from the store; longer than a
/// proxy or member lags, and short enough for a store that was restored from a copy.
pub const SNAPSHOT_HOLDS: Duration = Duration::from_secs(20);

/// Octets of a key or value in a snapshot or in the file of a store.
pub const FIELD_OCTETS_MAX: usize = 64 * 1024 * 1024;

/// Ranges in a snapshot.
pub const SNAPSHOT_RANGES_MAX: usize = 1024;

/// Updates that a mirror hands over at once.
pub const UPDATES_MAX: usize = 1000;

/// How often a resource that others change at the same time is read again before giving up.
pub const REPLACE_ATTEMPTS_MAX: usize = 5;
