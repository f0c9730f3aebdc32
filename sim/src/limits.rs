//! Every bound of this crate, in one place. All times are virtual.

use std::time::Duration;

/// How long the calm phase may take until every kernel agrees with the datastore: the detection of
/// a dead session (hold time), the wait for a restart that does not happen (restart time) and the
/// longest back-off may follow one another.
pub const CONVERGE: Duration = Duration::from_secs(420);

/// How long until every timer that was started during the chaos has expired: grace periods, stale
/// paths, back-offs.
pub const SETTLE: Duration = Duration::from_secs(150);

/// How long no kernel may be written in a stable state; longer than every period of a reconciler.
pub const IDLE: Duration = Duration::from_secs(95);

/// How long a deleted endpoint may stay in a kernel during calm.
pub const WITHDRAWN: Duration = Duration::from_secs(3);

/// How long an added or moved endpoint may be missing in a kernel during calm.
pub const ADDED: Duration = Duration::from_secs(3);

/// When a speaker must hold no more state of neighbors that have disconnected: a dead neighbor is
/// detected (hold time), and then its return is awaited (restart time).
pub const FORGOTTEN: Duration = Duration::from_secs(240);

/// The least interval between two comparisons of every kernel with the datastore.
pub const COMPARE_EVERY: Duration = Duration::from_millis(1);

/// The least interval is also this share of the time waited so far: times are exact to one percent.
pub const COMPARE_SHARE: u64 = 100;

/// Lines of the trace in a report.
pub const TRACE_LINES: usize = 60;

/// Rounds of one turn of a daemon, after which it must wait for its next turn.
pub const TURN_ROUNDS: usize = 64;

/// Kernel events that one turn of a daemon takes.
pub const TURN_EVENTS: usize = 256;

/// First delay of the retransmission of a lost segment; doubles with each further loss.
pub const RETRANSMIT: Duration = Duration::from_millis(200);

/// Longest such delay.
pub const RETRANSMIT_MAX: Duration = Duration::from_secs(5);

/// The least buffer of one direction of a stream, in octets.
pub const BUFFER_OCTETS_MIN: usize = 512;

/// How long after a transaction the host records its packet filter.
pub const RECORD_AFTER: Duration = Duration::from_millis(200);

/// Contents of the datastore that the packet filter of one node may have, among which a commit is
/// looked up.
pub const VIEWS_MAX: usize = 12;

/// One of so many commits is compared with them by sampled packets.
pub const COMMITS_PER_SAMPLE: u64 = 16;

/// One of so many complete commits is compared with the content over all packets.
pub const COMMITS_PER_AUDIT: u64 = 56;

/// Updates of the datastore that Felix takes at once.
pub const UPDATES_MAX: usize = 1000;

/// The least interval between two turns of a daemon that its own timers request.
pub const TURN_GAP: Duration = Duration::from_millis(1);

/// Events after which a run is aborted: some events repeat forever.
pub const EVENTS_MAX: u64 = 20_000_000;

/// Packets of BFD that a socket stores.
pub const INBOX_MAX: usize = 4096;

/// Longest pause before a BGP daemon connects to the process of BFD again.
pub const RECONNECT_MAX: Duration = Duration::from_millis(50);

/// How long a route to a dead host may stay in a kernel beyond the detection time: the messages between
/// two processes and three machines, and the turns of their daemons.
pub const REMOVED: Duration = Duration::from_millis(250);

/// How long a process of BFD is away that is killed with kept state.
pub const BFD_AWAY: Duration = Duration::from_millis(50);

/// How long sessions of BFD may take to be up, in calm.
pub const MONITORED: Duration = Duration::from_secs(60);

/// How long the consequences of one trouble are observed: less than the restart time.
pub const OBSERVED: Duration = Duration::from_secs(100);

/// How long messages may be on their way once all sessions are up again.
pub const RECOVERED: Duration = Duration::from_secs(5);

/// Contradictions among the events of one daemon that a violation reports.
pub const WRONG_EVENTS: usize = 8;
