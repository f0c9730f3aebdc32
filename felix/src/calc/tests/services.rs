//! Rules with services.

use calico_model::SERVICES_PREFIX;

use super::*;

fn slice_key(rest: &str) -> String {
    format!("{SERVICES_PREFIX}{rest}")
}

fn slice(addresses: &[&str], ports: &Value) -> Value {
    json!({"endpoints": [{ "addresses": addresses }], "ports": ports})
}

/// Returns a policy of the namespace `prod` for this host's endpoint.
fn policy(rules: &Value) -> (String, Value) {
    let spec = json!({"egress": rules, "types": ["Egress"]});
    (key("networkpolicies", "prod/p"), json!({ "spec": spec }))
}

fn to_service(action: &str, name: &str) -> Value {
    json!({"action": action, "destination": {"services": {"name": name}}})
}

fn own() -> (String, Value) {
    (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"]))
}

fn rules(desired: &Desired, chain: &str) -> Vec<String> {
    let rules = &desired.rules().chains[chain].rules;
    rules.iter().map(rule_text).collect()
}

/// Returns the elements of the only set with this prefix and IPv4 addresses; none if there is no such
/// set.
fn elements(desired: &Desired, prefix: &str) -> Vec<String> {
    let prefix = format!("cali40{prefix}");
    let mut sets = desired.rules().sets.iter();
    let mut found = sets.by_ref().filter(|(name, _)| name.starts_with(&prefix));
    let set = found.next();
    assert!(found.next().is_none());
    let keys = set.into_iter().flat_map(|(_, set)| set.elements.keys());
    keys.map(ToString::to_string).collect()
}

const CHAIN: &str = "po-np/prod/p";

#[test]
fn destination_has_ports_and_source_has_addresses() {
    let from = json!({"action": "Deny", "source": {"services": {"name": "web", "namespace": "x"}}});
    let rules_of = json!([to_service("Allow", "web"), from]);
    let http = json!([{"port": 8080}, {"protocol": "UDP", "port": 53}]);
    let desired = calculator_of(&[
        own(),
        policy(&rules_of),
        (
            slice_key("prod/web/a"),
            slice(&["10.65.0.7", "fd65::7"], &http),
        ),
        (
            slice_key("prod/web/b"),
            slice(&["10.65.0.7", "10.65.0.8"], &json!([{"port": 80}])),
        ),
        (slice_key("x/web/a"), slice(&["10.65.0.9"], &http)),
        (slice_key("x/other/a"), slice(&["10.65.0.10"], &http)),
    ])
    .recomputed();
    assert!(desired.problems.is_empty(), "{:?}", desired.problems);
    let texts = rules(&desired, CHAIN);
    assert_eq!(texts.len(), 3, "{texts:#?}");
    assert!(
        texts[0].starts_with("ip daddr . meta l4proto . th dport @cali40svc-")
            && texts[0].ends_with("counter accept comment \"egress[0]\""),
        "{}",
        texts[0]
    );
    assert!(
        texts[1].starts_with("ip6 daddr . meta l4proto . th dport @cali60svc-"),
        "{}",
        texts[1]
    );
    assert!(
        texts[2].starts_with("ip saddr @cali40svcnoport-"),
        "{}",
        texts[2]
    );
    assert_eq!(
        elements(&desired, "svc-"),
        [
            "10.65.0.7 . tcp . 80",
            "10.65.0.7 . tcp . 8080",
            "10.65.0.7 . udp . 53",
            "10.65.0.8 . tcp . 80",
        ]
    );
    assert_eq!(elements(&desired, "svcnoport-"), ["10.65.0.9"]);
}

#[test]
fn rule_is_closed_until_the_service_exists() {
    let words = "the datastore has no endpoints of service prod/web";
    for action in ["Allow", "Deny", "Pass"] {
        let allow = json!({"action": "Allow"});
        let rules_of = json!([to_service(action, "web"), allow]);
        let mut calculator = calculator_of(&[own(), policy(&rules_of)]);
        let absent = calculator.recomputed();
        let problems: Vec<String> = absent.problems.iter().map(Problem::what).collect();
        assert_eq!(problems.len(), 1, "{problems:?}");
        let field = "spec.egress[0].destination.services";
        assert!(
            problems[0].starts_with(&format!("{field}: {words}")),
            "{problems:?}"
        );
        let chain = match action {
            // The rules of a policy with `Pass` are in the chain of its tier, once they pass.
            "Pass" => "te-",
            _ => CHAIN,
        };
        let all = |desired: &Desired| -> Vec<String> {
            let chains = desired.rules().chains.iter();
            let chains = chains.filter(|(name, _)| name.starts_with(chain));
            chains
                .flat_map(|(_, chain)| chain.rules.iter().map(rule_text))
                .collect()
        };
        let closed = rules(&absent, CHAIN);
        let expected = match action {
            "Allow" => "counter accept comment \"egress[1]\"".to_owned(),
            _ => format!("counter drop comment \"{field}: {words}\""),
        };
        assert_eq!(closed, [expected], "{action}");

        // An existing service without endpoints matches nothing: the kernel does not get the rule.
        change(&mut calculator, &slice_key("prod/web/a"), Some(&json!({})));
        assert!(calculator.has_news());
        let present = calculator.recomputed();
        assert!(present.problems.is_empty(), "{:?}", present.problems);
        let open = all(&present);
        assert!(
            open.iter().all(|text| !text.contains("egress[0]"))
                && open.iter().any(|text| text.contains("egress[1]")),
            "{action} {open:#?}"
        );
        assert!(elements(&present, "svc-").is_empty());
        let one = slice(&["10.65.0.7"], &json!([{"port": 80}]));
        change(&mut calculator, &slice_key("prod/web/a"), Some(&one));
        let one = all(&calculator.recomputed());
        assert!(
            one.iter().any(|text| text.contains("@cali40svc-"))
                && one.iter().all(|text| !text.contains("@cali60svc-")),
            "{action} {one:#?}"
        );

        change(&mut calculator, &slice_key("prod/web/a"), None);
        assert_eq!(calculator.recomputed(), absent, "{action}");
    }
}

#[test]
fn member_stays_while_a_slice_has_it() {
    let mut calculator = calculator_of(&[
        own(),
        policy(&json!([to_service("Allow", "web")])),
        (
            slice_key("prod/web/a"),
            slice(&["10.65.0.7"], &json!([{"port": 80}])),
        ),
        (
            slice_key("prod/web/b"),
            slice(&["10.65.0.7"], &json!([{"port": 80}])),
        ),
    ]);
    assert_eq!(
        elements(&calculator.recomputed(), "svc-"),
        ["10.65.0.7 . tcp . 80"]
    );
    // One more endpoint is one more element.
    let more = slice(&["10.65.0.7", "10.65.0.8"], &json!([{"port": 80}]));
    change(&mut calculator, &slice_key("prod/web/a"), Some(&more));
    let recomputed = calculator.recompute();
    let touched: Vec<String> = recomputed
        .rules
        .sets
        .iter()
        .flat_map(|(name, keys)| keys.iter().map(move |key| format!("{name} {key}")))
        .collect();
    assert_eq!(touched.len(), 1, "{touched:?}");
    assert!(touched[0].ends_with("10.65.0.8 . tcp . 80"), "{touched:?}");
    assert!(recomputed.rules.chains.is_empty());
    change(&mut calculator, &slice_key("prod/web/a"), None);
    assert_eq!(
        elements(&calculator.recomputed(), "svc-"),
        ["10.65.0.7 . tcp . 80"]
    );
    change(&mut calculator, &slice_key("prod/web/b"), Some(&json!({})));
    assert!(elements(&calculator.recomputed(), "svc-").is_empty());
}

#[test]
fn order_of_services_and_policies_does_not_matter() {
    let from = json!({"action": "Deny", "source": {"services": {"name": "db"}}});
    let mut values = vec![
        own(),
        policy(&json!([to_service("Allow", "web"), from])),
        (
            slice_key("prod/web/a"),
            slice(&["10.65.0.7"], &json!([{"port": 80}])),
        ),
        (slice_key("prod/db/a"), slice(&["fd65::7"], &Value::Null)),
        (
            key("profiles", "p"),
            json!({"spec": {"egress": [{"action": "Allow",
            "destination": {"services": {"name": "web", "namespace": "prod"}}}]}}),
        ),
        (
            endpoint_key("b"),
            endpoint(HOST, "b", "cali2", &["10.65.0.2/32"], &["p"]),
        ),
    ];
    let one = calculator_of(&values).recomputed();
    assert!(one.problems.is_empty(), "{:?}", one.problems);
    for _ in 0..values.len() {
        values.rotate_left(1);
        assert_eq!(calculator_of(&values).recomputed(), one);
        let mut stepwise = Calculator::new(HOST, None);
        for (key, value) in values.iter().rev() {
            change(&mut stepwise, key, Some(value));
            stepwise.recompute();
        }
        assert_eq!(*stepwise.desired(), one);
    }
}

#[test]
fn invalid_services_of_rules_are_closed() {
    let global = key("globalnetworkpolicies", "p");
    let slice = (slice_key("prod/web/a"), json!({}));
    for (services, other, words) in [
        (
            json!({"name": "web"}),
            json!({}),
            "services.namespace: it is missing",
        ),
        (
            json!({"namespace": "prod"}),
            json!({}),
            "services.name: it is missing",
        ),
        (
            json!({"name": "web", "namespace": "prod"}),
            json!({"nets": ["10.0.0.0/8"]}),
            "services: it cannot be combined with nets",
        ),
        (
            json!({"name": "web", "namespace": "prod"}),
            json!({"ports": [80]}),
            "services: it cannot be combined with ports",
        ),
        (
            json!({"name": "web", "namespace": "prod", "kind": "x"}),
            json!({}),
            "services.kind: the field is unknown",
        ),
    ] {
        let mut destination = other.clone();
        destination["services"] = services.clone();
        let rule = json!({"action": "Deny", "protocol": "TCP", "destination": destination});
        let spec = json!({"egress": [rule, {"action": "Allow"}]});
        let policy = (global.clone(), json!({ "spec": spec }));
        let desired = calculator_of(&[own(), policy, slice.clone()]).recomputed();
        let texts = rules(&desired, "po-gnp/p");
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(texts[0].starts_with("counter drop"), "{texts:?}");
        let problems: Vec<String> = desired.problems.iter().map(Problem::what).collect();
        let found = problems.iter().any(|problem| problem.contains(words));
        assert!(found, "{words}: {problems:?}");
    }
}

#[test]
fn invalid_slices_are_reported() {
    let mut calculator = calculator_of(&[own(), policy(&json!([to_service("Allow", "web")]))]);
    let name = slice_key("prod/web/a");
    let odd = json!({"endpoints": [{"addresses": ["www.example", "10.65.0.7"]}],
        "ports": [{"protocol": "ICMP", "port": 7}, {"port": 80}]});
    let problem = change(&mut calculator, &name, Some(&odd)).expect("a problem");
    assert_eq!(problem.field, "endpoints[0].addresses[0]");
    let desired = calculator.recomputed();
    assert_eq!(elements(&desired, "svc-"), ["10.65.0.7 . tcp . 80"]);
    // An unreadable value leaves the last one in effect.
    assert!(change(&mut calculator, &name, Some(&json!([]))).is_some());
    assert_eq!(
        elements(&calculator.recomputed(), "svc-"),
        ["10.65.0.7 . tcp . 80"]
    );
    assert!(change(&mut calculator, &slice_key("prod/web"), Some(&odd)).is_some());
    change(&mut calculator, &slice_key("prod/web"), None);
    change(&mut calculator, &name, Some(&json!({})));
    assert!(calculator.recomputed().problems.is_empty());
}

#[test]
fn slice_that_cannot_be_read_closes_the_rules_of_its_service() {
    let rules_of = json!([to_service("Deny", "web"), {"action": "Allow"}]);
    let ports = json!([{"port": 80}]);
    let mut calculator = calculator_of(&[
        own(),
        policy(&rules_of),
        (slice_key("prod/web/a"), slice(&["10.65.0.7"], &ports)),
    ]);
    let is_closed = |calculator: &mut Calculator| {
        let texts = rules(&calculator.recomputed(), CHAIN);
        texts.len() == 1 && texts[0].starts_with("counter drop")
    };
    assert!(!is_closed(&mut calculator));
    // The endpoints of the second slice are not known, and may be those to deny.
    let key = slice_key("prod/web/b");
    let wrong = json!({"endpoints": [], "ports": [{"port": "80"}]});
    let many = vec!["10.65.0.8"; crate::limits::SLICE_MEMBERS_MAX + 1];
    for bad in [wrong.clone(), slice(&many, &ports)] {
        assert!(
            calculator
                .change(&key, Some(bad.to_string().as_bytes()))
                .is_some()
        );
        assert!(is_closed(&mut calculator));
        change(&mut calculator, &key, Some(&slice(&["10.65.0.8"], &ports)));
        assert!(!is_closed(&mut calculator));
        // The last valid value stays.
        change(&mut calculator, &key, Some(&bad));
        assert!(!is_closed(&mut calculator));
        change(&mut calculator, &key, None);
        assert!(!is_closed(&mut calculator));
    }
    change(&mut calculator, &key, Some(&wrong));
    assert!(is_closed(&mut calculator));
    change(&mut calculator, &key, None);
    assert!(!is_closed(&mut calculator));
}
