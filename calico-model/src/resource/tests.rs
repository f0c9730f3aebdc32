mod bgp;
mod stored;

use serde_json::json;

use super::*;
use crate::{
    DEFAULT_ALLOW_PROFILE, FelixConfigurationSpec, GoDuration, IpPoolSpec, NodeSpec, ProfileSpec,
    WorkloadEndpointSpec, encode_over, encode_strict,
};

fn endpoint() -> Value {
    json!({
        "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": {
            "name": "r1--c07-k8s-web--0-eth0", "namespace": "prod", "creationTimestamp": null,
            "labels": {"app": "web"}, "finalizers": ["keep.me/x"], "resourceVersion": "17"
        },
        "spec": {
            "orchestrator": "k8s", "node": "r1-c07", "pod": "web-0", "endpoint": "eth0", "workload": "",
            "containerID": "9f3c", "interfaceName": "cali12ab34cd56e", "mac": "AA:bb:cc:00:11:22",
            "ipNetworks": ["10.65.3.70/32", "fd65::3:70"], "ipv4Gateway": "", "profiles": ["kns.prod"],
            "ipNATs": [{"internalIP": "10.65.3.70", "externalIP": "203.0.113.9"}],
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080, "hostPort": 0, "hostIP": ""}],
            "allowSpoofedSourcePrefixes": null, "allowedIps": ["10.65.3.71"], "qosControls": {"dscp": 23}
        },
        "extra": {"kept": true}
    })
}

fn parse<S: Spec>(value: &Value) -> Resource<S> {
    Resource::parse(value.to_string().as_bytes()).unwrap()
}

#[test]
fn reading_is_tolerant_and_unknown_fields_survive_a_rewrite() {
    let endpoint = parse::<WorkloadEndpointSpec>(&endpoint());
    assert_eq!(endpoint.spec.ip_networks[1].to_string(), "fd65::3:70/128");
    assert_eq!(endpoint.spec.ipv4_gateway, None);
    let written: Value = serde_json::from_slice(&endpoint.encode().unwrap()).unwrap();
    assert_eq!(written["spec"]["allowedIps"], json!(["10.65.3.71"]));
    assert_eq!(written["spec"]["qosControls"], json!({"dscp": 23}));
    assert_eq!(written["spec"]["mac"], "aa:bb:cc:00:11:22");
    assert_eq!(written["extra"], json!({"kept": true}));
    assert_eq!(written["metadata"]["finalizers"], json!(["keep.me/x"]));
}

#[test]
fn number_of_50_digits_survives_a_rewrite() {
    const NUMBER: &str = "31415926535897932384626433832795028841971693993751";
    let text = format!(
        r#"{{"metadata":{{"name":"x","namespace":"n","newer":-0.{NUMBER}}},
            "spec":{{"order":{NUMBER},"newer":[{{"a":{NUMBER}e-7}}],
                "ingress":[{{"action":"Allow","protocol":6,"newer":{NUMBER}}}]}},
            "newer":{{"b":{NUMBER}}},"status":{NUMBER}}}"#
    );
    let read = Resource::<crate::NetworkPolicySpec>::parse(text.as_bytes()).unwrap();
    let written = String::from_utf8(read.encode().unwrap()).unwrap();
    for part in [
        format!("\"newer\":-0.{NUMBER}"),
        format!("\"order\":{NUMBER}"),
        format!("\"newer\":[{{\"a\":{NUMBER}e-7}}]"),
        "\"protocol\":6".to_owned(),
        format!("\"newer\":{NUMBER}"),
        format!("\"newer\":{{\"b\":{NUMBER}}}"),
        format!("\"status\":{NUMBER}"),
    ] {
        assert!(written.contains(&part), "{part} in {written}");
    }
    let again = Resource::<crate::NetworkPolicySpec>::parse(written.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(again.encode().unwrap()).unwrap(), written);
}

#[test]
fn unstored_fields_are_omitted_and_forced_labels_added() {
    let written: Value =
        serde_json::from_slice(&parse::<WorkloadEndpointSpec>(&endpoint()).encode().unwrap())
            .unwrap();
    let metadata = &written["metadata"];
    assert_eq!(metadata.get("resourceVersion"), None);
    assert_eq!(metadata.get("creationTimestamp"), None);
    assert_eq!(metadata["labels"]["projectcalico.org/namespace"], "prod");
    assert_eq!(metadata["labels"]["projectcalico.org/orchestrator"], "k8s");
    assert_eq!(metadata["labels"]["app"], "web");
}

#[test]
fn every_fault_of_an_endpoint_names_its_field() {
    let mut broken = endpoint();
    broken["metadata"]["name"] = "other".into();
    broken["spec"]["interfaceName"] = "much-too-long-for-linux".into();
    broken["spec"]["ipNetworks"] = json!(["10.65.3.0/24", "10.65.3.71", "10.65.3.71/32"]);
    broken["metadata"]["labels"]["bad key"] = "x".into();
    let faults = parse::<WorkloadEndpointSpec>(&broken).validate().unwrap();
    let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "metadata.labels[bad key]",
            "spec.interfaceName",
            "metadata.name",
            "spec.ipNetworks[0]",
            "spec.ipNetworks[2]",
            "spec.ipNATs[0].internalIP",
        ]
    );
    assert!(faults[2].to_string().contains("r1--c07-k8s-web--0-eth0"));
}

#[test]
fn the_third_part_of_an_endpoint_name_follows_the_orchestrator() {
    let mut spec = parse::<WorkloadEndpointSpec>(&endpoint()).spec;
    for (orchestrator, third) in [
        ("k8s", "web--0"),
        ("cni", "9f3c"),
        ("libnetwork", "libnetwork"),
    ] {
        spec.orchestrator = orchestrator.into();
        assert_eq!(
            spec.name().unwrap().to_string(),
            format!("r1--c07-{orchestrator}-{third}-eth0")
        );
    }
    spec.orchestrator = "openstack".into();
    let faults = spec.validate(&Metadata::default());
    assert!(
        faults.iter().any(|fault| fault.field == "spec.workload"),
        "{faults:?}"
    );
}

#[test]
fn a_typo_is_answered_with_the_field_that_was_meant() {
    let mut typo = endpoint();
    typo.as_object_mut().unwrap().remove("extra");
    assert!(encode_strict(typo.clone()).is_ok());
    let networks = typo["spec"]
        .as_object_mut()
        .unwrap()
        .remove("ipNetworks")
        .unwrap();
    typo["spec"]["ipNetwork"] = networks;
    typo["spec"]["ports"][0]["hostPrt"] = 1.into();
    let text = encode_strict(typo).unwrap_err().to_string();
    assert!(
        text.contains("spec.ipNetwork: unknown field; did you mean \"ipNetworks\"?"),
        "{text}"
    );
    assert!(
        text.contains("spec.ports[0].hostPrt: unknown field"),
        "{text}"
    );
}

#[test]
fn unknown_fields_that_are_stored_already_are_no_faults() {
    let mut newer = endpoint();
    newer["spec"]["ports"][0]["newer"] = json!({"x": 1});
    assert!(encode_strict(newer.clone()).is_err());
    let mut edited = newer.clone();
    edited["extra"] = json!("edited");
    let first = edited["spec"]["ports"][0].clone();
    let ports = edited["spec"]["ports"].as_array_mut().unwrap();
    ports.insert(0, first);
    let (_, written) = encode_over(edited.clone(), &newer).unwrap();
    assert_eq!(written["spec"]["ports"][1]["newer"], json!({"x": 1}));
    assert_eq!(written["extra"], "edited");
    edited["spec"]["newer"] = json!(1);
    let faults = encode_over(edited, &newer).unwrap_err().to_string();
    assert_eq!(faults, "spec.newer: unknown field");
}

#[test]
fn written_fields_are_known_to_strict_writing() {
    let full = [
        endpoint(),
        json!({"kind": "Node", "metadata": {"name": "n"}, "spec": {
            "bgp": {"asNumber": "1.10", "ipv4Address": "10.20.1.7/24", "ipv6Address": "fd20:1::7/64",
                    "ipv4IPIPTunnelAddr": "10.65.7.0", "routeReflectorClusterID": "244.0.0.1"},
            "ipv4VXLANTunnelAddr": "10.65.7.1", "vxlanTunnelMACAddr": "66:0a:1b:2c:3d:4e",
            "ipv6VXLANTunnelAddr": "fd65::7:1", "vxlanTunnelMACAddrV6": "66:0a:1b:2c:3d:4f",
            "orchRefs": [{"nodeName": "c07.example", "orchestrator": "k8s"}],
            "wireguard": {"interfaceIPv4Address": "10.65.7.2", "interfaceIPv6Address": "fd65::7:2"},
            "addresses": [{"address": "10.20.1.7/24", "type": "CalicoNodeIP"}],
            "interfaces": [{"name": "eth0", "addresses": ["10.20.1.7"]}]}}),
        json!({"kind": "Profile", "metadata": {"name": "net1"}, "spec": {
            "ingress": [{"action": "Allow", "source": {"selector": "has(net1)"}}],
            "egress": [{"action": "Allow"}], "labelsToApply": {"net1": ""}}}),
        json!({"kind": "ClusterInformation", "metadata": {"name": "default"}, "spec": {
            "clusterGUID": "0f1e", "clusterType": "k8s,bgp", "calicoVersion": "v3.33.0",
            "datastoreReady": true, "variant": "Calico"}}),
        json!({"kind": "IPPool", "metadata": {"name": "vm-pool"}, "spec": {
            "cidr": "10.65.0.0/16", "blockSize": 26, "ipipMode": "CrossSubnet", "vxlanMode": "",
            "natOutgoing": true, "disabled": true, "disableBGPExport": true, "nodeSelector": "all()",
            "namespaceSelector": "all()", "allowedUses": ["Workload"], "assignmentMode": "Automatic"}}),
    ];
    for mut value in full {
        value.as_object_mut().unwrap().remove("extra");
        let (_, written) = encode_strict(value.clone()).unwrap();
        let (_, again) = encode_strict(written.clone()).unwrap();
        assert_eq!(written, again);
        // Nothing given was lost, except for empty values and `null`.
        for (name, given) in value["spec"].as_object().unwrap() {
            let empty = given.is_null() || given == "";
            assert!(
                empty || written["spec"].get(name).is_some(),
                "{name} of {written}"
            );
        }
    }
}

#[test]
fn the_default_profile_allows_everything_and_cannot_be_written() {
    let profile = Resource::default_allow();
    assert!(profile.spec.allows_everything());
    assert_eq!(
        (
            profile.metadata.name.as_str(),
            profile.metadata.resource_version.as_str()
        ),
        (DEFAULT_ALLOW_PROFILE, "1")
    );
    assert!(
        profile
            .encode()
            .unwrap_err()
            .to_string()
            .contains("metadata.name: is reserved")
    );
    let closed = parse::<ProfileSpec>(&json!({"spec": {
        "ingress": [{"action": "Allow", "protocol": "TCP"}], "egress": [{"action": "Allow"}]}}));
    assert!(!closed.spec.allows_everything());
}

#[test]
fn a_hosts_settings_go_over_the_default_ones() {
    let spec = |value: Value| parse::<FelixConfigurationSpec>(&json!({ "spec": value })).spec;
    let base = spec(
        json!({"reportingInterval": "0s", "interfacePrefix": "cali,tap", "wireguardEnabled": false}),
    );
    let own = spec(json!({"reportingInterval": "30s", "wireguardEnabled": true}));
    let both = own.over(&base);
    assert_eq!(
        both.reporting_interval,
        Some(GoDuration(std::time::Duration::from_secs(30)))
    );
    assert_eq!(both.interface_prefix, "cali,tap");
    assert_eq!(both.unknown["wireguardEnabled"], json!(true));
}

#[test]
fn nodes_and_pools_are_checked() {
    let faults = |value: Value| encode_strict(value).unwrap_err().to_string();
    let text = faults(
        json!({"kind": "Node", "metadata": {"name": "n"}, "spec": {"bgp": {"ipv4Address": "fd00::1/64"}}}),
    );
    assert_eq!(
        text,
        "spec.bgp.ipv4Address: \"fd00::1/64\" is not an IPv4 address"
    );
    let text = faults(
        json!({"kind": "IPPool", "metadata": {"name": "p"}, "spec": {
        "cidr": "10.65.0.1/16", "blockSize": 33, "ipipMode": "Always", "vxlanMode": "Always"}}),
    );
    for field in ["spec.cidr", "spec.blockSize", "spec.vxlanMode"] {
        assert!(text.contains(field), "{text}");
    }
    let text = faults(json!({"kind": "Node", "metadata": {"name": "Bad_Name", "namespace": "x"}}));
    assert!(
        text.contains("metadata.name") && text.contains("metadata.namespace"),
        "{text}"
    );
    assert_eq!(
        faults(json!({"kind": "Nod"})),
        "\"Nod\" is not a kind of resource"
    );
    let text = faults(
        json!({"kind": "Node", "metadata": {"name": "n"}, "spec": {"bgp": {"asNumber": -1}}}),
    );
    assert!(
        text.starts_with("not a readable Node: spec.bgp.asNumber: "),
        "{text}"
    );
}

#[test]
fn kinds_without_a_type_pass_through() {
    let tier = json!({"kind": "Tier", "metadata": {"name": "security"}, "spec": {"order": 200, "defaultAction": "Pass"}});
    let (key, written) = encode_strict(tier).unwrap();
    assert_eq!(
        key.to_string(),
        "/calico/resources/v3/projectcalico.org/tiers/security"
    );
    assert_eq!(
        written["spec"],
        json!({"order": 200, "defaultAction": "Pass"})
    );
    assert_eq!(written["apiVersion"], API_VERSION);
}

proptest::proptest! {
    #[test]
    fn any_octets_are_answered(octets in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
        let _ = Resource::<WorkloadEndpointSpec>::parse(&octets);
        let _ = Resource::<NodeSpec>::parse(&octets);
        let _ = Resource::<IpPoolSpec>::parse(&octets);
    }
}
