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
    let sets = sets.filter(|(name, _)| name.contains("0s-") || name.contains("0n-"));
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

/// Returns the endpoint `b` of another host with these ports.
fn with_ports(ports: &Value) -> Value {
    let mut value = endpoint(
        "r1-c08",
        "b",
        "cali2",
        &["10.65.0.2/32", "fd65::2/128"],
        &[],
    );
    value["spec"]["ports"] = ports.clone();
    value
}

#[test]
fn named_port_has_the_ports_of_selected_endpoints() {
    let rule = json!({"action": "Allow", "protocol": "TCP", "source": {"selector": "all()"},
        "destination": {"ports": ["http", "web"]}});
    let mut calculator = policed(&rule);
    let key_b = endpoint_key("b");
    let ports = |http: u16| {
        json!([
            {"name": "http", "protocol": "TCP", "port": http},
            {"name": "web", "protocol": "tcp", "port": http},
            {"name": "http", "protocol": "UDP", "port": 53},
            {"name": "other", "protocol": "TCP", "port": 1},
            {"name": "", "protocol": "none", "port": 1, "hostPort": 0},
        ])
    };
    let of_port = |calculator: &mut Calculator| {
        let elements = elements(calculator).into_iter();
        let elements = elements.filter(|one| one.contains(" . "));
        elements.collect::<Vec<String>>()
    };
    for (http, expected) in [
        (80, ["10.65.0.2 . tcp . 80", "fd65::2 . tcp . 80"]),
        (81, ["10.65.0.2 . tcp . 81", "fd65::2 . tcp . 81"]),
    ] {
        let value = with_ports(&ports(http));
        assert_eq!(change(&mut calculator, &key_b, Some(&value)), None);
        assert_eq!(of_port(&mut calculator), expected);
    }
    change(&mut calculator, &key_b, None);
    assert_eq!(of_port(&mut calculator), [""; 0]);

    // A host endpoint has named ports, too.
    let name = key("hostendpoints", "h");
    let value = json!({"spec": {"node": "x", "expectedIPs": ["192.0.2.1"],
        "ports": [{"name": "http", "protocol": "TCP", "port": 7}, {"name": "web", "port": "x"}]}});
    let problem = change(&mut calculator, &name, Some(&value)).expect("the second port");
    assert!(problem.what().contains("spec.ports[1]"), "{problem}");
    assert_eq!(of_port(&mut calculator), ["192.0.2.1 . tcp . 7"]);
}

#[test]
fn invalid_named_port_is_reported() {
    let mut calculator = policed(&json!({"action": "Allow"}));
    for (ports, words) in [
        (
            json!([{"name": "a", "protocol": "ICMP", "port": 1}]),
            "not TCP, UDP or SCTP",
        ),
        (json!([{"name": "a", "port": 1}]), "not TCP, UDP or SCTP"),
        (json!([{"name": "a", "protocol": "TCP"}]), "0 is not a port"),
    ] {
        let value = with_ports(&ports);
        let problem = change(&mut calculator, &endpoint_key("b"), Some(&value)).expect("invalid");
        assert!(problem.what().contains(words), "{problem}");
        let mut own = open("a", "cali1", &["10.65.0.9/32"]);
        own["spec"]["ports"] = ports;
        let problem = change(&mut calculator, &endpoint_key("a"), Some(&own)).expect("invalid");
        assert!(problem.what().contains(words), "{problem}");
        let desired = calculator.recomputed();
        assert!(desired.routes.contains_key(&"10.65.0.1".parse().unwrap()));
    }
}
