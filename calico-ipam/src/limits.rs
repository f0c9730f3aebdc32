//! Every limit of address management.

use std::time::Duration;

/// Maximum number of addresses of a block.
pub const BLOCK_ADDRESSES_MAX: usize = 4096;

/// Attempts to change a key despite concurrent writes.
pub const ATTEMPTS_MAX: usize = 100;

/// Maximum number of blocks of a host, unless the IPAM configuration sets another number.
pub const HOST_BLOCKS_DEFAULT: usize = 20;

/// Minimum age of the affinity of an empty block before another host takes the block over, so that
/// a host does not lose a block that it has just claimed.
pub const RECLAIM_AGE: Duration = Duration::from_secs(60);

/// Maximum number of addresses released by one transaction: each may have its own handle, and etcd
/// accepts 128 operations.
pub const RELEASES_MAX: usize = 100;

/// Maximum number of addresses whose blocks are looked up individually, all in one transaction; for
/// more addresses the blocks are listed.
pub const LOOKED_UP_MAX: usize = 8;

/// Maximum number of blocks of a host read by one request.
pub const READ_BLOCKS_MAX: usize = 32;
