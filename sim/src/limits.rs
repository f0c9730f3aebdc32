//! Every bound of this crate, in one place. All times are virtual.

use std::time::Duration;

/// How long the calm phase may take until every kernel agrees with the store: an unnoticed dead
/// session (hold time), a restart that is waited for in vain (restart time) and the longest
/// back-off may come one after the other.
pub const CONVERGE: Duration = Duration::from_secs(420);

/// Until every timer that was started by the chaos has run out: grace periods, stale paths,
/// back-offs.
pub const SETTLE: Duration = Duration::from_secs(150);

/// How long nothing may be written to a kernel at rest; longer than every period of a reconciler.
pub const IDLE: Duration = Duration::from_secs(95);

/// When an endpoint that is deleted in calm must be gone from every kernel.
pub const WITHDRAWN: Duration = Duration::from_secs(3);

/// When an endpoint that is added or moved in calm must be where it belongs in every kernel.
pub const ADDED: Duration = Duration::from_secs(3);

/// When a speaker must hold nothing more of neighbors that have left: a dead one is noticed (hold
/// time), and then its return is waited for in vain (restart time).
pub const FORGOTTEN: Duration = Duration::from_secs(240);

/// How often, at most, every kernel is compared with the store while waiting for them to agree.
pub const COMPARE_EVERY: Duration = Duration::from_millis(1);

/// Nor more often than after this share of the time waited so far: times are right to a hundredth.
pub const COMPARE_SHARE: u64 = 100;

/// Lines of what happened that are kept for a report.
pub const TRACE_LINES: usize = 60;

/// Rounds of one turn of a daemon, after which it is made to wait for its next turn.
pub const TURN_ROUNDS: usize = 64;

/// Kernel events that one turn of a daemon takes.
pub const TURN_EVENTS: usize = 256;

/// First wait for a segment that was lost; doubles with each further loss.
pub const RETRANSMIT: Duration = Duration::from_millis(200);

/// Longest such wait.
pub const RETRANSMIT_MAX: Duration = Duration::from_secs(5);

/// The least buffer of one direction of a stream, in octets.
pub const BUFFER_OCTETS_MIN: usize = 512;

/// Updates of the store that Felix takes at once.
pub const UPDATES_MAX: usize = 1000;

/// The least time between two turns of a daemon that its own timers ask for.
pub const TURN_GAP: Duration = Duration::from_millis(1);

/// Events after which a run is given up: something goes round in circles.
pub const EVENTS_MAX: u64 = 20_000_000;
