//! Kinds of which no program of this suite reads every field.

use super::Program::{Felix, Kubernetes};
use super::Shape::{Any, Object, Text};
use super::{Fields, always, by, envelope, is_set, no, parts, record};

pub(super) const BLOCK_AFFINITY: Fields = envelope!(no(
    None,
    "spec",
    Object(&[
        record("state", Any),
        record("node", Text),
        record("type", Any),
        record("cidr", Any),
        record("deleted", Any),
    ]),
    always,
    "resources of this kind are not read: address management keeps affinities under its own keys",
));

const IDENTIFIER: Fields = &[
    record("hostname", Text),
    record("orchestratorID", Text),
    record("workloadID", Text),
    record("endpointID", Text),
];

pub(super) const LIVE_MIGRATION: Fields = envelope!(no(
    Some(Felix),
    "spec",
    Object(&[
        parts(
            "source",
            Object(&[
                parts("workload", Object(IDENTIFIER)),
                parts("workloadEndpoint", Object(IDENTIFIER)),
            ])
        ),
        parts(
            "target",
            Object(&[
                record("selector", Any),
                parts("workloadEndpoint", Object(IDENTIFIER)),
            ])
        ),
    ]),
    always,
    "the resource is only reported: a workload moves when the node of its endpoint changes",
));

pub(super) const KUBE_CONTROLLERS_CONFIGURATION: Fields = envelope!(parts(
    "spec",
    Object(&[
        no(
            None,
            "logSeverityScreen",
            Text,
            is_set,
            "set `log` in the file of cambric-kube",
        ),
        no(
            None,
            "healthChecks",
            Any,
            is_set,
            "readiness is that of `cambric show status`",
        ),
        no(
            None,
            "etcdV3CompactionPeriod",
            Any,
            is_set,
            "set --auto-compaction-retention of etcd",
        ),
        no(
            None,
            "prometheusMetricsPort",
            Any,
            is_set,
            "set `metrics.listen` in the file of cambric-kube",
        ),
        by(Kubernetes, "controllers", Any),
        no(
            None,
            "debugProfilePort",
            Any,
            is_set,
            "cambric-kube has no port for profiles",
        ),
    ]),
));

pub(super) const CALICO_NODE_STATUS: Fields = envelope!(no(
    None,
    "spec",
    Object(&[
        record("node", Text),
        record("classes", Any),
        record("updatePeriodSeconds", Any),
    ]),
    always,
    "no status is written into it: use cambric show on the node",
));
