//! Every limit of the protocol.

use std::time::Duration;

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// Octets of one message.
pub const MESSAGE_OCTETS_MAX: usize = 2048;

/// Keys of a session.
pub const AUTH_KEYS_MAX: usize = 8;

/// Octets of a key.
pub const AUTH_KEY_OCTETS_MAX: usize = 20;

/// Octets of the name of a client.
pub const NAME_OCTETS_MAX: usize = 64;

/// The longest interval of packets, in milliseconds.
pub const INTERVAL_MS_MAX: u32 = 60_000;

/// The interval of sent packets of a session that is not up, unless its client wants a longer one, in
/// milliseconds (RFC 5880 §6.8.3).
pub const IDLE_MS: u32 = 1_000;

/// Messages that one end reads in one turn; the others wait in the socket.
pub const MESSAGES_PER_TURN: usize = 256;

/// Longest time after which a client tries again to connect.
pub const RECONNECT: Duration = Duration::from_secs(1);

/// Time after which a client tries again for the first time, because cambric-bfd may just restart. It doubles
/// with each further attempt, until a connection has lasted for [`RECONNECT`].
pub const RECONNECT_FIRST: Duration = Duration::from_millis(50);

/// Clients that wait to be accepted.
pub const BACKLOG: i32 = 16;
