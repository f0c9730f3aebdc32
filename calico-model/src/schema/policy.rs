//! The kinds that Felix reads: endpoints, policies, and objects that rules select.

use super::Program::Felix;
use super::Shape::{Any, List, Object, Rules, Text};
use super::{Fields, always, envelope, felix, is_set, may_match, no, parts, record};

pub(super) const WORKLOAD_ENDPOINT: Fields = envelope!(parts("spec", Object(ENDPOINT)));

const ENDPOINT: Fields = &[
    felix("orchestrator", Text),
    felix("workload", Text),
    felix("node", Text),
    felix("containerID", Text),
    felix("pod", Text),
    felix("endpoint", Text),
    felix("serviceAccountName", Text),
    felix("ipNetworks", Any),
    parts(
        "ipNATs",
        List(&[felix("internalIP", Any), felix("externalIP", Any)]),
    ),
    record("ipv4Gateway", Any),
    record("ipv6Gateway", Any),
    felix("profiles", Text),
    felix("interfaceName", Text),
    felix("mac", Any),
    parts(
        "ports",
        List(&[
            felix("name", Text),
            felix("protocol", Any),
            felix("port", Any),
            no(Some(Felix), "hostPort", Any, is_set, NO_HOST_PORT),
            no(Some(Felix), "hostIP", Any, is_set, NO_HOST_PORT),
        ]),
    ),
    felix("allowSpoofedSourcePrefixes", Any),
    parts("qosControls", Object(QOS)),
    record("allowedIps", Any), // written by the OpenStack driver
];

const QOS: Fields = &[
    felix("ingressPacketRate", Any),
    felix("ingressPacketBurst", Any),
    felix("egressPacketRate", Any),
    felix("egressPacketBurst", Any),
    felix("ingressMaxConnections", Any),
    felix("egressMaxConnections", Any),
    felix("dscp", Any),
    felix("ingressBandwidth", Any),
    felix("ingressBurst", Any),
    felix("ingressPeakrate", Any),
    felix("ingressMinburst", Any),
    felix("egressBandwidth", Any),
    felix("egressBurst", Any),
    felix("egressPeakrate", Any),
    felix("egressMinburst", Any),
];

const NO_HOST_PORT: &str = "not supported: no port of the host is forwarded to the workload";

pub(super) const HOST_ENDPOINT: Fields = envelope!(parts(
    "spec",
    Object(&[
        felix("node", Text),
        felix("interfaceName", Text),
        felix("expectedIPs", Any),
        felix("profiles", Text),
        parts(
            "ports",
            List(&[
                felix("name", Text),
                felix("protocol", Any),
                felix("port", Any)
            ])
        ),
    ]),
));

pub(super) const PROFILE: Fields = envelope!(parts(
    "spec",
    Object(&[
        parts("ingress", Rules),
        parts("egress", Rules),
        felix("labelsToApply", Text),
    ])
));

pub(super) const RULE: Fields = &[
    felix("action", Any),
    felix("ipVersion", Any),
    felix("protocol", Any),
    felix("notProtocol", Any),
    parts("icmp", Object(ICMP)),
    parts("notICMP", Object(ICMP)),
    parts("source", Object(ENTITY)),
    parts("destination", Object(ENTITY)),
    no(
        Some(Felix),
        "http",
        Any,
        may_match,
        "matching on HTTP is not supported",
    ),
    record("metadata", Any),
];

const ICMP: Fields = &[felix("type", Any), felix("code", Any)];

const ENTITY: Fields = &[
    felix("nets", Any),
    felix("notNets", Any),
    felix("selector", Any),
    felix("notSelector", Any),
    felix("namespaceSelector", Any),
    felix("ports", Any),
    felix("notPorts", Any),
    parts(
        "serviceAccounts",
        Object(&[felix("names", Text), felix("selector", Any)]),
    ),
    parts(
        "services",
        Object(&[felix("name", Text), felix("namespace", Text)]),
    ),
];

const OF_CLUSTER: &str =
    "it is a field of a GlobalNetworkPolicy: a NetworkPolicy selects no host endpoint";

/// Declares the fields of policies, with those of cluster-wide policies.
macro_rules! policy {
    ($($of_cluster:expr),*) => {
        &[
            felix("tier", Text),
            felix("order", Any),
            felix("selector", Any),
            felix("namespaceSelector", Any),
            felix("serviceAccountSelector", Any),
            felix("types", Any),
            $($of_cluster,)*
            no(
                Some(Felix),
                "performanceHints",
                Any,
                is_set,
                "the hint is not needed and has no effect",
            ),
            parts("ingress", Rules),
            parts("egress", Rules),
        ]
    };
}

pub(super) const NETWORK_POLICY: Fields = envelope!(parts(
    "spec",
    Object(policy!(
        no(Some(Felix), "doNotTrack", Any, is_set, OF_CLUSTER),
        no(Some(Felix), "preDNAT", Any, is_set, OF_CLUSTER),
        no(Some(Felix), "applyOnForward", Any, is_set, OF_CLUSTER)
    ))
));

pub(super) const GLOBAL_NETWORK_POLICY: Fields = envelope!(parts(
    "spec",
    Object(policy!(
        felix("doNotTrack", Any),
        felix("preDNAT", Any),
        felix("applyOnForward", Any)
    ))
));

pub(super) const TIER: Fields = envelope!(parts(
    "spec",
    Object(&[felix("order", Any), felix("defaultAction", Any)])
));

pub(super) const NETWORK_SET: Fields = envelope!(parts("spec", Object(&[felix("nets", Any)])));

const STAGED: &str = "staged policies are not enforced; cambric policy preview shows their effect";

pub(super) const STAGED_POLICY: Fields = envelope!(no(
    Some(Felix),
    "spec",
    Object(&[
        record("stagedAction", Any),
        record("tier", Text),
        record("order", Any),
        record("selector", Any),
        record("namespaceSelector", Any),
        record("serviceAccountSelector", Any),
        record("types", Any),
        record("doNotTrack", Any),
        record("preDNAT", Any),
        record("applyOnForward", Any),
        record("performanceHints", Any),
        parts("ingress", Rules),
        parts("egress", Rules),
    ]),
    always,
    STAGED,
));

pub(super) const STAGED_KUBERNETES_POLICY: Fields = envelope!(no(
    Some(Felix),
    "spec",
    Object(&[
        record("stagedAction", Any),
        record("podSelector", Any),
        record("ingress", Any),
        record("egress", Any),
        record("policyTypes", Any),
    ]),
    always,
    STAGED,
));
