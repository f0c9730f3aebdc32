//! The goals of the controller of Kubernetes.

use super::{Bar, bar, free};
use crate::work::Work::Kube;

/// The bars, in the order of the report.
pub(super) const BARS: &[Bar] = &[
    bar(
        Kube,
        "kube_empty_s",
        "10,000 pods: from an empty etcd, s",
        10.0,
        &[],
    ),
    bar(Kube, "kube_peak_mb", "peak memory then, MB", 150.0, &[]),
    free(Kube, "kube_labels_s", "labels of 10,000 new endpoints, s"),
    bar(
        Kube,
        "kube_right_s",
        "started with a complete etcd, s",
        5.0,
        &[],
    ),
    bar(
        Kube,
        "kube_right_peak_mb",
        "peak memory then, MB",
        150.0,
        &[],
    ),
    bar(
        Kube,
        "kube_heartbeats_percent",
        "heartbeats of 1,000 nodes and pods: percent of a core",
        5.0,
        &[],
    ),
    bar(
        Kube,
        "kube_label_writes",
        "writes for a changed label of a pod",
        1.0,
        &[],
    ),
    free(
        Kube,
        "kube_policy_stored_p50_ms",
        "a policy, from the API server into etcd, p50, ms",
    ),
    free(Kube, "kube_policy_stored_p99_ms", "the same, p99, ms"),
    bar(
        Kube,
        "kube_policy_p50_ms",
        "a policy, from the API server into the kernel, p50, ms",
        50.0,
        &[],
    ),
    bar(Kube, "kube_policy_p99_ms", "the same, p99, ms", 150.0, &[]),
    free(
        Kube,
        "kube_direct_p50_ms",
        "the same policy, from etcd, p50, ms",
    ),
    free(Kube, "kube_direct_p99_ms", "the same, p99, ms"),
    bar(
        Kube,
        "kube_added_p50_ms",
        "difference of both, p50, ms",
        20.0,
        &[],
    ),
    bar(
        Kube,
        "kube_added_p99_ms",
        "difference of both, p99, ms",
        60.0,
        &[],
    ),
    free(
        Kube,
        "kube_services_s",
        "500 services, 5,000 pods: from the start to all routes of a router, s",
    ),
    free(
        Kube,
        "kube_route_p50_ms",
        "a ready endpoint, to the service route of a router, p50, ms",
    ),
    bar(Kube, "kube_route_p99_ms", "the same, p99, ms", 100.0, &[]),
];
