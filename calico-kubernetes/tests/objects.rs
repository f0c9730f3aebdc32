//! Objects of a real API server, with the resources that Calico's conversion gives for them.
//!
//! The table also has objects that only older servers accept. The recorded lists are beside the
//! workspace; without them the test prints that and passes.
#![allow(clippy::unwrap_used)] // helpers of tests

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use calico_kubernetes::{
    Converted, Members, Outcome, endpoint_slice, namespace, network_policy, node, pod,
    service_account, service_members,
};
use calico_model::{Resource, Spec};
use serde_json::Value;

const TABLE: &str = include_str!("objects/table.json");

/// A key, a value, and the fields of the reports.
type Row = (String, Value, Vec<String>);

fn converted(object: &Value) -> Row {
    match object["kind"].as_str().unwrap() {
        "Namespace" => stored(namespace(object)),
        "ServiceAccount" => stored(service_account(object)),
        "NetworkPolicy" => stored(network_policy(object)),
        "EndpointSlice" => of_slice(endpoint_slice(object)),
        other => panic!("the table has no {other}"),
    }
}

fn stored<S: Spec>(found: Converted<Resource<S>>) -> Row {
    let fields = fields(&found);
    let resource = found.resource().unwrap();
    let value = serde_json::from_slice(&resource.encode().unwrap()).unwrap();
    (resource.key().unwrap().to_string(), value, fields)
}

fn of_slice(found: Converted<Members>) -> Row {
    let fields = fields(&found);
    let (key, members) = found.resource().unwrap();
    let value = serde_json::from_slice(&members.encode()).unwrap();
    (key.to_string(), value, fields)
}

fn fields<T>(found: &Converted<T>) -> Vec<String> {
    let reports = found.reports.iter();
    reports.map(|report| report.field.clone()).collect()
}

fn rows() -> Vec<Value> {
    serde_json::from_str(TABLE).unwrap()
}

/// Returns the kind, namespace and name of an object.
fn name(object: &Value) -> [String; 3] {
    let metadata = &object["metadata"];
    let parts = [&object["kind"], &metadata["namespace"], &metadata["name"]];
    parts.map(|part| part.as_str().unwrap_or_default().to_owned())
}

#[test]
fn objects_have_the_resources_of_the_table() {
    let rows = rows();
    assert!(rows.len() > 30);
    for row in rows {
        let (key, value, fields) = converted(&row["object"]);
        assert_eq!(key, row["key"], "{row}");
        assert_eq!(value, row["resource"], "{row}");
        assert_eq!(serde_json::json!(fields), row["reports"], "{row}");
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/kubernetes")
}

fn recorded(list: &str) -> Vec<Value> {
    let path = directory().join(format!("{list}.list.json"));
    let text = std::fs::read(path).unwrap();
    let list: Value = serde_json::from_slice(&text).unwrap();
    list["items"].as_array().unwrap().clone()
}

#[test]
fn recorded_objects_have_the_resources_of_the_table() {
    if !directory().exists() {
        println!("skipped: no objects of Kubernetes beside the workspace");
        return;
    }
    let table: BTreeMap<[String; 3], Value> = rows()
        .into_iter()
        .map(|row| (name(&row["object"]), row))
        .collect();
    let lists = [
        "namespaces",
        "serviceaccounts",
        "networkpolicies.networking.k8s.io",
        "endpointslices.discovery.k8s.io",
    ];
    for object in lists.into_iter().flat_map(recorded) {
        let row = &table[&name(&object)];
        assert_eq!(row["object"]["spec"], object["spec"]);
        let (key, value, fields) = converted(&object);
        assert_eq!(key, row["key"]);
        assert_eq!(value, row["resource"]);
        assert_eq!(fields, [""; 0]);
    }
    for object in recorded("nodes") {
        let found = node(&object);
        assert_eq!(found.reports, []);
        let found = found.resource().unwrap();
        assert_eq!(found.labels["rack"], "r1");
        assert_eq!(found.pod_networks.len(), 2);
    }
    for object in recorded("pods") {
        assert_ne!(pod(&object).outcome, Outcome::Unreadable);
    }
    let slices = recorded("endpointslices.discovery.k8s.io");
    for object in recorded("services") {
        let found = service_members(&object, &slices);
        assert_eq!(found.reports, []);
        assert_eq!(found.resource().unwrap().len(), 1);
    }
}

#[test]
fn recorded_verdicts_of_admission_are_kept() {
    let path = directory().join("networkpolicy-admission.json");
    let Ok(text) = std::fs::read(path) else {
        println!("skipped: no objects of Kubernetes beside the workspace");
        return;
    };
    let cases: Vec<(String, String, Value)> = serde_json::from_slice(&text).unwrap();
    let accepted = cases.iter().filter(|(_, verdict, _)| verdict == "accepted");
    for (name, _, spec) in accepted {
        let metadata = serde_json::json!({"name": name, "namespace": "prod"});
        let found = network_policy(&serde_json::json!({"metadata": metadata, "spec": spec}));
        // The server has accepted it, so no part of it is invalid.
        assert_eq!(found.reports, [], "{name}");
        assert!(found.resource().is_some(), "{name}");
    }
}
