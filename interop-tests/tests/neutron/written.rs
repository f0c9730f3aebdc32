//! The values that the driver writes: each as the driver's sources define it, octet by octet,
//! except for the fields that differ between any two objects, which are their time and their uid.

use serde_json::Value;

use crate::cloud::{Cloud, PROJECT};
use crate::compute::Port;

/// Lengths of a uid and of a time: `2026-11-22T07:00:00Z`.
const UID: usize = 36;
const TIME: usize = 20;

/// Returns the value of a name that occurs once.
fn cut<'a>(stored: &'a str, name: &str, length: usize) -> &'a str {
    let begin = format!(r#""{name}": ""#);
    let (_, rest) = stored.split_once(&begin).expect(stored);
    let (value, rest) = rest.split_at_checked(length).expect(stored);
    assert!(rest.starts_with('"'), "{name}: {stored}");
    value
}

/// Returns the beginning of every resource: its identity and its creation time.
fn envelope(kind: &str, name: &str, stored: &str) -> String {
    let time = cut(stored, "creationTimestamp", TIME);
    let uid = cut(stored, "uid", UID);
    format!(
        r#"{{"kind": "{kind}", "apiVersion": "projectcalico.org/v3", "metadata": {{"name": "{name}", "namespace": "openstack", "creationTimestamp": "{time}", "uid": "{uid}""#
    )
}

/// Asserts a port of a network with a group, and a list of addresses allowed in addition to its
/// own.
pub(crate) async fn endpoint(
    cloud: &Cloud,
    port: &Port,
    network: &str,
    (group, name): (&str, &str),
    pairs: &[&str],
) {
    let key = port.endpoint_key();
    let stored = cloud.stored(&key).await.expect("stored");
    let own = key.rsplit('/').next().expect("a name");
    let [v4, v6] = port.addresses();
    let quoted = |all: &[String]| {
        let all: Vec<String> = all.iter().map(|one| format!(r#""{one}""#)).collect();
        all.join(", ")
    };
    let allowed: Vec<String> = pairs.iter().map(|one| (*one).to_owned()).collect();
    let mut networks = vec![format!("{v4}/32"), format!("{v6}/128")];
    networks.extend(allowed.clone());
    let expected = format!(
        r#"{envelope}, "annotations": {{"openstack.projectcalico.org/network-id": "{network}"}}, "labels": {{"sg.projectcalico.org/openstack-{group}": "{name}", "sg-name.projectcalico.org/openstack-{name}": "{group}", "projectcalico.org/namespace": "openstack", "projectcalico.org/orchestrator": "openstack", "projectcalico.org/openstack-project-id": "{PROJECT}"}}}}, "spec": {{"orchestrator": "openstack", "workload": "{device}", "node": "{host}", "endpoint": "{id}", "interfaceName": "{tap}", "mac": "{mac}", "ipv4Gateway": "10.65.0.1", "ipv6Gateway": "fd65::1", "ipNetworks": [{networks}], "allowedIps": [{allowed}]}}}}"#,
        envelope = envelope("WorkloadEndpoint", own, &stored),
        device = port.device,
        host = port.host,
        id = port.id,
        tap = port.tap,
        mac = port.mac,
        networks = quoted(&networks),
        allowed = quoted(&allowed),
    );
    assert_eq!(stored, expected);
}

/// Asserts a security group with these rules, which Neutron's database returns in any order.
pub(crate) async fn policy(cloud: &Cloud, group: &str, ingress: &[&str], egress: &[&str]) {
    let name = format!("ossg.default.{group}");
    let key = format!("/calico/resources/v3/projectcalico.org/networkpolicies/openstack/{name}");
    let stored = cloud.stored(&key).await.expect("stored");
    let beginning = format!(
        r#"{}}}, "spec": {{"ingress": ["#,
        envelope("NetworkPolicy", &name, &stored)
    );
    let spec = stored.strip_prefix(&beginning).expect(&stored);
    let end = format!(r#"], "selector": "has(sg.projectcalico.org/openstack-{group})"}}}}"#);
    let rules = spec.strip_suffix(&end).expect(&stored);
    let (found_in, found_out) = rules.split_once(r#"], "egress": ["#).expect(&stored);
    for (found, expected) in [(found_in, ingress), (found_out, egress)] {
        let parts = |text: &str| {
            let found: Value = serde_json::from_str(&format!("[{text}]")).expect("JSON");
            found.as_array().expect("rules").len()
        };
        assert_eq!(parts(found), expected.len(), "{found}");
        for rule in expected {
            assert!(found.contains(rule), "{rule} in {found}");
        }
        let length: usize = expected.iter().map(|rule| rule.len() + 2).sum();
        assert_eq!(found.len(), length.saturating_sub(2), "{found}");
    }
}

/// Egress rules of a group that Neutron has just made: everything.
pub(crate) const OUT: [&str; 2] = [
    r#"{"action": "Allow", "ipVersion": 4}"#,
    r#"{"action": "Allow", "ipVersion": 6}"#,
];

/// Returns the ingress rules of the default group: everything from its members.
pub(crate) fn of_members(group: &str) -> [String; 2] {
    [4, 6].map(|version| {
        format!(
            r#"{{"action": "Allow", "ipVersion": {version}, "source": {{"selector": "has(sg.projectcalico.org/openstack-{group})"}}}}"#
        )
    })
}

/// Returns a subnet of a network.
pub(crate) fn subnet(network: &str, cidr: &str, gateway: &str, more: &str) -> String {
    format!(
        r#"{{"network_id": "{network}", "cidr": "{cidr}", "host_routes": [], "gateway_ip": "{gateway}"{more}}}"#
    )
}
