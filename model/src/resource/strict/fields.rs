//! The fields that every typed kind has.

use super::Fields;
use super::Shape::{Any, List, Object, Text};
use crate::key::kind::Kind;

/// An envelope around a spec.
macro_rules! envelope {
    ($spec:expr) => {
        &[
            ("kind", Any),
            ("apiVersion", Any),
            ("metadata", Object(METADATA)),
            ("spec", $spec),
            ("status", Any),
        ]
    };
}

pub(super) const fn fields(kind: Kind) -> Fields {
    match kind {
        Kind::Node => envelope!(Object(NODE)),
        Kind::WorkloadEndpoint => envelope!(Object(WORKLOAD_ENDPOINT)),
        Kind::Profile => envelope!(Object(PROFILE)),
        Kind::ClusterInformation => envelope!(Object(CLUSTER_INFORMATION)),
        Kind::IpPool => envelope!(Object(IP_POOL)),
        Kind::BgpConfiguration => envelope!(Object(BGP_CONFIGURATION)),
        Kind::BgpPeer => envelope!(Object(BGP_PEER)),
        Kind::BgpFilter => envelope!(Object(BGP_FILTER)),
        Kind::IpReservation => envelope!(Object(&[("reservedCIDRs", Any)])),
        Kind::IpamConfiguration => envelope!(Object(IPAM_CONFIGURATION)),
        Kind::NetworkPolicy | Kind::GlobalNetworkPolicy => envelope!(Object(POLICY)),
        Kind::Tier => envelope!(Object(&[("order", Any), ("defaultAction", Any)])),
        _ => envelope!(Any),
    }
}

const METADATA: Fields = &[
    ("name", Text),
    ("namespace", Text),
    ("uid", Text),
    ("creationTimestamp", Any),
    ("labels", Text),
    ("annotations", Text),
    ("resourceVersion", Text),
    ("generateName", Any),
    ("generation", Any),
    ("selfLink", Any),
    ("managedFields", Any),
    ("ownerReferences", Any),
    ("finalizers", Any),
    ("deletionTimestamp", Any),
    ("deletionGracePeriodSeconds", Any),
];

const NODE: Fields = &[
    (
        "bgp",
        Object(&[
            ("asNumber", Any),
            ("ipv4Address", Any),
            ("ipv6Address", Any),
            ("ipv4IPIPTunnelAddr", Any),
            ("routeReflectorClusterID", Any),
        ]),
    ),
    ("ipv4VXLANTunnelAddr", Any),
    ("vxlanTunnelMACAddr", Any),
    ("ipv6VXLANTunnelAddr", Any),
    ("vxlanTunnelMACAddrV6", Any),
    (
        "orchRefs",
        List(&[("nodeName", Text), ("orchestrator", Text)]),
    ),
    (
        "wireguard",
        Object(&[("interfaceIPv4Address", Any), ("interfaceIPv6Address", Any)]),
    ),
    ("addresses", List(&[("address", Any), ("type", Any)])),
    ("interfaces", List(&[("name", Text), ("addresses", Any)])),
];

const WORKLOAD_ENDPOINT: Fields = &[
    ("orchestrator", Text),
    ("workload", Text),
    ("node", Text),
    ("containerID", Text),
    ("pod", Text),
    ("endpoint", Text),
    ("serviceAccountName", Text),
    ("ipNetworks", Any),
    ("ipNATs", List(&[("internalIP", Any), ("externalIP", Any)])),
    ("ipv4Gateway", Any),
    ("ipv6Gateway", Any),
    ("profiles", Text),
    ("interfaceName", Text),
    ("mac", Any),
    (
        "ports",
        List(&[
            ("name", Text),
            ("protocol", Any),
            ("port", Any),
            ("hostPort", Any),
            ("hostIP", Any),
        ]),
    ),
    ("allowSpoofedSourcePrefixes", Any),
    ("qosControls", Any),
    ("allowedIps", Any), // written by the OpenStack driver
];

const PROFILE: Fields = &[
    ("ingress", List(RULE)),
    ("egress", List(RULE)),
    ("labelsToApply", Text),
];

const RULE: Fields = &[
    ("action", Any),
    ("ipVersion", Any),
    ("protocol", Any),
    ("notProtocol", Any),
    ("icmp", Object(ICMP)),
    ("notICMP", Object(ICMP)),
    ("source", Object(ENTITY)),
    ("destination", Object(ENTITY)),
    ("http", Any),
    ("metadata", Any),
];

const ICMP: Fields = &[("type", Any), ("code", Any)];

const ENTITY: Fields = &[
    ("nets", Any),
    ("notNets", Any),
    ("selector", Any),
    ("notSelector", Any),
    ("namespaceSelector", Any),
    ("ports", Any),
    ("notPorts", Any),
    (
        "serviceAccounts",
        Object(&[("names", Text), ("selector", Any)]),
    ),
    ("services", Any),
];

/// Those that only a policy of the whole cluster has are told by its validation.
const POLICY: Fields = &[
    ("tier", Text),
    ("order", Any),
    ("selector", Any),
    ("namespaceSelector", Any),
    ("serviceAccountSelector", Any),
    ("types", Any),
    ("doNotTrack", Any),
    ("preDNAT", Any),
    ("applyOnForward", Any),
    ("performanceHints", Any),
    ("ingress", List(RULE)),
    ("egress", List(RULE)),
];

const CLUSTER_INFORMATION: Fields = &[
    ("clusterGUID", Text),
    ("clusterType", Text),
    ("calicoVersion", Text),
    ("datastoreReady", Any),
    ("variant", Text),
];

const IP_POOL: Fields = &[
    ("cidr", Any),
    ("blockSize", Any),
    ("ipipMode", Any),
    ("vxlanMode", Any),
    ("natOutgoing", Any),
    ("disabled", Any),
    ("disableBGPExport", Any),
    ("nodeSelector", Any),
    ("namespaceSelector", Any),
    ("allowedUses", Any),
    ("assignmentMode", Any),
];

const BGP_CONFIGURATION: Fields = &[
    ("logSeverityScreen", Text),
    ("nodeToNodeMeshEnabled", Any),
    ("asNumber", Any),
    ("listenPort", Any),
    ("bindMode", Any),
    ("serviceClusterIPs", List(CIDR_BLOCK)),
    ("serviceExternalIPs", List(CIDR_BLOCK)),
    ("serviceLoadBalancerIPs", List(CIDR_BLOCK)),
    ("serviceLoadBalancerAggregation", Any),
    ("communities", List(&[("name", Text), ("value", Any)])),
    (
        "prefixAdvertisements",
        List(&[("cidr", Any), ("communities", Text)]),
    ),
    ("nodeMeshPassword", Object(PASSWORD)),
    ("nodeMeshMaxRestartTime", Any),
    ("ignoredInterfaces", Text),
    ("localWorkloadPeeringIPV4", Any),
    ("localWorkloadPeeringIPV6", Any),
    ("programClusterRoutes", Any),
    ("ipv4NormalRoutePriority", Any),
    ("ipv6NormalRoutePriority", Any),
];

const CIDR_BLOCK: Fields = &[("cidr", Any)];

const PASSWORD: Fields = &[(
    "secretKeyRef",
    Object(&[("name", Text), ("key", Text), ("optional", Any)]),
)];

const BGP_PEER: Fields = &[
    ("node", Text),
    ("nodeSelector", Any),
    ("peerIP", Any),
    ("asNumber", Any),
    ("localASNumber", Any),
    ("peerSelector", Any),
    ("keepOriginalNextHop", Any),
    ("nextHopMode", Any),
    ("password", Object(PASSWORD)),
    ("sourceAddress", Any),
    ("maxRestartTime", Any),
    ("keepaliveTime", Any),
    ("numAllowedLocalASNumbers", Any),
    ("ttlSecurity", Any),
    ("reachableBy", Any),
    ("filters", Text),
    ("localWorkloadSelector", Any),
    ("reversePeering", Any),
];

const BGP_FILTER: Fields = &[
    ("exportV4", List(FILTER_RULE)),
    ("importV4", List(FILTER_RULE)),
    ("exportV6", List(FILTER_RULE)),
    ("importV6", List(FILTER_RULE)),
];

const FILTER_RULE: Fields = &[
    ("cidr", Any),
    ("matchOperator", Any),
    ("prefixLength", Object(&[("min", Any), ("max", Any)])),
    ("source", Any),
    ("interface", Text),
    ("peerType", Any),
    ("communities", Object(&[("values", Any)])),
    ("asPathPrefix", Any),
    ("priority", Any),
    ("action", Any),
    ("operations", List(FILTER_OPERATION)),
];

const FILTER_OPERATION: Fields = &[
    ("addCommunity", Object(&[("value", Any)])),
    ("prependASPath", Object(&[("prefix", Any)])),
    ("setPriority", Object(&[("value", Any)])),
];

const IPAM_CONFIGURATION: Fields = &[
    ("strictAffinity", Any),
    ("autoAllocateBlocks", Any),
    ("maxBlocksPerHost", Any),
    ("kubeVirtVMAddressPersistence", Any),
    ("ipCooldownSeconds", Any),
];
