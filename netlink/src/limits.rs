//! Every limit of this crate.

use std::time::Duration;

/// Send and receive buffers of a netlink socket: a transaction must fit the former whole.
pub const NETLINK_BUFFER_OCTETS: usize = 16 * 1024 * 1024;

/// Maximum time for the kernel to answer a netlink request.
pub const NETLINK_TIMEOUT: Duration = Duration::from_secs(5);

/// Attempts of a dump that concurrent changes interrupt.
pub const DUMP_ATTEMPTS: u32 = 5;

/// Octets of one part of notifications; the kernel's parts have at most a page, or one message.
pub const NOTIFICATION_OCTETS_MAX: usize = 128 * 1024;

/// Octets of one part of a dump: the kernel fills at most this many.
pub const DUMP_PART_OCTETS: usize = 32 * 1024;
