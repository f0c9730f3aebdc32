//! ClusterNetworkPolicies, rule by rule.

use serde_json::json;

use super::*;

fn policy(spec: Value) -> Converted<Resource<GlobalNetworkPolicySpec>> {
    cluster_network_policy(&json!({"metadata": {"name": "cluster"}, "spec": spec}))
}

fn spec_of(found: Converted<Resource<GlobalNetworkPolicySpec>>) -> Value {
    let resource = found.resource().unwrap();
    resource.encode().unwrap();
    serde_json::to_value(&resource.spec).unwrap()
}

/// Returns the rules of an egress rule in a valid policy, and the fields of the reports.
fn egress(rule: Value) -> (Value, Vec<String>) {
    let subject = json!({"namespaces": {}});
    let found = policy(json!({"tier": "Admin", "priority": 5, "subject": subject,
        "egress": [rule]}));
    let fields = found.reports.iter().map(|report| report.field.clone());
    let fields = fields.collect();
    let rules = match found.outcome {
        Outcome::Absent => Value::Null,
        _ => spec_of(found)["egress"].take(),
    };
    (rules, fields)
}

#[test]
fn policy_is_global_in_its_tier() {
    let found = policy(json!({
        "tier": "Baseline", "priority": 100,
        "subject": {"pods": {"namespaceSelector": {"matchLabels": {"team": "a"}},
            "podSelector": {"matchLabels": {"app": "web"}}}},
        "ingress": [
            {"name": "one", "action": "Accept", "from": [{"namespaces": {}}],
             "protocols": [{"udp": {"destinationPort": {"number": 53}}},
                {"tcp": {"destinationPort": {"range": {"start": 80, "end": 90}}}}]},
            {"action": "Pass", "from": [{"pods": {"podSelector": {}}}]},
        ],
        "egress": [{"action": "Deny", "to": [{"networks": ["10.0.0.5/8", "fd00::/8"]}]}],
    }));
    assert_eq!(found.reports, []);
    let peer = json!({"selector": PODS, "namespaceSelector": "all()"});
    let name = json!({"annotations": {"name": "one"}});
    let wanted = json!({"tier": "kube-baseline", "order": 100,
        "selector": format!("{PODS} && app == 'web'"), "namespaceSelector": "team == 'a'",
        "types": ["Ingress", "Egress"],
        "ingress": [
            {"action": "Allow", "protocol": "TCP", "source": peer,
             "destination": {"ports": ["80:90"]}, "metadata": name},
            {"action": "Allow", "protocol": "UDP", "source": peer,
             "destination": {"ports": [53]}, "metadata": name},
            {"action": "Pass", "source": peer}],
        "egress": [{"action": "Deny", "destination": {"nets": ["10.0.0.0/8", "fd00::/8"]}}]});
    let resource = found.resource().unwrap();
    assert_eq!(resource.metadata.name, "kcnp.kube-baseline.cluster");
    assert_eq!(serde_json::to_value(&resource.spec).unwrap(), wanted);
    resource.encode().unwrap();
}

#[test]
fn tiers_surround_network_policies() {
    let [admin, baseline] = tiers().map(|tier| serde_json::to_value(&tier).unwrap());
    assert_eq!(admin["metadata"]["name"], "kube-admin");
    assert_eq!(
        admin["spec"],
        json!({"order": 1000, "defaultAction": "Pass"})
    );
    assert_eq!(baseline["metadata"]["name"], "kube-baseline");
    assert_eq!(
        baseline["spec"],
        json!({"order": 10_000_000, "defaultAction": "Pass"})
    );
    for tier in tiers() {
        tier.encode().unwrap();
    }
}

#[test]
fn names_of_ports_apply_to_all_protocols() {
    let rule = json!({"action": "Accept", "to": [{"namespaces": {}}],
        "protocols": [{"destinationNamedPort": "http"}]});
    let (rules, fields) = egress(rule.clone());
    assert_eq!(fields, [""; 0]);
    let found = rules.as_array().unwrap().iter();
    let protocols: Vec<_> = found.map(|rule| rule["protocol"].clone()).collect();
    assert_eq!(json!(protocols), json!(PROTOCOLS));
    assert_eq!(rules[0]["destination"]["ports"], json!(["http"]));
    let mut rule = rule;
    rule["to"] = json!([{"networks": ["10.0.0.0/8"]}]);
    assert_eq!(egress(rule).1, ["spec.egress[0].to[0].networks"]);
}

#[test]
fn unreadable_rules_fail_closed() {
    let peer = json!({"namespaces": {}});
    for (part, field) in [
        (json!({"to": []}), ".to"),
        (json!({"to": null}), ".to"),
        (json!({"to": [{}]}), ".to[0]"),
        (json!({"to": [peer, {"nodes": {}}]}), ".to[1].nodes"),
        (
            json!({"to": [{"domainNames": ["a.example."]}]}),
            ".to[0].domainNames",
        ),
        (
            json!({"to": [{"namespaces": {}, "networks": ["::/0"]}]}),
            ".to[0]",
        ),
        (
            json!({"to": [{"networks": ["10.0.0.0/8", "x"]}]}),
            ".to[0].networks[1]",
        ),
        (json!({"to": [{"networks": []}]}), ".to[0].networks"),
        (
            json!({"to": [{"pods": {"podSelector": 7}}]}),
            ".to[0].pods.podSelector",
        ),
        (json!({"to": [{"pods": {}}]}), ".to[0].pods.podSelector"),
        (json!({"to": [peer], "ports": []}), ".ports"),
        (json!({"to": [peer], "protocols": [{}]}), ".protocols[0]"),
        (
            json!({"to": [peer], "protocols": [{"icmp": {}}]}),
            ".protocols[0].icmp",
        ),
        (
            json!({"to": [peer], "protocols": [{"tcp": {}}]}),
            ".protocols[0].tcp",
        ),
        (
            json!({"to": [peer], "protocols": [{"tcp": {"destinationPort": {"number": 0}}}]}),
            ".protocols[0].tcp.destinationPort.number",
        ),
        (
            json!({"to": [peer], "protocols": [
                {"udp": {"destinationPort": {"range": {"start": 9, "end": 8}}}}]}),
            ".protocols[0].udp.destinationPort.range",
        ),
        (
            json!({"to": [peer], "protocols": [{"destinationNamedPort": "80"}]}),
            ".protocols[0].destinationNamedPort",
        ),
    ] {
        for (action, wanted) in [
            ("Accept", Value::Null),
            ("Deny", json!([{"action": "Deny"}])),
            ("Pass", json!([{"action": "Deny"}])),
        ] {
            let mut rule = part.clone();
            rule["action"] = action.into();
            let (rules, fields) = egress(rule);
            assert_eq!(rules, wanted, "{action} {part}");
            assert_eq!(
                fields,
                [format!("spec.egress[0]{field}")],
                "{action} {part}"
            );
        }
    }
    for (rule, field) in [
        (json!(7), ""),
        (json!({"to": [peer]}), ".action"),
        (json!({"to": [peer], "action": "Allow"}), ".action"),
    ] {
        let (rules, fields) = egress(rule.clone());
        assert_eq!(rules, json!([{"action": "Deny"}]), "{rule}");
        assert_eq!(fields, [format!("spec.egress[0]{field}")], "{rule}");
    }
    assert_eq!(egress(json!(null)).1, ["spec.egress[0]"]);
}

#[test]
fn rules_without_room_deny() {
    let networks = (0..60_000).map(|at| format!("10.{}.{}.0/24", at / 256, at % 256));
    let networks: Vec<String> = networks.collect();
    let (rules, fields) = egress(json!({"action": "Accept", "to": [{ "networks": networks }]}));
    assert_eq!(rules, json!([{"action": "Deny"}]));
    assert_eq!(fields, ["spec.egress[0]"]);
}

#[test]
fn policy_with_an_unreadable_place_keeps_its_denials() {
    let valid = json!({"tier": "Baseline", "priority": 9,
        "subject": {"pods": {"podSelector": {"matchLabels": {"app": "web"}}}},
        "egress": [{"action": "Accept", "to": [{"namespaces": {}}]},
            {"action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}]},
            {"action": "Pass", "to": [{"namespaces": {}}]}]});
    let web = format!("{PODS} && app == 'web'");
    for (field, value, path, selector) in [
        ("tier", json!("Top"), "spec.tier", &*web),
        ("priority", json!(1001), "spec.priority", &web),
        ("priority", json!(null), "spec.priority", &web),
        ("subject", json!({}), "spec.subject", PODS),
        ("subject", json!({"nodes": {}}), "spec.subject.nodes", PODS),
        (
            "subject",
            json!({"namespaces": 7}),
            "spec.subject.namespaces",
            PODS,
        ),
    ] {
        let mut spec = valid.clone();
        spec[field] = value;
        let found = policy(spec.clone());
        assert_eq!(found.reports[0].field, path, "{spec}");
        let found = spec_of(found);
        assert_eq!(found["tier"], "kube-admin");
        assert_eq!(
            (&found["order"], &found["selector"]),
            (&json!(0), &json!(selector))
        );
        let rules = json!([{"action": "Deny", "destination": {"nets": ["10.0.0.0/8"]}}]);
        assert_eq!(found["egress"], rules, "{spec}");
    }
    let mut spec = valid;
    spec["ingress"] = json!({});
    let found = spec_of(policy(spec));
    assert_eq!(found["ingress"], json!([{"action": "Deny"}]));
}

#[test]
fn policy_without_rules_has_no_resource() {
    let spec = json!({"tier": "Admin", "priority": 0, "subject": {"namespaces": {}}});
    assert_eq!(policy(spec).outcome, Outcome::Absent);
    assert_eq!(policy(json!(7)).outcome, Outcome::Unreadable);
    assert_eq!(
        cluster_network_policy(&json!(7)).outcome,
        Outcome::Unreadable
    );
}
