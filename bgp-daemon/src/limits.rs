//! Every limit of what BGP daemons share, in one place.

use std::time::Duration;

/// How far apart changes of the neighbors are noted for the next start: the first one at once, and a
/// thousand that come up with it are not written down a thousand times.
pub const RESTART_FILE_PACE: Duration = Duration::from_millis(100);

/// How long the drivers may take to leave the other side in good order, after all sessions are closed.
pub const STOP_MAX: Duration = Duration::from_secs(10);

/// How often the addresses of the machine's interfaces are read, at least.
pub const ADDRESSES_INTERVAL: Duration = Duration::from_secs(10);

/// How long after a session has come up they are read again.
pub const ADDRESSES_DELAY: Duration = Duration::from_millis(100);

/// How often a daemon looks whether the host guard is still in force.
pub const GUARD_CHECK: Duration = Duration::from_secs(30);

/// Minimum interval between writes of a registration in which only the load has changed.
pub const LOAD_TOLD_EVERY: Duration = Duration::from_secs(10);

/// Interval at which a reflector writes an unchanged registration again: it may have been deleted.
pub const REREGISTER_EVERY: Duration = Duration::from_secs(60);

/// How long a reflector waits after a question to the store that was in vain: at first, and at most.
pub const REGISTRY_RETRY_MIN: Duration = Duration::from_millis(250);

/// See [`REGISTRY_RETRY_MIN`]. Reflectors are few, and all are to be registered again soon after the
/// first one is.
pub const REGISTRY_RETRY_MAX: Duration = Duration::from_secs(2);

/// How long a reflector waits for the store to answer.
pub const REGISTRY_ANSWER_MAX: Duration = Duration::from_secs(5);

/// How many cluster ids a reflector asks for before it says that it finds none.
pub const CLUSTER_ID_TRIES_MAX: usize = 64;

/// How long a session that the fabric no longer asks for must not have been needed before it ends:
/// by then the other side is as far.
pub const MAKE_BEFORE_BREAK_SETTLE: Duration = Duration::from_secs(3);

/// How long such a session is kept for others that do not come or do not carry its routes.
pub const MAKE_BEFORE_BREAK_MAX: Duration = Duration::from_secs(120);

/// How often it is looked whether such a session is still needed.
pub const MAKE_BEFORE_BREAK_LOOK_EVERY: Duration = Duration::from_millis(250);

/// Prefixes that are looked at at once for whether they depend on some peers.
pub const NEEDED_PEERS_BITE: u32 = 8192;

/// Maximum time that a drained reflector waits for clients without another reflector, as far as that
/// can be known; longer than a client waits for other reflectors.
pub const DRAIN_MAX: Duration = Duration::from_secs(180);

/// Time for which statically configured clients must not have needed the reflector before it closes
/// their sessions: their best paths are chosen by then.
pub const DRAIN_SETTLE: Duration = Duration::from_secs(10);

/// The same time where no other reflector shows that the clients have moved, and for clients that may
/// still close their sessions themselves.
pub const DRAIN_SETTLE_UNSEEN: Duration = Duration::from_secs(30);

/// How often it is looked whether what clients announce comes by way of other reflectors.
pub const DRAIN_NEEDED_PEERS_EVERY: Duration = Duration::from_secs(1);

/// How often it looks whether they have gone.
pub const DRAIN_LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often it is looked whether such a session is still up.
pub const ABSENCE_LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often passwords are read again although the store has no news.
pub const SECRETS_READ_EVERY: Duration = Duration::from_secs(1);

/// How long the directory of passwords is waited for before something is done without those that
/// were never read.
pub const SECRETS_ANSWER_MAX: Duration = Duration::from_secs(5);

/// Octets read of a file with a password; more is no password.
pub const SECRET_OCTETS_MAX: u64 = 4096;

/// How often a reflector looks whether it has something else to say in the store.
pub const REGISTRATION_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Prefixes for which it is waited whether they come by another way, too, before the peers that they
/// come by are taken as needed.
pub const NEEDED_PEERS_DOUBTS_MAX: usize = 256;

/// Number of events of configured neighbors whose repetitions are counted separately in the log:
/// several kinds for each neighbor, so that no event shares its count with another.
pub const LOG_NEIGHBOR_KEYS_MAX: usize = 131_072;

/// The same of neighbors out of ranges.
pub const LOG_DYNAMIC_KEYS_MAX: usize = 8192;

/// The same of addresses that belong to no neighbor: there may be any number of them.
pub const LOG_STRANGER_KEYS_MAX: usize = 16;

/// Reasons for which a neighbor cannot be connected to that are reported each, until its connection
/// opens.
pub const CONNECT_REASONS_MAX: usize = 4;

/// Prefixes of a family that are read in one turn for the readers of events of routes: not fewer than
/// a driver reads that installs them.
pub const ROUTE_EVENTS_TURN_MAX: u32 = 2048;

/// How long questions wait after the start for the first read of the datastore, before they are answered
/// with what the daemon waits for.
pub const ANSWERS_AFTER: Duration = Duration::from_secs(1);

/// Messages of debugged neighbors that are logged within [`MESSAGES_WINDOW`]; further ones are counted.
pub const MESSAGES_LOGGED_MAX: u64 = 100;

/// After this time further messages of debugged neighbors are logged.
pub const MESSAGES_WINDOW: Duration = Duration::from_secs(1);
