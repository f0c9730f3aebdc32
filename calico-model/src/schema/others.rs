//! Kinds that no program of this suite reads.

use super::Program::Felix;
use super::Shape::{Any, Object, Text};
use super::{Fields, always, envelope, no, parts, record};

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

pub(super) const KUBE_CONTROLLERS_CONFIGURATION: Fields = envelope!(no(
    None,
    "spec",
    Object(&[
        record("logSeverityScreen", Text),
        record("healthChecks", Any),
        record("etcdV3CompactionPeriod", Any),
        record("prometheusMetricsPort", Any),
        record("controllers", Any),
        record("debugProfilePort", Any),
    ]),
    always,
    "no program of this suite reads it; Calico's kube-controllers do where they run",
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
