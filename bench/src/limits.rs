//! Every limit and period of the benchmark.

use std::time::Duration;

/// Octets written to one socket in one turn.
pub const WRITE_OCTETS_MAX: usize = 256 << 10;

/// Slices handed to the kernel in one write.
pub const WRITE_SLICES_MAX: usize = 64;

/// Octets read from one socket in one turn.
pub const READ_OCTETS_MAX: usize = 256 << 10;

/// Sockets handled in one turn.
pub const EVENTS_MAX: usize = 1024;

/// Hold time that the load generator offers.
pub const HOLD_TIME_S: u16 = 90;

/// How often the load generator sends KEEPALIVEs.
pub const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);

/// How long until a rejected or lost connection is dialed again.
pub const REDIAL_AFTER: Duration = Duration::from_millis(20);

/// The least time until an unanswered connection is dialed again; the most is twice this.
pub const DIALED_WITHIN: Duration = Duration::from_millis(250);

/// Sessions that are being opened at once while a run is prepared: some daemons' accept queues are
/// short, and a SYN that finds a full one costs a second.
pub const DIALING_MAX: usize = 8;

/// How long one phase of a run may take.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The same for a quick run.
pub const PATIENCE_QUICK: Duration = Duration::from_secs(120);

/// Silence on all sessions that counts as the end of activity.
pub const QUIET: Duration = Duration::from_millis(300);

/// How long a daemon may take to end after a signal.
pub const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// The most single routes sent to measure latency.
pub const LATENCY_ROUNDS: usize = 300;

/// How long that may take; fewer rounds are sufficient then.
pub const LATENCY_WITHIN: Duration = Duration::from_secs(15);

/// Pause before each single route, where there is one.
pub const LATENCY_GAP: Duration = Duration::from_millis(60);

/// How long a restarted daemon may take until it listens.
pub const STARTED_WITHIN: Duration = Duration::from_secs(120);

/// Undisturbed blocks of single routes, each followed by one during a flood.
pub const FLOOD_BLOCKS: usize = 4;

/// Single routes of a block: each is announced and withdrawn.
pub const FLOOD_ROUNDS: usize = 200;

/// Pause before each single route of a block.
pub const FLOOD_GAP: Duration = Duration::from_millis(3);

/// Share of its rate that a flood must reach: its thread gives way to all others.
pub const FLOOD_RATE_LEAST: f64 = 0.9;

/// How long a flood may take to begin.
pub const FLOOD_WITHIN: Duration = Duration::from_secs(30);

/// The default duration of each half of bfd.
pub const BFD: Duration = Duration::from_secs(120);

/// The same for a quick run.
pub const BFD_QUICK: Duration = Duration::from_secs(6);

/// How often a scripted peer of BFD prints its report.
pub const PEER_REPORT_EVERY: Duration = Duration::from_millis(500);

/// The default duration of churn.
pub const CHURN: Duration = Duration::from_secs(120);

/// The same for a quick run.
pub const CHURN_QUICK: Duration = Duration::from_secs(6);

/// How long a fabric may take for any step.
pub const FABRIC_WITHIN: Duration = Duration::from_secs(180);

/// A pause in which an idle fabric becomes quiet.
pub const PAUSE: Duration = Duration::from_millis(30);

/// How long a fabric is idle before memory is measured: periodic work of the daemons occurs in that
/// time.
pub const SETTLED: Duration = Duration::from_secs(3);

/// Concurrent writes to the datastore.
pub const PUTS_MAX: usize = 256;

/// Kernel notifications that wait to be read.
pub const NEWS_MAX: usize = 1 << 16;

/// Records that one transaction writes: etcd's default limit of operations.
pub const RECORDS_OF_TXN: usize = 128;

/// Receive buffer of a capture: the packets of some seconds.
pub const CAPTURE_OCTETS: usize = 256 << 20;

/// How long a capture waits for a packet before it looks whether it is to end.
pub const CAPTURE_TURN: Duration = Duration::from_millis(50);

/// Pause of a sender of flows between two bursts.
pub const SENDER_TURN: Duration = Duration::from_micros(200);

/// How long the opening of one flow may take.
pub const FLOW_OPENED_WITHIN: Duration = Duration::from_secs(30);

/// Pause between two new flows of an opener.
pub const OPENER_TURN: Duration = Duration::from_millis(1);

/// Octets of one write or read of a stream.
pub const STREAM_OCTETS: usize = 128 << 10;

/// The port of the API server of Kubernetes.
pub const CLUSTER_PORT: u16 = 6443;

/// Pause between two probes.
pub const PROBE_TURN: Duration = Duration::from_millis(1);

/// Packets of a flood of a workload in each turn of its sender.
pub const NOISY_BURST: u32 = 2;

/// Pause before each round trip beside a flood.
pub const NOISY_GAP: Duration = Duration::from_millis(1);

/// Octets of one stream that a proxy of lists has received and not passed on.
pub const PROXY_STREAM_OCTETS: u32 = 4 << 20;

/// The same for all streams of a connection.
pub const PROXY_CONNECTION_OCTETS: u32 = 64 << 20;

/// Octets of a range request.
pub const RANGE_OCTETS_MAX: usize = 64 << 10;

/// Octets of one page of a list.
pub const PAGE_OCTETS_MAX: usize = 64 << 20;

/// Pause before flows are forbidden.
pub const CUT_QUIET: Duration = Duration::from_secs(1);
