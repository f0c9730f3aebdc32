//! The goals of Cambric's reflector, relative to other daemons in the same run.

mod failures;
mod felix;
mod kube;
mod nexthop;

use crate::daemons::Kind::{self, Bird, FrrFast, Relay};
use crate::work::Work::{
    self, Churn, Cni, Fib, Floods, Ipam, Keep, Live, Many, Path, Rack, Records, Rules, S1, S2, S3,
    S3b, Stall, Storm, Watch,
};

/// One measure of one workload, and its limit.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// The workload.
    pub work: Work,
    /// The measure.
    pub measure: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The limit as a factor (infinity: for information) ...
    pub factor: f64,
    /// ... of the best of these peers; of 1 without peers.
    pub peers: &'static [Kind],
}

const fn bar(
    work: Work,
    measure: &'static str,
    title: &'static str,
    factor: f64,
    peers: &'static [Kind],
) -> Bar {
    Bar {
        work,
        measure,
        title,
        factor,
        peers,
    }
}

/// A change in the datastore is applied within 100 ms.
const fn live(measure: &'static str, title: &'static str) -> Bar {
    bar(Live, measure, title, 100.0, &[])
}

/// A measure without a limit.
const fn free(work: Work, measure: &'static str, title: &'static str) -> Bar {
    bar(work, measure, title, f64::INFINITY, &[])
}

/// Returns all bars, in the order of the report.
pub fn all() -> impl Iterator<Item = &'static Bar> {
    BARS.iter()
        .chain(failures::BARS)
        .chain(nexthop::BARS)
        .chain(felix::BARS)
        .chain(kube::BARS)
}

/// The bars of all workloads without policies.
const BARS: &[Bar] = &[
    bar(S1, "conv_s", "until the monitor holds all, s", 0.5, &[Bird]),
    bar(
        S1,
        "conv_cpu_s",
        "CPU of the daemon, s",
        f64::INFINITY,
        &[Bird],
    ),
    bar(S1, "peak_mb", "peak memory, MB", 0.7, &[Bird]),
    bar(
        S1,
        "conv_foreign_s",
        "CPU of all other processes, s",
        f64::INFINITY,
        &[Bird],
    ),
    bar(S1, "withdraw_s", "withdraw everything, s", 0.5, &[Bird]),
    bar(S1, "again_s", "announce everything again, s", 0.5, &[Bird]),
    bar(
        S2,
        "conv_s",
        "until the monitors hold the best, s",
        0.3,
        &[Bird],
    ),
    bar(
        S2,
        "conv_cpu_s",
        "CPU of the daemon, s",
        f64::INFINITY,
        &[Bird],
    ),
    bar(S2, "peak_mb", "peak memory, MB", 0.6, &[Bird]),
    bar(
        S2,
        "conv_foreign_s",
        "CPU of all other processes, s",
        f64::INFINITY,
        &[Bird],
    ),
    bar(S3, "conv_s", "until all hold all, s", 1.0, &[FrrFast]),
    bar(S3, "conv_cpu_s", "CPU of the daemon, s", 0.5, &[FrrFast]),
    bar(S3, "peak_mb", "peak memory, MB", 1.0, &[Bird]),
    bar(
        S3,
        "conv_foreign_s",
        "CPU of all other processes, s",
        f64::INFINITY,
        &[Bird, FrrFast],
    ),
    bar(
        S3,
        "announce_p50_ms",
        "announce back to back p50, ms",
        1.5,
        &[Relay],
    ),
    bar(
        S3,
        "announce_p99_ms",
        "announce back to back p99, ms",
        2.3,
        &[Relay],
    ),
    bar(
        S3,
        "withdraw_p50_ms",
        "withdraw back to back p50, ms",
        1.5,
        &[Relay],
    ),
    bar(
        S3,
        "withdraw_p99_ms",
        "withdraw back to back p99, ms",
        2.3,
        &[Relay],
    ),
    bar(
        S3,
        "gap_announce_p50_ms",
        "announce with gaps p50, ms",
        1.5,
        &[Relay],
    ),
    bar(
        S3,
        "gap_announce_p99_ms",
        "announce with gaps p99, ms",
        2.3,
        &[Relay],
    ),
    bar(
        S3,
        "gap_withdraw_p50_ms",
        "withdraw with gaps p50, ms",
        1.5,
        &[Relay],
    ),
    bar(
        S3,
        "gap_withdraw_p99_ms",
        "withdraw with gaps p99, ms",
        2.3,
        &[Relay],
    ),
    bar(S3b, "conv_s", "until all hold all, s", 1.0, &[FrrFast]),
    bar(S3b, "conv_cpu_s", "CPU of the daemon, s", 1.0, &[FrrFast]),
    bar(S3b, "peak_mb", "peak memory, MB", 0.1, &[FrrFast]),
    bar(
        S3b,
        "conv_foreign_s",
        "CPU of all other processes, s",
        f64::INFINITY,
        &[FrrFast],
    ),
    bar(
        Storm,
        "storm_s",
        "restart until all hold all, s",
        0.5,
        &[Bird, FrrFast],
    ),
    bar(
        Storm,
        "storm_cpu_s",
        "CPU of the daemon, s",
        f64::INFINITY,
        &[Bird, FrrFast],
    ),
    bar(
        Storm,
        "peak_mb",
        "peak memory, MB",
        f64::INFINITY,
        &[Bird, FrrFast],
    ),
    bar(Storm, "storm_lost", "sessions lost on the way", 0.0, &[]),
    bar(
        Rack,
        "rack_s",
        "until the others hold it, s",
        0.5,
        &[Bird, FrrFast],
    ),
    bar(
        Rack,
        "rack_cpu_s",
        "CPU of the daemon, s",
        f64::INFINITY,
        &[Bird, FrrFast],
    ),
    bar(
        Stall,
        "stall_announce_p99_ratio",
        "others' announce p99 to that before",
        1.25,
        &[],
    ),
    bar(
        Stall,
        "stall_withdraw_p99_ratio",
        "others' withdraw p99 to that before",
        1.25,
        &[],
    ),
    // The buffers that `bgp-speaker` keeps for a member that still writes and for its socket,
    // RING_OCTETS_MAX and half of SESSION_OCTETS_MAX, and the log of changes, four octets each, at most
    // twice as many as there are routes, with a capacity of the next power of two.
    bar(
        Stall,
        "stall_4x_mb",
        "memory for the stalled one, MB",
        ((4 << 20) + (256 << 10) + (4 << 17)) as f64 / 1e6,
        &[],
    ),
    bar(
        Stall,
        "stall_creep_mb",
        "from 2 to 4 times as long, MB",
        0.25,
        &[],
    ),
    bar(
        Floods,
        "strangers_ratio",
        "p99 to undisturbed: 1,000 connects of strangers a second",
        1.5,
        &[],
    ),
    bar(
        Floods,
        "strangers_beside_ratio",
        "p99 to the same flood of another listener",
        1.5,
        &[],
    ),
    bar(Floods, "strangers_p99_ms", "p99, ms", f64::INFINITY, &[]),
    bar(
        Floods,
        "strangers_5k_ratio",
        "p99 to undisturbed: 5,000 connects of strangers a second",
        1.5,
        &[],
    ),
    bar(
        Floods,
        "strangers_5k_beside_ratio",
        "p99 to the same flood of another listener",
        1.5,
        &[],
    ),
    bar(Floods, "strangers_5k_p99_ms", "p99, ms", f64::INFINITY, &[]),
    bar(
        Floods,
        "garbage_ratio",
        "p99 to undisturbed: 1,000 connections with garbage a second",
        1.5,
        &[],
    ),
    bar(
        Floods,
        "garbage_beside_ratio",
        "p99 to the same flood of another listener",
        1.5,
        &[],
    ),
    bar(Floods, "garbage_p99_ms", "p99, ms", f64::INFINITY, &[]),
    bar(
        Floods,
        "slow_opens_ratio",
        "p99 to undisturbed: 150 OPENs of one octet a second",
        1.5,
        &[],
    ),
    bar(Floods, "slow_opens_p99_ms", "p99, ms", f64::INFINITY, &[]),
    bar(
        Floods,
        "malformed_ratio",
        "p99 to undisturbed: 5,000 malformed UPDATEs a second",
        1.5,
        &[],
    ),
    bar(Floods, "malformed_p99_ms", "p99, ms", f64::INFINITY, &[]),
    bar(
        Floods,
        "slow_readers_ratio",
        "p99 to undisturbed: UPDATEs of 4 KB to slow readers",
        1.5,
        &[],
    ),
    bar(Floods, "slow_readers_p99_ms", "p99, ms", f64::INFINITY, &[]),
    bar(
        Floods,
        "take_overs_ratio",
        "p99 to undisturbed: 200 OPENs of a session's client a second",
        1.5,
        &[],
    ),
    bar(
        Floods,
        "take_overs_beside_ratio",
        "p99 to the same flood of another listener",
        1.5,
        &[],
    ),
    bar(Floods, "take_overs_p99_ms", "p99, ms", f64::INFINITY, &[]),
    bar(
        Floods,
        "long_opens_ratio",
        "p99 to undisturbed: 1,000 OPENs of 4 KB a second",
        1.5,
        &[],
    ),
    bar(
        Floods,
        "long_opens_beside_ratio",
        "p99 to the same flood of another listener",
        1.5,
        &[],
    ),
    bar(Floods, "long_opens_p99_ms", "p99, ms", f64::INFINITY, &[]),
    bar(
        Floods,
        "log_ratio",
        "p99 to undisturbed: strangers while the log is not read",
        1.5,
        &[],
    ),
    bar(
        Floods,
        "log_beside_ratio",
        "p99 to the same flood of another listener",
        1.5,
        &[],
    ),
    bar(Floods, "log_p99_ms", "p99, ms", f64::INFINITY, &[]),
    bar(
        Keep,
        "keep_lost",
        "sessions lost while a table loads",
        0.0,
        &[],
    ),
    bar(
        Keep,
        "keep_silent_s",
        "longest silence to a neighbor, s",
        1.5,
        &[],
    ),
    free(Keep, "keep_gap_s", "longest between two KEEPALIVEs, s"),
    bar(
        Keep,
        "keep_unread_s",
        "longest that octets lay unread, s",
        0.5,
        &[],
    ),
    bar(
        Churn,
        "churn_growth",
        "memory, second half to first",
        1.05,
        &[],
    ),
    // In a small run the log of changes is still filling up, to LOG_ENTRIES_MIN of `rib`: half a
    // megabyte, with the allocator's overhead.
    bar(
        Churn,
        "churn_grown_mb",
        "memory, second half less first, MB",
        2.0,
        &[],
    ),
    bar(Churn, "churn_rounds", "rounds", f64::INFINITY, &[]),
    free(Fib, "fib_add_s", "1,000,000 routes into the kernel, s"),
    bar(
        Fib,
        "fib_add_ratio",
        "the same to a bare loop",
        1.0 / 0.9,
        &[],
    ),
    free(Fib, "fib_delete_ratio", "deleting them to a bare loop"),
    free(Fib, "fib_adopt_s", "finding them after a restart, s"),
    bar(Fib, "fib_adopt_writes", "routes written then", 0.0, &[]),
    bar(
        Path,
        "path_p50_ms",
        "idle: put to kernel p50, ms",
        20.0,
        &[],
    ),
    bar(
        Path,
        "path_p99_ms",
        "idle: put to kernel p99, ms",
        60.0,
        &[],
    ),
    free(Path, "path_near_p50_ms", "put to its own kernel p50, ms"),
    free(
        Path,
        "busy_near_p50_ms",
        "at 1,000/s: its own kernel p50, ms",
    ),
    free(Path, "busy_p50_ms", "at 1,000/s: p50, ms"),
    bar(Path, "busy_p999_ms", "at 1,000/s: p99.9, ms", 100.0, &[]),
    free(
        Path,
        "busy_off_p999_ms",
        "the same without origin validation, ms",
    ),
    bar(
        Path,
        "busy_origins_p999_ratio",
        "p99.9 with origin validation to without",
        1.25,
        &[],
    ),
    bar(
        Records,
        "records_s",
        "etcd answers until all records are read, s",
        20.0,
        &[],
    ),
    bar(
        Records,
        "records_unread_ms",
        "longest that octets lay unread then, ms",
        20.0,
        &[],
    ),
    free(
        Records,
        "records_resident_octets",
        "resident memory for a record and its key",
    ),
    bar(
        Rules,
        "rules_check_cpu_s",
        "a listing compared with the policies: CPU, s",
        5.0,
        &[],
    ),
    bar(
        Rules,
        "rules_check_mb",
        "peak memory for it, MB",
        200.0,
        &[],
    ),
    free(
        Rules,
        "rules_whole_cpu_s",
        "the same with the listing: CPU, s",
    ),
    free(Rules, "rules_nft_cpu_s", "CPU of nft for the listing, s"),
    free(Rules, "rules_nft_mb", "peak memory of nft, MB"),
    free(Rules, "rules_listing_mb", "length of the listing, MB"),
    free(
        Live,
        "live_p50_ms",
        "a change in the store: all kinds p50, ms",
    ),
    live("live_peer_filters_p99_ms", "a BGPPeer's filters p99, ms"),
    live("live_filter_p99_ms", "a BGPFilter p99, ms"),
    live("live_export_p99_ms", "an IPPool's disableBGPExport p99, ms"),
    live(
        "live_mode_p99_ms",
        "an IPPool's mode, to the kernel p99, ms",
    ),
    live("live_block_p99_ms", "a block of addresses p99, ms"),
    live(
        "live_label_p99_ms",
        "a label of the node, its services p99, ms",
    ),
    live("live_drain_p99_ms", "a drain p99, ms"),
    live("live_peer_p99_ms", "a BGPPeer, to the session p99, ms"),
    live("live_node_p99_ms", "a Node, to the session p99, ms"),
    free(Many, "many_mb", "memory of a node's daemons, MB"),
    bar(
        Many,
        "many_growth_mb",
        "of it for 10,000 endpoints, MB",
        20.0,
        &[],
    ),
    free(Many, "many_s", "until it has all routes, s"),
    bar(
        Watch,
        "watch_s",
        "etcd killed until all in sync, s",
        5.0,
        &[],
    ),
    free(Watch, "watch_after_up_s", "of it after etcd answers, s"),
    bar(
        Watch,
        "watch_lists",
        "lists that etcd served again",
        0.0,
        &[],
    ),
    free(
        Watch,
        "watch_forgotten_s",
        "killed, its history compacted before, s",
    ),
    bar(
        Watch,
        "watch_forgotten_kb",
        "sent to each of them then, kB",
        10.0,
        &[],
    ),
    bar(
        Ipam,
        "ipam_host_s",
        "1,000 addresses of one host, s",
        2.0,
        &[],
    ),
    free(Ipam, "ipam_assign_p50_ms", "one of them p50, ms"),
    free(Ipam, "ipam_assign_p99_ms", "one of them p99, ms"),
    free(Ipam, "ipam_requests", "requests of etcd for one"),
    free(Ipam, "ipam_bare_s", "as many requests that mean nothing, s"),
    bar(
        Ipam,
        "ipam_hosts_s",
        "100 hosts start, 10 addresses each, s",
        20.0,
        &[],
    ),
    bar(
        Cni,
        "cni_add_p50_ms",
        "ADD to the answer, p50, ms",
        60.0,
        &[],
    ),
    free(Cni, "cni_add_p99_ms", "ADD to the answer, p99, ms"),
    free(Cni, "cni_del_p50_ms", "DEL to the answer, p50, ms"),
    free(Cni, "cni_ptp_add_p50_ms", "the same of ptp: ADD, p50, ms"),
    free(Cni, "cni_ptp_del_p50_ms", "the same of ptp: DEL, p50, ms"),
];
