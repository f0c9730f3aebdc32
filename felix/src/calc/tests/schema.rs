//! Each field of Calico's schema that Felix declares as supported changes the desired state. Every
//! other field is reported, and a rule that uses it is closed.

use calico_model::{Kind, Program, SERVICES_PREFIX, Standing, declared};

use super::*;

/// Returns values with which a policy, a profile and the members of selectors have an effect.
fn world() -> Vec<(String, Value)> {
    let labels = json!({"role": "web", "projectcalico.org/serviceaccount": "x"});
    let mut local = endpoint(HOST, "a", "cali1", &["10.65.0.1/32", "fd65::1/128"], &["p"]);
    local["metadata"]["labels"] = labels.clone();
    local["spec"]["serviceAccountName"] = json!("web");
    let mut other = endpoint("r1-c08", "b", "cali2", &["10.65.0.2/32"], &[]);
    other["metadata"]["labels"] = labels;
    vec![
        (endpoint_key("a"), local),
        (endpoint_key("b"), other),
        (key("profiles", "p"), json!({"spec": {"ingress": []}})),
        (
            format!("{SERVICES_PREFIX}prod/x/a"),
            json!({"endpoints": [{"addresses": ["10.65.0.2"]}], "ports": [{"port": 80}]}),
        ),
        (
            format!("{SERVICES_PREFIX}other/x/a"),
            json!({"endpoints": [{"addresses": ["10.65.0.3"]}], "ports": [{"port": 80}]}),
        ),
    ]
}

fn desired(values: &[(String, Value)], own: &(String, Value)) -> Desired {
    let mut calculator = calculator_of(values);
    assert_eq!(
        change(&mut calculator, &own.0, Some(&own.1)),
        None,
        "{own:?}"
    );
    calculator.recomputed()
}

/// Returns a value for a field of a rule, and the other fields that the rule then needs.
fn of_rule(field: &str) -> (Value, Value) {
    let tcp = json!({"protocol": "TCP"});
    let icmp = json!({"protocol": "ICMP"});
    let typed = |name: &str| json!({"protocol": "ICMP", name: {"type": 8}});
    let (side, end) = field.split_once('.').unwrap_or((field, field));
    let of_service = |service: Value| json!({side: {"services": service}});
    match (field, end) {
        ("action", _) => (json!("Deny"), json!({})),
        ("ipVersion", _) => (json!(4), json!({})),
        ("protocol" | "notProtocol", _) => (json!("UDP"), json!({})),
        ("icmp.type" | "notICMP.type", _) => (json!(8), icmp),
        ("icmp.code", _) => (json!(1), typed("icmp")),
        ("notICMP.code", _) => (json!(1), typed("notICMP")),
        (_, "nets" | "notNets") => (json!(["10.65.0.0/24"]), json!({})),
        (_, "ports" | "notPorts") => (json!(["www"]), tcp),
        (_, "serviceAccounts.names") => (json!(["web"]), json!({})),
        (_, "services.name") => (json!("x"), of_service(json!({"namespace": "prod"}))),
        (_, "services.namespace") => (json!("other"), of_service(json!({"name": "x"}))),
        (_, "http") => (json!({"name": "x"}), json!({})),
        _ => (json!("role == 'web'"), json!({})),
    }
}

/// Sets a field by its path; lists of the path get one entry.
fn set(value: &mut Value, path: &str, field: Value) {
    let mut place = value;
    for part in path.split('.') {
        place = match part.strip_suffix("[]") {
            Some(name) => {
                if place[name].is_null() {
                    place[name] = json!([{}]);
                }
                &mut place[name][0]
            }
            None => &mut place[part],
        };
    }
    *place = field;
}

/// Returns whether a problem of the field is reported; indices of lists are ignored.
fn reported(desired: &Desired, path: &str) -> bool {
    let mut fields = desired.problems.iter();
    fields.any(|one| path.starts_with(&one.field.replace("[0]", "[]")) && !one.field.is_empty())
}

#[test]
fn every_field_of_rules_changes_packets_or_closes() {
    let policies = [
        (Kind::NetworkPolicy, key("networkpolicies", "prod/p")),
        (Kind::GlobalNetworkPolicy, key("globalnetworkpolicies", "p")),
        (Kind::Profile, key("profiles", "p")),
    ];
    let mut seen = [0, 0];
    for (kind, name) in policies {
        for one in declared(kind) {
            let Some((list, field)) = one.path.split_once("[].") else {
                continue;
            };
            let (value, mut rule) = of_rule(field);
            rule["action"] = json!("Allow");
            let plain = json!({"spec": {(list.trim_start_matches("spec.")): [rule]}});
            let mut with = plain.clone();
            set(&mut with, &one.path, value);
            let before = desired(&world(), &(name.clone(), plain));
            let after = desired(&world(), &(name.clone(), with.clone()));
            match one.standing {
                Standing::Supported(_) => {
                    assert!(before.rules() != after.rules(), "{kind} {}", one.path);
                    assert!(!reported(&after, &one.path), "{kind} {}", one.path);
                    seen[0] += 1;
                }
                Standing::Unsupported { .. } => {
                    assert!(reported(&after, &one.path), "{kind} {}", one.path);
                    closed(kind, &name, &with, list);
                    seen[1] += 1;
                }
                Standing::Record => assert!(before.rules() == after.rules(), "{kind} {}", one.path),
            }
        }
    }
    assert!(seen[0] > 170 && seen[1] > 5, "{seen:?}");
}

/// Checks that the rule with the unsupported condition opens nothing, whatever its action.
fn closed(kind: Kind, name: &str, policy: &Value, list: &str) {
    for action in ["Allow", "Deny", "Pass"] {
        let mut policy = policy.clone();
        let rules = &mut policy["spec"][list.trim_start_matches("spec.")];
        rules[0]["action"] = json!(action);
        let open = json!({"action": "Allow", "protocol": "TCP"});
        rules.as_array_mut().unwrap().push(open);
        let desired = desired(&world(), &(name.to_owned(), policy));
        let chains = desired.rules().chains.values();
        let texts: Vec<String> = chains
            .flat_map(|chain| chain.rules.iter().map(rule_text))
            .collect();
        let has = |what: &str| texts.iter().any(|text| text.contains(what));
        let (left_out, follows) = (!has("[0]\""), has("[1]\""));
        let drops = has(&format!("drop comment \"{list}[0]."));
        match action {
            "Allow" => assert!(left_out && follows, "{kind} {list}: {texts:#?}"),
            _ => assert!(drops && !follows, "{kind} {list} {action}: {texts:#?}"),
        }
    }
}

#[test]
fn every_other_field_changes_something_or_is_reported() {
    let spec = |field: &str| {
        Some(match field.trim_start_matches("spec.") {
            "tier" => json!("first"),
            "order" => json!(0.5),
            "selector" | "serviceAccountSelector" | "namespaceSelector" => json!("has(no)"),
            "types" => json!(["Egress"]),
            "labelsToApply" => json!({"from-profile": "yes"}),
            "defaultAction" => json!("Pass"),
            "doNotTrack" | "preDNAT" | "applyOnForward" => json!(true),
            "performanceHints" => json!(["AssumeNeededOnEveryNode"]),
            "nets" => json!(["192.0.2.0/24"]),
            "node" => json!("r1-c08"),
            "interfaceName" => json!("eth1"),
            "expectedIPs" => json!(["192.0.2.9"]),
            "profiles" => json!(["p"]),
            _ => return None,
        })
    };
    // One policy before and one after it, and rules that select members.
    let selector = "role == 'db' || has(from-profile)";
    let select = json!([{"action": "Allow", "source": {"selector": selector}}]);
    let first = json!({"spec": {"order": 1, "tier": "first", "ingress": select}});
    let last = json!({"spec": {"ingress": [{"action": "Deny"}]}});
    let mut around = world();
    around.push((key("globalnetworkpolicies", "first"), first));
    around.push((key("networkpolicies", "prod/last"), last));
    let db = json!({"labels": {"role": "db"}});
    let host = json!({"metadata": db, "spec": {"node": HOST, "interfaceName": "eth0"}});
    around.push((key("hostendpoints", "h"), host.clone()));
    let mut count = 0;
    for (kind, name, base) in [
        (
            Kind::NetworkPolicy,
            key("networkpolicies", "prod/x"),
            json!({"spec": {"ingress": [{"action": "Allow"}]}}),
        ),
        (
            Kind::GlobalNetworkPolicy,
            key("globalnetworkpolicies", "x"),
            json!({"spec": {"ingress": [{"action": "Allow"}]}}),
        ),
        (Kind::Profile, key("profiles", "p"), json!({"spec": {}})),
        (Kind::Tier, key("tiers", "first"), json!({"spec": {}})),
        (
            Kind::GlobalNetworkSet,
            key("globalnetworksets", "x"),
            json!({"metadata": db, "spec": {}}),
        ),
        (
            Kind::NetworkSet,
            key("networksets", "prod/x"),
            json!({"metadata": db, "spec": {}}),
        ),
        (Kind::HostEndpoint, key("hostendpoints", "h"), host),
    ] {
        for one in declared(kind) {
            if one.path.contains("[].") {
                continue;
            }
            let value = spec(&one.path).unwrap_or_else(|| panic!("a value for {}", one.path));
            let before = desired(&around, &(name.clone(), base.clone()));
            let mut with = base.clone();
            set(&mut with, &one.path, value);
            let after = desired(&around, &(name.clone(), with));
            match one.standing {
                Standing::Supported(Program::Felix) => {
                    assert!(before != after, "{kind} {}", one.path);
                }
                Standing::Unsupported { .. } => {
                    assert!(reported(&after, &one.path), "{kind} {}", one.path);
                }
                other => panic!("{kind} {}: {other:?}", one.path),
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

#[test]
fn every_unsupported_field_that_is_due_here_is_reported() {
    let fields = include_str!("../../../../calico-model/src/schema/calico.txt").lines();
    let mut count = 0;
    for line in fields.filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let kind = Kind::from_name(words[0]).unwrap();
        let path = words[1];
        let standing = declared(kind).into_iter().find(|one| {
            path.starts_with(&one.path) && matches!(one.standing, Standing::Unsupported { .. })
        });
        let Some(Standing::Unsupported { due, .. }) = standing.map(|one| one.standing) else {
            continue;
        };
        if due != Some(Program::Felix) || path.contains("gress[]") {
            continue;
        }
        let value = match words[2] {
            "bool" => json!(path != "spec.useInternalDataplaneDriver"),
            "number" | "port" => json!(7),
            "duration" => json!("7s"),
            "object" | "map" => json!({"a": "b"}),
            _ => match path {
                "spec.allowSpoofedSourcePrefixes[]" => json!("10.0.0.0/8"),
                _ => json!("x"),
            },
        };
        let (name, mut base) = subject(kind);
        if base["spec"].is_null() {
            base["spec"] = json!({});
        }
        match path.strip_suffix("[]") {
            Some(path) => set(&mut base, path, json!([value])),
            None => set(&mut base, path, value),
        }
        let mut calculator = calculator_of(&[]);
        // An unparsable value is reported.
        let refused = change(&mut calculator, &name, Some(&base));
        let desired = calculator.recomputed();
        let found = desired.problems.iter().filter(|one| one.key == name);
        assert_eq!(found.count(), 1, "{kind} {path} {refused:?}");
        count += 1;
    }
    assert!(count > 150, "{count}");
}

/// Returns the key of a resource of a kind, and a value of it without the field under test.
fn subject(kind: Kind) -> (String, Value) {
    let name = match kind.scope() {
        calico_model::Scope::Namespaced => "prod/x",
        calico_model::Scope::Cluster => "default",
    };
    let named = key(kind.plural(), name);
    match kind {
        Kind::WorkloadEndpoint => (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"])),
        Kind::IpPool => (named, json!({"spec": {"cidr": "10.65.0.0/16"}})),
        _ => (named, json!({"metadata": {"name": "default"}, "spec": {}})),
    }
}

#[test]
fn settings_of_another_name_are_reported() {
    let name = key("felixconfigurations", "racks");
    let value = json!({"metadata": {"name": "racks"}, "spec": {"ipv6Support": false}});
    let desired = calculator_of(&[(name, value)]).recomputed();
    assert_eq!(desired.problems.len(), 1);
    assert!(desired.settings.ipv6);
}
