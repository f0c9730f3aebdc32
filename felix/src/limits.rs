//! Every limit of this crate (invariant I7 of ARCHITECTURE.md).

use std::time::Duration;

/// Octets of an interface name (`IFNAMSIZ` without its NUL).
pub const INTERFACE_NAME_OCTETS_MAX: usize = 15;

/// Interface prefixes that one host may have.
pub const INTERFACE_PREFIXES_MAX: usize = 16;

/// How often a transaction is begun anew when others write to nftables at the same time.
pub const TRANSACTION_ATTEMPTS: u32 = 8;

/// Sets, chains and rules that one transaction prepares at most, before those to which packets come are
/// written: the kernel takes some ten milliseconds for them, and longer beside thousands of others.
pub const PREPARED_AT_ONCE: usize = 1000;

/// How often that is done at most before the packet filter is written whatever is left: enough for the
/// rules of some ten thousand policies, and some seconds at most that a store which never rests puts
/// off a rule.
pub const PREPARATIONS_PER_WRITE_MAX: u32 = 200;

/// How long after a transaction the packet filter is listed, by which it is known again. Each further
/// transaction puts that off: a listing takes the longer the more endpoints there are.
pub const LISTING_GAP: Duration = Duration::from_millis(200);

/// How many times as long as a listing of the packet filter took it is not listed only because
/// somebody is told of an endpoint.
pub const LISTING_SHARE: u32 = 20;

/// How long at least between two rounds of forgetting connections: each walks over the table of
/// connections of the whole machine, however few addresses left.
pub const FORGET_GAP: Duration = Duration::from_millis(200);

/// Commands for the host that are unanswered at most before further interfaces have to wait; those of
/// one interface may exceed it.
pub const HOST_COMMANDS_MAX: usize = 4096;

/// Elements in one nftables message; its attribute holds less than 64 KiB.
pub const ELEMENTS_PER_MESSAGE: usize = 500;

/// First delay before an interface, a neighbor entry or the rules are tried again.
pub const RETRY_MIN: Duration = Duration::from_millis(250);

/// Longest such delay.
pub const RETRY_MAX: Duration = Duration::from_secs(30);

/// Refusals in a row after which an endpoint is an error: what is refused once or twice may be in
/// the course of coming up.
pub const REFUSAL_ATTEMPTS: u32 = 3;

/// How long an endpoint's interface may take to come before the endpoint is an error, unless the
/// configuration says otherwise.
pub const INTERFACE_PATIENCE: Duration = Duration::from_secs(30);

/// After what time an interface of ours that no endpoint claims is worth a line in the log: plugins
/// make the interface first, and the endpoint a moment later.
pub const UNCLAIMED_NOTICE: Duration = Duration::from_secs(10);

/// Conntrack entries removed for one address at most; the rest times out by itself.
pub const CONNTRACK_ENTRIES_MAX: usize = 100_000;

/// Time given to a write of a status key (as in Calico).
pub const STATUS_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// First report of the process's own status after start (as in Calico).
pub const FIRST_REPORT: Duration = Duration::from_secs(10);

/// Ticks of the endpoint status reporter between two comparisons with the store (as in Calico).
pub const STATUS_RESYNC_TICKS: u32 = 180;

/// Problems kept for display; more are counted only.
pub const PROBLEMS_SHOWN_MAX: usize = 100;

/// How often the packet filter is compared with what was left there.
pub const RULES_CHECK: Duration = Duration::from_secs(10);

/// How often the settings of interfaces are looked at again (Calico's `InterfaceRefreshInterval`).
pub const INTERFACE_REFRESH: Duration = Duration::from_secs(90);

/// How long after the first full look at the store own routes that nobody wants are kept.
pub const ROUTE_GRACE: Duration = Duration::from_secs(10);

/// How often names of the datastore's members are looked up.
pub const DATASTORE_LOOKUP: Duration = Duration::from_secs(60);

/// Addresses kept of one name of the datastore.
pub const DATASTORE_ADDRESSES_MAX: usize = 256;

/// Sources that may be exceptions from the guard of control ports.
pub const CONTROL_PORT_EXCEPTIONS_MAX: usize = 1024;

/// Octets of a host's name.
pub const HOST_NAME_OCTETS_MAX: usize = 253;

/// Kernel events handled between two turns of the agent.
pub const EVENTS_PER_TURN: usize = 4096;

/// How long at least between two times that the store's changes are taken: the first is taken at once,
/// and those that come right after it together.
pub const UPDATES_GAP: Duration = Duration::from_millis(5);

/// Octets of the store's changes that are read before signals, requests and the kernel's events are
/// looked at again: a few hundred policies or endpoints, some ten milliseconds.
pub const UPDATE_OCTETS_PER_BITE: usize = 256 * 1024;

/// Octets of the name of a set of endpoints' addresses (as in Calico).
pub const SET_NAME_OCTETS_MAX: usize = 31;

/// Octets of a chain's name (`NFT_CHAIN_MAXNAMELEN` without its NUL).
pub const CHAIN_NAME_OCTETS_MAX: usize = 127;

/// What the kernel's log has before packets that a rule logs.
pub const LOG_PREFIX: &str = "cambric-felix: ";

/// Metrics of endpoint routes that a former agent of this host may have written: the built-in one,
/// and those of Calico's Felix (none, and its elevated and normal route priority).
pub const FORMER_METRICS: [u32; 4] = [0, 256, 512, 1024];

/// Events whose repetitions are told apart in the log, mostly those of single endpoints.
pub const EVENT_KEYS_MAX: usize = 4096;
