//! The goals of failed paths and dead hosts.

use super::{Bar, bar, free};
use crate::work::Work::{Bfd, Death};

/// The bars of BFD, in the order of the report.
pub(super) const BARS: &[Bar] = &[
    bar(Bfd, "bfd_downs", "3 x 100 ms: false downs", 0.0, &[]),
    bar(Bfd, "bfd_peer_downs", "the same at the peer", 0.0, &[]),
    free(
        Bfd,
        "bfd_peer_gaps",
        "gaps at the peer above the detection time",
    ),
    free(Bfd, "bfd_peer_own_gaps", "the peer's own such gaps"),
    free(Bfd, "bfd_peer_late_ms", "longest delay of the peer, ms"),
    bar(Bfd, "bfd_cpu", "processors, with all softirq", 0.25, &[]),
    bar(Bfd, "bfd_mb", "locked memory, MB", 10.0, &[]),
    free(Bfd, "bfd_routes", "changes of routes meanwhile"),
    free(Bfd, "bfd_50_downs", "3 x 50 ms: false downs"),
    free(Bfd, "bfd_50_peer_downs", "the same at the peer"),
    free(Bfd, "bfd_50_peer_gaps", "gaps at the peer then"),
    free(Bfd, "bfd_50_peer_own_gaps", "the peer's own such gaps then"),
    free(
        Bfd,
        "bfd_50_peer_late_ms",
        "longest delay of the peer then, ms",
    ),
    bar(
        Death,
        "death_50_p50_ms",
        "3 x 50 ms: routes removed, p50, ms",
        150.0,
        &[],
    ),
    bar(Death, "death_50_p99_ms", "the same, p99, ms", 200.0, &[]),
    bar(
        Death,
        "death_50_back_p50_ms",
        "then routes present again, p50, ms",
        1000.0,
        &[],
    ),
    bar(
        Death,
        "death_50_back_p99_ms",
        "the same, p99, ms",
        2000.0,
        &[],
    ),
    free(Death, "death_p50_ms", "3 x 300 ms: routes removed, p50, ms"),
    bar(Death, "death_p99_ms", "the same, p99, ms", 1000.0, &[]),
    free(
        Death,
        "death_back_p50_ms",
        "then routes present again, p50, ms",
    ),
    free(Death, "death_back_p99_ms", "the same, p99, ms"),
];
