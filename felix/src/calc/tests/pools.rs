//! Source translation of pools.

use super::*;

fn pool(cidr: &str, nat_outgoing: bool) -> Value {
    json!({"spec": {"cidr": cidr, "natOutgoing": nat_outgoing}})
}

/// Returns the rules and elements of source translation.
fn translated(desired: &Desired) -> Vec<String> {
    let chain = desired.rules().chains.get("translate-source");
    let rules = chain.iter().flat_map(|chain| chain.rules.iter());
    let sets = desired.rules().sets.iter();
    let sets = sets.filter(|(name, set)| name.ends_with("-ipam-pools") && !set.elements.is_empty());
    let sets = sets.map(|(name, set)| {
        let ranges: Vec<String> = set.elements.keys().map(ToString::to_string).collect();
        format!("{name} {}", ranges.join(" "))
    });
    rules.map(rule_text).chain(sets).collect()
}

const RULE: &str = "ip saddr @cali40masq-ipam-pools ip daddr != @cali40all-ipam-pools";
const RULE_V6: &str = "ip6 saddr @cali60masq-ipam-pools ip6 daddr != @cali60all-ipam-pools";
const ACTION: &str = "counter masquerade fully-random comment \"leaves the pools\"";

#[test]
fn only_traffic_leaving_the_pools_is_masqueraded() {
    let disabled = json!({"spec": {"cidr": "10.67.0.0/16", "disabled": true}});
    let mut calculator = calculator_of(&[
        (key("ippools", "a"), pool("10.65.0.0/16", true)),
        (key("ippools", "b"), pool("10.70.0.0/16", false)),
        (key("ippools", "c"), disabled),
        (key("ippools", "d"), pool("fd65::/48", false)),
    ]);
    let rule = format!("{RULE} {ACTION}");
    let all = "cali40all-ipam-pools 10.65.0.0/16 10.67.0.0/16 10.70.0.0/16";
    let masq = "cali40masq-ipam-pools 10.65.0.0/16";
    let inside_v6 = "cali60all-ipam-pools fd65::/48";
    let expected = [&rule, all, masq, inside_v6];
    assert_eq!(translated(&calculator.recomputed()), expected);

    let hidden = json!({"spec": {"cidr": "fd66::1/48", "natOutgoing": true, "disabled": true}});
    change(&mut calculator, &key("ippools", "c"), Some(&hidden));
    let expected = [
        &rule,
        &format!("{RULE_V6} {ACTION}"),
        "cali40all-ipam-pools 10.65.0.0/16 10.70.0.0/16",
        masq,
        "cali60all-ipam-pools fd65::/48 fd66::/48",
        "cali60masq-ipam-pools fd66::/48",
    ];
    assert_eq!(translated(&calculator.recomputed()), expected);

    for name in ["a", "c"] {
        change(&mut calculator, &key("ippools", name), None);
    }
    let inside = "cali40all-ipam-pools 10.70.0.0/16";
    assert_eq!(translated(&calculator.recomputed()), [inside, inside_v6]);
    for name in ["b", "d"] {
        change(&mut calculator, &key("ippools", name), None);
    }
    let none = Calculator::new(HOST, None).recomputed();
    assert_eq!(calculator.recomputed().rules(), none.rules());
}

#[test]
fn overlapping_ranges_are_reported_once() {
    let mut calculator = calculator_of(&[
        (key("ippools", "a"), pool("10.65.0.0/17", true)),
        (key("ippools", "b"), pool("10.65.128.0/17", true)),
        (key("ippools", "c"), pool("10.65.7.0/24", false)),
    ]);
    let both = "cali40all-ipam-pools 10.65.0.0/16";
    assert_eq!(translated(&calculator.recomputed())[1], both);
    let wide = pool("10.64.0.0/15", true);
    change(&mut calculator, &key("ippools", "a"), Some(&wide));
    let masq = "cali40masq-ipam-pools 10.64.0.0/15";
    assert_eq!(translated(&calculator.recomputed())[2], masq);
}

#[test]
fn unreadable_pool_keeps_its_last_value() {
    let mut calculator = calculator_of(&[(key("ippools", "a"), pool("10.65.0.0/16", true))]);
    let before = calculator.recomputed();
    let again = pool("10.65.0.0/16", true);
    change(&mut calculator, &key("ippools", "a"), Some(&again));
    assert!(!calculator.has_news());
    for bad in [
        json!({"spec": {"natOutgoing": true}}),
        pool("10.65/16", true),
    ] {
        let problem = change(&mut calculator, &key("ippools", "a"), Some(&bad)).unwrap();
        assert_eq!(problem.field, "spec.cidr");
        let desired = calculator.recomputed();
        assert_eq!(desired.rules(), before.rules());
        assert_eq!(desired.problems, [problem].into());
    }
}

#[test]
fn masquerade_uses_configured_address_and_ports() {
    let settings = |spec: Value| {
        let mut calculator = calculator_of(&[
            (key("ippools", "a"), pool("10.65.0.0/16", true)),
            (key("ippools", "b"), pool("fd65::/48", true)),
        ]);
        let config = json!({ "spec": spec });
        let name = key("felixconfigurations", "default");
        let problem = change(&mut calculator, &name, Some(&config));
        let mut rules = translated(&calculator.recomputed());
        rules.retain(|rule| rule.starts_with("ip"));
        (rules, problem.map(|problem| problem.what()))
    };
    let rule = |rule: &str, protocol: &str, action: &str| {
        format!("{rule}{protocol} counter {action} fully-random comment \"leaves the pools\"")
    };
    let plain = [
        rule(RULE, "", "masquerade"),
        rule(RULE_V6, "", "masquerade"),
    ];
    let (rules, problem) = settings(json!({"natOutgoingAddress": "192.0.2.7"}));
    let snat = rule(RULE, "", "snat ip to 192.0.2.7");
    assert_eq!(
        (rules, problem),
        (vec![snat.clone(), plain[1].clone()], None)
    );

    let (rules, problem) =
        settings(json!({"natOutgoingAddress": "192.0.2.7", "natPortRange": "0:99"}));
    let expected = vec![
        rule(RULE, " meta l4proto tcp", "snat ip to 192.0.2.7:1-99"),
        rule(RULE, " meta l4proto udp", "snat ip to 192.0.2.7:1-99"),
        snat,
        rule(RULE_V6, " meta l4proto tcp", "masquerade to :1-99"),
        rule(RULE_V6, " meta l4proto udp", "masquerade to :1-99"),
        plain[1].clone(),
    ];
    assert_eq!((rules, problem), (expected, None));
    let (rules, problem) = settings(json!({"natPortRange": 4000}));
    assert_eq!(
        rules[0],
        rule(RULE, " meta l4proto tcp", "masquerade to :4000")
    );
    assert_eq!(problem, None);

    for (bad, words) in [
        (
            json!({"natOutgoingAddress": "fd65::1"}),
            "spec.natOutgoingAddress: 'fd65::1' is not",
        ),
        (
            json!({"natPortRange": "9:8"}),
            "spec.natPortRange: '9:8' is neither",
        ),
        (
            json!({"natPortRange": "http"}),
            "spec.natPortRange: 'http' is neither",
        ),
    ] {
        let (rules, problem) = settings(bad);
        assert_eq!(rules, plain);
        assert!(
            problem
                .as_ref()
                .is_some_and(|calculator_of| calculator_of.starts_with(words)),
            "{problem:?}"
        );
    }
}
