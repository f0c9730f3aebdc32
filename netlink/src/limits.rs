//! Every limit of this crate (invariant I7 of ARCHITECTURE.md).

use std::time::Duration;

/// Send and receive buffers of a netlink socket: a transaction must fit the former whole.
pub const NETLINK_BUFFER_OCTETS: usize = 16 * 1024 * 1024;

/// How long the kernel may take to answer a netlink request.
pub const NETLINK_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a dump that a change disturbed is repeated.
pub const DUMP_ATTEMPTS: u32 = 5;
