//! Timeouts and intervals of the lab.

use std::time::Duration;

/// Timeout for the first answer of the store.
pub(super) const STORE: Duration = Duration::from_secs(60);

/// Timeout for all sessions to come up, and for all kernels to agree, plus [`PER_NODE`] for each
/// node.
pub(super) const CONVERGE: Duration = Duration::from_secs(120);

/// See [`CONVERGE`].
pub(super) const PER_NODE: Duration = Duration::from_millis(300);

/// Timeout of one ping: longer than a neighbor discovery with a retransmission.
pub(super) const PING: Duration = Duration::from_secs(3);

/// Concurrent pings.
pub(super) const PINGS_MAX: usize = 256;

/// Interval between two requests of a flow.
pub(super) const FLOW_PERIOD: Duration = Duration::from_millis(10);

/// A connection without an answer for this long is denied.
pub(super) const CLOSED_FOR: Duration = Duration::from_secs(1);

/// Time to wait for replies of a workload that has moved. Requests in flight during the move are
/// lost.
pub(super) const MOVED_LINGER: Duration = Duration::from_secs(1);

/// Time that flows run before a reflector is killed, and again after all nodes have reacted.
pub(super) const FLOW_MARGIN: Duration = Duration::from_millis(700);

/// Time for which the idle fabric is watched to measure its daemons.
pub(super) const IDLE: Duration = Duration::from_secs(2);

/// Time to wait for a route notification before reading the routes anyway.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Timeout for the end of a killed keeper.
pub(super) const DOWN: Duration = Duration::from_secs(60);

/// Timeout for Felix to set up a workload before the CNI plugin gives up, in seconds.
pub(super) const CONNECT_SECONDS: u64 = 60;

/// Timeout of the CNI plugin.
pub(super) const CONNECT: Duration = Duration::from_secs(CONNECT_SECONDS + 10);

/// Timeout of a keeper's reply: a workload is connected, and all kernels agree.
pub(super) const ANSWER: Duration = Duration::from_secs(300);

/// Longest request that a keeper reads, in octets.
pub(super) const REQUEST_OCTETS_MAX: u64 = 4_096;

/// Differences that are printed when a fabric does not converge.
pub(super) const DIFFERENCES_SHOWN_MAX: usize = 6;

/// Lines of each daemon's log shown when a step fails.
pub(super) const LOG_LINES_SHOWN_MAX: usize = 8;
