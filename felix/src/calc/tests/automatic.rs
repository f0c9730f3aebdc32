//! Automatic host endpoints of annotated Nodes.

use super::*;

fn node(address: &str, role: &str, annotation: Option<&str>) -> Value {
    let mut node = json!({"metadata": {"labels": {"role": role}},
        "spec": {"bgp": {"ipv4Address": address}}});
    if let Some(text) = annotation {
        node["metadata"]["annotations"] = json!({"cambric.io/host-endpoint": text});
    }
    node
}

fn texts(calculator: &Calculator, chain: &str) -> Vec<String> {
    let chain = calculator.desired().rules().chains.get(chain);
    let rules = chain.into_iter().flat_map(|chain| &chain.rules);
    rules.map(rule_text).collect()
}

fn names(calculator: &Calculator) -> Vec<(String, bool)> {
    let all = calculator.host_endpoints();
    all.map(|(name, is_automatic)| (name.to_owned(), is_automatic))
        .collect()
}

#[test]
fn annotated_node_allows_all_until_a_policy_selects_it() {
    let own = key("nodes", HOST);
    let mut calculator = calculator_of(&[(own.clone(), node("10.0.0.1/24", "edge", Some("auto")))]);
    calculator.recompute();
    let name = format!("{HOST}-auto-hep");
    assert_eq!(names(&calculator), [(name, true)]);
    let last = |calculator: &Calculator| texts(calculator, "host-in/all").pop().unwrap();
    assert!(
        last(&calculator).starts_with("counter accept"),
        "{}",
        last(&calculator)
    );
    let policy = json!({"spec": {"selector": "role == 'edge'", "types": ["Ingress"],
        "ingress": [{"action": "Allow", "protocol": "TCP", "destination": {"ports": [80]}}]}});
    let web = key("globalnetworkpolicies", "web");
    change(&mut calculator, &web, Some(&policy));
    calculator.recompute();
    let input = texts(&calculator, "host-in/all");
    assert!(
        input
            .iter()
            .any(|rule| rule.starts_with("jump ti-default-")),
        "{input:#?}"
    );
    // Without the label, the policy does not select it.
    change(
        &mut calculator,
        &own,
        Some(&node("10.0.0.1/24", "core", Some("auto"))),
    );
    calculator.recompute();
    let input = texts(&calculator, "host-in/all");
    assert!(
        !input
            .iter()
            .any(|rule| rule.starts_with("jump ti-default-")),
        "{input:#?}"
    );
    change(
        &mut calculator,
        &own,
        Some(&node("10.0.0.1/24", "edge", None)),
    );
    calculator.recompute();
    assert!(texts(&calculator, "host-in/all").is_empty());
    assert_eq!(names(&calculator), []);
}

#[test]
fn stored_host_endpoint_precedes_the_automatic_one() {
    let own = key("nodes", HOST);
    let stored = key("hostendpoints", &format!("{HOST}-auto-hep"));
    let name = || format!("{HOST}-auto-hep");
    let spec = json!({"spec": {"node": HOST, "interfaceName": "eth0"}});
    for node_first in [true, false] {
        let mut calculator = Calculator::new(HOST, None);
        let node = node("10.0.0.1/24", "edge", Some("auto"));
        let mut both = [(&own, &node), (&stored, &spec)];
        if !node_first {
            both.reverse();
        }
        for (key, value) in both {
            assert_eq!(change(&mut calculator, key, Some(value)), None);
        }
        calculator.recompute();
        assert_eq!(names(&calculator), [(name(), false)]);
        assert!(!texts(&calculator, "host-in-eth0").is_empty());
        assert!(texts(&calculator, "host-in/all").is_empty());
        change(&mut calculator, &stored, None);
        calculator.recompute();
        assert_eq!(names(&calculator), [(name(), true)]);
        assert!(texts(&calculator, "host-in-eth0").is_empty());
        assert!(!texts(&calculator, "host-in/all").is_empty());
    }
}

#[test]
fn rules_select_the_addresses_of_annotated_nodes() {
    let created = "projectcalico.org/created-by == 'calico-kube-controllers'";
    let policy = json!({"spec": {"ingress": [
        {"action": "Allow", "source": {"selector": created}}]}});
    let other = key("nodes", "r1-c08");
    let mut calculator = calculator_of(&[
        (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"])),
        (key("globalnetworkpolicies", "p"), policy),
        (other.clone(), node("10.0.0.8/24", "edge", Some("auto"))),
        (key("nodes", "r1-c09"), node("10.0.0.9/24", "edge", None)),
    ]);
    let members = |calculator: &mut Calculator| {
        calculator.recompute();
        let sets = calculator.desired().rules().sets.iter();
        let of_selector = sets.filter(|(name, _)| name.starts_with("cali40s-"));
        let keys = of_selector.flat_map(|(_, set)| set.elements.keys());
        keys.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(members(&mut calculator), ["10.0.0.8"]);
    assert_eq!(names(&calculator), [], "it is another host's");
    change(&mut calculator, &other, None);
    assert_eq!(members(&mut calculator), Vec::<String>::new());
}

#[test]
fn invalid_value_of_the_annotation_keeps_the_host_closed() {
    let own = key("nodes", HOST);
    let name = format!("{HOST}-auto-hep");
    for first in [Some("auto"), None] {
        let mut calculator = Calculator::new(HOST, None);
        if first.is_some() {
            let valid = node("10.0.0.1/24", "edge", first);
            assert_eq!(change(&mut calculator, &own, Some(&valid)), None);
        }
        let invalid = node("10.0.0.1/24", "edge", Some("Auto"));
        let problem = change(&mut calculator, &own, Some(&invalid)).unwrap();
        let field = "metadata.annotations.cambric.io/host-endpoint";
        assert_eq!(problem.field, field);
        let reason = "'Auto' is not 'auto': the host endpoint exists as with 'auto'";
        assert_eq!(problem.reason, reason);
        assert_eq!(names(&calculator), [(name.clone(), true)]);
        let gone = node("10.0.0.1/24", "edge", None);
        assert_eq!(change(&mut calculator, &own, Some(&gone)), None);
        assert_eq!(names(&calculator), []);
    }
}
