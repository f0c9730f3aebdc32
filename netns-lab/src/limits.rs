//! Every limit of this crate.

use std::time::Duration;

/// Route events that a monitor keeps; older ones are dropped, and counted.
pub const ROUTE_EVENTS_MAX: usize = 65_536;

/// The kernel's buffer of route events for one monitor: enough for some seconds in which the
/// monitor does not run.
pub const ROUTE_EVENTS_OCTETS: usize = 8 << 20;

/// Octets of the end of a log that an error about a dead process quotes.
pub const LOG_TAIL_OCTETS: u64 = 2_000;

/// Largest ICMP message that a pinger reads.
pub const ICMP_OCTETS_MAX: usize = 2_048;

/// Time that a flow waits for the answer to a request, so that a late answer on a busy machine is
/// not counted as lost. It is far less than the time in which one flow uses all of its 65,536
/// sequence numbers.
pub const FLOW_LINGER: Duration = Duration::from_secs(5);

/// Interval at which [`crate::until`] repeats its probe if nothing reports a change.
pub const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Interval of checking for the end of a process that is not a child.
pub const GONE_CHECK: Duration = Duration::from_millis(5);

/// Maximum number of nodes of a fabric, given by the plan's addresses (10.0.0.11 to 10.0.0.250).
pub const NODES_MAX: u16 = 240;

/// Maximum number of reflectors of a fabric: 10.0.0.1 to 10.0.0.10.
pub const REFLECTORS_MAX: u16 = 10;

/// Reflectors that a node chooses if the datastore does not set a number.
pub const REFLECTORS_OF_NODE: usize = 2;

/// Maximum initial number of workloads on one node of a fabric.
pub const WORKLOADS_PER_NODE_MAX: u16 = 250;

/// Maximum number of nodes that resolve each other's MAC addresses. The kernel has one neighbor
/// table for all namespaces of a machine, with room for 1024 dynamic entries of each IP version by
/// default. A larger fabric uses permanent entries, which do not count.
pub const NEIGHBORS_ASKED_MAX: usize = 20;

/// Maximum number of members of a fabric's store, each but the first on its own host.
pub const STORE_MEMBERS_MAX: u16 = 3;
