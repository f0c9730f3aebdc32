//! Every limit of the daemon, in one place.

use std::time::Duration;

/// Connections of clients at once; a further one is closed.
pub const CONNECTIONS_MAX: usize = 32;

/// Clients by user and name, with those that are away; a further one is rejected.
pub const CLIENTS_MAX: usize = 16;

/// Clients of one user, with those that are away; a further one is rejected.
pub const CLIENTS_OF_USER_MAX: usize = 4;

/// Connections of one user at once; a further one is closed.
pub const CONNECTIONS_OF_USER_MAX: usize = 8;

/// A connection without its first message is closed after this time.
pub const HELLO_WAIT: Duration = Duration::from_secs(5);

/// The default of the sessions of one user's clients.
pub const SESSIONS: u32 = 4096;

/// The greatest permitted number of sessions of one user's clients.
pub const SESSIONS_MAX: u32 = 16_384;

/// The sessions of all clients. Further ones are rejected.
pub const SESSIONS_OF_ALL_MAX: usize = 32_768;

/// The default of the packets that the sessions of one user's clients may send in a second.
pub const PACKETS_PER_SECOND: u32 = 20_000;

/// The greatest permitted number of packets in a second.
pub const PACKETS_PER_SECOND_MAX: u32 = 1_000_000;

/// The default of the shortest interval, in milliseconds.
pub const INTERVAL_MS_MIN: u32 = 50;

/// The default of the time for which the sessions of a client continue without it, in seconds: longer than
/// the default restart time of BGP.
pub const GRACE_S: u32 = 300;

/// The longest such time.
pub const GRACE_S_MAX: u32 = 86_400;

/// Interval at which the path of a session that is not up is looked for again.
pub const RESOLVE_EVERY: Duration = Duration::from_secs(5);

/// Time after which it is reported that the kernel has not returned the addresses of the host.
pub const ADDRESSES_WITHIN: Duration = Duration::from_secs(5);

/// Time for which packets on the port of the other mode are reported after the last one: longer than the
/// longest interval of packets.
pub const OTHER_PORT_FOR: Duration = Duration::from_secs(180);

/// Octets of the stack of the thread that reads them. They are locked in memory.
pub const ADDRESSES_STACK_OCTETS: usize = 256 << 10;

/// Packets and changes of one turn of the loop; further ones follow in the next turn.
pub const STEPS_PER_TURN: usize = 1024;

/// Messages that are read from and sent to all clients in one turn, each connection with an equal share; further
/// ones follow in the next turn, after the packets.
pub const MESSAGES_PER_TURN: usize = 64;

/// Packets that are read from one socket in one turn.
pub const PACKETS_PER_TURN: usize = 4096;

/// Packets that one system call reads: it takes far less than a millisecond.
pub const PACKETS_PER_CALL: usize = 32;

/// Shortest time between two readings because packets have arrived, so that a reading is of several. Their
/// times of arrival are the kernel's, and timers read the sockets before they are judged.
pub const RECEIVE_EVERY: Duration = Duration::from_millis(1);

/// Octets of a received packet that are read: more than any packet of BFD has.
pub const PAYLOAD_OCTETS_MAX: usize = 256;

/// Octets that are requested for the packets that wait in each receiving socket. The kernel grants at most
/// `net.core.rmem_max`, and doubles the number for its own structures.
pub const RECEIVE_OCTETS: usize = 8 << 20;

/// Octets of a socket's buffer that the kernel counts for one packet of BFD, with its structures.
pub const RECEIVED_PACKET_OCTETS: u64 = 1024;

/// Sessions with a sending socket of their own: those that are present, and as many that are removed and
/// still send. Further ones share a socket.
pub const SENDERS_MAX: usize = 2 * SESSIONS_OF_ALL_MAX;

/// Octets that wait in each sending socket, as requested: more than the packets of a session until the kernel
/// gives a neighbor up that does not answer.
pub const SEND_OCTETS: usize = 16 << 10;

/// Descriptors of the process that sending sockets leave to clients and requests.
pub const DESCRIPTORS_RESERVED: usize = 256;

/// Shortest time between two readings of the host's users because of an unknown client.
pub const USERS_READ_EVERY: Duration = Duration::from_secs(1);

/// Time after which it is reported that the host has not returned its users, and connections that wait for it
/// are closed. Their clients connect again.
pub const USERS_WITHIN: Duration = Duration::from_secs(5);

/// Connections that wait for the users of the host, at most one of each user; a further one is closed.
pub const CONNECTIONS_PENDING_MAX: usize = 8;

/// Octets of the stack of the thread that reads the users: modules of the system's name service run on it. They
/// are locked in memory.
pub const USERS_STACK_OCTETS: usize = 512 << 10;

/// Source ports that are tried until a free one is found.
pub const SOURCE_PORT_TRIES: u32 = 64;

/// How long the daemon sends AdminDown before it stops.
pub const STOP_MAX: Duration = Duration::from_secs(2);

/// Users with a reported rejection; connections of further ones are only closed.
pub const REJECTED_USERS_MAX: usize = 64;

/// Entries of `addresses`.
pub const ADDRESSES_MAX: usize = 64;

/// Users in `users`.
pub const USERS_MAX: usize = 64;

/// Pause after a client could not be accepted: the process or the system has no descriptor left.
pub const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Octets of the name of a client in a record.
pub const NAME_OCTETS_MAX: usize = bfd_client::limits::NAME_OCTETS_MAX;

/// Octets of a record of kept state: more than a session or the wish of a client has.
pub const RECORD_OCTETS_MAX: usize = 448;

/// Records of kept state: the sessions, removed ones that still send, and the wishes of clients.
pub const RECORDS_MAX: u32 = 3 * SESSIONS_OF_ALL_MAX as u32;

/// Starts that may fail to continue the kept state. The next one starts afresh.
pub const TAKE_OVERS_MAX: u8 = 3;

/// Descriptors that the service manager or the keeper stores: two sockets for each of `addresses`, and the
/// memory with the state.
pub const DESCRIPTORS_KEPT_MAX: usize = 2 * ADDRESSES_MAX + 1;

/// How long a bind is repeated while the store still has a socket of the port with a former address.
pub const BIND_RETRY_MAX: Duration = Duration::from_secs(2);

/// Pause between two of these attempts.
pub const BIND_RETRY_EVERY: Duration = Duration::from_millis(5);

/// Octets of one message to the keeper.
pub const KEEPER_MESSAGE_OCTETS_MAX: usize = 4096;

/// Pause of the keeper before it starts a daemon again that was killed, or has handed its sessions over.
pub const KEEPER_PAUSE: Duration = Duration::from_millis(20);

/// Pause of the keeper before it starts a daemon again that has reported an error.
pub const KEEPER_PAUSE_FAILED: Duration = Duration::from_secs(1);
