//! Every limit of the common part of the BGP daemons, in one place.

use std::time::Duration;

/// Minimum interval between writes of the restart file: the first change of the neighbors is
/// written at once, and a thousand sessions that come up together do not cause a thousand writes.
pub const RESTART_FILE_PACE: Duration = Duration::from_millis(100);

/// Maximum time for the drivers to leave the other side in a clean state, after all sessions are
/// closed.
pub const STOP_MAX: Duration = Duration::from_secs(10);

/// Maximum interval between readings of the machine's interface addresses.
pub const ADDRESSES_INTERVAL: Duration = Duration::from_secs(10);

/// Delay of a reading after a session has come up.
pub const ADDRESSES_DELAY: Duration = Duration::from_millis(100);

/// Interval between checks of the host guard.
pub const GUARD_CHECK: Duration = Duration::from_secs(30);

/// Minimum interval between writes of a registration in which only the load has changed.
pub const LOAD_WRITE_MIN: Duration = Duration::from_secs(10);

/// Interval at which a reflector writes an unchanged registration again: it may have been deleted.
pub const REREGISTER_EVERY: Duration = Duration::from_secs(60);

/// Minimum delay after a failed request to the datastore.
pub const REGISTRY_RETRY_MIN: Duration = Duration::from_millis(250);

/// Maximum of the delay that begins at [`REGISTRY_RETRY_MIN`]. Reflectors are few, and all are to
/// be registered again soon after the first one is.
pub const REGISTRY_RETRY_MAX: Duration = Duration::from_secs(2);

/// Maximum time to wait for a reply of the datastore.
pub const REGISTRY_ANSWER_MAX: Duration = Duration::from_secs(5);

/// Number of cluster IDs that a reflector tries to claim before it reports that none is free.
pub const CLUSTER_ID_TRIES_MAX: usize = 64;

/// Time for which an unwanted session must not have been needed before it closes: by then the other
/// side is ready too.
pub const MAKE_BEFORE_BREAK_SETTLE: Duration = Duration::from_secs(3);

/// Maximum time that such a session is kept for wanted sessions that do not come up or do not bring
/// its routes.
pub const MAKE_BEFORE_BREAK_MAX: Duration = Duration::from_secs(120);

/// Interval between checks whether such a session is still needed.
pub const MAKE_BEFORE_BREAK_LOOK_EVERY: Duration = Duration::from_millis(250);

/// Prefixes per step of the search for needed peers.
pub const NEEDED_PEERS_STEP: u32 = 8192;

/// Maximum time that a drained reflector waits for clients without another reflector, as far as that
/// can be known; longer than a client waits for other reflectors.
pub const DRAIN_MAX: Duration = Duration::from_secs(180);

/// Time for which statically configured clients must not have needed the reflector before it closes
/// their sessions: their best paths are chosen by then.
pub const DRAIN_SETTLE: Duration = Duration::from_secs(10);

/// The same time where no other reflector shows that the clients have moved, and for clients that may
/// still close their sessions themselves.
pub const DRAIN_SETTLE_UNSEEN: Duration = Duration::from_secs(30);

/// Interval between checks whether the routes of clients also arrive through other reflectors.
pub const DRAIN_NEEDED_PEERS_EVERY: Duration = Duration::from_secs(1);

/// Interval between checks whether the clients have moved.
pub const DRAIN_LOOK_EVERY: Duration = Duration::from_millis(250);

/// Time for which neighbors have decided about the routes of a stage of a drained node, after all
/// have been sent to them.
pub const NODE_DRAIN_SETTLE: Duration = Duration::from_secs(2);

/// Maximum time of a stage of a drained node: it does not wait longer for a neighbor that does not
/// read.
pub const NODE_DRAIN_STAGE_MAX: Duration = Duration::from_secs(10);

/// Interval between checks whether all has been sent in a stage.
pub const NODE_DRAIN_LOOK_EVERY: Duration = Duration::from_millis(100);

/// Interval between counts of the neighbors of a node that is drained.
pub const NODE_DRAINED_LOOK_EVERY: Duration = Duration::from_secs(5);

/// Interval between checks whether the session with an unregistered reflector is still up.
pub const ABSENCE_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Interval between readings of the passwords without a change in the datastore.
pub const SECRETS_READ_EVERY: Duration = Duration::from_secs(1);

/// Maximum time to wait for the directory of passwords before the daemon continues without
/// passwords that were never read.
pub const SECRETS_ANSWER_MAX: Duration = Duration::from_secs(5);

/// Octets of a password file; a longer file is rejected.
pub const SECRET_OCTETS_MAX: u64 = 4096;

/// Interval between checks whether a reflector's registration has changed.
pub const REGISTRATION_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Prefixes that may arrive by another way later. With more of them the peers through which they
/// arrive are needed.
pub const NEEDED_PEERS_DOUBTS_MAX: usize = 256;

/// Number of events of configured neighbors whose repetitions are counted separately in the log:
/// several kinds for each neighbor, so that no event shares its count with another.
pub const LOG_NEIGHBOR_KEYS_MAX: usize = 131_072;

/// The same for neighbors in ranges.
pub const LOG_DYNAMIC_KEYS_MAX: usize = 8192;

/// The same for addresses of no neighbor: there may be any number of them.
pub const LOG_STRANGER_KEYS_MAX: usize = 16;

/// Reasons for failed connections that are reported for each neighbor until a connection opens.
pub const CONNECT_REASONS_MAX: usize = 4;

/// Prefixes of a family that are read in one turn for the readers of route events: not fewer than a
/// driver that installs them reads.
pub const ROUTE_EVENTS_TURN_MAX: u32 = 2048;

/// Time after which a route without a confirming record is reported: its record and the route arrive
/// by different ways.
pub const ORIGIN_WAIT: Duration = Duration::from_secs(5);

/// Delay of another reading of the whole table after a change of records that concerns many routes.
/// Changes in quick succession cause one.
pub const ORIGIN_RESCAN_AFTER: Duration = Duration::from_secs(1);

/// Prefixes of a family of which origin validation reads the changes in one turn.
pub const ORIGIN_TURN_MAX: u32 = 2048;

/// Updates of records that origin validation takes in one turn. A page of a list has more of them, and
/// one takes up to 20 µs.
pub const ORIGIN_UPDATES_MAX: usize = 200;

/// Prefixes that origin validation looks up in one turn, and those that it reads of the table.
pub const ORIGIN_SCAN_STEP: usize = 512;

/// Prefixes to look up again after changes of records; with more of them the whole table is read.
pub const ORIGIN_LOOKUPS_MAX: usize = 4096;

/// Paths without a confirming record that are held; further ones are counted.
pub const ORIGIN_SUSPECTS_MAX: usize = 16_384;

/// The whole table is read again for paths that were not held when there are fewer than this.
pub const ORIGIN_SUSPECTS_RESCAN: usize = ORIGIN_SUSPECTS_MAX / 4 * 3;

/// Invalid values of records that are held for the status.
pub const ORIGIN_FAULTS_MAX: usize = 64;

/// Time that requests wait after the start for the first read of the datastore. After it they are
/// answered with what the daemon waits for.
pub const ANSWERS_AFTER: Duration = Duration::from_secs(1);

/// Messages of debugged neighbors that are logged within [`MESSAGES_WINDOW`]; further ones are counted.
pub const MESSAGES_LOGGED_MAX: u64 = 100;

/// After this time further messages of debugged neighbors are logged.
pub const MESSAGES_WINDOW: Duration = Duration::from_secs(1);

/// Octets of one message between a parser and its parent.
pub const PARENT_MESSAGE_OCTETS_MAX: usize = 208 * 1024;

/// Delay of the second start of a parser that crashes again and again; it doubles with each crash.
pub const PARSER_DELAY_MIN: Duration = Duration::from_millis(100);

/// Longest delay of such a start.
pub const PARSER_DELAY_MAX: Duration = Duration::from_secs(10);

/// A parser that has run for so long starts again without delay.
pub const PARSER_STABLE: Duration = Duration::from_secs(60);

/// Crashes in a row after which the parent ends, too.
pub const PARSER_CRASHES_MAX: u32 = 10;

/// How long a start waits for the end of a parser that was left by its parent.
pub const FORMER_PARSER_WAIT: Duration = Duration::from_secs(10);

/// Time for which the states of paths stay without cambric-bfd: it may restart, and then continues its sessions.
pub const BFD_ABSENCE: Duration = Duration::from_secs(3);

/// Delay of a comparison of the neighbors with the requested sessions of BFD.
pub const BFD_SESSIONS_DELAY: Duration = Duration::from_millis(100);

/// Maximum interval between such comparisons: neighbors of ranges are removed without an event.
pub const BFD_SESSIONS_INTERVAL: Duration = Duration::from_secs(10);

/// Time after a start for which readiness requires that all configured neighbors have sent their
/// routes, or that a route reflector without such neighbors has a session; longer than the restart of
/// a neighbor.
pub const READY_WAIT: Duration = Duration::from_secs(120);

/// Age of a session after which readiness no longer requires End-of-RIB markers, if graceful restart is
/// not negotiated: the neighbor may send none (RFC 4724 §2).
pub const READY_WITHOUT_END_OF_RIB: Duration = Duration::from_secs(30);

/// Neighbors without all routes that readiness names; further ones are counted.
pub const READY_NAMES_MAX: usize = 8;

/// Time without a turn of the main loop after which the daemon is not alive, for probes.
pub const LIVENESS: Duration = Duration::from_secs(90);

/// Maximum interval between turns of an idle loop that probes ask.
pub const LIVENESS_TURN: Duration = Duration::from_secs(15);
