//! Every limit of the driver, in one place.

use std::time::Duration;

/// Octets read from one connection before the next one gets its turn.
pub const READ_OCTETS_MAX: usize = 64 << 10;

/// Octets written to one connection before the next one gets its turn.
pub const WRITE_OCTETS_MAX: usize = 256 << 10;

/// Octets read, and octets written, in one turn of [`crate::Io::next`], so that timers and the rest
/// of the program do not wait long.
pub const TURN_OCTETS_MAX: usize = 4 << 20;

/// Slices handed to the kernel in one write.
pub const WRITE_SLICES_MAX: usize = 64;

/// Prefixes decided or exported in one turn.
pub const TURN_PREFIXES_MAX: u32 = 8192;

/// Connections accepted from one listening socket in one turn. Few, so that established sessions do not
/// wait for a flood of connections: they are served in every turn.
pub const TURN_ACCEPTS_MAX: usize = 4;

/// Connections without an established session that are served in one turn, for the same reason.
pub const TURN_HANDSHAKES_MAX: usize = 4;

/// Octets read from these connections in one turn, beside a single read. An OPEN without unusual
/// capabilities has about 100.
pub const TURN_HANDSHAKE_OCTETS_MAX: usize = 1 << 10;

/// Woken connections without an established session that wait for their turn; with more, no connection
/// is accepted.
pub const WAITING_HANDSHAKES_MAX: usize = 64;

/// One refused connection in this time gets a NOTIFICATION; further ones are closed at once.
pub const ANSWER_REFUSAL_EVERY: Duration = Duration::from_millis(10);

/// Refused connections that get one at once after a pause. Few, so that a flood is served evenly.
pub const ANSWERED_REFUSALS_AT_ONCE: u32 = 8;

/// One connection in this time from an address that is no neighbor's is no flood.
pub const STRANGER_EVERY: Duration = Duration::from_millis(1);

/// Such connections that are no flood at once, after a pause.
pub const STRANGERS_AT_ONCE: u32 = 1024;

/// Interval between looks at a flood while the kernel drops its SYNs.
pub const STRANGERS_LOOK: Duration = Duration::from_secs(1);

/// SYNs dropped in this interval with which the flood has ended.
pub const STRANGERS_RETURN_MAX: u64 = 250;

/// Prefixes of neighbors that pass during a flood. With more neighbors, shorter prefixes cover them.
pub const SYN_SOURCES_MAX: usize = 256;

/// A timer that is this late shows that the program was busy or suspended. The sockets are then
/// read before the timer counts.
pub const STALL: Duration = Duration::from_secs(1);

/// Connections per listening socket that the kernel completes before they are accepted.
pub const BACKLOG: i32 = 1024;

/// Pause of accepting when the process has no file descriptor left.
pub const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Interval between attempts to set a TCP-MD5 key that the kernel rejected, or to listen on an
/// address that the machine did not have.
pub const LISTEN_RETRY: Duration = Duration::from_secs(10);

/// Maximum time for a peer to read the last octets of a connection that this side closes.
pub const LINGER: Duration = Duration::from_secs(3);

/// Connections that may linger at the same time; a further one is closed immediately, and the
/// kernel sends its last octets.
pub const LINGERING_MAX: usize = 1024;

/// Instructions of the packet filter of a listening socket (`BPF_MAXINSNS`). A configuration that
/// needs more gets a filter that treats all neighbors as the strictest one.
pub const FILTER_INSTRUCTIONS_MAX: usize = 4096;

/// Octets read of a held connection; no more is read until it is promoted. A single read may exceed
/// this by [`READ_OCTETS_MAX`].
pub const HELD_OCTETS_MAX: usize = 4 << 10;

/// Error of the kernel's times since the last segment: they are counted in its clock ticks.
pub const AGE_ROUNDING: Duration = Duration::from_millis(20);

/// Commands of handles that wait for a driver; with more, the handles wait.
pub const COMMANDS_MAX: usize = 64;

/// Routes in one command of a handle: a larger set becomes several.
pub const COMMAND_ROUTES_MAX: usize = 1024;

/// Callers that may wait at the same time until everything is sent.
pub const WAITERS_MAX: usize = 1024;

/// Maximum octets of a TCP-MD5 key (`TCP_MD5SIG_MAXKEYLEN`).
pub const MD5_KEY_OCTETS_MAX: usize = 80;

/// Time for an answer to a dial with one of two TCP-MD5 keys before the other one is tried, too; at
/// most half of the session's `connect_retry`.
pub const KEY_TRY: Duration = Duration::from_secs(1);

/// Interval of the kernel's probes of an idle connection with two TCP-MD5 keys, for hold times below
/// [`KEY_PROBES_MAX`] seconds; twice that below twice as many, and so on.
pub const KEY_PROBE: Duration = Duration::from_secs(1);

/// Probes without an answer after which the kernel ends a connection (`MAX_TCP_KEEPCNT`).
pub const KEY_PROBES_MAX: u32 = 127;

/// Unanswered attempts after which the other TCP-MD5 key is tried, if the peer has used this one.
pub const KEY_ATTEMPTS: u32 = 2;

/// Time for an answer to these attempts, at most one of [`KEY_ANSWERS_PER_HOLD`] parts of the hold
/// time.
pub const KEY_ANSWER: Duration = Duration::from_secs(1);

/// The least number of times that [`KEY_ANSWER`] fits into the hold time.
pub const KEY_ANSWERS_PER_HOLD: u32 = 6;

/// Interval between checks of the connections with two TCP-MD5 keys.
pub const KEY_CHECK: Duration = Duration::from_millis(500);

/// Messages of traced peers that a turn reports; further ones are counted.
pub const TRACED_MESSAGES_MAX: usize = 64;

/// Octets of the text of a traced message; a longer one is truncated.
pub const TRACED_TEXT_OCTETS_MAX: usize = 480;

/// Octets that one end of a [`Memory`](crate::Memory) transport may be ahead of the other's reading.
pub const MEMORY_OCTETS_MAX: usize = 64 << 10;

/// Octets that a [`SessionStream`](crate::SessionStream) reads at once. Its buffer holds so many and one
/// unfinished message at most.
pub const SESSION_READ_OCTETS: usize = 16 << 10;

/// Messages that a [`SessionStream`](crate::SessionStream) handles without an event before other tasks
/// get their turn.
pub const SESSION_TURN_STEPS: usize = 64;

/// Turns of the runtime for which overdue timers of a [`SessionStream`](crate::SessionStream) wait after
/// a stall: the runtime reports 1,024 sockets in each.
pub const SESSION_STALL_TURNS: u8 = 64;

/// Octets that the owner of a [`SessionStream`](crate::SessionStream) may have queued.
pub const SESSION_QUEUE_OCTETS_MAX: usize = 1 << 20;

/// Calls of [`SessionStream::send`](crate::SessionStream::send) whose messages may be queued.
pub const SESSION_QUEUE_PIECES_MAX: usize = 4096;

/// Refused connections of a [`Listener`](crate::Listener) that may linger at once; one more is closed at
/// once.
pub const LISTENER_REFUSED_MAX: usize = 64;
