//! Every limit of this crate.

use std::time::Duration;

/// Clients of one socket served at once; the next one waits in the listen queue.
pub const CONNECTIONS_MAX: usize = 16;

/// Requests waiting for the daemon's loop, over all connections.
pub const REQUESTS_QUEUED_MAX: usize = CONNECTIONS_MAX;

/// Octets of one request line.
pub const REQUEST_OCTETS_MAX: usize = 64 * 1024;

/// Octets of one reply line that a client accepts.
pub const REPLY_OCTETS_MAX: usize = 32 * 1024 * 1024;

/// Paths that a daemon should put into one reply; the rest follows on the next page.
pub const PAGE_PATHS_MAX: usize = 2000;

/// A connection without a request is closed after this time.
pub const IDLE: Duration = Duration::from_secs(30);

/// A client that does not read its reply for this long is closed.
pub const WRITE: Duration = Duration::from_secs(10);

/// Octets per line of a client of BIRD's protocol.
pub const BIRD_LINE_OCTETS_MAX: usize = 1024;

/// Such a client without a query is disconnected after this time: people use `birdc` interactively.
pub const BIRD_IDLE: Duration = Duration::from_secs(600);

/// How long a client waits for a reply.
pub const REPLY: Duration = Duration::from_secs(15);

/// Mistakes that one report about a configuration file has.
pub const CONFIG_PROBLEMS_MAX: usize = 100;

/// Octets that are read again to find further mistakes in a configuration file: a file is read again
/// for each mistake. In a file of a quarter of this or more, at most four mistakes are found at once.
pub const CONFIG_READ_AGAIN_OCTETS_MAX: usize = 32 << 20;

/// Octets of a configuration file.
pub const CONFIG_OCTETS_MAX: u64 = 16 * 1024 * 1024;

/// Octets of the head of an HTTP request.
pub const METRICS_HEAD_OCTETS_MAX: usize = 8 * 1024;

/// A scraper that has not sent its request for this long is closed.
pub const METRICS_READ: Duration = Duration::from_secs(5);

/// Minimum time between two checks for changed files of certificates and keys.
pub const TLS_FILES_CHECK: Duration = Duration::from_secs(1);

/// Octets of a file with certificates or a key.
pub const TLS_FILE_OCTETS_MAX: u64 = 1024 * 1024;

/// Time in which a probe's request has to arrive: idle connections keep the places of other probes no
/// longer.
pub const PROBE_READ: Duration = Duration::from_secs(1);

/// Time after which a scraper that has not read its answer is closed.
pub const METRICS_SCRAPE: Duration = Duration::from_secs(20);

/// How long a probe of readiness waits for the daemon's loop.
pub const READINESS_ANSWER: Duration = Duration::from_secs(5);

/// Log lines that wait for the writer of standard error; further ones are lost and counted.
pub const LOG_LINES_MAX: usize = 4096;

/// Octets of log lines that wait for the writer of standard error.
pub const LOG_OCTETS_MAX: usize = 1024 * 1024;

/// Of [`LOG_LINES_MAX`], reserved for errors.
pub const LOG_LINES_RESERVED: usize = 128;

/// Of [`LOG_OCTETS_MAX`], reserved for errors.
pub const LOG_OCTETS_RESERVED: usize = 64 * 1024;

/// How long a process that ends, or a thread that panics, waits for its last lines to be written.
pub const LOG_FLUSH: Duration = Duration::from_secs(1);

/// Lines that are kept when a process ends and half of [`LOG_FLUSH`] did not suffice to write all.
pub const LOG_LAST_LINES: usize = 64;

/// Pause of the log's writer where standard error is non-blocking and full.
pub const LOG_RETRY: Duration = Duration::from_millis(20);

/// Octets of the name of a journal field; the journal ignores longer ones.
pub const JOURNAL_NAME_OCTETS_MAX: usize = 64;

/// Octets that the buffer of the journal's writer keeps from one line to the next.
pub const JOURNAL_BUFFER_OCTETS: usize = 64 * 1024;

/// The status reports that standard error is not read after a line has waited this long in `write`.
pub const LOG_STALLED: Duration = Duration::from_secs(2);

/// Repeated events that are logged within [`REPEATS_WINDOW`]; further ones are summarized.
pub const REPEATS_LOGGED: u64 = 5;

/// After this time repeated events are summarized.
pub const REPEATS_WINDOW: Duration = Duration::from_secs(10);

/// Events that the history keeps; the oldest one makes room for the next.
pub const EVENTS_MAX: usize = 4096;

/// Octets of the events that the history keeps.
pub const EVENT_OCTETS_MAX: usize = 1024 * 1024;

/// Octets of a text in an event; a longer one is cut.
pub const EVENT_TEXT_OCTETS_MAX: usize = 512;

/// Events of one reply; the others follow on the next page.
pub const EVENTS_PAGE_MAX: usize = 512;

/// Readers that wait for further events, over all connections; a further one gets an error.
pub const EVENT_WATCHERS_MAX: usize = 8;

/// Readers that watch events of single routes, each with a queue of [`EVENTS_MAX`] and
/// [`EVENT_OCTETS_MAX`]; a further one gets an error.
pub const EVENT_WATCHES_MAX: usize = 8;

/// Time without a request after which a watch ends; above [`EVENT_WAIT`].
pub const EVENT_WATCH_IDLE: Duration = Duration::from_secs(20);

/// How long such a reader waits for a reply; below [`REPLY`], within which a client expects one.
pub const EVENT_WAIT: Duration = Duration::from_secs(10);

/// For how long the level of the log is set at run time, and a neighbor is debugged, unless the
/// operator names another time.
pub const LOG_LEVEL_FOR: Duration = Duration::from_secs(600);

/// The longest time for which the level of the log can be set at run time.
pub const LOG_LEVEL_FOR_MAX: Duration = Duration::from_secs(24 * 3600);

/// Neighbors that can be debugged at once.
pub const DEBUGGED_NEIGHBORS_MAX: usize = 16;

/// The longest time for which a neighbor can be debugged.
pub const DEBUG_FOR_MAX: Duration = Duration::from_secs(24 * 3600);

/// Pings to the service manager within the time after which its watchdog kills the daemon: some of
/// them may be late or lost.
pub const WATCHDOG_PINGS: u32 = 4;

/// Minimum interval between two computations of the state that the service manager shows.
pub const SERVICE_STATE_EVERY: Duration = Duration::from_secs(1);

/// Octets of that state; the rest is cut.
pub const SERVICE_STATE_OCTETS_MAX: usize = 256;
