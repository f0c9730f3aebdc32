//! Every limit of address management.

use std::time::Duration;

/// Most addresses of a block.
pub const BLOCK_ADDRESSES_MAX: usize = 4096;

/// How often a key that others write at the same time is read again before giving up.
pub const ATTEMPTS_MAX: usize = 100;

/// Most blocks of a host where the settings name no other number.
pub const HOST_BLOCKS_DEFAULT: usize = 20;

/// How old an empty block must be before another host takes it: none is taken from under the hands
/// of one that has just got it.
pub const RECLAIM_AGE: Duration = Duration::from_secs(60);

/// Most addresses that one transaction gives back: each may have a handle of its own, and etcd
/// takes 128 operations.
pub const RELEASES_MAX: usize = 100;

/// Most addresses whose blocks are looked for by name, one by one, all in one transaction; for
/// more the blocks are listed.
pub const LOOKED_UP_MAX: usize = 8;

/// Most blocks of a host that are read by one request.
pub const READ_BLOCKS_MAX: usize = 32;
