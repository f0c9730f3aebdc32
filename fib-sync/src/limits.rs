//! Every bound of this crate, in one place.

use core::time::Duration;

/// Writes a reconciler lets be under way at once.
pub const IN_FLIGHT_MAX: usize = 4096;

/// Passes over the address space in which many writes are given out: how thinly the kernel's table is
/// filled or emptied. Measured: 4 to 256 are alike, 1 is up to twelve times slower.
pub const WRITE_PASSES: usize = 16;

/// Deletions that the log names one by one within [`NOTICE_WINDOW`]; further ones are counted.
pub const NOTICES_PER_WINDOW: u32 = 32;

/// Time after which the deletions that the log did not name are summed up in one line.
pub const NOTICE_WINDOW: Duration = Duration::from_secs(10);

/// Notices that wait for the log; further ones are counted.
pub const NOTICES_MAX: usize = 128;

/// Foreign routes with the owner's protocol that a reconciler keeps for its reports; further ones are
/// counted.
pub const FOREIGN_KEPT_MAX: usize = 1024;

/// Foreign routes with the owner's protocol that the log names in the life of a reconciler.
pub const FOREIGN_NAMED_MAX: usize = 16;

/// How often the sockets of a claim are freed of those who asked.
pub const CLAIM_DRAIN_GAP: Duration = Duration::from_secs(5);

/// First delay before a refused route is tried again.
pub const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// Longest delay before a refused route is tried again.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// First gap kept between two dumps that were forced one right after the other.
pub const DUMP_GAP_MIN: Duration = Duration::from_millis(100);

/// Longest gap kept between two forced dumps.
pub const DUMP_GAP_MAX: Duration = Duration::from_secs(10);

/// How long after a link or an address went away the table is read again. The kernel tells of the
/// link before it has removed the routes, and tells nothing of the IPv4 routes it removed.
pub const LINK_SETTLE: Duration = Duration::from_millis(100);

/// Octets of one batch of netlink requests; the kernel refuses one that exceeds the send buffer.
pub const BATCH_OCTETS_MAX: usize = 128 * 1024;

/// Requests in one batch when the receive buffer could be forced to [`REPLY_OCTETS`].
pub const BATCH_REQUESTS_MAX: usize = 2048;

/// Requests in one batch when it could not: each may cost an error reply in the default buffer.
pub const BATCH_REQUESTS_SMALL: usize = 128;

/// Requests from which on a batch is sent by a thread, so that the next one is prepared while the
/// kernel carries this one out. A smaller batch is over before a thread has been woken.
pub const THREAD_REQUESTS_MIN: usize = 256;

/// Receive buffer of the socket that follows the kernel's notifications.
pub const MONITOR_OCTETS: usize = 16 * 1024 * 1024;

/// Receive buffer of the socket that carries requests and their replies.
pub const REPLY_OCTETS: usize = 4 * 1024 * 1024;

/// Octets one read of a netlink socket takes; the kernel builds dump parts of up to 32 KiB.
pub const READ_OCTETS: usize = 64 * 1024;

/// Notifications read ahead of a reply at most, so that a storm cannot hold replies back for ever.
pub const NOTIFICATIONS_AHEAD_MAX: usize = 16 * 1024;

/// Octets of route messages that one `RTA_MULTIPATH` may fill, so at most this many next hops.
pub const HOPS_MAX: usize = 256;

/// Events an attachment of the in-memory kernel holds before it overruns.
pub const MEMORY_EVENTS_MAX: usize = 4096;
