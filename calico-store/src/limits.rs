//! Every limit of the store and its clients.

use std::time::Duration;

/// Maximum nesting of transactions.
pub const TXN_DEPTH_MAX: usize = 8;

/// Octets of one write request: etcd's default limit.
pub const REQUEST_OCTETS_MAX: usize = 1_572_864;

/// Keys in the first page of a list, whatever their values.
pub const LIST_PAGE_KEYS: usize = 1000;

/// Keys in one page at most: with each page, etcd counts all keys behind it.
pub const LIST_PAGE_KEYS_MAX: usize = 4000;

/// Octets of values of a page below which the next one may be twice as long.
pub const LIST_PAGE_OCTETS: usize = 2 * 1024 * 1024;

/// Time that a client waits for one answer of the store, whichever member sends it.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a client waits for one member to answer a request that another member can answer too.
pub const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// Time that a client waits for a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval of HTTP/2 pings on a client's connection with an open request (etcd closes the
/// connection below 5 s) …
pub const PING_INTERVAL: Duration = Duration::from_secs(10);

/// … and the maximum time until the answer.
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Octets of one answer that a client accepts: a page of large values.
pub const ANSWER_OCTETS_MAX: usize = 64 * 1024 * 1024;

/// First delay of a mirror after a failure; it doubles with each further one.
pub const RETRY_MIN: Duration = Duration::from_millis(250);

/// Longest delay of a mirror between two attempts.
pub const RETRY_MAX: Duration = Duration::from_secs(5);

/// Time after which a watch counts as stable, so that the next failure counts as the first again.
pub const STEADY_AFTER: Duration = Duration::from_secs(10);

/// Maximum time without events before progress of a watch is requested; the minimum is half of it.
/// Pings detect the loss of the connection itself.
pub const QUIET_MAX: Duration = Duration::from_secs(60);

/// Time to wait for that progress before the watch counts as lost.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time without changes of a range before the mirror confirms its state with the store; the
/// minimum is half of it. The store's history must last longer than this plus an outage.
pub const CONFIRM_MAX: Duration = Duration::from_secs(20 * 60);

/// Time that a mirror waits for an answer before it repeats the request. It is longer than
/// [`CALL_TIMEOUT`], so that it applies only to stores that never answer at all.
pub const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Time over which mirrors spread lists that all may need at the same moment; shorter than
/// [`LOST_AFTER`].
pub const LIST_SPREAD: Duration = Duration::from_secs(3);

/// Time without contact before a mirror reports it.
pub const LOST_AFTER: Duration = Duration::from_secs(5);

/// Time in sync before a mirror writes its first snapshot.
pub const SNAPSHOT_SETTLE: Duration = Duration::from_secs(1);

/// Minimum time between two snapshots.
pub const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum time between two snapshots, even without changes, so that the age of a snapshot shows
/// when the store was last reachable.
pub const SNAPSHOT_REFRESH: Duration = Duration::from_secs(600);

/// Default of the maximum age of a snapshot that is used at the start.
pub const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Maximum time that the timestamp of a snapshot may be ahead of the clock: beyond it, the age is
/// unknown.
pub const SNAPSHOT_AHEAD_MAX: Duration = Duration::from_secs(300);

/// Time after the start during which a mirror rejects answers older than its snapshot. It is longer
/// than the lag of a proxy or member, and short enough for a store that was restored from a backup.
pub const SNAPSHOT_HOLDS: Duration = Duration::from_secs(20);

/// Octets of a key or value in a snapshot or in the file of a store.
pub const FIELD_OCTETS_MAX: usize = 64 * 1024 * 1024;

/// Ranges in a snapshot.
pub const SNAPSHOT_RANGES_MAX: usize = 1024;

/// Updates that a mirror returns at once.
pub const UPDATES_MAX: usize = 1000;

/// Changes that a consumer has not taken, beyond which a mirror requests no further page of a list. Each
/// of its ranges may add one page to them.
pub const READ_AHEAD_MAX: usize = 2 * UPDATES_MAX;

/// Resources that one transaction writes: etcd's default limit of operations.
pub const APPLY_OPERATIONS_MAX: usize = 128;

/// Octets of the resources that one transaction writes; less than [`REQUEST_OCTETS_MAX`].
pub const APPLY_OCTETS_MAX: usize = 1 << 20;

/// Attempts to change a resource despite concurrent writes.
pub const REPLACE_ATTEMPTS_MAX: usize = 5;
