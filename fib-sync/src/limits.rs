//! Every bound of this crate, in one place.

use core::time::Duration;

/// Writes that a reconciler has in flight at once.
pub const IN_FLIGHT_MAX: usize = 4096;

/// Passes over the address space among which writes are spread. Measured: 4 to 256 passes perform
/// alike, 1 pass is up to twelve times slower.
pub const WRITE_PASSES: usize = 16;

/// Deletions that are logged one by one within [`NOTICE_WINDOW`]; further ones are counted.
pub const NOTICES_PER_WINDOW: u32 = 32;

/// Time after which the deletions that were only counted are summed up in one log line.
pub const NOTICE_WINDOW: Duration = Duration::from_secs(10);

/// Notices queued for the log; further ones are counted.
pub const NOTICES_MAX: usize = 128;

/// Foreign routes with the owner's protocol that a reconciler keeps for its reports; further ones are
/// counted.
pub const FOREIGN_KEPT_MAX: usize = 1024;

/// Foreign routes with the owner's protocol that are logged in the life of a reconciler.
pub const FOREIGN_NAMED_MAX: usize = 16;

/// Interval at which the connections accepted by the sockets of a claim are closed.
pub const CLAIM_DRAIN_GAP: Duration = Duration::from_secs(5);

/// First delay before a refused route is tried again.
pub const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// Longest delay before a refused route is tried again.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// First gap kept between two dumps that were forced one right after the other.
pub const DUMP_GAP_MIN: Duration = Duration::from_millis(100);

/// Longest gap kept between two forced dumps.
pub const DUMP_GAP_MAX: Duration = Duration::from_secs(10);

/// Delay after the loss of a link or an address until the table is read again. The kernel sends the
/// notification of the link before it has removed the routes, and sends none for the IPv4 routes it
/// removed.
pub const LINK_SETTLE: Duration = Duration::from_millis(100);

/// Octets of one batch of netlink requests; the kernel refuses one that exceeds the send buffer.
pub const BATCH_OCTETS_MAX: usize = 128 * 1024;

/// Requests in one batch when the receive buffer could be forced to [`REPLY_OCTETS`]. A batch is one system call,
/// which keeps its processor: 2048 requests took 13 ms, in which no other thread could send packets of BFD there.
pub const BATCH_REQUESTS_MAX: usize = 1024;

/// Requests in one batch when the receive buffer could not be enlarged: each request may cost an
/// error reply in the default buffer.
pub const BATCH_REQUESTS_SMALL: usize = 128;

/// Smallest number of requests for which a thread sends the batch, so that the next batch is
/// prepared while the kernel carries this one out. Waking a thread takes longer than a smaller
/// batch.
pub const THREAD_REQUESTS_MIN: usize = 256;

/// Receive buffer of the socket that follows the kernel's notifications.
pub const MONITOR_OCTETS: usize = 16 * 1024 * 1024;

/// Receive buffer of the socket that carries requests and their replies.
pub const REPLY_OCTETS: usize = 4 * 1024 * 1024;

/// Octets that one read of a netlink socket takes; the kernel builds dump parts of up to 32 KiB.
pub const READ_OCTETS: usize = 64 * 1024;

/// Notifications read before a pending reply is handed out, so that a storm cannot delay replies
/// forever.
pub const NOTIFICATIONS_AHEAD_MAX: usize = 16 * 1024;

/// Next hops of one route, which bounds the octets of its `RTA_MULTIPATH`.
pub const HOPS_MAX: usize = 256;

/// Events an attachment of the in-memory kernel holds before it overruns.
pub const MEMORY_EVENTS_MAX: usize = 4096;

/// Writes of one message to the process that may write.
pub const WRITES_MAX: usize = BATCH_REQUESTS_MAX;

/// Octets of such a message, and of its outcomes.
pub const WRITES_OCTETS_MAX: usize = BATCH_OCTETS_MAX;

/// Octets of the kernel's text in the outcome of a write.
pub const WRITE_TEXT_OCTETS_MAX: usize = 200;

/// Receive buffer of the notifications by which the process that may write follows the keys of its own
/// routes. After a loss it reads them again.
pub const GATE_OCTETS: usize = 4 * 1024 * 1024;

/// Failed gateways whose routes are not kept during the grace period after a start; the routes of further ones
/// are kept until its end.
pub const LOST_GATEWAYS_MAX: usize = 65_536;

/// Own nexthop objects; routes with further sets of next hops carry their next hops themselves.
pub const NEXTHOPS_MAX: usize = 65_536;

/// Nexthop objects of all programs that are kept to find the next hops of their routes.
pub const NEXTHOPS_READ_MAX: usize = 65_536;

/// Numbers of own nexthop objects begin with the protocol; so many bits follow.
pub const NEXTHOP_ID_BITS: u32 = 24;

/// Gateways that count as failed at the same time; the routes of further ones change one by one.
pub const FAILED_GATEWAYS_MAX: usize = 4096;
