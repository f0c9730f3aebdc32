//! Every bound of this crate, in one place.

use std::time::Duration;

/// Prefixes read from a speaker's tables in one turn.
pub const TURN_PREFIXES_MAX: u32 = 2048;

/// Local prefixes looked up in one turn, for learned routes that stand behind them.
pub const TURN_LOCALS_MAX: usize = 1024;

/// Kernel events handled in one turn.
pub const TURN_EVENTS_MAX: usize = 2048;

/// How long nothing may change, after every neighbour has sent all its routes, until what a former
/// life of this daemon installed and nobody announced is deleted.
pub const QUIET: Duration = Duration::from_secs(2);

/// How long the removal of all routes may take at exit.
pub const FLUSH: Duration = Duration::from_secs(5);

/// Different refusals of the kernel that the status names.
pub const REFUSALS_SHOWN_MAX: usize = 3;

/// Highest metric of the routes Felix installs for local workloads.
pub const ENDPOINT_METRIC: u32 = 256;
