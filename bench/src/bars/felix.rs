//! The goals of Felix.

use super::{Bar, bar, free};
use crate::work::Work::{Cutting, Felix};

/// The bars of workloads with policies, in the order of the report.
pub(super) const BARS: &[Bar] = &[
    bar(
        Felix,
        "felix_programmed_s",
        "Felix started until all rules are written, s",
        1.0,
        &[],
    ),
    free(Felix, "felix_programmed_cpu_s", "CPU of Felix for it, s"),
    free(Felix, "felix_nft_s", "the same rules by nft -f, s"),
    bar(
        Felix,
        "felix_resident_mb",
        "resident memory then, MB",
        250.0,
        &[],
    ),
    bar(
        Felix,
        "felix_idle_percent",
        "idle: percent of a core",
        0.1,
        &[],
    ),
    bar(
        Felix,
        "felix_endpoint_p50_ms",
        "an endpoint with 30 policies: put to kernel p50, ms",
        3.0,
        &[],
    ),
    bar(
        Felix,
        "felix_endpoint_p99_ms",
        "an endpoint with 30 policies: put to kernel p99, ms",
        15.0,
        &[],
    ),
    bar(
        Felix,
        "felix_endpoint_cpu_ms",
        "CPU of Felix for one, checks included, ms",
        10.0,
        &[],
    ),
    free(
        Felix,
        "felix_kernel_jump_ms",
        "the kernel's transaction of one new jump p50, ms",
    ),
    free(
        Felix,
        "felix_member_cpu_ms",
        "CPU of Felix for a member's change, ms",
    ),
    bar(
        Cutting,
        "cut_tcp_1_ms",
        "etcd's answer to the last packet: one flow, TCP, ms",
        100.0,
        &[],
    ),
    bar(
        Cutting,
        "cut_udp_1_ms",
        "etcd's answer to the last packet: one flow, UDP, ms",
        100.0,
        &[],
    ),
    bar(
        Cutting,
        "cut_tcp_100_ms",
        "etcd's answer to the last packet: 100 flows, TCP, ms",
        100.0,
        &[],
    ),
    bar(
        Cutting,
        "cut_udp_100_ms",
        "etcd's answer to the last packet: 100 flows, UDP, ms",
        100.0,
        &[],
    ),
    bar(
        Cutting,
        "cut_tcp_10000_ms",
        "etcd's answer to the last packet: 10,000 flows, TCP, ms",
        100.0,
        &[],
    ),
    bar(
        Cutting,
        "cut_udp_10000_ms",
        "etcd's answer to the last packet: 10,000 flows, UDP, ms",
        100.0,
        &[],
    ),
    free(Cutting, "cut_new_ms", "the same: new flows, ms"),
];
