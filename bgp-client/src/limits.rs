//! Every bound of this crate, in one place.

use std::ops::RangeInclusive;
use std::time::Duration;

use calico_bgp::METRIC_MAX;

/// Prefixes read from a speaker's tables in one turn.
pub const TURN_PREFIXES_MAX: u32 = 2048;

// A best path is reported before it is installed.
const _: () = assert!(bgp_daemon::limits::ROUTE_EVENTS_TURN_MAX >= TURN_PREFIXES_MAX);

/// Local prefixes looked up in one turn, for learned routes to the same prefix.
pub const TURN_LOCALS_MAX: usize = 1024;

/// Kernel events handled in one turn.
pub const TURN_EVENTS_MAX: usize = 2048;

/// How long the routes must be unchanged, after every neighbor has sent End-of-RIB, before routes
/// of the former process without an announcement are deleted.
pub const QUIET: Duration = Duration::from_secs(2);

/// The largest weight of a next hop: bandwidths are compared in steps of 1 %, so that few sets of weights exist.
pub const WEIGHT_MAX: u16 = 100;

/// How long no kernel route over a failed neighbor is written, while the removal of its paths changes the
/// wanted routes.
pub const FAILED_HOLD: Duration = Duration::from_secs(2);

/// How long the removal of all routes may take at exit.
pub const FLUSH: Duration = Duration::from_secs(5);

/// Interval between checks whether the kernel has had all wanted routes once.
pub const INSTALLED_LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long after a withdrawal was sent to all neighbors Felix may remove the route: in this time it
/// reaches the other hosts, through a route reflector too.
pub const WITHDRAWN_AFTER: Duration = Duration::from_millis(100);

/// Interval between checks whether a withdrawal was sent.
pub const SENT_LOOK_EVERY: Duration = Duration::from_millis(5);

/// Different kernel errors of routes that the status lists.
pub const REFUSALS_SHOWN_MAX: usize = 3;

/// Highest metric of the routes that Felix installs for local workloads.
pub const ENDPOINT_METRIC: u32 = 256;

/// Metrics of routes that this daemon may have written because of a LOCAL_PREF: all except that of
/// Felix's routes.
pub const METRICS_OF_LOCAL_PREF: [RangeInclusive<u32>; 2] =
    [1..=ENDPOINT_METRIC - 1, ENDPOINT_METRIC + 1..=METRIC_MAX];

/// Entries of `kernel.former_metrics`.
pub const FORMER_METRICS_MAX: usize = 64;

/// The program's name.
pub const PROGRAM: &str = "cambric-bgp-client";

/// Octets that count for a kernel route in `memory_max`: the wanted route and the one that was read
/// back, with their next hops and their place in an ordered map that is half empty.
pub const KERNEL_ROUTE_OCTETS: usize = 1000;
