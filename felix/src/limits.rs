//! Every limit of this crate.

use std::time::Duration;

/// Octets of an interface name (`IFNAMSIZ` without its NUL).
pub const INTERFACE_NAME_OCTETS_MAX: usize = 15;

/// Interface prefixes that one host may have.
pub const INTERFACE_PREFIXES_MAX: usize = 16;

/// Attempts of a transaction while other programs write to nftables at the same time.
pub const TRANSACTION_ATTEMPTS: u32 = 8;

/// Maximum number of sets, chains and rules that one transaction prepares before the parts that
/// packets reach are written: the kernel takes some ten milliseconds for them, and longer with
/// thousands of others.
pub const PREPARED_AT_ONCE: usize = 1000;

/// Maximum number of preparing transactions before the packet filter is written in any case. It is
/// enough for the rules of some ten thousand policies, and a continuously changing datastore delays
/// a rule by some seconds at most.
pub const PREPARATIONS_PER_WRITE_MAX: u32 = 200;

/// Maximum number of preparing transactions for new sets of ranges alone, after the former maximum: each
/// of them waits for one change of the datastore.
pub const PREPARATIONS_OF_RANGES_MAX: u32 = 8;

/// Delay after a transaction until the packet filter is listed for its record. Each further transaction
/// restarts the delay.
pub const LISTING_GAP: Duration = Duration::from_millis(200);

/// The delay is at least this multiple of the duration of the last complete listing: on a host that changes
/// more often than that, a listing would be ended by the next transaction.
pub const LISTING_QUIET: u32 = 2;

/// Minimum time between two listings of the packet filter, as a multiple of the last one's duration: a
/// record costs at most one hundredth of a core, whatever the size of the table is.
pub const LISTING_SHARE: u32 = 100;

/// Time of one step of a listing: between two steps, all other work is done.
pub const LISTING_STEP: Duration = Duration::from_millis(3);

/// Attempts of a listing that other programs' transactions interrupt.
pub const LISTING_ATTEMPTS: u32 = 5;

/// Receive buffer of the notifications of nftables. The transactions of other programs that do not fit
/// are a gap.
pub const NOTIFICATION_BUFFER_OCTETS: usize = 2 * 1024 * 1024;

/// Parts of notifications that are read at once; more are a gap.
pub const FOLLOWED_PARTS_MAX: usize = 4096;

/// Minimum time between two comparisons of the packet filter that other programs' changes cause: a
/// program that changes it all the time does not keep Felix busy.
pub const FOREIGN_CHECK_GAP: Duration = Duration::from_secs(1);

/// Minimum time between two listings of the connections that are evaluated by changed policies.
pub const CUT_GAP: Duration = Duration::from_millis(50);

/// The same as a multiple of the last listing's duration: listings take at most a tenth of a core.
pub const CUT_SHARE: u32 = 10;

/// Connections that are evaluated by policies before other work is done; each takes up to a millisecond
/// where thousands of rules apply.
pub const CUT_EVALUATIONS_PER_TURN: usize = 16;

/// Connections with a known or a new verdict that are handled before other work is done.
pub const CUT_CONNECTIONS_PER_TURN: usize = 4096;

/// Tracked connections of the workloads of one host that are evaluated; with more, none is cut, which is
/// reported.
pub const CUT_CONNECTIONS_MAX: usize = 1 << 20;

/// Limits of bandwidth that are written in one turn of the main loop; further ones follow in later turns.
pub const BANDWIDTH_COMMANDS_PER_TURN: usize = 64;

/// Stored values of other hosts and policies with which a staged policy is previewed: the preview copies
/// them in the main loop.
pub const PREVIEW_VALUES_MAX: usize = 100_000;

/// Interfaces between which connections are offloaded: the kernel supports no more in a flowtable
/// (`NFT_NETDEVICE_MAX`).
pub const OFFLOAD_INTERFACES_MAX: usize = 256;

/// Minimum time between two transactions of the table of offloaded connections.
pub const OFFLOAD_GAP: Duration = Duration::from_millis(50);

/// Time after which an interface that was removed, and has returned, is added to the table of offloaded
/// connections again; and minimum time between two such writes. Each ends all offloaded connections.
pub const OFFLOAD_RETURN: Duration = Duration::from_secs(10);

/// Default bit of the connection mark of cut connections.
pub const CUT_MARK: u32 = 1 << 30;

/// Minimum time between two rounds of deleting connections: each reads the connection table of the
/// whole machine, however few addresses were released.
pub const FORGET_GAP: Duration = Duration::from_millis(200);

/// Minimum time between two rounds of comparing limits of bandwidth with those of the kernel: each round
/// lists the queueing disciplines of all devices.
pub const BANDWIDTH_CHECK_GAP: Duration = Duration::from_secs(1);

/// Maximum number of unanswered commands for the host before further interfaces have to wait; the
/// commands of one interface may exceed it.
pub const HOST_COMMANDS_MAX: usize = 4096;

/// Maximum number of elements in an own transaction whose notifications the kernel builds. Larger ones
/// are sent while the process does not listen.
pub const FOLLOWED_ELEMENTS_MAX: usize = 256;

/// Maximum number of steps and elements of a transaction that the main loop carries out itself: it takes
/// some milliseconds. A larger one is written by a thread, which costs a tenth of a millisecond.
pub const WRITTEN_BY_LOOP_MAX: usize = 512;

/// Time after a foreign transaction directly beside a large own one in which transactions of any size are
/// followed.
pub const FOLLOW_ALL_FOR: Duration = Duration::from_secs(60);

/// Elements in one nftables message; its attribute holds less than 64 KiB.
pub const ELEMENTS_PER_MESSAGE: usize = 500;

/// First delay before an interface, a neighbor entry or the rules are retried.
pub const RETRY_MIN: Duration = Duration::from_millis(250);

/// Longest such delay.
pub const RETRY_MAX: Duration = Duration::from_secs(30);

/// Rejections in a row after which an endpoint is an error: one or two may be temporary while it
/// comes up.
pub const REFUSAL_ATTEMPTS: u32 = 3;

/// Default of the time until an endpoint without its interface counts as an error.
pub const INTERFACE_PATIENCE: Duration = Duration::from_secs(30);

/// Time after which a workload interface without an endpoint is logged: plugins create the
/// interface first, and the endpoint shortly after.
pub const UNCLAIMED_NOTICE: Duration = Duration::from_secs(10);

/// Maximum number of conntrack entries deleted for one address; the rest times out.
pub const CONNTRACK_ENTRIES_MAX: usize = 100_000;

/// Time given to a write of a status key (as in Calico).
pub const STATUS_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// First report of the process's own status after start (as in Calico).
pub const FIRST_REPORT: Duration = Duration::from_secs(10);

/// Ticks of the endpoint status reporter between two comparisons with the store (as in Calico).
pub const STATUS_RESYNC_TICKS: u32 = 180;

/// Host endpoints named in the status.
pub const HOST_ENDPOINTS_SHOWN_MAX: usize = 16;

/// Problems kept for display; more are counted only.
pub const PROBLEMS_SHOWN_MAX: usize = 100;

/// Default interval of comparing the packet filter with the one that was written.
pub const RULES_CHECK: Duration = Duration::from_secs(10);

/// Shortest interval of comparing the packet filter.
pub const RULES_CHECK_MIN: Duration = Duration::from_secs(1);

/// Time after the packet filter of an earlier run was found until it is listed to detect later
/// changes, unless it is replaced before: a large one takes long to list.
pub const INHERITED_CHECK: Duration = Duration::from_secs(1);

/// Shortest interval of checking the settings of interfaces.
pub const INTERFACE_REFRESH_MIN: Duration = Duration::from_secs(1);

/// Addresses with their ports in one EndpointSlice, which has at most 1000 endpoints.
pub const SLICE_MEMBERS_MAX: usize = 100_000;

/// Default of the longest time between two turns of the main loop of a live Felix (as in Calico).
pub const LIVENESS: Duration = Duration::from_secs(90);

/// Shortest such time that can be set: an idle main loop turns each [`BGP_FILES_CHECK`].
pub const LIVENESS_MIN: Duration = Duration::from_secs(10);

/// Time after which it is tried again to listen on an address for probes.
pub const LISTEN_RETRY: Duration = Duration::from_secs(1);

/// Default interval of checking the settings of interfaces (as in Calico).
pub const INTERFACE_REFRESH: Duration = Duration::from_secs(90);

/// Default metric of endpoint routes: lower than that of routes learned by BGP.
pub const ENDPOINT_METRIC: u32 = 256;

/// Highest metric of endpoint routes (as in Calico).
pub const ROUTE_METRIC_MAX: u32 = 2_147_483_646;

/// Default interval of full reads of the routing table (as in Calico).
pub const ROUTE_REFRESH: Duration = Duration::from_secs(90);

/// Shortest such interval.
pub const ROUTE_REFRESH_MIN: Duration = Duration::from_millis(100);

/// Octets of a pattern of interface names.
pub const PATTERN_OCTETS_MAX: usize = 1024;

/// Octets of the program that a pattern is compiled to.
pub const PATTERN_PROGRAM_OCTETS_MAX: usize = 256 * 1024;

/// Names and patterns in one list of interfaces.
pub const PATTERNS_MAX: usize = 64;

/// Time after the first full read of the datastore during which own routes that are not wanted are
/// kept.
pub const ROUTE_GRACE: Duration = Duration::from_secs(10);

/// How long a marked route of a workload stays until the BGP client has withdrawn it.
pub const LEAVING: Duration = Duration::from_millis(200);

/// Interval of looking for changed files of BGP daemons.
pub const BGP_FILES_CHECK: Duration = Duration::from_secs(5);

/// Maximum number of files of BGP daemons that are named.
pub const BGP_FILES_MAX: usize = 16;

/// Interval of resolving the names of the datastore's members.
pub const DATASTORE_LOOKUP: Duration = Duration::from_secs(60);

/// Interval of asking the datastore for its members while it does not answer, and of resolving
/// names that fail.
pub const DATASTORE_MEMBERS_RETRY: Duration = Duration::from_secs(5);

/// Maximum time that the first changes of the datastore wait for the addresses of its members.
pub const DATASTORE_MEMBERS_WAIT: Duration = Duration::from_secs(2);

/// URLs of members of the datastore; etcd has at most seven members with some URLs each.
pub const DATASTORE_URLS_MAX: usize = 64;

/// Addresses kept for one name of the datastore.
pub const DATASTORE_ADDRESSES_MAX: usize = 256;

/// Failsafe ports of one direction: packets to the host are compared with each of them.
pub const FAILSAFE_PORTS_MAX: usize = 256;

/// Sources that may be exempt from the guard of control ports.
pub const CONTROL_PORT_EXCEPTIONS_MAX: usize = 1024;

/// Default of the connections that one workload may have open through or to this host.
pub const WORKLOAD_CONNECTIONS: u32 = 65_536;

/// Connections of one workload that the kernel counts: of a larger budget, it counts a sample. With
/// each new connection that it counts, it looks for all earlier ones.
pub const CONNECTIONS_COUNTED_MAX: u32 = 1024;

/// Time for which an interface over its budget of connections opens none, milliseconds. The kernel adds
/// each connection to its list before it compares, so the list would grow without limit in a flood.
pub const BLOCKED_MS: u64 = 500;

/// Time for which all new connections of such an interface are counted, milliseconds.
///
/// After each such time, some connections pass between two samples. An hour is the compromise: fewer of
/// them than an eighth of the budget pass in [`CONNECTION_KEPT_S`], and a workload that exceeds its
/// budget once is restricted for an hour.
pub const PRESSED_MS: u64 = 3_600_000;

/// Longest time for which the kernel by default keeps a connection without packets, seconds
/// (`nf_conntrack_tcp_timeout_established`).
pub const CONNECTION_KEPT_S: u64 = 432_000;

/// Default of the fragments that one workload may send in a second.
pub const WORKLOAD_FRAGMENTS_PER_SECOND: u32 = 256;

/// Default of the new next hops in a minute that packets of one workload may have.
pub const WORKLOAD_NEXT_HOPS_PER_MINUTE: u32 = 128;

/// Default of the new link-local addresses in a minute from which one workload may send.
pub const WORKLOAD_LINK_LOCAL_PER_MINUTE: u32 = 16;

/// Highest budget of a workload.
pub const WORKLOAD_BUDGET_MAX: u32 = 10_000_000;

/// Highest budget of addresses that the kernel remembers: all workloads share [`SEEN_MAX`] places.
pub const WORKLOAD_SEEN_MAX: u32 = 4096;

/// New ARP senders in a minute of a workload with further sources.
pub const SPOOFED_ARP_PER_MINUTE: u32 = 64;

/// Interfaces of which the kernel keeps the state of a budget.
pub const METERS_MAX: u32 = 65_535;

/// Pairs of interface and address that the kernel remembers.
pub const SEEN_MAX: u32 = 262_144;

/// Seconds for which the kernel remembers such a pair, and a whole number of minutes.
pub const SEEN_S: u64 = 60;

/// Seconds for which the kernel keeps the state of an interface's rate after its last packet.
pub const RATES_S: u64 = 3600;

/// Minimum of the memory that the kernel gives to incomplete packets of each kind, octets.
pub const FRAGMENT_OCTETS: u64 = 64 * 1024 * 1024;

/// Octets of a host's name.
pub const HOST_NAME_OCTETS_MAX: usize = 253;

/// Kernel events handled between two turns of the agent.
pub const EVENTS_PER_TURN: usize = 4096;

/// Minimum time between two batches of the datastore's changes: the first is applied at once, and
/// the changes shortly after it together.
pub const UPDATES_GAP: Duration = Duration::from_millis(5);

/// Octets of the datastore's changes that are applied before signals, requests and the kernel's
/// events are handled again: a few hundred policies or endpoints, some ten milliseconds.
pub const UPDATE_OCTETS_PER_STEP: usize = 256 * 1024;

/// Octets of the name of a set of endpoints' addresses (as in Calico).
pub const SET_NAME_OCTETS_MAX: usize = 31;

/// Octets of a chain's name (`NFT_CHAIN_MAXNAMELEN` without its NUL).
pub const CHAIN_NAME_OCTETS_MAX: usize = 127;

/// Default prefix of the kernel's log lines for packets that a rule logs (as in Calico).
pub const LOG_PREFIX: &str = "calico-packet";

/// Octets of such a prefix (`NF_LOG_PREFIXLEN` without its NUL).
pub const LOG_PREFIX_OCTETS_MAX: usize = 127;

/// Rows of the flow log. Beyond, the oldest row of the endpoint with the most rows is removed.
pub const FLOW_ROWS_MAX: usize = 16_384;

/// Octets of all names in the rows of the flow log.
pub const FLOW_NAMES_OCTETS_MAX: usize = 8 * 1024 * 1024;

/// Allowed flows of which the end is awaited. Beyond, the end of the oldest one of the endpoint with the
/// most flows is not counted.
pub const FLOWS_OPEN_MAX: usize = 65_536;

/// Denied flows that are recognized when they are tried again.
pub const FLOWS_DENIED_MAX: usize = 16_384;

/// A later packet of the same ends after this time without one is a new flow.
pub const FLOW_REPEATED: Duration = Duration::from_secs(60);

/// Messages of the kernel that wait for their entry. When they are as many, no further one is read before
/// all of them are entered; the kernel discards records that do not fit into its receive buffer.
pub const FLOWS_WAITING_MAX: usize = 16_384;

/// Time that they wait before the entry begins, and the longest use of names that were looked up.
pub const FLOW_NAMES_GAP: Duration = Duration::from_secs(1);

/// Minimum time between the end of a read or entry of the kernel's messages and the begin of the next:
/// the main loop has this time for everything else.
pub const FLOW_READ_GAP: Duration = Duration::from_millis(20);

/// Time for reading and entering the kernel's messages in a turn of the main loop.
pub const FLOW_TIME_PER_TURN: Duration = Duration::from_millis(5);

/// The same before an answer. With more messages, the answer lacks the last ones.
pub const FLOW_TIME_PER_ANSWER: Duration = Duration::from_millis(200);

/// Parts of messages of the packet log between two looks at the time. A part has at most
/// [`FLOW_BATCH_RECORDS`].
pub const FLOW_PARTS_PER_READ: usize = 4;

/// The same for ends of connections: a part has one.
pub const FLOW_ENDS_PER_READ: usize = 64;

/// Receive buffer for the records of the packet log. Records that do not fit are lost and counted.
pub const FLOW_BUFFER_OCTETS: usize = 8 * 1024 * 1024;

/// Receive buffer for the ends of connections.
pub const FLOW_ENDS_BUFFER_OCTETS: usize = 4 * 1024 * 1024;

/// Octets of a message with several records of the packet log.
pub const FLOW_BATCH_OCTETS: u32 = 16 * 1024;

/// Records in such a message.
pub const FLOW_BATCH_RECORDS: u32 = 64;

/// The longest time for which the kernel collects records for such a message.
pub const FLOW_BATCH_TIME: Duration = Duration::from_millis(100);

/// Octets of a packet that a record contains: its headers.
pub const FLOW_HEADERS_OCTETS: u32 = 128;

/// Time after which a refused group of the packet log is tried again.
pub const FLOW_LOG_RETRY: Duration = Duration::from_secs(10);

/// The built-in group of the packet log.
pub const FLOW_LOG_GROUP: u16 = 80;

/// Default of the records of the flow log in a second, for the packets of each input interface: the kernel
/// makes a copy for each, on the CPU of the sender. The main loop enters some 100,000 in a second.
pub const FLOW_RECORDS_PER_SECOND: u32 = 10_000;

/// Highest such number.
pub const FLOW_RECORDS_PER_SECOND_MAX: u32 = 10_000_000;

/// Interval of reading the counters of packets without a record. An answer reads them at once.
pub const FLOW_UNSENT_CHECK: Duration = Duration::from_secs(10);

/// Rows of the flow log in one reply; the others follow on the next page.
pub const FLOW_ROWS_PAGE_MAX: usize = 1000;

/// Flows with another verdict in one preview; further ones are counted only.
pub const PREVIEW_ROWS_MAX: usize = 1000;

/// Octets of a name in the prefix of a report of the flow log; a longer one is replaced by its hash.
pub const FLOW_NAME_OCTETS_MAX: usize = 96;

/// Highest number of log lines in a unit of time, and highest burst of them (as in Calico).
pub const LOG_RATE_MAX: u32 = 9999;

/// Default burst of the rate of an endpoint's packets (as in Calico).
pub const PACKET_BURST: u32 = 5;

/// Default burst of a limit of bandwidth, octets (as in Calico).
pub const BANDWIDTH_BURST_OCTETS: u32 = 512 * 1024 * 1024;

/// Maximum number of changed members of a set that are changed one by one, also if it has fewer members.
pub const CHANGED_SINGLY_MAX: usize = 64;

/// Steps of a turn in which endpoints inherit changed labels of a profile, before other work is done: a
/// step is an endpoint, or a selector that is evaluated for it. At the 42 µs measured for an
/// endpoint before, they take some 20 ms.
pub const INHERITANCE_STEPS_PER_TURN: u64 = 512;

/// Turns in a row with unfinished inheritance of labels before all changes are applied in any case: a
/// profile that changes in each turn delays the changes of policies by some 10 s at most. The turns are
/// enough for a quarter of a million steps.
pub const INHERITANCE_TURNS_MAX: u32 = 512;

/// Time that a packet waits at most where bandwidth is limited (as in Calico, but without the burst).
pub const BANDWIDTH_DELAY: Duration = Duration::from_millis(25);

/// Octets of the shortest and of the longest queue where bandwidth is limited.
pub const BANDWIDTH_QUEUE_OCTETS_MIN: u32 = 128 * 1024;
/// See [`BANDWIDTH_QUEUE_OCTETS_MIN`].
pub const BANDWIDTH_QUEUE_OCTETS_MAX: u32 = 64 * 1024 * 1024;

/// Octets of the header of an Ethernet frame.
pub const ETHERNET_HEADER_OCTETS: u32 = 14;

/// Default burst of a rate of log lines (as in Calico, and in nft).
pub const LOG_BURST: u32 = 5;

/// Highest VXLAN network identifier (RFC 7348 §5).
pub const VXLAN_VNI_MAX: u32 = 0xff_ffff;

/// Lowest MTU of a device with IPv4 (RFC 791).
pub const IPV4_MTU_MIN: u32 = 576;

/// Lowest MTU of a device with IPv6 (RFC 8200 §5).
pub const IPV6_MTU_MIN: u32 = 1280;

/// Highest MTU of a device.
pub const MTU_MAX: u32 = 65_535;

/// Interval of comparing the VXLAN devices, and their entries of tunnel ends, with the wanted ones.
pub const TUNNEL_CHECK: Duration = Duration::from_secs(10);

/// Metrics of endpoint routes that an earlier agent of this host may have written: the default, and
/// those of Calico's Felix (none, and its elevated and normal route priority).
pub const FORMER_METRICS: [u32; 4] = [0, 256, 512, 1024];

/// Events of which the repetitions are counted separately in the log, mostly those of single
/// endpoints.
pub const EVENT_KEYS_MAX: usize = 4096;
