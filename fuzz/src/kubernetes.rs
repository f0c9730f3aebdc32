//! Objects of Kubernetes: any JSON is converted or reported, and a resource can be written.

use calico_kubernetes::{
    Converted, Outcome, REPORTS_MAX, address_request, cluster_network_policy, endpoint_slice,
    namespace, network_policy, node, pod, service_account, service_members,
};
use calico_model::{Metadata, Resource, Spec, encode_strict};

use crate::octets::Octets;

/// Converts JSON as the kind of object that the first octet selects.
pub fn kubernetes(data: &[u8]) {
    let mut octets = Octets(data);
    let choice = octets.octet();
    let Ok(object) = serde_json::from_slice(octets.0) else {
        return;
    };
    match choice % 8 {
        0 => written(network_policy(&object)),
        1 => written(cluster_network_policy(&object)),
        2 => written(namespace(&object)),
        3 => written(service_account(&object)),
        4 => {
            let found = pod(&object);
            checked(&found);
            if let Some(pod) = found.resource() {
                let _ = pod
                    .workload_endpoint("n1", "cali1")
                    .map(|endpoint| endpoint.encode());
            }
        }
        5 => checked(&address_request(&object, &object)),
        6 => {
            let found = node(&object);
            checked(&found);
            if let Some(node) = found.resource() {
                let mut metadata = Metadata::default();
                node.merge_labels(&mut metadata);
                assert!(
                    !node.merge_labels(&mut metadata),
                    "the second merge changes nothing"
                );
            }
        }
        _ => {
            checked(&endpoint_slice(&object));
            checked(&service_members(&object, std::slice::from_ref(&object)));
        }
    }
}

fn checked<T>(found: &Converted<T>) {
    assert!(found.reports.len() <= REPORTS_MAX);
    if matches!(found.outcome, Outcome::Unreadable) {
        assert!(!found.reports.is_empty(), "unreadable without a report");
    }
}

/// Asserts that a resource is valid, and has known fields only.
fn written<S: Spec>(found: Converted<Resource<S>>) {
    checked(&found);
    if let Some(resource) = found.resource() {
        let octets = resource.encode().expect("a valid resource");
        let value = serde_json::from_slice(&octets).expect("JSON");
        encode_strict(value).expect("known fields");
    }
}
