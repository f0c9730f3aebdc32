//! Every limit of this crate.

use std::time::Duration;

/// Route events that a monitor keeps; older ones are dropped, and counted.
pub const ROUTE_EVENTS_MAX: usize = 65_536;

/// The kernel's buffer of route events for one monitor: for some seconds in which nobody lets it read.
pub const ROUTE_EVENTS_OCTETS: usize = 8 << 20;

/// Octets of the end of a log that an error about a dead process quotes.
pub const LOG_TAIL_OCTETS: u64 = 2_000;

/// Largest ICMP message that a pinger reads.
pub const ICMP_OCTETS_MAX: usize = 2_048;

/// How long a flow waits for the answer to a request: one that comes late, because the machine is
/// busy, is not lost. Far less than the requests of one flow take to use their 65,536 numbers up.
pub const FLOW_LINGER: Duration = Duration::from_secs(5);

/// How often [`crate::until`] asks again when nobody tells it that something changed.
pub const ASK_AGAIN: Duration = Duration::from_millis(20);

/// How often a dead process is looked for by those who cannot wait on it as its parent.
pub const GONE_CHECK: Duration = Duration::from_millis(5);

/// Nodes of a fabric: what the plan's addresses (10.0.0.11 to 10.0.0.250) have room for.
pub const NODES_MAX: u16 = 240;

/// Reflectors of a fabric: 10.0.0.1 to 10.0.0.10.
pub const REFLECTORS_MAX: u16 = 10;

/// Reflectors that a node chooses where the datastore does not set a number.
pub const REFLECTORS_OF_NODE: usize = 2;

/// Workloads that one node of a fabric starts with.
pub const WORKLOADS_PER_NODE_MAX: u16 = 250;

/// Nodes up to which they ask for each other's MAC addresses. The kernel's table of what was
/// answered is one for all namespaces of a machine, with room for 1024 entries of each IP version
/// by default; in a larger fabric the nodes are told instead, by permanent entries, which do not
/// count.
pub const NEIGHBOURS_ASKED_MAX: usize = 20;

/// Members of the store of a fabric, each but the first on a host of its own.
pub const STORE_MEMBERS_MAX: u16 = 3;
