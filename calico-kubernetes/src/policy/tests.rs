//! NetworkPolicies, rule by rule.

use serde_json::json;

use super::*;

fn converted(spec: Value) -> (Value, Vec<(String, String)>) {
    let metadata = json!({"name": "web", "namespace": "prod"});
    let found = network_policy(&json!({"metadata": metadata, "spec": spec}));
    let reports = found.reports.iter();
    let reports = reports.map(|report| (report.field.clone(), report.reason.clone()));
    let reports = reports.collect();
    let resource = found.resource().unwrap();
    resource.encode().unwrap();
    (serde_json::to_value(&resource.spec).unwrap(), reports)
}

/// Returns the rules of an ingress rule, and the fields of the reports.
fn ingress(rule: Value) -> (Value, Vec<String>) {
    ingress_of(json!([rule]))
}

fn ingress_of(rules: Value) -> (Value, Vec<String>) {
    let (mut spec, reports) = converted(json!({ "ingress": rules }));
    let fields = reports.into_iter().map(|(field, _)| field);
    (spec["ingress"].take(), fields.collect())
}

#[test]
fn policy_has_the_form_of_calico() {
    let (spec, reports) = converted(json!({
        "podSelector": {"matchLabels": {"role": "db"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{
            "from": [
                {"ipBlock": {"cidr": "10.0.0.5/8", "except": ["10.1.0.0/16"]}},
                {"namespaceSelector": {}, "podSelector": {"matchLabels": {"role": "web"}}},
                {"namespaceSelector": {"matchLabels": {"team": "a"}}},
                {"podSelector": {}}],
            "ports": [{"port": 80}, {"protocol": "UDP", "port": 1000, "endPort": 2000}],
        }],
        "egress": [{}],
    }));
    assert_eq!(reports, []);
    let pods = "projectcalico.org/orchestrator == 'k8s'";
    let sources = [
        json!({"nets": ["10.0.0.0/8"], "notNets": ["10.1.0.0/16"]}),
        json!({"selector": format!("{pods} && role == 'web'"), "namespaceSelector": "all()"}),
        json!({"selector": pods, "namespaceSelector": "team == 'a'"}),
        json!({"selector": pods}),
    ];
    let of = |protocol: &str, port: Value| {
        let rules = sources.iter().map(|source| {
            json!({"action": "Allow", "protocol": protocol, "source": source,
                "destination": {"ports": [port]}})
        });
        rules.collect::<Vec<Value>>()
    };
    let rules = [of("TCP", json!(80)), of("UDP", json!("1000:2000"))].concat();
    let wanted = json!({"order": 1000, "tier": "default", "types": ["Ingress", "Egress"],
        "selector": format!("{pods} && role == 'db'"),
        "ingress": rules, "egress": [{"action": "Allow"}]});
    assert_eq!(spec, wanted);
}

#[test]
fn directions_without_types_follow_from_the_rules() {
    for (spec, types) in [
        (json!({}), json!(["Ingress"])),
        (json!(null), json!(["Ingress"])),
        (json!({"egress": [], "policyTypes": []}), json!(["Ingress"])),
        (json!({"egress": [{}]}), json!(["Ingress", "Egress"])),
        (json!({"policyTypes": ["Egress"]}), json!(["Egress"])),
        (
            json!({"policyTypes": ["Egress", "Ingress"]}),
            json!(["Ingress", "Egress"]),
        ),
        (
            json!({"policyTypes": ["Ingress", "Ingress"]}),
            json!(["Ingress"]),
        ),
    ] {
        let (found, reports) = converted(spec.clone());
        assert_eq!((&found["types"], reports.len()), (&types, 0), "{spec}");
    }
}

#[test]
fn invalid_directions_and_subjects_isolate() {
    let open = json!([{}]);
    for (spec, field, selector) in [
        (json!(7), "spec", PODS.to_owned()),
        (
            json!({"podSelector": 7, "ingress": open}),
            "spec.podSelector",
            PODS.to_owned(),
        ),
        (
            json!({"ingress": open, "podSelector": {"matchLabels": {"a": "x"},
                "matchExpressions": [{"key": "b", "operator": "Gt", "values": ["1"]}]}}),
            "spec.podSelector.matchExpressions[0].operator",
            format!("{PODS} && a == 'x'"),
        ),
    ] {
        let (found, reports) = converted(spec.clone());
        assert_eq!(reports[0].0, field, "{spec}");
        assert_eq!(found["selector"], selector, "{spec}");
        assert_eq!(found.get("ingress"), None, "{spec}");
    }
    for (types, ingress) in [
        (json!(["Ingress", "egress"]), json!([{"action": "Allow"}])),
        (json!(["Egress", 7]), Value::Null),
        (json!("Ingress"), Value::Null),
    ] {
        let (found, reports) = converted(json!({"policyTypes": types, "ingress": open}));
        assert_eq!(found["types"], json!(["Ingress", "Egress"]), "{types}");
        assert!(reports[0].0.starts_with("spec.policyTypes"));
        assert_eq!(found["ingress"], ingress, "{types}");
    }
    for list in [json!({}), json!("x"), json!(7)] {
        let (found, reports) = converted(json!({ "ingress": list }));
        assert_eq!(reports[0].0, "spec.ingress");
        assert_eq!(found.get("ingress"), None);
    }
    let (found, reports) = converted(json!({"newField": 7, "ingress": open}));
    assert_eq!(reports[0].0, "spec.newField");
    assert_eq!(found["ingress"], json!([{"action": "Allow"}]));
}

#[test]
fn invalid_peers_allow_nothing() {
    for (peer, field) in [
        (json!({}), ""),
        (json!(null), ""),
        (
            json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}),
            "",
        ),
        (json!({"ipBlock": {"cidr": "10.0.0.1"}}), ".ipBlock.cidr"),
        (json!({"ipBlock": {"cidr": "010.0.0.0/8"}}), ".ipBlock.cidr"),
        (json!({"ipBlock": {}}), ".ipBlock.cidr"),
        (
            json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/33"]}}),
            ".ipBlock.except[0]",
        ),
        (
            json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": 7}}),
            ".ipBlock.except",
        ),
        (
            json!({"ipBlock": {"cidr": "10.0.0.0/8", "without": []}}),
            ".ipBlock.without",
        ),
        (json!({"nodeSelector": {}}), ".nodeSelector"),
        (
            json!({"podSelector": {"matchLabels": {"a": "b c"}}}),
            ".podSelector.matchLabels",
        ),
        (
            json!({"podSelector": {}, "namespaceSelector": 7}),
            ".namespaceSelector",
        ),
    ] {
        let (rules, fields) = ingress(json!({"from": [peer]}));
        assert_eq!(rules, Value::Null, "{peer}");
        assert_eq!(
            fields,
            [format!("spec.ingress[0].from[0]{field}")],
            "{peer}"
        );
        // The others stay.
        let valid = json!({"ipBlock": {"cidr": "192.0.2.0/24"}});
        let (rules, _) = ingress(json!({"from": [peer, valid]}));
        let wanted = json!([{"action": "Allow", "source": {"nets": ["192.0.2.0/24"]}}]);
        assert_eq!(rules, wanted, "{peer}");
    }
}

#[test]
fn exceptions_outside_their_network_are_reported() {
    let (rules, fields) = ingress(json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8",
        "except": ["192.0.2.0/24", "fd65::/64", "10.0.0.0/8", "0.0.0.0/0"]}}]}));
    assert_eq!(
        rules[0]["source"]["notNets"],
        json!(["10.0.0.0/8", "0.0.0.0/0"])
    );
    let path = "spec.ingress[0].from[0].ipBlock.except";
    assert_eq!(fields, [format!("{path}[0]"), format!("{path}[1]")]);
}

#[test]
fn invalid_ports_allow_nothing() {
    for (port, field) in [
        (json!({"port": 0}), ".port"),
        (json!({"port": 65536}), ".port"),
        (json!({"port": -1}), ".port"),
        (json!({"port": 80.0}), ".port"),
        (json!({"port": "80"}), ".port"),
        (json!({"port": "80:90"}), ".port"),
        (json!({"port": "HTTP"}), ".port"),
        (json!({"port": true}), ".port"),
        (json!({"port": "http", "endPort": 90}), ".port"),
        (json!({"endPort": 90}), ".port"),
        (json!({"port": 100, "endPort": 90}), ".endPort"),
        (json!({"port": 100, "endPort": 65536}), ".endPort"),
        (json!({"port": 80, "protocol": "ICMP"}), ".protocol"),
        (json!({"port": 80, "protocol": "tcp"}), ".protocol"),
        (json!({"port": 80, "protocol": ""}), ".protocol"),
        (json!({"port": 80, "startPort": 7}), ".startPort"),
        (json!(80), ""),
        (json!(null), ""),
    ] {
        let (rules, fields) = ingress(json!({"ports": [port]}));
        assert_eq!(rules, Value::Null, "{port}");
        assert_eq!(
            fields,
            [format!("spec.ingress[0].ports[0]{field}")],
            "{port}"
        );
        // Calico rejects the whole policy.
        let (rules, _) = ingress(json!({"ports": [{"port": 443}, port]}));
        let wanted = json!([{"action": "Allow", "protocol": "TCP",
            "destination": {"ports": [443]}}]);
        assert_eq!(rules, wanted, "{port}");
    }
}

#[test]
fn invalid_rules_are_left_out() {
    for (rule, field) in [
        (json!(null), ""),
        (json!([]), ""),
        (json!({"to": []}), ".to"),
        (json!({"from": {}}), ".from"),
        (json!({"ports": "80"}), ".ports"),
    ] {
        let (rules, fields) = ingress(rule.clone());
        assert_eq!(rules, Value::Null, "{rule}");
        assert_eq!(fields, [format!("spec.ingress[0]{field}")], "{rule}");
    }
}

#[test]
fn ports_without_a_number_mean_the_whole_protocol() {
    let udp = json!([{"protocol": "UDP"}, {"protocol": "UDP", "port": 53}, {"port": "http"}]);
    let (rules, _) = ingress(json!({ "ports": udp }));
    let wanted = json!([
        {"action": "Allow", "protocol": "TCP", "destination": {"ports": ["http"]}},
        {"action": "Allow", "protocol": "UDP"}]);
    assert_eq!(rules, wanted);
    let (rules, _) = ingress(json!({"ports": [{}]}));
    assert_eq!(rules, json!([{"action": "Allow", "protocol": "TCP"}]));
}

#[test]
fn rules_without_room_are_left_out() {
    // There would be 20,000 rules with 20,000 ports each.
    let ports = (1..20_000).map(|at| json!({"port": 2 * at}));
    let peers = vec![json!({"podSelector": {}}); 20_000];
    let rule = json!({"from": peers, "ports": ports.collect::<Vec<_>>()});
    let open = json!({"ports": [{"port": 443}]});
    let (rules, fields) = ingress_of(json!([open, rule, open]));
    assert_eq!(fields, ["spec.ingress[1]"]);
    assert!(rules.to_string().len() <= crate::limits::RULES_OCTETS_MAX);
    assert_eq!(rules[0]["destination"]["ports"], json!([443]));
    assert!(rules.as_array().unwrap().len() > 2);
    let values = vec!["x".repeat(63); 2000];
    let expression = json!({"key": "a", "operator": "In", "values": values});
    let selector = json!({"matchExpressions": [expression]});
    let (rules, fields) = ingress(json!({"from": [{ "podSelector": selector }]}));
    assert_eq!(rules, Value::Null);
    assert_eq!(fields, ["spec.ingress[0].from[0].podSelector"]);
}

#[test]
fn long_name_is_stored_with_its_annotation() {
    let name = "x".repeat(253);
    let metadata = json!({"name": name, "namespace": "prod"});
    let found = network_policy(&json!({ "metadata": metadata }));
    assert_eq!(found.reports, []);
    let resource = found.resource().unwrap();
    resource.encode().unwrap();
    assert_eq!(resource.metadata.annotations[NAME_ANNOTATION], name);
}

#[test]
fn policy_without_a_name_is_unreadable() {
    for metadata in [
        json!({"name": "a/b", "namespace": "prod"}),
        json!({"name": "x"}),
    ] {
        let found = network_policy(&json!({ "metadata": metadata }));
        assert_eq!(found.outcome, Outcome::Unreadable);
        assert_eq!(found.reports.len(), 1);
    }
}
