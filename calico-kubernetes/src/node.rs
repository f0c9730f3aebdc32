//! Nodes of Kubernetes: labels and addresses for nodes of Calico.

use std::net::IpAddr;

use calico_model::{Metadata, Network, NodeAddress, NodeSpec};
use serde_json::{Value, json};

use crate::network::{is_mapped, network};
use crate::object::{Labels, begin, labels, list, texts_of};
use crate::report::{Converted, Outcome, Reports, quoted};

/// The annotation with the labels that were copied last, as JSON: only these are ever removed.
const KUBE_LABELS: &str = "projectcalico.org/kube-labels";

/// The orchestrator in references of a node.
const ORCHESTRATOR: &str = "k8s";

/// The types of addresses that a node of Calico has.
const ADDRESS_TYPES: [&str; 2] = ["InternalIP", "ExternalIP"];

/// The data of a node of Kubernetes for a node of Calico.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeNode {
    /// Its name in Kubernetes.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its internal and external addresses.
    pub addresses: Vec<NodeAddress>,
    /// The networks of its pods (`podCIDRs`), for `usePodCidr`.
    pub pod_networks: Vec<Network>,
}

/// Converts a Node.
pub fn node(value: &Value) -> Converted<KubeNode> {
    let (mut reports, is_valid) = begin("Node", value, false);
    if !is_valid {
        return reports.unreadable();
    }
    let labels = match labels(value) {
        Ok(labels) => labels,
        Err(fault) => {
            reports.fault(fault, "the labels of the node stay as they are");
            return reports.unreadable();
        }
    };
    let node = KubeNode {
        name: reports.object.name.clone(),
        labels,
        addresses: addresses(&value["status"]["addresses"], &mut reports),
        pod_networks: pod_networks(&value["spec"], &mut reports),
    };
    reports.done(Outcome::Resource(node))
}

impl KubeNode {
    /// Returns whether a node of Calico is this one: by a reference, otherwise by its name.
    pub fn is(&self, name: &str, spec: &NodeSpec) -> bool {
        let references = spec.orch_refs.iter();
        let own = references.filter(|reference| reference.orchestrator == ORCHESTRATOR);
        let names: Vec<&String> = own.map(|reference| &reference.node_name).collect();
        match names.is_empty() {
            true => name == self.name,
            false => names.contains(&&self.name),
        }
    }

    /// Merges the labels into those of a node of Calico, and removes labels that were copied and are
    /// no longer set. Labels of other writers are kept. Returns whether the metadata has changed.
    pub fn merge_labels(&self, metadata: &mut Metadata) -> bool {
        let stored = (
            metadata.labels.clone(),
            metadata.annotations.get(KUBE_LABELS).cloned(),
        );
        let copied = stored.1.as_deref().unwrap_or_default();
        let copied: Value = serde_json::from_str(copied).unwrap_or_default();
        let copied = texts_of(&copied, KUBE_LABELS).unwrap_or_default();
        let is_over = |key: &String| copied.contains_key(key) && !self.labels.contains_key(key);
        metadata.labels.retain(|key, _| !is_over(key));
        metadata.labels.extend(self.labels.clone());
        let text = json!(self.labels).to_string();
        let annotation = Some(text.clone());
        metadata.annotations.insert(KUBE_LABELS.to_owned(), text);
        stored != (metadata.labels.clone(), annotation)
    }
}

/// Reads the internal and external addresses; names of the host are no addresses.
fn addresses(value: &Value, reports: &mut Reports) -> Vec<NodeAddress> {
    let path = "status.addresses";
    let given = list(value, path).unwrap_or_else(|fault| {
        reports.fault(fault, "the node has no addresses");
        &[]
    });
    let mut all = Vec::new();
    for (at, value) in given.iter().enumerate() {
        let kind = value["type"].as_str().unwrap_or_default();
        if !ADDRESS_TYPES.contains(&kind) {
            continue;
        }
        let text = value["address"].as_str().unwrap_or_default();
        let address = text.parse::<IpAddr>().ok();
        match address.filter(|address| !is_mapped(*address)) {
            Some(address) => all.push(NodeAddress {
                address: address.to_string(),
                source: kind.to_owned(),
                unknown: Default::default(),
            }),
            None => {
                let found = quoted(&value["address"]);
                let reason = format!("{found} is not an address; it is left out");
                reports.add(format!("{path}[{at}].address"), reason);
            }
        }
    }
    all
}

/// Reads the networks of pods; servers without IPv6 have one field for them.
fn pod_networks(spec: &Value, reports: &mut Reports) -> Vec<Network> {
    let (field, given) = match &spec["podCIDRs"] {
        Value::Array(list) if !list.is_empty() => ("spec.podCIDRs", list.clone()),
        _ if spec["podCIDR"].is_null() || spec["podCIDR"] == "" => return Vec::new(),
        _ => ("spec.podCIDR", vec![spec["podCIDR"].clone()]),
    };
    let mut all = Vec::new();
    for value in &given {
        match network(value) {
            Ok(network) => all.push(Network(network)),
            Err(reason) => reports.add(field, format!("{reason}; it is left out")),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(value: &Value) -> KubeNode {
        let found = node(value);
        assert_eq!(found.reports, []);
        found.resource().unwrap()
    }

    fn with_labels(labels: Value) -> KubeNode {
        converted(&json!({"metadata": {"name": "node1", "labels": labels}}))
    }

    #[test]
    fn node_has_addresses_and_networks_of_pods() {
        let found = converted(&json!({"metadata": {"name": "node1"},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd24:1::/64"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.20.1.7"},
                {"type": "Hostname", "address": "node1"},
                {"type": "ExternalIP", "address": "2001:DB8::7"}]}}));
        let addresses = found.addresses.iter();
        let addresses: Vec<_> = addresses.map(|a| (&*a.source, &*a.address)).collect();
        assert_eq!(
            addresses,
            [("InternalIP", "10.20.1.7"), ("ExternalIP", "2001:db8::7")]
        );
        let networks = found.pod_networks.iter().map(Network::to_string);
        assert_eq!(
            networks.collect::<Vec<_>>(),
            ["10.244.1.0/24", "fd24:1::/64"]
        );
        let found = converted(&json!({"metadata": {"name": "node1"},
            "spec": {"podCIDR": "10.244.1.0/24"}}));
        assert_eq!(found.pod_networks.len(), 1);
    }

    #[test]
    fn invalid_addresses_are_left_out() {
        let found = node(&json!({"metadata": {"name": "node1"},
            "spec": {"podCIDRs": ["10.244.1.0"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "x"}]}}));
        let fields: Vec<_> = found.reports.iter().map(|report| &*report.field).collect();
        assert_eq!(fields, ["status.addresses[0].address", "spec.podCIDRs"]);
        assert!(found.resource().unwrap().addresses.is_empty());
        let found = node(&json!({"metadata": {"name": "node1", "labels": []}}));
        assert_eq!(found.outcome, Outcome::Unreadable);
    }

    #[test]
    fn only_copied_labels_are_removed() {
        let mut metadata = Metadata::default();
        metadata.labels.insert("own".into(), "x".into());
        metadata.labels.insert("rack".into(), "old".into());
        let first = with_labels(json!({"rack": "r1", "zone": "a"}));
        assert!(first.merge_labels(&mut metadata));
        assert!(!first.merge_labels(&mut metadata));
        let stored = &metadata.annotations[KUBE_LABELS];
        assert_eq!(stored, r#"{"rack":"r1","zone":"a"}"#);
        assert!(with_labels(json!({"rack": "r2"})).merge_labels(&mut metadata));
        assert_eq!(json!(metadata.labels), json!({"own": "x", "rack": "r2"}));
        metadata.annotations.insert(KUBE_LABELS.into(), "[".into());
        assert!(with_labels(json!({})).merge_labels(&mut metadata));
        assert_eq!(json!(metadata.labels), json!({"own": "x", "rack": "r2"}));
    }

    #[test]
    fn references_have_precedence_over_the_name() {
        let node = with_labels(json!({}));
        let spec = |name: &str| {
            let refs = json!({"orchRefs": [{"orchestrator": "k8s", "nodeName": name}]});
            serde_json::from_value::<NodeSpec>(refs).unwrap()
        };
        assert!(node.is("node1", &NodeSpec::default()));
        assert!(!node.is("other", &NodeSpec::default()));
        assert!(node.is("other", &spec("node1")));
        assert!(!node.is("node1", &spec("node2")));
    }
}
