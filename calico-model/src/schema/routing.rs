//! The kinds that routing and address management read.

use serde_json::Value;

use super::Program::{Bgp, Datastore, Felix};
use super::Shape::{Any, List, Object, Text};
use super::{Fields, bgp, by, envelope, ipam, is_set, no, parts, record};

pub(super) const NODE: Fields = envelope!(parts("spec", Object(NODE_SPEC)));

pub(super) const CLUSTER_INFORMATION: Fields =
    envelope!(parts("spec", Object(CLUSTER_INFORMATION_SPEC)));

pub(super) const IP_POOL: Fields = envelope!(parts("spec", Object(IP_POOL_SPEC)));

pub(super) const BGP_CONFIGURATION: Fields =
    envelope!(parts("spec", Object(BGP_CONFIGURATION_SPEC)));

pub(super) const BGP_PEER: Fields = envelope!(parts("spec", Object(BGP_PEER_SPEC)));

pub(super) const BGP_FILTER: Fields = envelope!(parts("spec", Object(BGP_FILTER_SPEC)));

pub(super) const BFD_CONFIGURATION: Fields = envelope!(parts(
    "spec",
    Object(&[
        bgp("nodeSelector", Any),
        parts("interfaces", List(BFD_INTERFACE)),
    ])
));

pub(super) const IPAM_CONFIGURATION: Fields =
    envelope!(parts("spec", Object(IPAM_CONFIGURATION_SPEC)));

pub(super) const IP_RESERVATION: Fields =
    envelope!(parts("spec", Object(&[ipam("reservedCIDRs", Any)])));

const NO_WORKLOAD_SESSIONS: &str = "sessions with workloads of the node itself are not supported";
const LOG: &str = "not supported: \"log\" in the daemon's file sets what is logged";

fn is_not_info(severity: &Value) -> bool {
    is_set(severity) && severity != "Info"
}

const NODE_SPEC: Fields = &[
    parts(
        "bgp",
        Object(&[
            bgp("asNumber", Any),
            bgp("ipv4Address", Any),
            bgp("ipv6Address", Any),
            by(Felix, "ipv4IPIPTunnelAddr", Any),
            bgp("routeReflectorClusterID", Any),
        ]),
    ),
    by(Felix, "ipv4VXLANTunnelAddr", Any),
    by(Felix, "vxlanTunnelMACAddr", Any),
    by(Felix, "ipv6VXLANTunnelAddr", Any),
    by(Felix, "vxlanTunnelMACAddrV6", Any),
    parts(
        "orchRefs",
        List(&[record("nodeName", Text), record("orchestrator", Text)]),
    ),
    parts(
        "wireguard",
        Object(&[
            bgp("interfaceIPv4Address", Any),
            bgp("interfaceIPv6Address", Any),
        ]),
    ),
    parts(
        "addresses",
        List(&[record("address", Any), record("type", Any)]),
    ),
    parts(
        "interfaces",
        List(&[record("name", Text), record("addresses", Any)]),
    ),
];

const CLUSTER_INFORMATION_SPEC: Fields = &[
    by(Datastore, "clusterGUID", Text),
    record("clusterType", Text),
    record("calicoVersion", Text),
    by(Datastore, "datastoreReady", Any),
    record("variant", Text),
];

const IP_POOL_SPEC: Fields = &[
    ipam("cidr", Any),
    ipam("blockSize", Any),
    bgp("ipipMode", Any),
    by(Felix, "vxlanMode", Any),
    by(Felix, "natOutgoing", Any),
    ipam("disabled", Any),
    bgp("disableBGPExport", Any),
    ipam("nodeSelector", Any),
    ipam("namespaceSelector", Any),
    ipam("allowedUses", Any),
    ipam("assignmentMode", Any),
];

const BGP_CONFIGURATION_SPEC: Fields = &[
    no(Some(Bgp), "logSeverityScreen", Text, is_not_info, LOG),
    bgp("nodeToNodeMeshEnabled", Any),
    bgp("asNumber", Any),
    bgp("listenPort", Any),
    bgp("bindMode", Any),
    parts("serviceClusterIPs", List(CIDR_BLOCK)),
    parts("serviceExternalIPs", List(CIDR_BLOCK)),
    parts("serviceLoadBalancerIPs", List(CIDR_BLOCK)),
    bgp("serviceLoadBalancerAggregation", Any),
    parts("communities", List(&[bgp("name", Text), bgp("value", Any)])),
    parts(
        "prefixAdvertisements",
        List(&[bgp("cidr", Any), bgp("communities", Text)]),
    ),
    parts("nodeMeshPassword", Object(PASSWORD)),
    bgp("nodeMeshMaxRestartTime", Any),
    bgp("ignoredInterfaces", Text),
    no(
        Some(Bgp),
        "localWorkloadPeeringIPV4",
        Any,
        is_set,
        NO_WORKLOAD_SESSIONS,
    ),
    no(
        Some(Bgp),
        "localWorkloadPeeringIPV6",
        Any,
        is_set,
        NO_WORKLOAD_SESSIONS,
    ),
    bgp("programClusterRoutes", Any),
    bgp("ipv4NormalRoutePriority", Any),
    bgp("ipv6NormalRoutePriority", Any),
];

const CIDR_BLOCK: Fields = &[bgp("cidr", Any)];

const PASSWORD: Fields = &[parts(
    "secretKeyRef",
    Object(&[bgp("name", Text), bgp("key", Text), bgp("optional", Any)]),
)];

const BGP_PEER_SPEC: Fields = &[
    bgp("node", Text),
    bgp("nodeSelector", Any),
    bgp("peerIP", Any),
    bgp("asNumber", Any),
    bgp("localASNumber", Any),
    bgp("peerSelector", Any),
    bgp("keepOriginalNextHop", Any),
    bgp("nextHopMode", Any),
    parts("password", Object(PASSWORD)),
    bgp("sourceAddress", Any),
    bgp("failureDetectionMode", Any),
    bgp("maxRestartTime", Any),
    bgp("keepaliveTime", Any),
    bgp("numAllowedLocalASNumbers", Any),
    bgp("ttlSecurity", Any),
    bgp("reachableBy", Any),
    bgp("filters", Text),
    no(
        Some(Bgp),
        "localWorkloadSelector",
        Any,
        is_set,
        NO_WORKLOAD_SESSIONS,
    ),
    bgp("reversePeering", Any),
];

const BGP_FILTER_SPEC: Fields = &[
    parts("exportV4", List(FILTER_RULE)),
    parts("importV4", List(FILTER_RULE)),
    parts("exportV6", List(FILTER_RULE)),
    parts("importV6", List(FILTER_RULE)),
];

const BFD_INTERFACE: Fields = &[
    bgp("matchPattern", Text),
    bgp("minimumRecvInterval", Any),
    bgp("minimumSendInterval", Any),
    bgp("idleSendInterval", Any),
    bgp("multiplier", Any),
];

const FILTER_RULE: Fields = &[
    bgp("cidr", Any),
    bgp("matchOperator", Any),
    parts("prefixLength", Object(&[bgp("min", Any), bgp("max", Any)])),
    bgp("source", Any),
    bgp("interface", Text),
    bgp("peerType", Any),
    parts("communities", Object(&[bgp("values", Any)])),
    bgp("asPathPrefix", Any),
    bgp("priority", Any),
    bgp("action", Any),
    parts("operations", List(FILTER_OPERATION)),
];

const FILTER_OPERATION: Fields = &[
    parts("addCommunity", Object(&[bgp("value", Any)])),
    parts("prependASPath", Object(&[bgp("prefix", Any)])),
    parts("setPriority", Object(&[bgp("value", Any)])),
];

const IPAM_CONFIGURATION_SPEC: Fields = &[
    ipam("strictAffinity", Any),
    ipam("autoAllocateBlocks", Any),
    ipam("maxBlocksPerHost", Any),
    ipam("kubeVirtVMAddressPersistence", Any),
    ipam("ipCooldownSeconds", Any),
];
