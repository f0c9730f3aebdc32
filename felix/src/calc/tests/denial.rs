//! The action for denied packets.

use super::*;

fn rules(desired: &Desired, chain: &str) -> Vec<String> {
    let rules = &desired.rules().chains[chain].rules;
    rules.iter().map(rule_text).collect()
}

#[test]
fn denied_packets_are_rejected_if_configured() {
    let deny = json!([{"action": "Deny", "protocol": "TCP"}, {"action": "Log"}]);
    let spec = json!({"spec": {"ingress": deny, "egress": [{"action": "Deny"}]}});
    let passing = json!([{"action": "Pass"}, {"action": "Deny"}]);
    let mut calculator = calculator_of(&[
        (
            endpoint_key("a"),
            endpoint(HOST, "a", "cali1", &["10.65.0.1/32"], &["p"]),
        ),
        (key("globalnetworkpolicies", "p"), spec.clone()),
        (
            key("networkpolicies", "prod/first.p"),
            json!({"spec": {"tier": "first",
            "ingress": passing}}),
        ),
        (key("tiers", "first"), json!({"spec": {"order": 1}})),
        (key("profiles", "p"), spec),
    ]);
    let name = key("felixconfigurations", "default");
    let before = calculator.recomputed();
    for (word, is_valid, action) in [
        ("reject", true, "reject"),
        ("Refuse", false, "reject"),
        ("Drop", true, "drop"),
        ("REJECT", true, "reject"),
        ("", true, "drop"),
    ] {
        let value = json!({"spec": {"nftablesFilterDenyAction": word}});
        let fault = change(&mut calculator, &name, Some(&value));
        assert_eq!(fault.is_none(), is_valid, "{fault:?}");
        let desired = calculator.recomputed();
        let mut texts = Vec::new();
        for chain in [
            "pi-gnp/p",
            "po-gnp/p",
            "pi-profile/p",
            "to-cali1",
            "from-cali1",
        ] {
            texts.extend(rules(&desired, chain));
        }
        let tiers = desired.rules().chains.iter();
        let tiers = tiers.filter(|(name, _)| name.starts_with("ti-") || name.starts_with("te-"));
        texts.extend(tiers.flat_map(|(_, chain)| chain.rules.iter().map(rule_text)));
        let denied = format!("counter {action} ");
        let count = |what: &str| texts.iter().filter(|text| text.contains(what)).count();
        let invalid = count("ct state invalid counter drop");
        let other = match action {
            "drop" => "counter reject",
            _ => "counter drop",
        };
        assert_eq!(invalid, 2, "{texts:#?}");
        assert!(count(&denied) > 8, "{word} {texts:#?}");
        let left = count(other) - if action == "drop" { 0 } else { invalid };
        assert_eq!(left, 0, "{word} {texts:#?}");
    }
    assert!(calculator.recomputed().rules() == before.rules());
}
