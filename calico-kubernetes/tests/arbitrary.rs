//! No JSON makes the conversion panic, and no result breaks the model of the datastore.

use calico_kubernetes::{
    Converted, Outcome, REPORTS_MAX, address_request, cluster_network_policy, endpoint_slice,
    namespace, network_policy, node, pod, service_account, service_members,
};
use calico_model::{Metadata, Resource, Spec};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The names of fields that the conversion reads.
const FIELDS: &[&str] = &[
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "generateName",
    "deletionTimestamp",
    "spec",
    "status",
    "podSelector",
    "namespaceSelector",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "policyTypes",
    "ingress",
    "egress",
    "from",
    "to",
    "ports",
    "port",
    "endPort",
    "protocol",
    "ipBlock",
    "cidr",
    "except",
    "tier",
    "priority",
    "subject",
    "namespaces",
    "pods",
    "networks",
    "action",
    "protocols",
    "tcp",
    "udp",
    "destinationPort",
    "number",
    "range",
    "start",
    "end",
    "destinationNamedPort",
    "nodeName",
    "hostNetwork",
    "serviceAccountName",
    "containers",
    "initContainers",
    "containerPort",
    "hostPort",
    "podIPs",
    "podIP",
    "ip",
    "phase",
    "addresses",
    "address",
    "type",
    "podCIDRs",
    "podCIDR",
    "addressType",
    "endpoints",
    "kubernetes.io/service-name",
    "cni.projectcalico.org/ipv4pools",
    "cni.projectcalico.org/ipAddrs",
    "cni.projectcalico.org/ipFamilies",
    "cni.projectcalico.org/hwAddr",
    "cni.projectcalico.org/podIPs",
    "app",
];

/// Texts with a meaning.
const TEXTS: &[&str] = &[
    "",
    "web",
    "prod",
    "Ingress",
    "Egress",
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "TCP",
    "UDP",
    "10.0.0.0/8",
    "10.0.0.0/33",
    "fd65::/64",
    "10.65.0.1",
    "::ffff:1.2.3.4",
    "Admin",
    "Baseline",
    "Accept",
    "Deny",
    "Pass",
    "http",
    "80",
    "80:90",
    "IPv4",
    "IPv6",
    "InternalIP",
    "Running",
    "Succeeded",
    "[\"10.0.0.1\"]",
    "[\"IPv4\"]",
    "02:00:00:00:07:07",
    "it's",
    "a/b",
    "-",
    "all()",
];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u32..70000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(TEXTS).prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
    ]
}

fn tree() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        9 => proptest::sample::select(FIELDS).prop_map(str::to_owned),
        1 => ".{0,10}",
    ];
    scalar().prop_recursive(6, 60, 5, move |inner| {
        let pair = (key.clone(), inner.clone());
        let object = proptest::collection::btree_map(pair.0, pair.1, 0..6);
        prop_oneof![
            1 => proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            2 => object.prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Returns valid objects of all kinds.
fn objects() -> Vec<Value> {
    let table: Vec<Value> = serde_json::from_str(include_str!("objects/table.json")).expect("JSON");
    let mut all: Vec<Value> = table.iter().map(|row| row["object"].clone()).collect();
    all.push(
        json!({"metadata": {"name": "web-0", "namespace": "prod", "labels": {"app": "web"},
        "annotations": {"cni.projectcalico.org/ipAddrs": "[\"10.0.0.1\"]",
            "cni.projectcalico.org/hwAddr": "02:00:00:00:07:07"}},
        "spec": {"nodeName": "n1", "serviceAccountName": "sa",
            "containers": [{"ports": [{"name": "http", "containerPort": 80, "hostPort": 8080}]}]},
        "status": {"podIPs": [{"ip": "10.65.0.1"}], "phase": "Running"}}),
    );
    all.push(json!({"metadata": {"name": "cluster", "namespace": "prod"},
        "spec": {"tier": "Admin", "priority": 7,
            "subject": {"pods": {"podSelector": {"matchLabels": {"app": "web"}}}},
            "ingress": [{"name": "x", "action": "Pass", "from": [{"namespaces": {}}],
                "protocols": [{"tcp": {"destinationPort": {"range": {"start": 1, "end": 9}}}},
                    {"destinationNamedPort": "http"}]}],
            "egress": [{"action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}]}]}}));
    all
}

/// Returns valid objects in which one part is arbitrary.
fn damaged() -> impl Strategy<Value = Value> {
    let parts = (
        proptest::sample::select(objects()),
        any::<prop::sample::Index>(),
        tree(),
    );
    parts.prop_map(|(mut object, at, part)| {
        let mut paths = Vec::new();
        collect(&object, String::new(), &mut paths);
        if let Some(place) = object.pointer_mut(&paths[at.index(paths.len())]) {
            *place = part;
        }
        object
    })
}

/// Collects the paths of all parts.
fn collect(value: &Value, path: String, paths: &mut Vec<String>) {
    paths.push(path.clone());
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(inner, format!("{path}/{name}"), paths);
            }
        }
        Value::Array(list) => {
            for (at, inner) in list.iter().enumerate() {
                collect(inner, format!("{path}/{at}"), paths);
            }
        }
        _ => {}
    }
}

fn check<T>(found: &Converted<T>) {
    assert!(found.reports.len() <= REPORTS_MAX);
    let is_unreadable = matches!(found.outcome, Outcome::Unreadable);
    assert!(!is_unreadable || !found.reports.is_empty());
}

/// Asserts that a resource can be written.
fn written<S: Spec>(found: Converted<Resource<S>>) {
    check(&found);
    if let Some(resource) = found.resource() {
        resource.encode().expect("a valid resource");
        resource.key().expect("a key");
    }
}

fn convert_as_all_kinds(value: &Value) {
    written(namespace(value));
    written(service_account(value));
    written(network_policy(value));
    written(cluster_network_policy(value));
    check(&address_request(value, value));
    check(&endpoint_slice(value));
    check(&service_members(value, std::slice::from_ref(value)));
    let found = node(value);
    check(&found);
    if let Some(node) = found.resource() {
        node.merge_labels(&mut Metadata::default());
    }
    let found = pod(value);
    check(&found);
    if let Some(pod) = found.resource()
        && let Ok(endpoint) = pod.workload_endpoint("n1", "cali1")
        && !pod.addresses.is_empty()
    {
        // The datastore permits 253 characters for the names of node and pod together.
        let faults = endpoint.validate().expect("a kind");
        let other = faults.iter().find(|fault| fault.field != "metadata.name");
        assert_eq!(other, None);
    }
}

proptest! {
    #[test]
    fn arbitrary_json_is_converted_or_reported(value in tree()) {
        convert_as_all_kinds(&value);
    }

    #[test]
    fn damaged_objects_are_converted_or_reported(value in damaged()) {
        convert_as_all_kinds(&value);
    }
}
