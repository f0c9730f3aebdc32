//! The changes that are made to each key of the datastore.

use bgp_config::changes::STORE_KEYS;

use super::{
    BLOCK, CONFIGURATION, FILTER, Flip, OURS, PEERING, POOL, THEIRS, TIMERS, WORKLOADS, flip,
};

/// Returns the changes of a row.
pub(super) fn flips(key: &str) -> &'static [Flip] {
    let row = FLIPS.iter().find(|(row, _)| *row == key);
    let (_, flips) = row.unwrap_or_else(|| panic!("how is {key} changed?"));
    flips
}

/// Returns a change of one field of a resource.
const fn field(place: &'static str, to: &'static str) -> Flip {
    flip(place, "\"spec\":{", to)
}

/// The changes for each row of the page; every row has at least one.
const FLIPS: &[(&str, &[Flip])] = &[
    (
        "Own Node: `spec.bgp.asNumber`",
        &[flip(OURS, "\"bgp\":{", r#""bgp":{"asNumber":64513,"#).ends()],
    ),
    (
        "Own Node: `spec.bgp.ipv4Address`, `spec.bgp.ipv6Address`",
        &[
            flip(OURS, "10.0.0.1/", "10.0.0.7/").ends(),
            flip(OURS, "fd00::1/", "fd00::7/").over_ipv6().ends(),
            flip(OURS, "fd00::1/", "fd00::7/"),
        ],
    ),
    (
        "Other Node: `spec.bgp.ipv4Address`, `spec.bgp.ipv6Address`",
        &[
            flip(THEIRS, "10.0.0.2/", "10.0.0.9/").of_mesh().ends(),
            flip(THEIRS, "fd00::2/", "fd00::9/").over_ipv6().ends(),
        ],
    ),
    (
        "Other Node: `spec.bgp.asNumber`",
        &[flip(THEIRS, "\"bgp\":{", r#""bgp":{"asNumber":64513,"#)
            .of_mesh()
            .ends()],
    ),
    (
        "Node: `spec.bgp.routeReflectorClusterID`",
        &[
            flip(
                OURS,
                "\"bgp\":{",
                r#""bgp":{"routeReflectorClusterID":"10.9.9.9","#,
            ),
            flip(
                THEIRS,
                "\"bgp\":{",
                r#""bgp":{"routeReflectorClusterID":"10.9.9.9","#,
            ),
        ],
    ),
    (
        "Node: `metadata.labels`",
        &[
            flip(
                OURS,
                "\"metadata\":{",
                r#""metadata":{"labels":{"rack":"r1"},"#,
            ),
            flip(
                THEIRS,
                "\"metadata\":{",
                r#""metadata":{"labels":{"rack":"r1"},"#,
            ),
        ],
    ),
    (
        "Node: `spec.wireguard`",
        &[
            field(
                OURS,
                r#""spec":{"wireguard":{"interfaceIPv4Address":"10.65.0.2"},"#,
            ),
            field(
                THEIRS,
                r#""spec":{"wireguard":{"interfaceIPv4Address":"10.65.0.3"},"#,
            ),
        ],
    ),
    (
        "Node: all other fields",
        &[
            field(OURS, r#""spec":{"ipv4VXLANTunnelAddr":"10.65.0.4","#),
            flip(
                OURS,
                "\"bgp\":{",
                r#""bgp":{"ipv4IPIPTunnelAddr":"10.65.0.5","#,
            ),
        ],
    ),
    (
        "BGPConfiguration `spec.nodeToNodeMeshEnabled`",
        &[flip(CONFIGURATION, "false", "true")],
    ),
    (
        "BGPConfiguration `metadata.annotations`: `cambric.io/reflectors-per-node`",
        &[flip(
            CONFIGURATION,
            "\"metadata\":{",
            r#""metadata":{"annotations":{"cambric.io/reflectors-per-node":"3"},"#,
        )],
    ),
    (
        "BGPConfiguration `metadata.annotations`: `cambric.io/fabric-bfd`",
        &[flip(
            CONFIGURATION,
            "\"metadata\":{",
            r#""metadata":{"annotations":{"cambric.io/fabric-bfd":"false"},"#,
        )],
    ),
    (
        "BGPConfiguration `spec.asNumber`",
        &[field(CONFIGURATION, r#""spec":{"asNumber":64513,"#).ends()],
    ),
    (
        "BGPConfiguration `spec.listenPort`",
        &[field(CONFIGURATION, r#""spec":{"listenPort":1179,"#).of_mesh()],
    ),
    (
        "BGPConfiguration `spec.bindMode`",
        &[
            field(CONFIGURATION, r#""spec":{"bindMode":"NodeIP","#),
            field(CONFIGURATION, r#""spec":{"bindMode":"NodeIP","#).of_mesh(),
        ],
    ),
    (
        "BGPConfiguration `spec.nodeMeshPassword`",
        &[flip(CONFIGURATION, "\"word\"", "\"other\"").of_mesh()],
    ),
    (
        "BGPConfiguration `spec.nodeMeshMaxRestartTime`",
        &[field(CONFIGURATION, r#""spec":{"nodeMeshMaxRestartTime":"77s","#).of_mesh()],
    ),
    (
        "BGPConfiguration `spec.communities`, `spec.prefixAdvertisements`",
        &[field(
            CONFIGURATION,
            r#""spec":{"communities":[{"name":"c","value":"64512:1"}],"prefixAdvertisements":[{"cidr":"10.65.0.0/16","communities":["c"]}],"#,
        )],
    ),
    (
        "BGPConfiguration `spec.serviceClusterIPs`, `spec.serviceExternalIPs`, \
         `spec.serviceLoadBalancerIPs`, `spec.serviceLoadBalancerAggregation`",
        &[
            field(
                CONFIGURATION,
                r#""spec":{"serviceClusterIPs":[{"cidr":"10.96.0.0/12"}],"#,
            ),
            field(
                CONFIGURATION,
                r#""spec":{"serviceExternalIPs":[{"cidr":"192.0.2.0/26"}],"#,
            ),
            field(
                CONFIGURATION,
                r#""spec":{"serviceLoadBalancerIPs":[{"cidr":"192.0.2.64/26"}],"#,
            ),
            field(
                CONFIGURATION,
                r#""spec":{"serviceLoadBalancerAggregation":"Disabled","serviceLoadBalancerIPs":[{"cidr":"192.0.2.64/26"}],"#,
            ),
        ],
    ),
    (
        "BGPConfiguration `spec.ipv4NormalRoutePriority`, `spec.ipv6NormalRoutePriority`",
        &[
            field(CONFIGURATION, r#""spec":{"ipv4NormalRoutePriority":512,"#),
            field(CONFIGURATION, r#""spec":{"ipv6NormalRoutePriority":512,"#),
        ],
    ),
    (
        "BGPConfiguration `spec.programClusterRoutes`",
        &[
            field(
                CONFIGURATION,
                r#""spec":{"programClusterRoutes":"Enabled","#,
            ),
            field(
                CONFIGURATION,
                r#""spec":{"programClusterRoutes":"Disabled","#,
            ),
        ],
    ),
    (
        "BGPConfiguration `spec.ignoredInterfaces`, `spec.logSeverityScreen`, \
         `spec.localWorkloadPeeringIPV4`, `spec.localWorkloadPeeringIPV6`",
        &[
            field(CONFIGURATION, r#""spec":{"ignoredInterfaces":["br-*"],"#),
            field(CONFIGURATION, r#""spec":{"logSeverityScreen":"Debug","#),
            field(
                CONFIGURATION,
                r#""spec":{"localWorkloadPeeringIPV4":"169.254.9.9","localWorkloadPeeringIPV6":"fe80::9:9","#,
            ),
        ],
    ),
    (
        "BGPPeer `spec.node`, `spec.nodeSelector`, `spec.peerSelector`, `spec.reversePeering`",
        &[
            field(PEERING, r#""spec":{"node":"h1","#),
            field(PEERING, r#""spec":{"nodeSelector":"all()","#),
            flip(
                PEERING,
                r#""peerIP":"10.0.0.2","asNumber":64512"#,
                r#""peerSelector":"all()""#,
            ),
            field(PEERING, r#""spec":{"reversePeering":"Manual","#),
        ],
    ),
    (
        "BGPPeer `spec.peerIP`",
        &[
            flip(PEERING, "10.0.0.2", "10.0.0.2:1179"),
            flip(PEERING, "10.0.0.2", "10.0.0.9").ends(),
        ],
    ),
    (
        "BGPPeer `spec.asNumber`",
        &[flip(PEERING, "64512", "64513").ends()],
    ),
    (
        "BGPPeer `spec.localASNumber`",
        &[field(PEERING, r#""spec":{"localASNumber":64600,"#).ends()],
    ),
    (
        "BGPPeer `spec.sourceAddress`",
        &[
            field(PEERING, r#""spec":{"sourceAddress":"None","#),
            flip(PEERING, "\"None\"", "\"UseNodeIP\"")
                .dialed_elsewhere()
                .ends(),
        ],
    ),
    (
        "BGPPeer `spec.nextHopMode`, `spec.keepOriginalNextHop`",
        &[
            field(PEERING, r#""spec":{"nextHopMode":"Self","#),
            field(PEERING, r#""spec":{"keepOriginalNextHop":true,"#),
        ],
    ),
    (
        "BGPPeer `spec.failureDetectionMode`",
        &[field(
            PEERING,
            r#""spec":{"failureDetectionMode":"BFDIfDirectlyConnected","#,
        )],
    ),
    ("BFDConfiguration: all", &[flip(TIMERS, "", "")]),
    (
        "BGPPeer `spec.password`, and the secret it names",
        &[flip(PEERING, "\"word\"", "\"other\"")],
    ),
    (
        "BGPPeer `spec.maxRestartTime`",
        &[field(PEERING, r#""spec":{"maxRestartTime":"77s","#)],
    ),
    (
        "BGPPeer `spec.keepaliveTime`",
        &[field(PEERING, r#""spec":{"keepaliveTime":"2s","#)],
    ),
    (
        "BGPPeer `spec.numAllowedLocalASNumbers`",
        &[field(PEERING, r#""spec":{"numAllowedLocalASNumbers":1,"#)],
    ),
    (
        "BGPPeer `spec.ttlSecurity`",
        &[field(PEERING, r#""spec":{"ttlSecurity":250,"#)],
    ),
    (
        "BGPPeer `spec.filters`; BGPFilter: all",
        &[
            flip(PEERING, r#"["some"]"#, "[]"),
            flip(FILTER, "10.98.0.0", "10.99.0.0"),
            flip(FILTER, "exportV4", "importV4"),
        ],
    ),
    (
        "BGPPeer `spec.reachableBy`",
        &[field(PEERING, r#""spec":{"reachableBy":"10.0.0.2","#)],
    ),
    (
        "BGPPeer `spec.localWorkloadSelector`",
        &[flip(WORKLOADS, "", "")],
    ),
    (
        "IPPool: all; block affinities",
        &[
            field(POOL, r#""spec":{"disableBGPExport":true,"#),
            flip(BLOCK, "", ""),
        ],
    ),
];

#[test]
fn every_key_is_changed_and_no_other() {
    let changed: Vec<&str> = FLIPS.iter().map(|(key, _)| *key).collect();
    let keys: Vec<&str> = STORE_KEYS.iter().map(|row| row.key).collect();
    assert_eq!(changed, keys);
    assert!(FLIPS.iter().all(|(_, flips)| !flips.is_empty()));
}
