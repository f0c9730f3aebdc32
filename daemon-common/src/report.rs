//! Reports of the daemons, as plain data: the replies of the control socket and the JSON of
//! `cambric show --json`.
//!
//! Fields are only ever added, so that scripts keep working.

mod bfd;
mod drain;
mod events;
mod explain;
mod felix;
mod figures;
mod flows;
mod limits;
mod log_state;
mod preview;
mod privileges;
mod process;
mod readiness;
mod settings;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use bfd::{BfdFigures, BfdSession, BfdSessions};
pub use drain::{Drain, DrainFigures};
pub use events::{EventPage, EventRecord};
pub use explain::{AppliedRules, EndpointRules, PacketStep, PacketVerdict, RuleOwner};
pub use felix::FelixFigures;
pub use figures::{
    EndpointFigures, KernelFigures, LogFigures, OriginFigures, StoreFigures, TableFigures,
};
pub use flows::{FlowEnd, FlowFigures, FlowRow, Flows};
pub use limits::{Cleared, Limit, Limits, Malformed, MalformedMessage, Refreshed, Reloaded};
pub use log_state::LogState;
pub use preview::{Preview, PreviewRow};
pub use privileges::{ParentFigures, PrivilegeFigures};
pub use process::ProcessFigures;
pub use readiness::Readiness;
pub use settings::{NeighborSettings, Settings};

/// Identity and state of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The program: `cambric-bgp-client`, `cambric-route-reflector`, `cambric-felix`,
    /// `cambric-bfd` or `cambric-kube`.
    pub daemon: String,
    /// Its version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Seconds since the applied configuration was read, if the daemon reports it.
    pub configured_s: Option<u64>,
    /// Whether it has restarted, and waits for routes before it advertises any (RFC 4724).
    pub restarting: bool,
    /// Resident memory in KiB.
    pub resident_kib: Option<u64>,
    /// Turns of the main loop since the start, in a BGP daemon.
    pub turns: Option<u64>,
    /// All it should do is done: sessions up, kernel in step, store in step.
    pub ready: bool,
    /// The events that it waits for, if not `ready`.
    pub waiting_for: Vec<String>,
    /// Notes for the operator: neighbors denied because they lack a policy, limits reached, a
    /// configuration that was rejected.
    pub notes: Vec<String>,
    /// The configuration file.
    pub config: String,
    /// The error of the last reload, if an older configuration is applied.
    pub config_error: Option<String>,
    /// Further facts, name and value, in the order to print them.
    pub facts: Vec<Fact>,
    /// The counts of log lines.
    pub log: Option<Box<LogFigures>>,
    /// The privileges that the daemon still has, if it can confine itself.
    pub privileges: Option<Box<PrivilegeFigures>>,
    /// The criteria of readiness, in a BGP daemon.
    pub readiness: Option<Box<Readiness>>,
    /// The drain of this node, while one is requested.
    pub drain: Option<Box<DrainFigures>>,
    /// The store, where one is mirrored.
    pub store: Option<Box<StoreFigures>>,
    /// The tables of BGP, in a BGP daemon.
    pub tables: Option<Box<TableFigures>>,
    /// Origin validation, if it is enabled.
    pub origins: Option<Box<OriginFigures>>,
    /// Kernel routes, in a daemon that keeps some.
    pub kernel: Option<Box<KernelFigures>>,
    /// The numbers of BFD, in cambric-bfd.
    pub bfd: Option<Box<BfdFigures>>,
    /// The flow log, in felix while it is on.
    pub flows: Option<Box<FlowFigures>>,
    /// Endpoints and their packet filter, in felix.
    pub endpoints: Option<Box<EndpointFigures>>,
    /// The values of Calico's metrics, in felix.
    pub felix: Option<Box<FelixFigures>>,
    /// The values of Prometheus' metrics of a process, in felix.
    pub process: Option<Box<ProcessFigures>>,
}

/// A named fact of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fact {
    /// The name: `router-id`, `prefixes ipv4-unicast`, …
    pub name: String,
    /// Its value, for reading.
    pub value: String,
}

/// BGP neighbors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Neighbors {
    /// This speaker's AS number.
    pub local_asn: u32,
    /// This speaker's BGP identifier.
    pub router_id: Option<Ipv4Addr>,
    /// Configured and dynamic neighbors.
    pub neighbors: Vec<Neighbor>,
    /// Ranges from which neighbors may come.
    pub ranges: Vec<NeighborRange>,
}

/// One BGP neighbor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Neighbor {
    /// The configured name; the address for a dynamic neighbor.
    pub name: String,
    /// Its address.
    pub address: Option<IpAddr>,
    /// Its AS number: the configured one, or that of its OPEN.
    pub asn: u32,
    /// `external`, `internal` or `client` (RFC 4456).
    pub role: String,
    /// It came out of a range.
    pub dynamic: bool,
    /// The FSM's state, RFC 4271 §8.2.2: `Idle`, `Connect`, `Active`, `OpenSent`, `OpenConfirm`,
    /// `Established`.
    pub state: String,
    /// Seconds since the session came up, while it is up.
    pub since_s: Option<u64>,
    /// Seconds since the last session ended or could not be had, while it is not up.
    pub down_for_s: Option<u64>,
    /// Its BGP identifier.
    pub router_id: Option<Ipv4Addr>,
    /// Its host name, if its OPEN has one.
    pub hostname: Option<String>,
    /// The local end of the connection.
    pub local: Option<SocketAddr>,
    /// Its end of the connection.
    pub remote: Option<SocketAddr>,
    /// The negotiated hold time, in seconds.
    pub hold_time_s: Option<u16>,
    /// The capabilities of its OPEN, printed.
    pub capabilities: Vec<String>,
    /// Negotiated families with their counters.
    pub families: Vec<NeighborFamily>,
    /// BGP messages received.
    pub messages_in: u64,
    /// BGP messages sent.
    pub messages_out: u64,
    /// UPDATE messages received.
    pub updates_in: u64,
    /// UPDATE messages sent.
    pub updates_out: u64,
    /// Octets of its received routes in the tables. Attributes that several neighbors have sent
    /// count for the first one.
    pub octets_received: u64,
    /// Octets that wait until it reads.
    pub octets_queued: u64,
    /// Its new paths are rejected because of `memory_max`.
    pub rejected_for_memory: bool,
    /// Its paths are kept although its session is down, for so many seconds more (RFC 4724).
    pub stale_for_s: Option<u64>,
    /// Remaining seconds of its idle hold, after it passed a limit.
    pub barred_for_s: Option<u64>,
    /// How often the session went down.
    pub flaps: u64,
    /// Connections that it opened while another one was in use.
    pub held: u64,
    /// Why it last went down, or the local reason that keeps it down.
    pub last_down: Option<String>,
    /// The last error of its session, or of an attempt at one: also why it cannot be connected to.
    pub last_error: Option<String>,
    /// Seconds since that error first happened, as far as it is the same since.
    pub last_error_for_s: Option<u64>,
    /// The state of its BFD session, if it has BFD.
    pub bfd: Option<String>,
    /// Keys of its configuration that describe it, by the names that the file has for them.
    pub keys: Vec<Fact>,
    /// Import policy: `accept`, `deny`, or `deny (no policy, RFC 8212)`.
    pub import: String,
    /// Export policy, in the same words.
    pub export: String,
    /// Malformed messages from it among the kept ones (RFC 7606).
    pub faults: u64,
}

/// Counters of one family with one neighbor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NeighborFamily {
    /// `ipv4-unicast`, …
    pub family: String,
    /// Paths held from it.
    pub received: u64,
    /// Of these, accepted by the import policy.
    pub accepted: u64,
    /// Of the accepted, paths that cannot be used: loops, next hops that are local addresses.
    pub ineligible: u64,
    /// How many paths it may announce.
    pub limit: Option<u32>,
    /// Announcements rejected by the limit since the neighbor was first seen.
    pub limited: u64,
    /// How many paths it may be sent.
    pub sent_limit: Option<u32>,
    /// The paths that it was sent, where there is such a limit.
    pub sent: Option<u32>,
    /// Paths that were not advertised because of this limit, in this session.
    pub suppressed: u64,
    /// Whether paths are suppressed now.
    pub is_suppressing: bool,
    /// ADD-PATH in this family (RFC 7911): `receive`, `send`, `both`.
    pub add_path: Option<String>,
    /// Which paths it is sent, where it is sent several: `all`, `equal-cost`, `best 4`.
    pub add_path_send: Option<String>,
}

/// A range from which neighbors may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NeighborRange {
    /// The range.
    pub prefix: Option<IpNet>,
    /// Neighbors that came out of it.
    pub used: u32,
    /// How many may.
    pub limit: u32,
    /// Connections refused for the limit.
    pub refused: u64,
    /// Connections that never became a session, by reason, including rejected ones.
    pub failed: BTreeMap<String, u64>,
}

/// A page of BGP routes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Routes {
    /// The routes, family by family, in no particular order.
    pub routes: Vec<Route>,
    /// The value of `after` in the request for the next page; absent on the last one.
    pub next: Option<String>,
}

/// A prefix with its paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// `ipv4-unicast`, …
    pub family: String,
    /// The prefix; hex octets in families that are passed on opaque.
    pub prefix: String,
    /// The paths, best first.
    pub paths: Vec<Path>,
}

/// One path to a prefix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Path {
    /// The chosen one.
    pub best: bool,
    /// Used beside the best one (ECMP).
    pub multipath: bool,
    /// Kept although its neighbor is down (RFC 4724).
    pub stale: bool,
    /// The source: a neighbor's name, or `local`.
    pub neighbor: String,
    /// That neighbor's address.
    pub neighbor_address: Option<IpAddr>,
    /// It came out of a range.
    pub neighbor_dynamic: bool,
    /// ADD-PATH identifier received with it (RFC 7911).
    pub path_id: Option<u32>,
    /// NEXT_HOP.
    pub next_hop: Option<String>,
    /// The interface that leads to the next hop, or to the workload; absent where the daemon has no
    /// kernel, or there are several.
    pub interface: Option<String>,
    /// State of the next hop: `cost 0`, `unreachable`, `assumed reachable at cost 0`.
    pub next_hop_state: Option<String>,
    /// ORIGIN: `igp`, `egp` or `incomplete`.
    pub origin: String,
    /// AS_PATH.
    pub as_path: String,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// COMMUNITIES (RFC 1997).
    pub communities: Vec<String>,
    /// LARGE_COMMUNITIES (RFC 8092).
    pub large_communities: Vec<String>,
    /// EXTENDED_COMMUNITIES (RFC 4360).
    pub extended_communities: Vec<String>,
    /// ORIGINATOR_ID (RFC 4456).
    pub originator_id: Option<String>,
    /// CLUSTER_LIST (RFC 4456).
    pub cluster_list: Vec<String>,
    /// Other attributes that this speaker reads, by the names of their RFCs; absent without any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub other_attributes: BTreeMap<String, String>,
    /// Attributes that this speaker does not support, as `code:flags:hex`.
    pub unknown: Vec<String>,
    /// The step of the decision process where it lost; absent for the best.
    pub lost: Option<String>,
    /// Why no record of the datastore confirms it; absent without origin validation, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<String>,
    /// The neighbors to which it is sent; only for a request of one prefix with `why`.
    pub sent_to: Vec<SentTo>,
}

/// A neighbor that is sent a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentTo {
    /// Its name.
    pub neighbor: String,
    /// ADD-PATH identifier it is sent with (RFC 7911); absent where one path a prefix is sent.
    pub path_id: Option<u32>,
}

/// Kernel routes as the daemon sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fib {
    /// Whether the kernel's routes are the wanted ones, as far as the daemon can detect.
    pub in_sync: bool,
    /// False on a shadow run: computed and compared, never written.
    pub install: bool,
    /// The routes.
    pub routes: Vec<FibRoute>,
}

/// One kernel route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FibRoute {
    /// The destination.
    pub prefix: Option<IpNet>,
    /// Routing table.
    pub table: u32,
    /// Metric (priority).
    pub metric: u32,
    /// `rtm_protocol` of its owner.
    pub protocol: u8,
    /// Where from: `bgp`, `endpoint`, `imported`.
    pub source: String,
    /// `installed`, `pending`, `refused`, `imported`, or in a shadow run `missing`, `differs`.
    pub state: String,
    /// The kernel's error, if it rejected the route.
    pub error: Option<String>,
    /// The kernel's action on packets: `unicast` (it forwards them), `blackhole`, `unreachable`;
    /// empty in reports of older daemons.
    pub kind: String,
    /// Next hops; several for ECMP.
    pub next_hops: Vec<FibHop>,
}

/// One next hop of a kernel route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FibHop {
    /// Gateway; absent for a directly connected destination.
    pub gateway: Option<IpAddr>,
    /// Interface name.
    pub interface: Option<String>,
    /// Weight among several, 1 being the least.
    pub weight: u16,
}

/// Workload endpoints of this host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    /// This host's name in the store.
    pub hostname: String,
    /// The store's list has been read in full.
    pub in_sync: bool,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Names of workload interfaces without an endpoint; all their traffic is dropped.
    pub unclaimed: Vec<UnclaimedInterface>,
}

/// An interface that is no endpoint's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnclaimedInterface {
    /// Its name.
    pub interface: String,
    /// For how many seconds it has been so.
    pub for_s: u64,
}

/// One workload endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// `namespace/name` of its resource.
    pub name: String,
    /// Host side interface.
    pub interface: String,
    /// MAC address of the workload.
    pub mac: Option<String>,
    /// Its addresses.
    pub networks: Vec<IpNet>,
    /// Its profiles.
    pub profiles: Vec<String>,
    /// `up`, `down` (interface absent or down) or `error` (refused).
    pub state: String,
    /// The problem, if not `up`.
    pub problem: Option<String>,
}

/// The packet filter as the daemon keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The nftables table, `inet cambric`.
    pub table: String,
    /// Whether the kernel's rules are the wanted ones.
    pub in_sync: bool,
    /// The problem, if they are not.
    pub problem: Option<String>,
    /// The rules, chain by chain.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    /// Its chain.
    pub chain: String,
    /// Its text, in the syntax of `nft`.
    pub text: String,
    /// Packets that it has matched, if it counts them.
    pub packets: Option<u64>,
}
