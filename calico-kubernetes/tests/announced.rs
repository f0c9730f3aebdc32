//! The table of announced services in the operator's page.

use std::collections::BTreeSet;

use calico_kubernetes::{
    Announced, Placed, Readiness, ServiceRanges, announced, balanced_service, balanced_slice,
};
use calico_model::{BgpConfigurationSpec, Resource};
use serde_json::{Value, json};

/// The node of a row, and the other nodes.
const NODES: [&str; 2] = ["here", "there"];

/// Rows of the table; fewer were lost.
const ROWS_MIN: usize = 37;

/// Returns the cells of each row.
fn rows() -> Vec<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/kubernetes.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let start = page.find("| address | in BGPConfiguration |");
    let table = &page[start.expect("the table")..];
    let rows = table.lines().skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).collect()
}

/// The field of a Service with such addresses, the list of BGPConfiguration, and the address.
fn sort(word: &str) -> (&'static str, &'static str) {
    match word {
        "cluster" => ("serviceClusterIPs", "10.96.0.10"),
        "external" => ("serviceExternalIPs", "203.0.113.10"),
        "load balancer" => ("serviceLoadBalancerIPs", "192.0.2.10"),
        other => panic!("{other}"),
    }
}

fn ranges(list: &str, address: &str, listed: &str) -> ServiceRanges {
    let around = address.replace(".10", ".0");
    let range = match listed {
        "range" | "range, not aggregated" => format!("{around}/24"),
        "single" => format!("{address}/32"),
        "no" => "198.18.0.0/24".to_owned(),
        other => panic!("{other}"),
    };
    let aggregation = match listed {
        "range, not aggregated" => "Disabled",
        _ => "Enabled",
    };
    let value = json!({"metadata": {"name": "default"}, "spec": {
        list: [{"cidr": range}], "serviceLoadBalancerAggregation": aggregation}});
    let parsed = Resource::<BgpConfigurationSpec>::parse(value.to_string().as_bytes());
    ServiceRanges::from(&parsed.expect("settings").spec)
}

fn service(sort: &str, address: &str, policy: &str) -> Value {
    let (policy, attributes) = match policy {
        "Cluster, with attributes" => ("Cluster", json!({"cambric.io/bgp-med": "7"})),
        other => (other, json!({})),
    };
    // The policy of the other addresses is the opposite: it must have no effect.
    let opposite = if policy == "Local" {
        "Cluster"
    } else {
        "Local"
    };
    let (internal, external) = match sort {
        "cluster" => (policy, opposite),
        _ => (opposite, policy),
    };
    let mut value = json!({
        "metadata": {"name": "web", "namespace": "prod", "annotations": attributes},
        "spec": {"type": "LoadBalancer", "internalTrafficPolicy": internal,
            "externalTrafficPolicy": external}});
    match sort {
        "cluster" => value["spec"]["clusterIPs"] = json!([address]),
        "external" => value["spec"]["externalIPs"] = json!([address]),
        _ => value["status"] = json!({"loadBalancer": {"ingress": [{"ip": address}]}}),
    }
    value
}

/// Returns the endpoints of a node, as its slice has them.
fn placed(node: &str, words: &str) -> Option<Placed> {
    let (conditions, state) = match words.rsplit_once(", ") {
        None => {
            assert_eq!(words, "none");
            return None;
        }
        Some(("ready", state)) => (json!({"ready": true}), state),
        Some(("draining", state)) => (
            json!({"ready": false, "serving": true, "terminating": true}),
            state,
        ),
        Some(("not ready", state)) => (json!({"ready": false, "serving": false}), state),
        Some((other, _)) => panic!("{other}"),
    };
    let slice = json!({"metadata": {"name": "web-1", "namespace": "prod",
            "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.65.0.7"], "nodeName": node, "conditions": conditions}]});
    let slice = balanced_slice(&slice).resource().expect("a slice");
    let endpoint = &slice.endpoints[0];
    let is_up = match state {
        "up" => true,
        "down" => false,
        other => panic!("{other}"),
    };
    Some(Placed {
        node: Some(endpoint.node.clone()),
        is_ipv6: slice.is_ipv6 == Some(true),
        readiness: endpoint.readiness,
        is_up,
    })
}

fn is_announced(cells: &[String]) -> bool {
    let (list, address) = sort(&cells[0]);
    let service = balanced_service(&service(&cells[0], address, &cells[2]));
    assert_eq!(service.reports, [], "{cells:?}");
    let service = service.resource().expect("a service");
    let endpoints = NODES.iter().zip(&cells[3..5]);
    let endpoints: Vec<Placed> = endpoints
        .filter_map(|(node, words)| placed(node, words))
        .collect();
    let ranges = ranges(list, address, &cells[1]);
    let found = announced(&service, &endpoints, &ranges);
    assert_eq!(found.len(), 1, "{cells:?}");
    match found.into_values().next() {
        Some(Announced::Everywhere) => true,
        Some(Announced::Nodes(nodes)) => nodes.contains(NODES[0]),
        _ => false,
    }
}

// Promise (Kubernetes): A node announces exactly the addresses of services that the table in the
// operator's page gives it.
#[test]
fn table_of_the_page_is_the_computation() {
    let rows = rows();
    assert!(rows.len() >= ROWS_MIN, "{} rows", rows.len());
    for cells in rows {
        let wanted = match cells[5].as_str() {
            "yes" => true,
            "no" => false,
            other => panic!("{other}"),
        };
        assert_eq!(is_announced(&cells), wanted, "{cells:?}");
    }
}

#[test]
fn family_of_an_address_counts_its_own_endpoints() {
    let service = json!({"metadata": {"name": "web", "namespace": "prod"}, "spec": {
        "internalTrafficPolicy": "Local", "clusterIPs": ["10.96.0.10", "fd96::10"]}});
    let service = balanced_service(&service).resource().expect("a service");
    let ranges = r#"{"metadata": {"name": "default"}, "spec": {"serviceClusterIPs": [
        {"cidr": "10.96.0.0/24"}, {"cidr": "fd96::/64"}]}}"#;
    let ranges = Resource::<BgpConfigurationSpec>::parse(ranges.as_bytes());
    let ranges = ServiceRanges::from(&ranges.expect("settings").spec);
    let endpoint = |node: &str, is_ipv6| Placed {
        node: Some(node.to_owned()),
        is_ipv6,
        readiness: Readiness::Ready,
        is_up: true,
    };
    let endpoints = [endpoint("here", false), endpoint("there", true)];
    let found = announced(&service, &endpoints, &ranges);
    let nodes = |node: &str| Announced::Nodes(BTreeSet::from([node.to_owned()]));
    let found: Vec<_> = found.into_values().collect();
    assert_eq!(found, [nodes("here"), nodes("there")]);
}
