//! The changes that are measured.

/// The route that a node's BGP client learns from its neighbor outside the cluster, by [`TOR`].
pub(super) const KERNEL_ROUTE: &str = "10.65.8.0/26";
/// An address of its pool that it announces individually: it is outside the node's own blocks.
pub(super) const BORROWED: &str = "10.65.9.9/32";
/// Its block.
pub(super) const BLOCK: &str = "10.65.1.0/26";
/// Addresses of services, which it announces.
pub(super) const SERVICES: &str = "192.0.2.0/26";

const TOR: &str = "bgppeers/tor";
const FILTER: &str = "bgpfilters/less";
const POOL: &str = "ippools/pool";
const NODE: &str = "nodes/node1";
const OTHER: &str = "nodes/rr1";
const AFFINITY: &str = "/calico/ipam/v2/host/node1/ipv4/block/10.65.1.0-26";
const DRAIN: &str = "/cambric/v1/drain/node1";

const PEERING: &str =
    r#"{"spec":{"node":"node1","peerIP":"10.0.0.2","asNumber":64700,"filters":["less"]}}"#;
const NARROW: &str =
    r#"{"spec":{"node":"node1","peerIP":"10.0.0.2","asNumber":64700,"filters":["strict"]}}"#;
const HARMLESS: &str =
    r#"{"spec":{"exportV4":[{"cidr":"10.99.0.0/16","matchOperator":"In","action":"Reject"}]}}"#;
const STRICT: &str =
    r#"{"spec":{"exportV4":[{"cidr":"10.65.9.0/24","matchOperator":"In","action":"Reject"}]}}"#;
const OPEN: &str = r#"{"spec":{"cidr":"10.65.0.0/16"}}"#;
const KEPT: &str = r#"{"spec":{"cidr":"10.65.0.0/16","disableBGPExport":true}}"#;
const TUNNELED: &str = r#"{"spec":{"cidr":"10.65.0.0/16","vxlanMode":"Always"}}"#;
const PLAIN: &str = r#"{"spec":{"bgp":{"ipv4Address":"10.0.0.11/24"}}}"#;
const EXCLUDED: &str = r#"{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"true"}},
    "spec":{"bgp":{"ipv4Address":"10.0.0.11/24"}}}"#;
const ANOTHER: &str = r#"{"spec":{"bgp":{"ipv4Address":"10.0.0.1/24"}}}"#;
const SETTINGS: &str =
    r#"{"metadata":{"name":"default"},"spec":{"serviceExternalIPs":[{"cidr":"192.0.2.0/26"}]}}"#;
const CONFIRMED: &str = r#"{"state":"confirmed"}"#;
const PENDING: &str = r#"{"state":"pending"}"#;

/// The initial content of the datastore.
pub(super) const FIRST: &[(&str, &str)] = &[
    (NODE, PLAIN),
    (OTHER, ANOTHER),
    (POOL, OPEN),
    (AFFINITY, CONFIRMED),
    ("bgpconfigurations/default", SETTINGS),
    ("bgpfilters/strict", STRICT),
    (FILTER, HARMLESS),
    (TOR, PEERING),
];

/// A change that is made and reverted: the value of a key before and after, and the effect that is
/// visible before and not after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// The names of its p50 and p99.
    pub(super) measures: [&'static str; 2],
    /// A resource's kind and name, or a whole key.
    pub(super) place: &'static str,
    pub(super) before: Option<&'static str>,
    pub(super) after: Option<&'static str>,
    pub(super) seen: Seen,
}

/// The visible effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A route at the neighbor outside the cluster.
    Route(&'static str),
    /// A route at that neighbor without the GRACEFUL_SHUTDOWN community.
    Staying(&'static str),
    /// A route in the node's kernel, through that neighbor.
    Kernel(&'static str),
    /// The session with that neighbor.
    Outside,
    /// The session with the other node.
    Inside,
}

const fn case(
    measures: [&'static str; 2],
    place: &'static str,
    before: Option<&'static str>,
    after: Option<&'static str>,
    seen: Seen,
) -> Case {
    Case {
        measures,
        place,
        before,
        after,
        seen,
    }
}

/// All cases. Each begins and ends with the initial content.
pub(super) const CASES: &[Case] = &[
    case(
        ["live_peer_filters_p50_ms", "live_peer_filters_p99_ms"],
        TOR,
        Some(PEERING),
        Some(NARROW),
        Seen::Route(BORROWED),
    ),
    case(
        ["live_filter_p50_ms", "live_filter_p99_ms"],
        FILTER,
        Some(HARMLESS),
        Some(STRICT),
        Seen::Route(BORROWED),
    ),
    case(
        ["live_export_p50_ms", "live_export_p99_ms"],
        POOL,
        Some(OPEN),
        Some(KEPT),
        Seen::Route(BORROWED),
    ),
    case(
        ["live_mode_p50_ms", "live_mode_p99_ms"],
        POOL,
        Some(OPEN),
        Some(TUNNELED),
        Seen::Kernel(KERNEL_ROUTE),
    ),
    case(
        ["live_block_p50_ms", "live_block_p99_ms"],
        AFFINITY,
        Some(CONFIRMED),
        Some(PENDING),
        Seen::Route(BLOCK),
    ),
    case(
        ["live_label_p50_ms", "live_label_p99_ms"],
        NODE,
        Some(PLAIN),
        Some(EXCLUDED),
        Seen::Route(SERVICES),
    ),
    case(
        ["live_drain_p50_ms", "live_drain_p99_ms"],
        DRAIN,
        None,
        Some("{}"),
        Seen::Staying(BLOCK),
    ),
    case(
        ["live_peer_p50_ms", "live_peer_p99_ms"],
        TOR,
        Some(PEERING),
        None,
        Seen::Outside,
    ),
    case(
        ["live_node_p50_ms", "live_node_p99_ms"],
        OTHER,
        Some(ANOTHER),
        None,
        Seen::Inside,
    ),
];
