use serde_json::json;

use super::*;
use crate::{ResourceKey, shown};

fn written(value: Value) -> (ResourceKey, Value) {
    encode_strict(value).unwrap()
}

fn key(kind: Kind, name: &str) -> ResourceKey {
    let namespace = (kind.scope() == Scope::Namespaced).then_some("prod");
    ResourceKey::new(kind, namespace, name).unwrap()
}

#[test]
fn policies_are_written_with_name_tier_and_types() {
    for (spec, types) in [
        (json!({}), json!(["Ingress"])),
        (json!({"egress": [{"action": "Allow"}]}), json!(["Egress"])),
        (
            json!({"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]}),
            json!(["Ingress", "Egress"]),
        ),
        (json!({"types": ["Egress"]}), json!(["Egress"])),
    ] {
        let (key, value) = written(json!({"kind": "GlobalNetworkPolicy",
            "metadata": {"name": "allow-dns"}, "spec": spec}));
        assert_eq!(key.name(), "allow-dns");
        assert_eq!(value["spec"]["types"], types);
        let metadata = &value["metadata"];
        assert_eq!(
            metadata["annotations"]["projectcalico.org/metadata"],
            "{\"name\":\"allow-dns\"}"
        );
        assert_eq!(metadata["labels"]["projectcalico.org/tier"], "default");
    }
}

#[test]
fn policies_are_shown_under_the_name_that_people_use() {
    let show = |name: &str, value: Value| {
        let key = key(Kind::NetworkPolicy, name);
        shown(&key, value.to_string().as_bytes(), 17).unwrap()
    };
    let (_, value) = written(json!({"kind": "NetworkPolicy",
        "metadata": {"name": "web", "namespace": "prod"}, "spec": {"tier": "security"}}));
    let new = show("web", value);
    assert_eq!(new["metadata"]["name"], "web");
    assert_eq!(new["metadata"].get("annotations"), None);
    assert_eq!(
        new["metadata"]["labels"]["projectcalico.org/tier"],
        "security"
    );
    let old = show(
        "default.web",
        json!({"metadata": {"name": "default.web"}, "spec": {"order": 1}}),
    );
    assert_eq!(old["metadata"]["name"], "web");
    assert_eq!(
        old["metadata"]["labels"]["projectcalico.org/tier"],
        "default"
    );
    let foreign = show(
        "knp.default.web",
        json!({"metadata": {"name": "knp.default.web"}, "spec": {}}),
    );
    assert_eq!(foreign["metadata"]["name"], "knp.default.web");
    let tiered = show(
        "default.web",
        json!({"metadata": {"name": "default.web"}, "spec": {"tier": "security"}}),
    );
    assert_eq!(tiered["metadata"]["name"], "default.web");
}

#[test]
fn shown_resource_has_kind_name_and_revision() {
    let shown = shown(
        &key(Kind::Tier, "t"),
        b"{\"spec\":{\"order\":7},\"newer\":1}",
        17,
    )
    .unwrap();
    let expected = json!({"kind": "Tier", "apiVersion": API_VERSION,
        "metadata": {"name": "t", "resourceVersion": "17"}, "spec": {"order": 7}, "newer": 1});
    assert_eq!(shown, expected);
    let mut known = expected;
    known.as_object_mut().unwrap().remove("newer");
    let again = encode_strict(known);
    assert!(again.is_ok(), "what was shown can be written: {again:?}");
}

#[test]
fn unshowable_resource_names_its_field() {
    for (octets, part) in [
        (b"7".as_slice(), "Node: .: not an object"),
        (b"{", "Node: .: "),
        (b"{\"metadata\":{\"labels\":[]}}", "Node: metadata.labels: "),
    ] {
        let error = shown(&key(Kind::Node, "n"), octets, 1)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn pools_are_written_and_shown_with_their_defaults() {
    let (key, value) = written(
        json!({"kind": "IPPool", "metadata": {"name": "p"}, "spec": {"cidr": "fd65::/48"}}),
    );
    let spec = json!({"cidr": "fd65::/48", "blockSize": 122, "ipipMode": "Never", "vxlanMode": "Never",
        "nodeSelector": "all()", "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic"});
    assert_eq!(value["spec"], spec);
    let shown = shown(&key, b"{\"spec\":{\"cidr\":\"fd65::/48\"}}", 1).unwrap();
    assert_eq!(shown["spec"], spec);
    let faults = encode_strict(
        json!({"kind": "IPPool", "metadata": {"name": "p"}, "spec": {
        "cidr": "10.0.0.0/8", "allowedUses": ["Party"], "assignmentMode": "Random", "nodeSelector": "a ="}}),
    );
    let text = faults.unwrap_err().to_string();
    assert!(text.contains("spec.nodeSelector"), "{text}");
    let faults = encode_strict(
        json!({"kind": "IPPool", "metadata": {"name": "p"}, "spec": {
        "cidr": "10.0.0.0/8", "allowedUses": ["Party"], "assignmentMode": "Random"}}),
    );
    let text = faults.unwrap_err().to_string();
    assert!(
        text.contains("spec.allowedUses[0]") && text.contains("spec.assignmentMode"),
        "{text}"
    );
}

#[test]
fn an_endpoint_without_a_name_gets_the_one_it_must_have() {
    let (key, value) = written(
        json!({"kind": "WorkloadEndpoint", "metadata": {"namespace": "prod"}, "spec": {
        "node": "n1", "orchestrator": "k8s", "pod": "web-0", "endpoint": "eth0",
        "interfaceName": "cali1", "ipNetworks": ["10.65.0.1/32"]}}),
    );
    assert_eq!(key.name(), "n1-k8s-web--0-eth0");
    assert_eq!(value["metadata"]["name"], "n1-k8s-web--0-eth0");
}

#[test]
fn yaml_number_is_text_in_text_fields() {
    let (key, value) = written(json!({"kind": "BGPPeer",
        "metadata": {"name": 17, "labels": {"reflector": true, "rack": 1.5}, "annotations": {"since": 2026}},
        "spec": {"node": 7, "filters": [1, "b"], "asNumber": "65000", "peerIP": "10.0.0.1",
                 "password": {"secretKeyRef": {"name": 1, "key": false}}}}));
    assert_eq!(key.name(), "17");
    let metadata = &value["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"reflector": "true", "rack": "1.5"})
    );
    assert_eq!(metadata["annotations"], json!({"since": "2026"}));
    let spec = &value["spec"];
    assert_eq!(
        (&spec["node"], &spec["filters"]),
        (&json!("7"), &json!(["1", "b"]))
    );
    assert_eq!(
        spec["password"]["secretKeyRef"],
        json!({"name": "1", "key": "false"})
    );
    assert_eq!(spec["asNumber"], 65000);
    let list =
        encode_strict(json!({"kind": "Node", "metadata": {"name": "n", "labels": {"a": {}}}}));
    assert!(list.is_err());
}

#[test]
fn services_are_alone_at_their_end_of_a_rule() {
    let write = |kind: &str, direction: &str, rule: Value| {
        let namespace = (kind == "NetworkPolicy").then_some("prod");
        encode_strict(
            json!({"kind": kind, "metadata": {"name": "p", "namespace": namespace},
            "spec": {direction: [rule]}}),
        )
    };
    let web = json!({"name": "web", "namespace": "prod"});
    let short = json!({"name": "web"});
    for (kind, direction, end, entity) in [
        (
            "NetworkPolicy",
            "ingress",
            "source",
            json!({ "services": short }),
        ),
        (
            "NetworkPolicy",
            "egress",
            "destination",
            json!({ "services": short }),
        ),
        (
            "GlobalNetworkPolicy",
            "egress",
            "destination",
            json!({ "services": web }),
        ),
        (
            "NetworkPolicy",
            "ingress",
            "source",
            json!({"services": web, "ports": [80]}),
        ),
        ("Profile", "ingress", "source", json!({ "services": web })),
    ] {
        let rule = json!({"action": "Allow", "protocol": "TCP", end: entity});
        let (_, value) = write(kind, direction, rule).unwrap();
        let written = &value["spec"][direction][0][end]["services"];
        assert_eq!(*written, entity["services"]);
    }
    for (kind, direction, end, entity, field) in [
        (
            "NetworkPolicy",
            "egress",
            "source",
            json!({ "services": web }),
            "source.services",
        ),
        (
            "NetworkPolicy",
            "ingress",
            "destination",
            json!({ "services": web }),
            "destination.services",
        ),
        (
            "GlobalNetworkPolicy",
            "ingress",
            "source",
            json!({ "services": short }),
            "source.services.namespace",
        ),
        (
            "Profile",
            "ingress",
            "source",
            json!({ "services": short }),
            "source.services.namespace",
        ),
        (
            "Profile",
            "egress",
            "destination",
            json!({"services": web, "ports": [80]}),
            "destination.ports",
        ),
        (
            "NetworkPolicy",
            "ingress",
            "source",
            json!({"services": {"namespace": "prod"}}),
            "source.services.name",
        ),
        (
            "NetworkPolicy",
            "egress",
            "destination",
            json!({"services": web, "ports": [80]}),
            "destination.ports",
        ),
        (
            "NetworkPolicy",
            "egress",
            "destination",
            json!({"services": web, "nets": ["10.0.0.0/8"]}),
            "destination.nets",
        ),
        (
            "NetworkPolicy",
            "ingress",
            "source",
            json!({"services": web, "selector": "all()"}),
            "source.selector",
        ),
        (
            "NetworkPolicy",
            "ingress",
            "source",
            json!({"services": web, "serviceAccounts": {"names": ["a"]}}),
            "source.serviceAccounts",
        ),
    ] {
        let rule = json!({"action": "Allow", "protocol": "TCP", end: entity});
        let text = write(kind, direction, rule).unwrap_err().to_string();
        let wanted = format!("spec.{direction}[0].{field}: ");
        assert!(text.starts_with(&wanted), "{wanted}: {text}");
    }
}
