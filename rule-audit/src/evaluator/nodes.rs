//! Nodes: their automatic host endpoints, and the settings that select them by labels.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::selector::Selector;
use super::values::{labels, texts};

/// Returns the automatic host endpoint of each node that requests one, by name, as a stored one would
/// be.
pub(super) fn host_endpoints<'v>(
    nodes: impl Iterator<Item = (&'v str, &'v Value)>,
) -> BTreeMap<String, Value> {
    let requested = nodes.filter(|(_, node)| {
        let annotations = &node["metadata"]["annotations"];
        // An invalid value counts as a request.
        annotations["cambric.io/host-endpoint"].is_string()
    });
    requested
        .map(|(name, node)| (format!("{name}-auto-hep"), host_endpoint(name, node)))
        .collect()
}

fn host_endpoint(name: &str, node: &Value) -> Value {
    let spec = &node["spec"];
    let mut own = labels(&node["metadata"]["labels"]);
    let created = ("projectcalico.org/created-by", "calico-kube-controllers");
    own.insert(created.0.to_owned(), created.1.to_owned());
    let single = [
        &spec["bgp"]["ipv4Address"],
        &spec["bgp"]["ipv6Address"],
        &spec["bgp"]["ipv4IPIPTunnelAddr"],
        &spec["ipv4VXLANTunnelAddr"],
        &spec["ipv6VXLANTunnelAddr"],
        &spec["wireguard"]["interfaceIPv4Address"],
        &spec["wireguard"]["interfaceIPv6Address"],
    ];
    let single = single.into_iter().filter_map(Value::as_str);
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let listed = list(&spec["addresses"]).into_iter();
    let listed = listed.filter_map(|one| Some(one["address"].as_str()?.to_owned()));
    let interfaces = list(&spec["interfaces"]).into_iter();
    let interfaces = interfaces.flat_map(|one| texts(&one["addresses"]));
    let all = single.map(str::to_owned).chain(listed).chain(interfaces);
    let addresses: Vec<String> = all
        .filter_map(|text| Some(text.split('/').next()?.to_owned()))
        .collect();
    json!({"metadata": {"labels": own}, "spec": {"node": name, "interfaceName": "*",
        "expectedIPs": addresses, "profiles": ["projectcalico-default-allow"]}})
}

/// Returns the oldest FelixConfiguration that selects a node by its labels.
pub(super) fn settings<'v>(
    node: &Value,
    all: impl Iterator<Item = (&'v str, &'v Value)>,
) -> Option<&'v Value> {
    let own = labels(&node["metadata"]["labels"]);
    let selected = all.filter(|(name, value)| {
        let selector = value["spec"]["nodeSelector"].as_str().unwrap_or_default();
        let is_scoped = *name != "default" && !name.starts_with("node.");
        let parsed = Selector::parse(selector);
        is_scoped && !selector.trim().is_empty() && parsed.is_ok_and(|one| one.selects_map(&own))
    });
    let age = |value: &Value| {
        let created = value["metadata"]["creationTimestamp"].as_str();
        let created = created.unwrap_or_default().to_owned();
        (created.is_empty(), created)
    };
    selected
        .min_by_key(|(name, value)| (age(value), name.to_string()))
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotated_node_has_an_automatic_host_endpoint() {
        let node = json!({"metadata": {"labels": {"rack": "r1"},
                "annotations": {"cambric.io/host-endpoint": "auto"}},
            "spec": {"bgp": {"ipv4Address": "10.0.0.1/24"}, "ipv6VXLANTunnelAddr": "fd65::1",
                "addresses": [{"address": "192.0.2.1", "type": "InternalIP"}],
                "interfaces": [{"name": "eth0", "addresses": ["192.0.2.2"]}]}});
        let plain = json!({"spec": {"bgp": {"ipv4Address": "10.0.0.2/24"}}});
        let mut invalid = plain.clone();
        invalid["metadata"]["annotations"] = json!({"cambric.io/host-endpoint": "Auto"});
        let all = [("n1", &node), ("n2", &plain), ("n3", &invalid)];
        let found = host_endpoints(all.into_iter());
        let names: Vec<&String> = found.keys().collect();
        assert_eq!(names, ["n1-auto-hep", "n3-auto-hep"]);
        let made = &found["n1-auto-hep"];
        let addresses = ["10.0.0.1", "fd65::1", "192.0.2.1", "192.0.2.2"];
        assert_eq!(made["spec"]["expectedIPs"], json!(addresses));
        assert_eq!(made["metadata"]["labels"]["rack"], "r1");
    }

    #[test]
    fn oldest_selected_settings_apply() {
        let node = json!({"metadata": {"labels": {"rack": "r1"}}});
        let of = |selector: &str, created: &str| {
            json!({"metadata": {"creationTimestamp": created},
                "spec": {"nodeSelector": selector}})
        };
        let (young, old) = (of("has(rack)", "2026-02"), of("rack == 'r1'", "2026-01"));
        let (other, none) = (of("rack == 'r2'", "2025-01"), of("", "2025-01"));
        let all = [
            ("a", &young),
            ("b", &old),
            ("c", &other),
            ("d", &none),
            ("default", &other),
        ];
        let found = settings(&node, all.into_iter());
        assert_eq!(found, Some(&old));
        assert_eq!(settings(&Value::Null, all.into_iter()), None);
    }
}
