//! The lines of `Log` rules.

use super::*;

const WITH_LOG: &str = r#"{"spec": {"ingress": [{"action": "Log"}, {"action": "Allow"}]}}"#;

fn settings(calculator: &mut Calculator, spec: &Value) -> Option<Problem> {
    let name = key("felixconfigurations", "default");
    change(calculator, &name, Some(&json!({ "spec": spec })))
}

/// Returns the first rule of a chain.
fn first_rule(calculator: &mut Calculator, chain: &str) -> String {
    calculator.recompute();
    rule_text(&calculator.desired().rules().chains[chain].rules[0])
}

fn world() -> Calculator {
    let log: Value = serde_json::from_str(WITH_LOG).unwrap();
    let mut named = log.clone();
    named["metadata"] = json!({"annotations": {
        "projectcalico.org/metadata": r#"{"name": "given"}"#}});
    named["spec"]["tier"] = json!("first");
    calculator_of(&[
        (
            endpoint_key("a"),
            endpoint(HOST, "a", "cali1", &["10.65.0.1/32"], &["p"]),
        ),
        (key("globalnetworkpolicies", "default.all"), log.clone()),
        (key("networkpolicies", "prod/first.x"), named),
        (key("profiles", "p"), log),
    ])
}

#[test]
fn prefix_names_the_policy_of_the_rule() {
    let mut calculator = world();
    let chains = ["pi-gnp/default.all", "pi-np/prod/first.x", "pi-profile/p"];
    let prefix =
        |name: &str| format!("counter log prefix \"{name}: \" level info comment \"ingress[0]\"");
    for chain in chains {
        assert_eq!(first_rule(&mut calculator, chain), prefix("calico-packet"));
    }
    assert_eq!(
        settings(&mut calculator, &json!({"logPrefix": "%t %k %p %n"})),
        None
    );
    for (chain, name) in chains.into_iter().zip([
        "default gnp all all",
        "first np prod/given given",
        " pro p p",
    ]) {
        assert_eq!(first_rule(&mut calculator, chain), prefix(name));
    }
    // A new policy has the prefix too.
    let log = serde_json::from_str(WITH_LOG).unwrap();
    change(
        &mut calculator,
        &key("globalnetworkpolicies", "b"),
        Some(&log),
    );
    assert_eq!(
        first_rule(&mut calculator, "pi-gnp/b"),
        prefix("default gnp b b")
    );
    assert_eq!(settings(&mut calculator, &json!({})), None);
    assert_eq!(
        first_rule(&mut calculator, chains[0]),
        prefix("calico-packet")
    );
}

#[test]
fn rate_of_log_lines_is_limited_and_others_are_not() {
    let mut calculator = world();
    let chain = "pi-gnp/default.all";
    for (rate, text) in [
        (
            json!({"logActionRateLimit": "10/minute"}),
            "limit rate 10/minute counter",
        ),
        (
            json!({"logActionRateLimit": "9999/day", "logActionRateLimitBurst": 9999}),
            "limit rate 9999/day burst 9999 packets counter",
        ),
        (
            json!({"logActionRateLimit": "1/hour", "logActionRateLimitBurst": 0}),
            "limit rate 1/hour counter",
        ),
        (json!({"logActionRateLimitBurst": 20}), "counter log"),
    ] {
        assert_eq!(settings(&mut calculator, &rate), None);
        let first = first_rule(&mut calculator, chain);
        assert!(first.starts_with(text), "{rate}: {first}");
        assert_eq!(
            last_rule(calculator.desired(), chain),
            "counter accept comment \"ingress[1]\""
        );
    }
}

#[test]
fn rules_do_not_depend_on_the_order_of_settings() {
    let spec = json!({"spec": {"logPrefix": "%n", "logActionRateLimit": "3/second"}});
    let name = key("felixconfigurations", "default");
    let log: Value = serde_json::from_str(WITH_LOG).unwrap();
    let own = (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"]));
    let policy = (key("globalnetworkpolicies", "p"), log);
    let settings = (name, spec);
    let one = calculator_of(&[own.clone(), policy.clone(), settings.clone()]).recomputed();
    let other = calculator_of(&[settings, policy, own]).recomputed();
    assert_eq!(one, other);
    assert!(one.problems.is_empty(), "{:?}", one.problems);
}

#[test]
fn invalid_log_settings_leave_the_last_valid_ones() {
    let mut calculator = world();
    let valid = json!({"logPrefix": "kept"});
    assert_eq!(settings(&mut calculator, &valid), None);
    for (field, value) in [
        ("logPrefix", json!("a\"b")),
        ("logPrefix", json!("a\nb")),
        ("logPrefix", json!(7)),
        ("logActionRateLimit", json!("0/second")),
        ("logActionRateLimit", json!("10000/second")),
        ("logActionRateLimit", json!("+1/second")),
        ("logActionRateLimit", json!("/second")),
        ("logActionRateLimit", json!("1/week")),
        ("logActionRateLimit", json!("1")),
        ("logActionRateLimitBurst", json!(10000)),
        ("logActionRateLimitBurst", json!(-1)),
    ] {
        let spec = Value::from_iter([(field, value.clone())]);
        let problem = settings(&mut calculator, &spec).expect("a problem");
        assert_eq!(problem.field, format!("spec.{field}"), "{value}");
        let first = first_rule(&mut calculator, "pi-gnp/default.all");
        assert!(first.contains("\"kept: \""), "{first}");
    }
}

#[test]
fn partly_unreadable_policy_keeps_its_end_in_other_settings() {
    let mut calculator = world();
    let broken = json!({"spec": {"ingress": [{"action": "Log"}, {"action": "Sometimes"}]}});
    let name = key("globalnetworkpolicies", "broken");
    assert!(change(&mut calculator, &name, Some(&broken)).is_some());
    assert_eq!(settings(&mut calculator, &json!({"logPrefix": "%n"})), None);
    let chain = "pi-gnp/broken";
    let first = first_rule(&mut calculator, chain);
    assert!(first.contains("\"broken: \""), "{first}");
    let last = last_rule(calculator.desired(), chain);
    assert!(last.starts_with("counter drop"), "{last}");
}
