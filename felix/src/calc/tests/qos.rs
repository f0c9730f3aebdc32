//! Limits of the traffic of endpoints.

use super::*;
use crate::calc::{Bandwidth, Bucket, Peak};

fn limited(controls: &Value) -> Value {
    let mut own = open("a", "cali1", &["10.65.0.1/32", "fd65::1/128"]);
    own["spec"]["qosControls"] = controls.clone();
    own
}

fn desired(controls: &Value) -> Desired {
    calculator_of(&[(endpoint_key("a"), limited(controls))]).recomputed()
}

fn rules(desired: &Desired, chain: &str) -> Vec<String> {
    let chain = desired.rules().chains.get(chain);
    let rules = chain.iter().flat_map(|chain| &chain.rules);
    rules.map(rule_text).collect()
}

const INVALID: &str = "ct state invalid counter drop comment \"part of no connection\"";
const OPEN: &str = "counter accept comment \"profile projectcalico-default-allow\"";

#[test]
fn each_limit_has_its_rule() {
    for (controls, to, from, dscp) in [
        (json!({}), vec![INVALID, OPEN], vec![INVALID, OPEN], vec![]),
        (
            json!({"ingressPacketRate": 100}),
            vec![
                "limit rate over 100/second counter drop comment \"over the packet rate\"",
                INVALID,
                OPEN,
            ],
            vec![INVALID, OPEN],
            vec![],
        ),
        (
            json!({"egressPacketRate": 10000, "egressPacketBurst": 20}),
            vec![INVALID, OPEN],
            vec![
                "limit rate over 10000/second burst 20 packets counter drop comment \"over the \
                 packet rate\"",
                INVALID,
                OPEN,
            ],
            vec![],
        ),
        (
            json!({"ingressMaxConnections": 4_294_967_295_u32, "egressMaxConnections": 1}),
            vec![
                "ct state established,related counter accept comment \"answers\"",
                INVALID,
                "meta l4proto tcp ct state new ct count over 4294967295 counter reject with tcp \
                 reset comment \"over the number of connections\"",
                OPEN,
            ],
            vec![
                "ct state established,related counter accept comment \"answers\"",
                INVALID,
                "meta l4proto tcp ct state new ct count over 1 counter reject with tcp reset \
                 comment \"over the number of connections\"",
                OPEN,
            ],
            vec![],
        ),
        (
            json!({"dscp": "AF41"}),
            vec![INVALID, OPEN],
            vec![INVALID, OPEN],
            vec![
                "ip daddr != @cali40all-ipam-pools ip daddr != @nodes-ipv4 counter ip dscp set \
                 af41 comment \"leaves the cluster\"",
                "ip6 daddr != @cali60all-ipam-pools ip6 daddr != @nodes-ipv6 counter ip6 dscp set \
                 af41 comment \"leaves the cluster\"",
            ],
        ),
    ] {
        let desired = desired(&controls);
        assert!(desired.problems.is_empty(), "{:?}", desired.problems);
        assert_eq!(rules(&desired, "to-cali1"), to, "{controls}");
        assert_eq!(rules(&desired, "from-cali1"), from, "{controls}");
        assert_eq!(rules(&desired, "dscp-cali1"), dscp, "{controls}");
        let has_base = desired.rules().chains.contains_key("mark-dscp");
        assert_eq!(has_base, !dscp.is_empty(), "{controls}");
    }
}

#[test]
fn rate_counts_all_packets_and_connections_follow_answers() {
    let mut own = limited(&json!({"ingressPacketRate": 7, "ingressMaxConnections": 3}));
    own["spec"]["profiles"] = json!([]);
    let policy = json!({"spec": {"ingress": [{"action": "Allow"}]}});
    let values = [
        (endpoint_key("a"), own),
        (key("globalnetworkpolicies", "p"), policy),
    ];
    let desired = calculator_of(&values).recomputed();
    let texts = rules(&desired, "to-cali1");
    let order = [
        "limit rate",
        "ct state established",
        "ct state invalid",
        "meta l4proto tcp",
        "jump",
    ];
    for (text, begin) in texts.iter().zip(order) {
        assert!(text.starts_with(begin), "{texts:#?}");
    }
    // Nothing can pass in this direction, so no connection is counted.
    assert!(
        !rules(&desired, "from-cali1")
            .iter()
            .any(|text| text.contains("ct count"))
    );
}

#[test]
fn invalid_limit_leaves_the_last_valid_ones() {
    let valid = json!({"egressPacketRate": 5, "dscp": 7});
    let mut calculator = calculator_of(&[(endpoint_key("a"), limited(&valid))]);
    let before = calculator.recomputed();
    for (controls, field) in [
        (json!({"egressPacketRate": 10001}), "egressPacketRate"),
        (json!({"egressPacketRate": -1}), "egressPacketRate"),
        (
            json!({"ingressMaxConnections": 4_294_967_296_u64}),
            "ingressMaxConnections",
        ),
        (json!({"egressBandwidth": 999}), "egressBandwidth"),
        (json!({"dscp": "AF44"}), "dscp"),
        (json!({"dscp": 64}), "dscp"),
    ] {
        let problem = change(
            &mut calculator,
            &endpoint_key("a"),
            Some(&limited(&controls)),
        );
        let problem = problem.expect("a problem");
        assert_eq!(problem.field, format!("spec.qosControls.{field}"));
        assert_eq!(calculator.recomputed().rules(), before.rules());
    }
}

#[test]
fn limits_without_effect_are_reported() {
    let controls = json!({
        "ingressPacketBurst": 7, "ingressBurst": 8000, "egressBandwidth": 8000, "egressMinburst": 2000,
    });
    let desired = desired(&controls);
    let problems: Vec<String> = desired.problems.iter().map(Problem::what).collect();
    assert_eq!(
        problems,
        [
            "spec.qosControls.egressMinburst: it has no effect without a peak rate",
            "spec.qosControls.ingressBurst: it has no effect without a bandwidth",
            "spec.qosControls.ingressPacketBurst: a burst has no effect without a packet rate",
        ]
    );
    assert_eq!(rules(&desired, "to-cali1"), [INVALID, OPEN]);
}

#[test]
fn bandwidth_is_that_of_the_fields_in_octets() {
    let of = |controls: &Value| desired(controls).interfaces["cali1"].bandwidth;
    assert!(of(&json!({"ingressPacketRate": 7})).is_unlimited());
    let both = of(&json!({
        "ingressBandwidth": 1_000_000, "egressBandwidth": 8_000_000, "egressBurst": 80_000,
        "egressPeakrate": 16_000_000, "egressMinburst": 3000,
    }));
    let ingress = Bucket {
        rate: 125_000,
        burst: 512 * 1024 * 1024,
        peak: None,
    };
    let peak = Peak {
        rate: 2_000_000,
        burst: 3000,
    };
    let egress = Bucket {
        rate: 1_000_000,
        burst: 10_000,
        peak: Some(peak),
    };
    let wanted = Bandwidth {
        ingress: Some(ingress),
        egress: Some(egress),
    };
    assert_eq!(both, wanted);
    // Another limit changes no rule.
    let without = desired(&json!({}));
    assert_eq!(
        desired(&json!({"ingressBandwidth": 1000})).rules(),
        without.rules()
    );
}

#[test]
fn base_chain_stays_while_an_endpoint_has_a_dscp() {
    let mut calculator = calculator_of(&[
        (endpoint_key("a"), limited(&json!({"dscp": 46}))),
        (endpoint_key("b"), open("b", "cali2", &["10.65.0.2/32"])),
    ]);
    let has_base = |calculator: &mut Calculator| {
        calculator.recompute();
        calculator
            .desired()
            .rules()
            .chains
            .contains_key("mark-dscp")
    };
    assert!(has_base(&mut calculator));
    change(
        &mut calculator,
        &endpoint_key("a"),
        Some(&limited(&json!({}))),
    );
    assert!(!has_base(&mut calculator));
    assert!(
        !calculator
            .desired()
            .rules()
            .sets
            .contains_key("dscp-interfaces")
    );
}
