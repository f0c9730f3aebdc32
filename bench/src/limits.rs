//! Every limit and period of the benchmark.

use std::time::Duration;

/// Octets written to one socket in one turn.
pub const WRITE_OCTETS_MAX: usize = 256 << 10;

/// Slices handed to the kernel in one write.
pub const WRITE_SLICES_MAX: usize = 64;

/// Octets read from one socket in one turn.
pub const READ_OCTETS_MAX: usize = 256 << 10;

/// Sockets looked after in one turn.
pub const EVENTS_MAX: usize = 1024;

/// Hold time that the load generator offers.
pub const HOLD_TIME_S: u16 = 90;

/// How often the load generator sends KEEPALIVEs.
pub const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);

/// How long until a refused or lost connection is dialled again.
pub const REDIAL_AFTER: Duration = Duration::from_millis(20);

/// How long at least until a connection that nobody answered is dialled again; twice this at most.
pub const DIALLED_WITHIN: Duration = Duration::from_millis(250);

/// Sessions that are being opened at once while a run is set up: some daemons' accept queues
/// are short, and a SYN that finds one full costs a second.
pub const DIALLING_MAX: usize = 8;

/// How long one phase of a run may take.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The same of a quick run.
pub const PATIENCE_QUICK: Duration = Duration::from_secs(120);

/// Silence on all sessions that counts as rest.
pub const QUIET: Duration = Duration::from_millis(300);

/// How long a daemon may take to end when it is asked to.
pub const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// Single routes sent to measure latency, at most.
pub const LATENCY_ROUNDS: usize = 300;

/// How long that may take; fewer rounds will do then.
pub const LATENCY_WITHIN: Duration = Duration::from_secs(15);

/// Pause before each single route, where there is one.
pub const LATENCY_GAP: Duration = Duration::from_millis(60);

/// How long a daemon that is started again may take until it listens.
pub const STARTED_WITHIN: Duration = Duration::from_secs(120);

/// How long churn takes unless the command line says otherwise.
pub const CHURN: Duration = Duration::from_secs(120);

/// The same of a quick run.
pub const CHURN_QUICK: Duration = Duration::from_secs(6);

/// How long a fabric may take for anything.
pub const FABRIC_WITHIN: Duration = Duration::from_secs(180);

/// A pause in which an idle fabric comes to rest.
pub const PAUSE: Duration = Duration::from_millis(30);

/// How long a fabric rests before memory is looked at: periodic work of the daemons comes by.
pub const SETTLED: Duration = Duration::from_secs(3);

/// Writes to the store that are under way at once.
pub const PUTS_MAX: usize = 256;

/// News of a kernel that wait to be looked at.
pub const NEWS_MAX: usize = 1 << 16;
