//! Network sets and the addresses of host endpoints are members of selectors.

use super::*;

/// Returns a local endpoint, and a policy of its namespace with one ingress rule.
fn policed(rule: &Value) -> Calculator {
    let policy = json!({"spec": {"ingress": [rule, {"action": "Allow"}]}});
    calculator_of(&[
        (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"])),
        (key("networkpolicies", "prod/p"), policy),
    ])
}

fn set(labels: &Value, nets: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"nets": nets}})
}

/// Returns the elements of the sets of selectors, and the rules of the policy.
fn elements(calculator: &mut Calculator) -> Vec<String> {
    let desired = calculator.recomputed();
    let sets = desired.rules().sets.iter();
    let sets = sets.filter(|(name, _)| name.contains("0s-"));
    sets.flat_map(|(_, set)| set.elements.keys().map(ToString::to_string))
        .collect()
}

#[test]
fn deny_by_global_network_set_has_its_networks() {
    let rule = json!({"action": "Deny", "source": {"selector": "bad == 'yes'",
        "namespaceSelector": "global()"}});
    let mut calculator = policed(&rule);
    assert_eq!(elements(&mut calculator), [""; 0]);
    let name = key("globalnetworksets", "bad");
    let nets = json!([
        "192.0.2.0/24",
        "192.0.2.7",
        "198.51.100.9/24",
        "2001:db8::/32"
    ]);
    let bad = set(&json!({"bad": "yes"}), &nets);
    assert_eq!(change(&mut calculator, &name, Some(&bad)), None);
    let all = ["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32"];
    assert_eq!(elements(&mut calculator), all);
    let good = set(&json!({"bad": "no"}), &nets);
    change(&mut calculator, &name, Some(&good));
    assert_eq!(elements(&mut calculator), [""; 0]);
    change(&mut calculator, &name, Some(&bad));
    change(&mut calculator, &name, None);
    assert_eq!(elements(&mut calculator), [""; 0]);
}

#[test]
fn network_set_is_selected_in_its_namespace() {
    let rule = json!({"action": "Deny", "source": {"selector": "has(bad)"}});
    let mut calculator = policed(&rule);
    let labels = json!({"bad": "yes"});
    for (name, net) in [
        (key("networksets", "prod/a"), "192.0.2.1/32"),
        (key("networksets", "test/a"), "192.0.2.2/32"),
        (key("globalnetworksets", "a"), "192.0.2.3/32"),
    ] {
        change(&mut calculator, &name, Some(&set(&labels, &json!([net]))));
    }
    assert_eq!(elements(&mut calculator), ["192.0.2.1"]);
}

#[test]
fn network_set_takes_labels_from_its_namespace_only() {
    let rule = json!({"action": "Deny", "source": {"namespaceSelector": "team == 'red'"}});
    let mut calculator = policed(&rule);
    let red = json!({"spec": {"labelsToApply": {"pcns.team": "red"}}});
    change(&mut calculator, &key("profiles", "kns.test"), Some(&red));
    let claims = json!({"pcns.team": "red"});
    for (name, labels, net) in [
        (key("networksets", "test/a"), json!({}), "192.0.2.1/32"),
        (key("networksets", "prod/a"), claims.clone(), "192.0.2.2/32"),
        (key("globalnetworksets", "a"), claims, "192.0.2.3/32"),
    ] {
        change(&mut calculator, &name, Some(&set(&labels, &json!([net]))));
    }
    assert_eq!(elements(&mut calculator), ["192.0.2.1"]);
}

#[test]
fn host_endpoint_addresses_are_selected() {
    let rule = json!({"action": "Deny", "source": {"selector": "role == 'db'",
        "namespaceSelector": "global()"}});
    let mut calculator = policed(&rule);
    let host = json!({"metadata": {"labels": {"role": "db"}}, "spec": {"node": HOST,
        "interfaceName": "eth0", "expectedIPs": ["10.0.0.11", "fd00::11"]}});
    change(&mut calculator, &key("hostendpoints", "h"), Some(&host));
    assert_eq!(elements(&mut calculator), ["10.0.0.11", "fd00::11"]);
}

#[test]
fn unreadable_network_is_reported_and_the_others_count() {
    let rule = json!({"action": "Deny", "source": {"selector": "has(bad)"}});
    let mut calculator = policed(&rule);
    let name = key("networksets", "prod/a");
    let labels = json!({"bad": "yes"});
    let nets = json!(["192.0.2.0/24", "192.0.2.0/33", 7]);
    let problem = change(&mut calculator, &name, Some(&set(&labels, &nets)));
    let problem = problem.expect("a problem").to_string();
    assert!(problem.contains("spec.nets[1]"), "{problem}");
    assert_eq!(elements(&mut calculator), ["192.0.2.0/24"]);
    assert_eq!(problems(calculator.desired()), [problem]);
    // A value that is not a list leaves the previous one in effect.
    let problem = change(&mut calculator, &name, Some(&set(&labels, &json!("all"))));
    assert!(problem.is_some());
    assert_eq!(elements(&mut calculator), ["192.0.2.0/24"]);
    let mended = set(&labels, &json!(["192.0.2.0/25"]));
    assert_eq!(change(&mut calculator, &name, Some(&mended)), None);
    assert_eq!(elements(&mut calculator), ["192.0.2.0/25"]);
}
