//! Every limit of the driver, in one place.

use std::time::Duration;

/// Octets read from one connection before the next one gets its turn.
pub const READ_OCTETS_MAX: usize = 64 << 10;

/// Octets written to one connection before the next one gets its turn.
pub const WRITE_OCTETS_MAX: usize = 256 << 10;

/// Octets read, and octets written, in one turn of [`crate::Io::next`], so that timers and the
/// rest of the program are not kept waiting.
pub const TURN_OCTETS_MAX: usize = 4 << 20;

/// Slices handed to the kernel in one write.
pub const WRITE_SLICES_MAX: usize = 64;

/// Prefixes decided or exported in one turn.
pub const TURN_PREFIXES_MAX: u32 = 8192;

/// Connections accepted from one listening socket in one turn.
pub const TURN_ACCEPTS_MAX: usize = 64;

/// A timer that is looked at this late tells that the program was busy or asleep. What lies in the
/// sockets is then read before the timer counts.
pub const STALL: Duration = Duration::from_secs(1);

/// Connections the kernel completes before we accept them, per listening socket.
pub const BACKLOG: i32 = 1024;

/// How long we rest from accepting when the process has no file descriptor left.
pub const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// How long until a TCP-MD5 key that the kernel did not take, or an address to listen on that the
/// machine did not have, is tried again.
pub const LISTEN_RETRY: Duration = Duration::from_secs(10);

/// How long a connection that we close may take to read our last words.
pub const LINGER: Duration = Duration::from_secs(3);

/// Connections that may linger at once; one more is closed at once, its last words in the kernel's
/// hands.
pub const LINGERING_MAX: usize = 1024;

/// Instructions of the packet filter of a listening socket (`BPF_MAXINSNS`). A configuration that
/// needs more gets a filter that treats all neighbors as the strictest.
pub const FILTER_INSTRUCTIONS_MAX: usize = 4096;

/// Octets read of a connection that is held, beyond which no more is read until it is promoted; a
/// single read may go past it by [`READ_OCTETS_MAX`].
pub const HELD_OCTETS_MAX: usize = 4 << 10;

/// How far the kernel's ages of what came last may be off: they are counted in its clock ticks.
pub const AGE_ROUNDING: Duration = Duration::from_millis(20);

/// Commands of handles that wait for a driver; with more, the handles wait.
pub const COMMANDS_MAX: usize = 64;

/// Routes in one command of a handle: a larger set becomes several.
pub const COMMAND_ROUTES_MAX: usize = 1024;

/// How many may wait at once until everything is sent.
pub const WAITERS_MAX: usize = 1024;

/// Octets of a TCP-MD5 key at most (`TCP_MD5SIG_MAXKEYLEN`).
pub const MD5_KEY_OCTETS_MAX: usize = 80;

/// Messages of traced peers that a turn reports; further ones are counted.
pub const TRACED_MESSAGES_MAX: usize = 64;

/// Octets of the text of a traced message; a longer one is cut.
pub const TRACED_TEXT_OCTETS_MAX: usize = 480;
