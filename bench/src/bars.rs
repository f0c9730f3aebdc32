//! What our reflector has to reach, beside its peers in the same run.

use crate::daemons::Kind::{self, Bird, FrrFast, Relay};
use crate::work::Work::{
    self, Churn, Fib, Keep, Many, Path, Rack, S1, S2, S3, S3b, Stall, Storm, Watch,
};

/// One measure of one workload, and what it is held against.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// Of which workload.
    pub work: Work,
    /// Which measure.
    pub measure: &'static str,
    /// In words.
    pub title: &'static str,
    /// At most this often (infinity: for information) ...
    pub factor: f64,
    /// ... what the best of these takes; of 1, if there are none.
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

/// All bars, in the order of the report.
pub const BARS: &[Bar] = &[
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
        "CPU of all else meanwhile, s",
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
        "CPU of all else meanwhile, s",
        f64::INFINITY,
        &[Bird],
    ),
    bar(S3, "conv_s", "until all hold all, s", 1.0, &[FrrFast]),
    bar(S3, "conv_cpu_s", "CPU of the daemon, s", 0.5, &[FrrFast]),
    bar(S3, "peak_mb", "peak memory, MB", 1.0, &[Bird]),
    bar(
        S3,
        "conv_foreign_s",
        "CPU of all else meanwhile, s",
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
        "CPU of all else meanwhile, s",
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
    // What `bgp-speaker` keeps for a member that still writes and for its socket, RING_OCTETS_MAX and
    // SESSION_OCTETS_MAX, and the log of changes, four octets each, at most twice as many as there
    // are routes, with room to the next power of two.
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
        Keep,
        "keep_lost",
        "sessions lost while a table loads",
        0.0,
        &[],
    ),
    bar(
        Keep,
        "keep_silent_s",
        "longest silence to a neighbour, s",
        1.5,
        &[],
    ),
    bar(
        Keep,
        "keep_gap_s",
        "longest between two KEEPALIVEs, s",
        f64::INFINITY,
        &[],
    ),
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
    // megabyte, and what the allocator keeps beside it.
    bar(
        Churn,
        "churn_grown_mb",
        "memory, second half less first, MB",
        2.0,
        &[],
    ),
    bar(Churn, "churn_rounds", "rounds", f64::INFINITY, &[]),
    bar(
        Fib,
        "fib_add_s",
        "1,000,000 routes into the kernel, s",
        f64::INFINITY,
        &[],
    ),
    bar(
        Fib,
        "fib_add_ratio",
        "the same to a bare loop",
        1.0 / 0.9,
        &[],
    ),
    bar(
        Fib,
        "fib_delete_ratio",
        "deleting them to a bare loop",
        f64::INFINITY,
        &[],
    ),
    bar(
        Fib,
        "fib_adopt_s",
        "finding them after a restart, s",
        f64::INFINITY,
        &[],
    ),
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
    bar(
        Path,
        "path_near_p50_ms",
        "put to its own kernel p50, ms",
        f64::INFINITY,
        &[],
    ),
    bar(
        Path,
        "busy_near_p50_ms",
        "at 1,000/s: its own kernel p50, ms",
        f64::INFINITY,
        &[],
    ),
    bar(
        Path,
        "busy_p50_ms",
        "at 1,000/s: p50, ms",
        f64::INFINITY,
        &[],
    ),
    bar(Path, "busy_p999_ms", "at 1,000/s: p99.9, ms", 100.0, &[]),
    bar(Many, "many_mb", "memory of a node's daemons, MB", 20.0, &[]),
    bar(
        Many,
        "many_growth_mb",
        "of it for 10,000 endpoints, MB",
        20.0,
        &[],
    ),
    bar(
        Many,
        "many_s",
        "until it has all routes, s",
        f64::INFINITY,
        &[],
    ),
    bar(
        Watch,
        "watch_s",
        "etcd killed until all in sync, s",
        5.0,
        &[],
    ),
    bar(
        Watch,
        "watch_after_up_s",
        "of it after etcd answers, s",
        f64::INFINITY,
        &[],
    ),
    bar(
        Watch,
        "watch_lists",
        "lists that etcd served again",
        0.0,
        &[],
    ),
];
