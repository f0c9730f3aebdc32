//! Pods and their endpoints.

use serde_json::json;

use super::*;

fn web() -> Value {
    json!({
        "metadata": {"name": "web-0", "namespace": "prod", "generateName": "web-",
            "labels": {"app": "web"}, "annotations": {"cni.projectcalico.org/containerID": "9f3c"}},
        "spec": {"nodeName": "r1-c07", "serviceAccountName": "web-sa", "containers": [
            {"ports": [{"name": "http", "containerPort": 8080},
                {"containerPort": 53, "hostPort": 5300, "hostIP": "10.0.0.1", "protocol": "UDP"},
                {"containerPort": 9000}, {"name": "none", "containerPort": 0}]}],
            "initContainers": [{"ports": [
                {"name": "init", "containerPort": 7, "protocol": "SCTP"}]}]},
        "status": {"phase": "Running", "podIP": "10.65.3.70",
            "podIPs": [{"ip": "10.65.3.70"}, {"ip": "fd65::3:70"}]},
    })
}

fn converted(value: &Value) -> PodEndpoint {
    let found = pod(value);
    assert_eq!(found.reports, [], "{value}");
    found.resource().unwrap()
}

#[test]
fn pod_has_the_endpoint_of_calico() {
    let found = converted(&web());
    assert_eq!(found.generate_name, "web-");
    let resource = found
        .workload_endpoint("r1-c07", "cali12ab34cd56e")
        .unwrap();
    let stored: Value = serde_json::from_slice(&resource.encode().unwrap()).unwrap();
    let wanted = json!({"kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "r1--c07-k8s-web--0-eth0", "namespace": "prod",
            "labels": {"app": "web", "projectcalico.org/namespace": "prod",
                "projectcalico.org/orchestrator": "k8s",
                "projectcalico.org/serviceaccount": "web-sa"}},
        "spec": {"orchestrator": "k8s", "node": "r1-c07", "pod": "web-0", "containerID": "9f3c",
            "endpoint": "eth0", "serviceAccountName": "web-sa",
            "interfaceName": "cali12ab34cd56e", "ipNetworks": ["10.65.3.70/32", "fd65::3:70/128"],
            "profiles": ["kns.prod", "ksa.prod.web-sa"],
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080},
                {"protocol": "UDP", "port": 53, "hostPort": 5300, "hostIP": "10.0.0.1"},
                {"name": "init", "protocol": "SCTP", "port": 7}]}});
    assert_eq!(stored, wanted);
}

#[test]
fn addresses_have_the_precedence_of_calico() {
    let of = |status: Value, annotations: Value| {
        let mut value = web();
        value["status"] = status;
        value["metadata"]["annotations"] = annotations;
        let addresses = converted(&value).addresses.into_iter();
        addresses
            .map(|address| address.to_string())
            .collect::<Vec<_>>()
    };
    let all = json!({"cni.projectcalico.org/podIPs": "10.0.0.2/32,fd65::2/128",
        "cni.projectcalico.org/podIP": "10.0.0.3/32", "vpc.amazonaws.com/pod-ips": "10.0.0.4"});
    let status = json!({"podIP": "10.0.0.1", "podIPs": []});
    assert_eq!(of(status, all.clone()), ["10.0.0.1/32"]);
    assert_eq!(of(json!(null), all.clone()), ["10.0.0.2/32", "fd65::2/128"]);
    let mut some = all;
    some["cni.projectcalico.org/podIPs"] = "".into();
    assert_eq!(of(json!({}), some.clone()), ["10.0.0.3/32"]);
    some["cni.projectcalico.org/podIP"] = "".into();
    assert_eq!(of(json!({}), some), ["10.0.0.4/32"]);
    assert_eq!(of(json!({}), json!({})), [""; 0]);
}

#[test]
fn ended_pods_have_no_addresses() {
    for phase in ["Failed", "Succeeded", "Completed"] {
        let mut value = web();
        value["status"]["phase"] = phase.into();
        let found = converted(&value);
        assert!(found.is_finished && found.addresses.is_empty(), "{phase}");
    }
    let mut value = web();
    value["metadata"]["deletionTimestamp"] = "2026-11-22T16:09:22Z".into();
    assert_eq!(converted(&value).addresses.len(), 2);
    value["metadata"]["annotations"]["cni.projectcalico.org/podIP"] = "".into();
    assert!(converted(&value).is_finished);
}

#[test]
fn pods_without_an_endpoint_are_absent() {
    for (field, given) in [("hostNetwork", json!(true)), ("nodeName", json!(""))] {
        let mut value = web();
        value["spec"][field] = given;
        assert_eq!(pod(&value).outcome, Outcome::Absent, "{field}");
    }
}

#[test]
fn reserved_labels_are_left_out() {
    let mut value = web();
    value["metadata"]["labels"] = json!({"pcns.team": "a", "pcsa.x": "y", "app": "web",
        "projectcalico.org/serviceaccount": "admin", "projectcalico.org/namespace": "other"});
    value["spec"]["serviceAccountName"] = "x".repeat(63).into();
    let found = pod(&value);
    assert_eq!(found.reports.len(), 3);
    let labels = found.resource().unwrap().labels;
    let wanted = json!({"app": "web", "projectcalico.org/namespace": "prod",
        "projectcalico.org/orchestrator": "k8s"});
    assert_eq!(json!(labels), wanted);
}

#[test]
fn account_label_is_set_up_to_62_characters() {
    for (length, is_set) in [(62, true), (63, false)] {
        let mut value = web();
        value["spec"]["serviceAccountName"] = "x".repeat(length).into();
        let found = converted(&value);
        assert_eq!(found.labels.contains_key(ACCOUNT_LABEL), is_set);
        assert_eq!(found.service_account.len(), length);
    }
}

#[test]
fn invalid_parts_of_a_pod_are_reported() {
    let mut value = web();
    value["spec"]["containers"][0]["ports"] = json!([
        {"name": "a", "containerPort": 70000}, {"name": "b", "containerPort": 7, "protocol": "DCCP"},
        {"name": "c", "containerPort": 7, "hostPort": -1}, {"name": "d", "containerPort": 7},
        {"name": "D", "containerPort": 7}, {"name": 7, "containerPort": 7}]);
    value["status"]["podIPs"] = json!([{"ip": "x"}, {"ip": "10.0.0.0/8"}, {"ip": "10.0.0.1"},
        {"ip": "::ffff:10.0.0.1"}]);
    let found = pod(&value);
    assert_eq!(found.reports.len(), 8);
    let endpoint = found.resource().unwrap();
    assert_eq!((endpoint.ports.len(), endpoint.addresses.len()), (2, 1));
    for (path, part) in [
        ("/metadata/labels/app", json!(7)),
        ("/metadata/annotations", json!([])),
        ("/spec/nodeName", json!(7)),
        ("/spec/serviceAccountName", json!("it's")),
    ] {
        let mut value = web();
        *value.pointer_mut(path).unwrap() = part;
        assert_eq!(pod(&value).outcome, Outcome::Unreadable, "{path}");
    }
    let mut value = web();
    value["spec"]["hostNetwork"] = "yes".into();
    assert_eq!(pod(&value).outcome, Outcome::Unreadable);
}

#[test]
fn update_changes_labels_and_account_only() {
    let found = converted(&web());
    let mut endpoint = found.workload_endpoint("r1", "cali1").unwrap();
    assert!(!found.update(&mut endpoint));
    endpoint.metadata.labels.clear();
    endpoint.spec.container_id = "other".into();
    assert!(found.update(&mut endpoint));
    assert_eq!(endpoint.metadata.labels, found.labels);
    assert_eq!(endpoint.spec.container_id, "other");
}
