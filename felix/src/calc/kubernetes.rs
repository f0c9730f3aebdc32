//! Policies of Kubernetes as policies of Calico, in the form that Calico's controllers give them.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The order of these policies.
const ORDER: u32 = 1000;

/// The selector of pods, besides that of the policy.
const PODS: &str = "projectcalico.org/orchestrator == 'k8s'";

/// A part that has another form than the API of Kubernetes.
type Fault = String;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Spec {
    pod_selector: Selector,
    ingress: Vec<Rule>,
    egress: Vec<Rule>,
    policy_types: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rule {
    from: Vec<Peer>,
    to: Vec<Peer>,
    ports: Vec<Port>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Peer {
    pod_selector: Option<Selector>,
    namespace_selector: Option<Selector>,
    ip_block: Option<Block>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    cidr: String,
    #[serde(default)]
    except: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Port {
    protocol: Option<String>,
    port: Option<Value>,
    end_port: Option<u16>,
}

/// Returns the name of the policy of Calico for one of Kubernetes.
pub(super) fn name(name: &str) -> String {
    format!("knp.default.{name}")
}

/// Returns the spec of a NetworkPolicy of Calico with the effect of one of Kubernetes.
pub(super) fn policy(spec: &Value) -> Result<Value, Fault> {
    let mut spec = spec.clone();
    // A missing value of Go is written as null.
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let spec: Spec = serde_json::from_value(spec).map_err(|error| format!("spec: {error}"))?;
    let types = match (spec.policy_types.is_empty(), spec.egress.is_empty()) {
        (false, _) => spec.policy_types,
        (true, true) => vec!["Ingress".to_owned()],
        (true, false) => vec!["Ingress".to_owned(), "Egress".to_owned()],
    };
    let own = selector(&spec.pod_selector)?;
    Ok(json!({
        "order": ORDER,
        "selector": both(PODS, &own),
        "types": types,
        "ingress": rules(&spec.ingress, "source", |rule| &rule.from)?,
        "egress": rules(&spec.egress, "destination", |rule| &rule.to)?,
    }))
}

fn both(one: &str, other: &str) -> String {
    match other {
        "" => one.to_owned(),
        other => format!("{one} && {other}"),
    }
}

/// Returns the rules for each peer and each port.
fn rules(all: &[Rule], end: &str, peers: fn(&Rule) -> &Vec<Peer>) -> Result<Vec<Value>, Fault> {
    let mut found = Vec::new();
    for rule in all {
        let peers = peers(rule).iter().map(peer);
        let mut peers: Vec<Value> = peers.collect::<Result<_, _>>()?;
        if peers.is_empty() {
            peers.push(json!({}));
        }
        let ports = rule.ports.iter().map(port);
        let mut ports: Vec<Value> = ports.collect::<Result<_, _>>()?;
        if ports.is_empty() {
            ports.push(json!({}));
        }
        for peer in &peers {
            for port in &ports {
                let mut rule = json!({"action": "Allow"});
                if peer != &json!({}) {
                    rule[end] = peer.clone();
                }
                if let Some(protocol) = port.get("protocol") {
                    rule["protocol"] = protocol.clone();
                }
                if let Some(ports) = port.get("ports") {
                    rule["destination"]["ports"] = ports.clone();
                }
                found.push(rule);
            }
        }
    }
    Ok(found)
}

fn peer(peer: &Peer) -> Result<Value, Fault> {
    if let Some(Block { cidr, except }) = &peer.ip_block {
        let mut block = json!({"nets": [cidr]});
        if !except.is_empty() {
            block["notNets"] = json!(except);
        }
        return Ok(block);
    }
    let mut found = json!({});
    if let Some(pods) = &peer.pod_selector {
        found["selector"] = json!(both(PODS, &selector(pods)?));
    }
    if let Some(namespaces) = &peer.namespace_selector {
        let text = selector(namespaces)?;
        let all = if text.is_empty() { "all()" } else { &text };
        found["namespaceSelector"] = json!(all);
        // Without a selector of pods, all pods of these namespaces.
        if peer.pod_selector.is_none() {
            found["selector"] = json!(PODS);
        }
    }
    Ok(found)
}

fn port(port: &Port) -> Result<Value, Fault> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let ports = match (&port.port, port.end_port) {
        (None, None) => return Ok(json!({"protocol": protocol})),
        (Some(Value::Number(first)), Some(last)) => json!([format!("{first}:{last}")]),
        (Some(number @ (Value::Number(_) | Value::String(_))), None) => json!([number]),
        (other, _) => {
            let text = other.as_ref().map(Value::to_string).unwrap_or_default();
            return Err(format!(
                "'{text}' with an endPort, or of this type, is not a port"
            ));
        }
    };
    Ok(json!({"protocol": protocol, "ports": ports}))
}

/// Returns a selector of labels; empty if it selects all.
fn selector(selector: &Selector) -> Result<String, Fault> {
    let quoted = |text: &str| match text.contains('\'') {
        true => format!("\"{text}\""),
        false => format!("'{text}'"),
    };
    let labels = selector.match_labels.iter();
    let mut parts: Vec<String> = labels
        .map(|(key, value)| format!("{key} == {}", quoted(value)))
        .collect();
    for Requirement {
        key,
        operator,
        values,
    } in &selector.match_expressions
    {
        let all: Vec<String> = values.iter().map(|value| quoted(value)).collect();
        let all = all.join(", ");
        parts.push(match operator.as_str() {
            "In" => format!("{key} in {{ {all} }}"),
            "NotIn" => format!("{key} not in {{ {all} }}"),
            "Exists" => format!("has({key})"),
            "DoesNotExist" => format!("! has({key})"),
            other => return Err(format!("'{other}' is no operator of matchExpressions")),
        });
    }
    Ok(parts.join(" && "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_of_kubernetes_has_the_form_of_calico() {
        let spec = json!({
            "podSelector": {"matchLabels": {"role": "db"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{
                "from": [
                    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
                    {"namespaceSelector": {}, "podSelector": {"matchExpressions": [
                        {"key": "role", "operator": "In", "values": ["web", "api"]}]}},
                    {"namespaceSelector": {"matchLabels": {"team": "a"}}}],
                "ports": [{"port": 5432}, {"protocol": "UDP", "port": 1000, "endPort": 2000}],
            }],
            "egress": [{}],
        });
        let found = policy(&spec).unwrap();
        assert_eq!(found["selector"], format!("{PODS} && role == 'db'"));
        assert_eq!(found["egress"], json!([{"action": "Allow"}]));
        let ingress = found["ingress"].as_array().unwrap();
        assert_eq!(ingress.len(), 6);
        let first = json!({
            "action": "Allow", "protocol": "TCP",
            "source": {"nets": ["10.0.0.0/8"], "notNets": ["10.1.0.0/16"]},
            "destination": {"ports": [5432]},
        });
        assert_eq!(ingress[0], first);
        assert_eq!(ingress[1]["destination"], json!({"ports": ["1000:2000"]}));
        let pods = format!("{PODS} && role in {{ 'web', 'api' }}");
        let source = json!({"selector": pods, "namespaceSelector": "all()"});
        assert_eq!(ingress[2]["source"], source);
        let source = json!({"selector": PODS, "namespaceSelector": "team == 'a'"});
        assert_eq!(ingress[4]["source"], source);
    }

    #[test]
    fn missing_types_follow_from_the_rules() {
        let of = |spec: Value| policy(&spec).unwrap()["types"].clone();
        assert_eq!(of(json!({})), json!(["Ingress"]));
        assert_eq!(of(json!({"egress": [{}]})), json!(["Ingress", "Egress"]));
        assert_eq!(of(json!({"ingress": null})), json!(["Ingress"]));
    }

    #[test]
    fn invalid_parts_are_named() {
        for (spec, words) in [
            (json!({"podSelector": 7}), "invalid type"),
            (json!({"other": 7}), "unknown field"),
            (
                json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
                "'Near'",
            ),
            (json!({"ingress": [{"ports": [{"port": true}]}]}), "true"),
            (
                json!({"ingress": [{"ports": [{"port": "a", "endPort": 7}]}]}),
                "a",
            ),
        ] {
            let fault = policy(&spec).unwrap_err();
            assert!(fault.contains(words), "{spec}: {fault}");
        }
    }
}
