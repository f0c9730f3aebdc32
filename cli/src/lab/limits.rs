//! How long the lab waits for things, and how often it looks.

use std::time::Duration;

/// For the store to answer after its start.
pub(super) const STORE: Duration = Duration::from_secs(60);

/// For all sessions to come up, and for all kernels to agree: this, and [`PER_NODE`] for each.
pub(super) const CONVERGE: Duration = Duration::from_secs(120);

/// See [`CONVERGE`].
pub(super) const PER_NODE: Duration = Duration::from_millis(300);

/// For one ping: longer than a neighbor discovery that has to ask twice.
pub(super) const PING: Duration = Duration::from_secs(3);

/// Pings under way at once.
pub(super) const PINGS_MAX: usize = 256;

/// Between two requests of a flow.
pub(super) const FLOW_PERIOD: Duration = Duration::from_millis(10);

/// How long answers of a workload that has moved are waited for: those that it was sent on its way are
/// lost in any case.
pub(super) const MOVED_LINGER: Duration = Duration::from_secs(1);

/// How long flows run before a reflector is killed, and again after all have noticed.
pub(super) const FLOW_MARGIN: Duration = Duration::from_millis(700);

/// How long the idle fabric is watched for what its daemons use.
pub(super) const IDLE: Duration = Duration::from_secs(2);

/// How long to wait for a route notification before looking anyway.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// For a keeper to be gone after it was killed.
pub(super) const DOWN: Duration = Duration::from_secs(60);

/// For Felix to set a workload up before the CNI plugin gives up, in seconds.
pub(super) const CONNECT_SECONDS: u64 = 60;

/// For the CNI plugin to answer.
pub(super) const CONNECT: Duration = Duration::from_secs(CONNECT_SECONDS + 10);

/// For a keeper to answer: a workload is connected, and all kernels agree.
pub(super) const ANSWER: Duration = Duration::from_secs(300);

/// Longest request that a keeper reads, in octets.
pub(super) const REQUEST_OCTETS_MAX: u64 = 4_096;

/// Differences named when a fabric does not converge.
pub(super) const DIFFERENCES_SHOWN_MAX: usize = 6;

/// Lines of each daemon's log shown when a step fails.
pub(super) const LOG_LINES_SHOWN_MAX: usize = 8;
