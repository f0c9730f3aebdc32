use serde_json::json;

use super::*;
use crate::object::Object;

/// Returns the store with these resources: the part of the key after the prefix of all, and the value.
fn stored(resources: &[(&str, Json)]) -> Stored {
    let mut stored = Stored::default();
    for (at, (path, value)) in (1..).zip(resources) {
        let key = format!("{}{path}", calico_model::RESOURCES_PREFIX);
        let octets = value.to_string().into();
        let revision = Revision(at);
        stored.set(key.as_bytes(), Some(Value { octets, revision }));
    }
    stored
}

fn objects(all: &[(Watched, Vec<Json>)]) -> Objects {
    let mut objects = Objects::default();
    for (watched, values) in all {
        let of_kind = values.iter().map(|value| Object::new(*watched, value));
        objects.set_all(*watched, of_kind.collect());
    }
    objects
}

fn key(path: &str) -> ResourceKey {
    let key = format!("{}{path}", calico_model::RESOURCES_PREFIX);
    match key.parse() {
        Ok(calico_model::Key::Resource(key)) => key,
        other => panic!("{path}: {other:?}"),
    }
}

/// Plans a write, and returns the value.
fn written(path: &str, objects: &Objects, stored: &Stored) -> Json {
    match plan(&key(path), objects, stored) {
        Ok(Change::Put { octets, .. }) => serde_json::from_slice(&octets).expect("JSON"),
        other => panic!("{path}: {other:?}"),
    }
}

fn namespaces(names: &[&str]) -> (Watched, Vec<Json>) {
    let objects = names.iter().map(|name| json!({"metadata": {"name": name}}));
    (Watched::Namespace, objects.collect())
}

fn policy() -> Json {
    json!({"metadata": {"name": "web", "namespace": "prod"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}})
}

#[test]
fn written_resource_is_not_written_again() {
    let rule = json!({"action": "Deny", "from": [{"namespaces": {}}]});
    let cluster = json!({"metadata": {"name": "all"}, "spec": {
        "tier": "Admin", "priority": 1, "subject": {"namespaces": {}}, "ingress": [rule]}});
    let objects = objects(&[
        namespaces(&["prod"]),
        (Watched::ServiceAccount, vec![policy()]),
        (Watched::NetworkPolicy, vec![policy()]),
        (Watched::ClusterNetworkPolicy, vec![cluster]),
    ]);
    for path in [
        "profiles/kns.prod",
        "profiles/ksa.prod.web",
        "networkpolicies/prod/knp.default.web",
        "globalnetworkpolicies/kcnp.kube-admin.all",
        "tiers/kube-admin",
    ] {
        let value = written(path, &objects, &Stored::default());
        assert!(value["metadata"]["uid"].is_string(), "{value}");
        let again = plan(&key(path), &objects, &stored(&[(path, value)]));
        assert_eq!(again, Ok(Change::Nothing), "{path}");
    }
}

#[test]
fn spec_is_replaced_and_metadata_stays() {
    let objects = objects(&[namespaces(&["prod"])]);
    let path = "profiles/kns.prod";
    let before = json!({"metadata": {"name": "kns.prod", "uid": "u", "labels": {"a": "b"}},
        "spec": {"labelsToApply": {"x": "y"}, "egress": []}});
    let value = written(path, &objects, &stored(&[(path, before)]));
    assert_eq!(value["metadata"]["uid"], "u");
    assert_eq!(value["metadata"]["labels"]["a"], "b");
    let labels = json!({"pcns.projectcalico.org/name": "prod"});
    assert_eq!(value["spec"]["labelsToApply"], labels);
}

#[test]
fn value_of_an_older_release_is_equal() {
    let objects = objects(&[namespaces(&["prod"])]);
    let path = "profiles/kns.prod";
    let rule = json!([{"action": "Allow", "source": {}, "destination": {}}]);
    let older = json!({"kind": "Profile", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "kns.prod", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"ingress": rule, "egress": rule,
            "labelsToApply": {"pcns.projectcalico.org/name": "prod"}}});
    let planned = plan(&key(path), &objects, &stored(&[(path, older)]));
    assert_eq!(planned, Ok(Change::Nothing));
}

#[test]
fn resource_is_deleted_only_after_a_complete_list() {
    let path = "networkpolicies/prod/knp.default.old";
    let stored = stored(&[(path, json!({}))]);
    let plan = |objects: &Objects| plan(&key(path), objects, &stored);
    let mut known = Objects::default();
    known.set(
        Watched::NetworkPolicy,
        Object::new(Watched::NetworkPolicy, &policy()),
    );
    assert_eq!(plan(&known), Ok(Change::Nothing));
    // A complete list of another kind does not count, nor a server without the kind.
    known.set_all(Watched::Namespace, Vec::new());
    assert_eq!(plan(&known), Ok(Change::Nothing));
    known.set_missing(Watched::NetworkPolicy);
    assert_eq!(plan(&known), Ok(Change::Nothing));
    known.set_all(Watched::NetworkPolicy, Vec::new());
    let was = Revision(1);
    assert_eq!(plan(&known), Ok(Change::Delete { was }));
}

#[test]
fn unreadable_object_keeps_its_resource() {
    let path = "profiles/kns.prod";
    let stored = stored(&[(path, json!({}))]);
    let broken = json!({"metadata": {"name": "prod", "labels": {"a": 7}}});
    let objects = objects(&[(Watched::Namespace, vec![broken])]);
    assert_eq!(plan(&key(path), &objects, &stored), Ok(Change::Nothing));
}

#[test]
fn policy_that_moves_to_another_tier_leaves_the_first() {
    let rule = json!({"action": "Deny", "from": [{"namespaces": {}}]});
    let cluster = json!({"metadata": {"name": "all"}, "spec": {
        "tier": "Baseline", "priority": 1, "subject": {"namespaces": {}}, "ingress": [rule]}});
    let objects = objects(&[(Watched::ClusterNetworkPolicy, vec![cluster])]);
    let before = "globalnetworkpolicies/kcnp.kube-admin.all";
    let stored = stored(&[(before, json!({}))]);
    let was = Revision(1);
    let deleted = plan(&key(before), &objects, &stored);
    assert_eq!(deleted, Ok(Change::Delete { was }));
    let path = "globalnetworkpolicies/kcnp.kube-baseline.all";
    assert_eq!(
        written(path, &objects, &stored)["spec"]["tier"],
        "kube-baseline"
    );
}

#[test]
fn resources_of_other_writers_are_left_unchanged() {
    let objects = objects(&[
        namespaces(&[]),
        (Watched::ServiceAccount, vec![]),
        (Watched::NetworkPolicy, vec![]),
        (Watched::ClusterNetworkPolicy, vec![]),
        (Watched::Node, vec![]),
        (Watched::Pod, vec![]),
    ]);
    for path in [
        "profiles/openstack-sg-x",
        "networkpolicies/prod/web",
        "globalnetworkpolicies/base",
        "workloadendpoints/prod/h1-k8s-web-eth0",
        "workloadendpoints/prod/h1-openstack-vm-tap0",
        "nodes/h1",
        "tiers/kube-admin",
        "tiers/other",
    ] {
        let stored = stored(&[(path, json!({"spec": {"x": 1}}))]);
        let planned = plan(&key(path), &objects, &stored);
        assert_eq!(planned, Ok(Change::Nothing), "{path}");
    }
}

fn pod(node: &str) -> Json {
    json!({"metadata": {"name": "web-0", "namespace": "prod", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "serviceAccountName": "web",
            "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]}})
}

const ENDPOINT: &str = "workloadendpoints/prod/h1-k8s-web--0-eth0";

fn endpoint() -> Json {
    json!({"metadata": {"name": "h1-k8s-web--0-eth0", "namespace": "prod",
            "generateName": "web-", "annotations": {"a": "b"}},
        "spec": {"node": "h1", "orchestrator": "k8s", "pod": "web-0", "endpoint": "eth0",
            "interfaceName": "cali1", "ipNetworks": ["10.65.0.7/32"],
            "profiles": ["kns.prod"], "unknown": {"kept": true}}})
}

#[test]
fn endpoint_gets_labels_ports_and_profiles_of_its_pod() {
    let objects = objects(&[(Watched::Pod, vec![pod("h1")])]);
    let value = written(ENDPOINT, &objects, &stored(&[(ENDPOINT, endpoint())]));
    assert_eq!(
        value["metadata"]["labels"],
        json!({"app": "web", "projectcalico.org/namespace": "prod",
            "projectcalico.org/orchestrator": "k8s", "projectcalico.org/serviceaccount": "web"})
    );
    let spec = &value["spec"];
    assert_eq!(spec["serviceAccountName"], "web");
    assert_eq!(spec["profiles"], json!(["kns.prod", "ksa.prod.web"]));
    assert_eq!(
        spec["ports"],
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
    );
    // All other fields stay, also those that the model rejects in new resources.
    for field in [
        "/metadata/generateName",
        "/metadata/annotations",
        "/spec/unknown",
    ] {
        assert_eq!(value.pointer(field), endpoint().pointer(field), "{field}");
    }
    let again = plan(&key(ENDPOINT), &objects, &stored(&[(ENDPOINT, value)]));
    assert_eq!(again, Ok(Change::Nothing));
}

#[test]
fn profiles_of_another_writer_stay() {
    let objects = objects(&[(Watched::Pod, vec![pod("h1")])]);
    let mut before = endpoint();
    before["spec"]["profiles"] = json!(["kns.prod", "special"]);
    let value = written(ENDPOINT, &objects, &stored(&[(ENDPOINT, before)]));
    assert_eq!(value["spec"]["profiles"], json!(["kns.prod", "special"]));
}

#[test]
fn endpoint_on_another_node_is_left_unchanged() {
    let planned = |node: &str, more: &[(Watched, Vec<Json>)], nodes: &[(&str, Json)]| {
        let mut all = vec![(Watched::Pod, vec![pod(node)])];
        all.extend(more.iter().cloned());
        let mut resources = vec![(ENDPOINT, endpoint())];
        resources.extend(nodes.iter().cloned());
        plan(&key(ENDPOINT), &objects(&all), &stored(&resources))
    };
    assert_eq!(planned("h2", &[], &[]), Ok(Change::Nothing));
    assert!(matches!(planned("h1", &[], &[]), Ok(Change::Put { .. })));
    // The node of Calico may have another name than that of Kubernetes.
    let kube = (
        Watched::Node,
        vec![json!({"metadata": {"name": "worker-1"}})],
    );
    let references =
        json!({"spec": {"orchRefs": [{"orchestrator": "k8s", "nodeName": "worker-1"}]}});
    let kube = [kube];
    assert_eq!(planned("worker-1", &kube, &[]), Ok(Change::Nothing));
    let found = planned("worker-1", &kube, &[("nodes/h1", references)]);
    assert!(matches!(found, Ok(Change::Put { .. })), "{found:?}");
}

#[test]
fn node_gets_the_labels_and_keeps_its_spec() {
    let kube = json!({"metadata": {"name": "h1", "labels": {"rack": "r1"}}});
    let objects = objects(&[(Watched::Node, vec![kube])]);
    let before = json!({"metadata": {"name": "h1", "labels": {"own": "x"}},
        "spec": {"bgp": {"ipv4Address": "10.0.0.1/24"}}});
    let value = written(
        "nodes/h1",
        &objects,
        &stored(&[("nodes/h1", before.clone())]),
    );
    assert_eq!(
        value["metadata"]["labels"],
        json!({"own": "x", "rack": "r1"})
    );
    assert_eq!(value["spec"], before["spec"]);
    let again = plan(&key("nodes/h1"), &objects, &stored(&[("nodes/h1", value)]));
    assert_eq!(again, Ok(Change::Nothing));
}

#[test]
fn unreadable_values_never_panic() {
    let objects = objects(&[
        namespaces(&["prod"]),
        (Watched::Pod, vec![pod("h1")]),
        (Watched::Node, vec![json!({"metadata": {"name": "h1"}})]),
    ]);
    for value in [
        json!(7),
        json!([]),
        json!(null),
        json!({"spec": 7, "metadata": []}),
    ] {
        for path in ["profiles/kns.prod", ENDPOINT, "nodes/h1"] {
            let stored = stored(&[(path, value.clone())]);
            let planned = plan(&key(path), &objects, &stored);
            // A value of the controller itself is replaced; others are left unchanged.
            if path == "profiles/kns.prod" {
                assert!(matches!(planned, Ok(Change::Put { .. })), "{planned:?}");
            }
        }
    }
}

#[test]
fn stored_tier_with_another_place_is_reported() {
    let rule = json!({"action": "Deny", "from": [{"namespaces": {}}]});
    let cluster = json!({"metadata": {"name": "all"}, "spec": {
        "tier": "Admin", "priority": 1, "subject": {"namespaces": {}}, "ingress": [rule]}});
    let objects = objects(&[(Watched::ClusterNetworkPolicy, vec![cluster])]);
    let tier = |spec: Json| json!({"metadata": {"name": "kube-admin"}, "spec": spec});
    let path = "tiers/kube-admin";
    for (spec, is_right) in [
        (json!({"order": 1000, "defaultAction": "Pass"}), true),
        (json!({"order": 1000.0, "defaultAction": "Pass"}), true),
        (json!({"order": 2_000_000, "defaultAction": "Pass"}), false),
        (json!({"defaultAction": "Pass"}), false),
        (json!({"order": 1000}), false),
        (json!({"order": 1000, "defaultAction": "Deny"}), false),
    ] {
        let planned = plan(&key(path), &objects, &stored(&[(path, tier(spec.clone()))]));
        match is_right {
            true => assert_eq!(planned, Ok(Change::Nothing), "{spec}"),
            false => {
                let reason = planned.expect_err("a fault");
                assert!(reason.contains("need 1000 and \"Pass\""), "{reason}");
            }
        }
    }
    // Without such policies the tier has no meaning.
    let other = stored(&[(path, tier(json!({"order": 7})))]);
    assert_eq!(
        plan(&key(path), &Objects::default(), &other),
        Ok(Change::Nothing)
    );
}
