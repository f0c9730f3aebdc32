use std::num::NonZeroU16;

use serde_json::json;

use super::*;
use crate::{
    AsNumber, BfdConfigurationSpec, BgpConfigurationSpec, BgpFilterSpec, BgpPeerSpec, BindMode,
    ClusterRoutes, CommunityValue, IpReservationSpec, IpamConfigurationSpec, NextHopMode,
};

/// Returns one full resource of each kind, as other writers store it.
fn full() -> [Value; 6] {
    let rule = json!({"cidr": "10.65.0.0/16", "matchOperator": "In", "prefixLength": {"min": 26, "max": 26},
        "source": "RemotePeers", "interface": "eth*", "peerType": "eBGP", "asPathPrefix": [64700],
        "communities": {"values": ["64611:77"]}, "priority": 900, "action": "Accept",
        "operations": [{"addCommunity": {"value": "64611:4:7"}},
                       {"prependASPath": {"prefix": [64611, 64611]}}, {"setPriority": {"value": 900}}]});
    [
        json!({"kind": "BGPConfiguration", "apiVersion": API_VERSION, "metadata": {"name": "default"}, "spec": {
            "logSeverityScreen": "Info", "nodeToNodeMeshEnabled": true, "asNumber": 64512, "listenPort": 1179,
            "bindMode": "NodeIP", "serviceClusterIPs": [{"cidr": "10.96.0.0/12"}],
            "serviceExternalIPs": [{"cidr": "203.0.113.0/26"}],
            "serviceLoadBalancerIPs": [{"cidr": "198.51.100.10/32"}],
            "serviceLoadBalancerAggregation": "Enabled",
            "communities": [{"name": "no-out", "value": "64512:300"}, {"name": "big", "value": "64512:4:9"}],
            "prefixAdvertisements": [{"cidr": "10.65.0.0/16", "communities": ["no-out", "64512:120"]}],
            "nodeMeshPassword": {"secretKeyRef": {"name": "bgp-secrets", "key": "mesh"}},
            "nodeMeshMaxRestartTime": "2m30s", "ignoredInterfaces": ["br-*"],
            "localWorkloadPeeringIPV4": "169.254.9.9", "localWorkloadPeeringIPV6": "fe80::9:9",
            "programClusterRoutes": "EnabledNoEncapOnly",
            "ipv4NormalRoutePriority": 1024, "ipv6NormalRoutePriority": 1025}}),
        json!({"kind": "BGPPeer", "apiVersion": API_VERSION, "metadata": {"name": "rack-tor"}, "spec": {
            "nodeSelector": "rack == 'r1'", "peerIP": "10.20.1.254:1179", "asNumber": 64700,
            "localASNumber": 64611, "sourceAddress": "UseNodeIP", "nextHopMode": "Self",
            "numAllowedLocalASNumbers": 1, "ttlSecurity": 1, "maxRestartTime": "2m0s",
            "keepaliveTime": "20s", "failureDetectionMode": "BFDIfDirectlyConnected", "reachableBy": "10.20.1.1", "filters": ["to-tor"],
            "password": {"secretKeyRef": {"name": "bgp-secrets", "key": "tor"}}, "reversePeering": "Auto"}}),
        json!({"kind": "BGPFilter", "apiVersion": API_VERSION, "metadata": {"name": "to-tor"}, "spec": {
            "exportV4": [rule, {"action": "Reject"}], "importV4": [{"action": "Reject"}],
            "exportV6": [{"cidr": "fd65::/48", "matchOperator": "NotIn", "action": "Reject"}],
            "importV6": [{"cidr": "fd65::/48", "matchOperator": "Equal", "action": "Accept"}]}}),
        json!({"kind": "IPReservation", "apiVersion": API_VERSION, "metadata": {"name": "gw"},
            "spec": {"reservedCIDRs": ["10.65.0.0/29", "10.65.255.255/32"]}}),
        json!({"kind": "IPAMConfiguration", "apiVersion": API_VERSION, "metadata": {"name": "default"}, "spec": {
            "strictAffinity": false, "autoAllocateBlocks": true, "maxBlocksPerHost": 7,
            "kubeVirtVMAddressPersistence": "Enabled", "ipCooldownSeconds": 60}}),
        json!({"kind": "BFDConfiguration", "apiVersion": API_VERSION, "metadata": {"name": "default"}, "spec": {
            "nodeSelector": "all()", "interfaces": [{"matchPattern": "*", "minimumRecvInterval": "10ms",
            "minimumSendInterval": "100ms", "idleSendInterval": "1m0s", "multiplier": 5}]}}),
    ]
}

fn faults(value: Value) -> Vec<String> {
    match encode_strict(value) {
        Err(EncodeError::Invalid(faults)) => faults.into_iter().map(|fault| fault.field).collect(),
        Err(error) => vec![error.to_string()],
        Ok(_) => Vec::new(),
    }
}

/// Returns the faults of a spec of this kind.
fn of(kind: &str, spec: &Value) -> Vec<String> {
    let name = if kind == "BGPPeer" { "p" } else { "default" };
    faults(json!({"kind": kind, "metadata": {"name": name}, "spec": spec}))
}

#[test]
fn full_resources_are_written_as_they_were_read() {
    for value in full() {
        let (_, written) = encode_strict(value.clone()).unwrap();
        assert_eq!(written, value);
    }
}

#[test]
fn unknown_fields_survive_at_every_level() {
    let mut values = full();
    for value in &mut values {
        value["spec"]["newer"] = json!([{"a": 1}]);
    }
    values[0]["spec"]["communities"][0]["why"] = json!("x");
    values[5]["spec"]["interfaces"][0]["echo"] = json!(true);
    values[1]["spec"]["password"]["vault"] = json!({"path": "k"});
    values[2]["spec"]["exportV4"][1]["weather"] = json!("rain");
    let [configuration, peer, filter, reservation, ipam, bfd] = &values;
    fn rewritten<S: Spec>(value: &Value) {
        let octets = parse::<S>(value).encode().unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&octets).unwrap(), *value);
    }
    rewritten::<BgpConfigurationSpec>(configuration);
    rewritten::<BgpPeerSpec>(peer);
    rewritten::<BgpFilterSpec>(filter);
    rewritten::<IpReservationSpec>(reservation);
    rewritten::<IpamConfigurationSpec>(ipam);
    rewritten::<BfdConfigurationSpec>(bfd);
    for value in values {
        assert!(!faults(value).is_empty(), "misspelled fields are reported");
    }
}

#[test]
fn absent_null_and_empty_are_the_default() {
    for spec in [
        json!({}),
        json!({"bindMode": "", "listenPort": 0, "asNumber": null, "programClusterRoutes": null,
               "prefixAdvertisements": null, "localWorkloadPeeringIPV4": ""}),
    ] {
        let spec = parse::<BgpConfigurationSpec>(&json!({ "spec": spec })).spec;
        assert!(spec.mesh());
        assert_eq!((spec.cluster_as(), spec.port()), (AsNumber(64512), 179));
        assert_eq!(spec.bind(), BindMode::None);
        assert_eq!(spec.programs(), ClusterRoutes::EnabledNoEncapOnly);
        assert_eq!(spec.route_priority(false), 1024);
    }
    let peer = parse::<BgpPeerSpec>(&json!({"spec": {
        "node": "", "nodeSelector": "", "peerSelector": null, "asNumber": 0, "ttlSecurity": 0,
        "nextHopMode": null, "sourceAddress": "", "reachableBy": ""}}))
    .spec;
    assert!(peer.is_global() && peer.reverses());
    assert_eq!((peer.remote_as(), peer.hops()), (None, None));
    assert_eq!(peer.next_hop(true), NextHopMode::Auto);
    assert!(
        parse::<IpamConfigurationSpec>(&json!({}))
            .spec
            .auto_allocate_blocks
    );
}

#[test]
fn entries_without_a_range_are_left_out() {
    let spec = json!({"serviceClusterIPs": [{}, {"cidr": "10.96.0.0/12"}, {"cidr": ""}], "serviceExternalIPs": null});
    let spec = parse::<BgpConfigurationSpec>(&json!({ "spec": spec })).spec;
    assert_eq!(spec.service_cluster_ips.len(), 1);
    assert!(spec.service_external_ips.is_empty());
}

#[test]
fn addresses_of_peers_have_their_port_apart() {
    let peer = |address: &str| {
        parse::<BgpPeerSpec>(&json!({"spec": {"peerIP": address}}))
            .spec
            .peer_ip
            .unwrap()
    };
    assert_eq!(peer("10.20.1.254").port, None);
    assert_eq!(peer("10.20.1.254:1179").port, NonZeroU16::new(1179));
    assert_eq!(peer("[fd20::1]:179").address.to_string(), "fd20::1");
}

#[test]
fn older_next_hop_flag_applies_without_a_mode() {
    let peer = |spec: Value| parse::<BgpPeerSpec>(&json!({ "spec": spec })).spec;
    let old = peer(json!({"keepOriginalNextHop": true}));
    assert_eq!(old.next_hop(true), NextHopMode::Keep);
    assert_eq!(old.next_hop(false), NextHopMode::Auto);
    let both = peer(json!({"keepOriginalNextHop": true, "nextHopMode": "Self"}));
    assert_eq!(both.next_hop(true), NextHopMode::OwnAddress);
}

#[test]
fn communities_are_found_by_name_and_by_value() {
    let cluster = parse::<BgpConfigurationSpec>(&full()[0]).spec;
    let node = parse::<BgpConfigurationSpec>(&json!({"spec": {"prefixAdvertisements": [
        {"cidr": "10.65.0.0/16", "communities": ["big", "64512:1", "nowhere"]}]}}))
    .spec;
    let found: Vec<_> = node
        .communities_of(&node.prefix_advertisements[0], &cluster)
        .collect();
    assert_eq!(
        found,
        [
            Ok(CommunityValue::Large(64512, 4, 9)),
            Ok(CommunityValue::Standard(64512, 1)),
            Err("nowhere")
        ]
    );
}

#[test]
fn faults_of_a_configuration_name_their_fields() {
    let of = |spec: Value| of("BGPConfiguration", &spec);
    assert_eq!(
        of(
            json!({"logSeverityScreen": "Loud", "listenPort": 0, "asNumber": 0,
                  "ignoredInterfaces": ["*", "eth 0"], "ipv4NormalRoutePriority": 2_147_483_647_u32})
        ),
        [
            "spec.logSeverityScreen",
            "spec.listenPort",
            "spec.asNumber",
            "spec.ignoredInterfaces[0]",
            "spec.ignoredInterfaces[1]",
            "spec.ipv4NormalRoutePriority"
        ]
    );
    assert_eq!(
        of(
            json!({"nodeToNodeMeshEnabled": false, "nodeMeshPassword": {}, "nodeMeshMaxRestartTime": "1s"})
        ),
        ["spec.nodeMeshMaxRestartTime"]
    );
    assert_eq!(
        of(json!({"communities": [{"name": "a", "value": "1:2"}]})),
        ["spec.communities"]
    );
    assert_eq!(
        of(
            json!({"prefixAdvertisements": [{"cidr": "10.65.0.1/16", "communities": ["1:2", "b"]}, {"cidr": "::/0"}]})
        ),
        [
            "spec.prefixAdvertisements[0].cidr",
            "spec.prefixAdvertisements[0].communities[1]",
            "spec.prefixAdvertisements[1].communities"
        ]
    );
    let text = of(json!({"communities": [{"name": "a", "value": "1:65536"}]})).concat();
    assert!(text.contains("spec.communities[0].value"), "{text}");
    let text = of(json!({"bindMode": "Some"})).concat();
    assert!(
        text.contains("spec.bindMode") && text.contains("\"NodeIP\""),
        "{text}"
    );
}

#[test]
fn cluster_only_fields_are_rejected_elsewhere() {
    let mut own = full()[0].clone();
    own["metadata"]["name"] = json!("node.r1-c07");
    assert_eq!(
        faults(own),
        [
            "nodeToNodeMeshEnabled",
            "asNumber",
            "serviceClusterIPs",
            "serviceExternalIPs",
            "serviceLoadBalancerIPs",
            "nodeMeshPassword",
            "nodeMeshMaxRestartTime"
        ]
        .map(|field| format!("spec.{field}"))
    );
}

#[test]
fn conflicting_fields_of_a_peer_are_reported() {
    let of = |spec: Value| of("BGPPeer", &spec);
    let all = "all()";
    for (spec, field) in [
        (
            json!({"node": "a", "nodeSelector": all}),
            "spec.nodeSelector",
        ),
        (
            json!({"peerIP": "10.0.0.1", "peerSelector": all}),
            "spec.peerSelector",
        ),
        (json!({"peerSelector": all, "asNumber": 1}), "spec.asNumber"),
        (
            json!({"localWorkloadSelector": all, "asNumber": 1, "peerIP": "10.0.0.1"}),
            "spec.peerIP",
        ),
        (json!({"localWorkloadSelector": all}), "spec.asNumber"),
        (json!({"reachableBy": "10.0.0.1"}), "spec.reachableBy"),
        (
            json!({"peerIP": "10.0.0.1", "reachableBy": "fd00::1"}),
            "spec.reachableBy",
        ),
        (
            json!({"keepOriginalNextHop": true, "nextHopMode": "Auto"}),
            "spec.keepOriginalNextHop",
        ),
        (json!({"node": "Upper"}), "spec.node"),
        (json!({"filters": ["ok", ""]}), "spec.filters[1]"),
        (
            json!({"nodeSelector": format!("has({})", "a".repeat(512)).repeat(2)}),
            "spec.nodeSelector",
        ),
    ] {
        let found = of(spec);
        assert!(
            found.len() == 1 && found[0].contains(field),
            "{field}: {found:?}"
        );
    }
    let text = of(json!({"nodeSelector": "rack = 'r1'"})).concat();
    assert!(
        text.contains("spec.nodeSelector") && text.contains("at octet 5"),
        "{text}"
    );
    let text = of(json!({"peerIP": "10.0.0.1:0"})).concat();
    assert!(
        text.contains("spec.peerIP") && text.contains("10.0.0.1:0"),
        "{text}"
    );
    let text = of(json!({"nodeSelector": vec!["has(a)"; 200].join("||")})).concat();
    assert_eq!(text, "spec.nodeSelector");
}

#[test]
fn faults_of_bfd_name_interface_and_field() {
    let of = |interfaces: Value| of("BFDConfiguration", &json!({"interfaces": interfaces}));
    let fields = [
        (json!({}), "matchPattern"),
        (json!({"matchPattern": "e*0"}), "matchPattern"),
        (
            json!({"matchPattern": "interface-too-long*"}),
            "matchPattern",
        ),
        (
            json!({"matchPattern": "*", "minimumRecvInterval": "0s"}),
            "minimumRecvInterval",
        ),
        (
            json!({"matchPattern": "*", "minimumSendInterval": "1500us"}),
            "minimumSendInterval",
        ),
        (
            json!({"matchPattern": "*", "idleSendInterval": "61s"}),
            "idleSendInterval",
        ),
        (
            json!({"matchPattern": "*", "multiplier": 256}),
            "multiplier",
        ),
        (json!({"matchPattern": "*", "multiplier": -1}), "multiplier"),
    ];
    for (interface, field) in fields {
        assert_eq!(
            of(json!([interface])),
            [format!("spec.interfaces[0].{field}")]
        );
    }
    let many = vec![json!({"matchPattern": "*"}); crate::BFD_INTERFACES_MAX + 1];
    assert_eq!(of(json!(many)), ["spec.interfaces"]);
    let plain: BfdConfigurationSpec =
        parse(&json!({"spec": {"interfaces": [{"matchPattern": "*", "multiplier": 0}]}})).spec;
    let timers = &plain.interfaces[0];
    assert_eq!((timers.receive_ms(), timers.send_ms()), (10, 100));
    assert_eq!((timers.idle_ms(), timers.packets()), (60_000, 5));
}

#[test]
fn faults_of_a_filter_name_rule_and_field() {
    let of = |rule: Value| {
        of(
            "BGPFilter",
            &json!({"exportV4": [{"action": "Reject"}, rule]}),
        )
    };
    for (rule, field) in [
        (
            json!({"action": "Accept", "cidr": "10.0.0.0/8"}),
            "matchOperator",
        ),
        (json!({"action": "Accept", "matchOperator": "In"}), "cidr"),
        (
            json!({"action": "Accept", "cidr": "fd00::/8", "matchOperator": "In"}),
            "cidr",
        ),
        (
            json!({"action": "Accept", "cidr": "10.0.0.1/8", "matchOperator": "In"}),
            "cidr",
        ),
        (
            json!({"action": "Accept", "prefixLength": {"min": 8}}),
            "prefixLength",
        ),
        (
            json!({"action": "Accept", "cidr": "10.0.0.0/8", "matchOperator": "In", "prefixLength": {"max": 33}}),
            "prefixLength.max",
        ),
        (json!({"action": "Accept", "interface": "a/b"}), "interface"),
        (
            json!({"action": "Accept", "communities": {"values": []}}),
            "communities.values",
        ),
        (json!({"action": "Accept", "priority": 0}), "priority"),
        (
            json!({"action": "Reject", "operations": [{"setPriority": {"value": 1}}]}),
            "operations",
        ),
        (
            json!({"action": "Accept", "operations": [{"prependASPath": {"prefix": []}}]}),
            "operations[0].prependASPath.prefix",
        ),
        (
            json!({"action": "Accept", "operations": [{"setPriority": {"value": 0}}]}),
            "operations[0].setPriority.value",
        ),
        (
            json!({"action": "Accept", "operations": vec![json!({"setPriority": {"value": 1}}); 11]}),
            "operations",
        ),
        (json!({"action": "Accept", "cdir": "10.0.0.0/8"}), "cdir"),
    ] {
        assert_eq!(of(rule), [format!("spec.exportV4[1].{field}")]);
    }
    for (rule, part) in [
        (json!({}), "action"),
        (json!({"action": "Drop"}), "\"Accept\""),
        (
            json!({"action": "Accept", "operations": [{"addCommunity": {"value": "1:2"}, "setPriority": {"value": 1}}]}),
            "operations[0]",
        ),
        (
            json!({"action": "Accept", "operations": [{"addCommunity": {}}]}),
            "operations[0]",
        ),
    ] {
        let text = of(rule).concat();
        assert!(
            text.contains("spec.exportV4[1]") && text.contains(part),
            "{text}"
        );
    }
}

#[test]
fn the_lengths_of_a_rule_lie_between_its_range_and_a_host() {
    let lengths = |bounds: Value| {
        let mut rule = json!({"action": "Accept", "cidr": "10.65.0.0/16", "matchOperator": "In"});
        rule["prefixLength"] = bounds;
        let spec = json!({"spec": {"exportV4": [rule]}});
        parse::<BgpFilterSpec>(&spec).spec.export_v4[0]
            .lengths()
            .unwrap()
    };
    assert_eq!(lengths(Value::Null), 16..=32);
    assert_eq!(lengths(json!({"min": 26})), 26..=32);
    assert_eq!(lengths(json!({"min": 8, "max": 24})), 16..=24);
}

#[test]
fn settings_of_address_management_have_one_name_and_bounds() {
    let value = json!({"kind": "IPAMConfiguration", "metadata": {"name": "other"}, "spec": {
        "strictAffinity": true, "autoAllocateBlocks": false,
        "maxBlocksPerHost": 1_000_001, "ipCooldownSeconds": 1201}});
    assert_eq!(
        faults(value),
        [
            "metadata.name",
            "spec.maxBlocksPerHost",
            "spec.ipCooldownSeconds"
        ]
    );
}
