//! Previews of staged policies.

use std::net::IpAddr;

use daemon_common::report::Preview;
use serde_json::{Value, json};

use super::tests::{PREFIX, open, world};
use super::*;
use crate::flows::{Table, Tuple, table_of};

/// A flow from the first endpoint to the second.
fn flow(source_port: u16, port: u16) -> Tuple {
    Tuple {
        protocol: 6,
        source: IpAddr::from([10, 65, 0, 1]),
        destination: IpAddr::from([10, 65, 0, 2]),
        source_port,
        port,
    }
}

/// Two allowed flows to port 80, and one denied to 81, with the egress of each.
fn table(calculator: &Calculator) -> Table {
    let egress = "A E end profile projectcalico-default-allow";
    let all = [
        (egress, flow(1, 80)),
        (egress, flow(2, 80)),
        (egress, flow(3, 81)),
        ("A I rule pi-gnp/p ingress[0]", flow(1, 80)),
        ("A I rule pi-gnp/p ingress[0]", flow(2, 80)),
        ("D I tier default", flow(3, 81)),
    ];
    table_of(calculator, &all)
}

fn stage(calculator: &mut Calculator, key: &str, spec: &Value) {
    let name = key.rsplit('/').next().unwrap();
    let value = json!({"metadata": {"name": name}, "spec": spec}).to_string();
    let key = format!("{PREFIX}{key}");
    assert_eq!(calculator.change(&key, Some(value.as_bytes())), None);
    calculator.recompute();
}

fn counts(preview: &Preview) -> [u64; 4] {
    [
        preview.flows,
        preview.newly_denied,
        preview.newly_allowed,
        preview.unknown,
    ]
}

#[test]
fn staged_policy_is_previewed_and_changes_no_rule() {
    let mut calculator = world(&open());
    let table = table(&calculator);
    let before = calculator.desired().rules().clone();
    let spec = json!({
        "order": 1, "selector": "n == '2'", "types": ["Ingress"], "ingress": [
            {"action": "Deny", "protocol": "TCP", "source": {"nets": ["10.65.0.1/32"]}}],
    });
    stage(&mut calculator, "stagedglobalnetworkpolicies/no", &spec);
    let preview = preview(&calculator, "no", &table).unwrap();
    assert_eq!(preview.policy, "StagedGlobalNetworkPolicy no");
    assert_eq!(preview.action, "Set");
    assert_eq!(preview.endpoints, ["ns/h0-k8s-p2-eth0"]);
    assert_eq!(counts(&preview), [6, 2, 0, 0]);
    let [row] = &*preview.rows else {
        panic!("{preview:#?}");
    };
    assert_eq!((row.flow.flows, row.now, row.then), (2, true, false));
    assert_eq!(row.now_by.list.as_deref(), Some("GlobalNetworkPolicy p"));
    assert_eq!(row.then_by.list.as_deref(), Some("GlobalNetworkPolicy no"));
    assert_eq!(row.then_by.rule.as_deref(), Some("ingress[0]"));
    assert_eq!(calculator.desired().rules(), &before);
    assert!(!calculator.has_news());
}

#[test]
fn deletion_is_previewed_by_the_rules_that_remain() {
    let mut calculator = world(&open());
    let table = table(&calculator);
    let key = "stagedglobalnetworkpolicies/p";
    stage(&mut calculator, key, &json!({"stagedAction": "Delete"}));
    let found = preview(&calculator, "StagedGlobalNetworkPolicy p", &table).unwrap();
    assert_eq!(found.action, "Delete");
    assert_eq!(found.endpoints, ["ns/h0-k8s-p2-eth0"]);
    assert_eq!(counts(&found), [6, 0, 1, 0]);
    assert_eq!(
        found.rows[0].then_by.words,
        "profile projectcalico-default-allow"
    );
    // Another policy, which replaces one that is in effect.
    stage(
        &mut calculator,
        key,
        &json!({"stagedAction": "Set", "selector": "n == '1'"}),
    );
    let found = preview(&calculator, "p", &table).unwrap();
    assert_eq!(found.endpoints, ["ns/h0-k8s-p1-eth0"]);
    assert_eq!(counts(&found), [6, 0, 1, 0]);
    assert!(found.notes.iter().any(|note| note.contains("replace")));
}

#[test]
fn policy_of_kubernetes_is_previewed_in_its_namespace() {
    let mut calculator = world(&open());
    let table = table(&calculator);
    let spec = json!({
        "podSelector": {"matchLabels": {"n": "1"}}, "policyTypes": ["Egress"],
        "egress": [{"ports": [{"port": 80}]}],
    });
    let key = "stagedkubernetesnetworkpolicies/ns/web";
    stage(&mut calculator, key, &spec);
    let found = preview(&calculator, "ns/web", &table).unwrap();
    assert_eq!(found.endpoints, ["ns/h0-k8s-p1-eth0"]);
    assert_eq!(counts(&found), [6, 1, 0, 0]);
    assert_eq!(found.rows[0].flow.direction, "egress");
}

#[test]
fn policy_without_a_computable_effect_is_refused_by_name() {
    let mut calculator = world(&open());
    let table = Table::default();
    let key = "stagedglobalnetworkpolicies/x";
    for (spec, words) in [
        (json!({"stagedAction": "Learn"}), "stagedAction Learn"),
        (json!({"stagedAction": "Ignore"}), "stagedAction Ignore"),
        (json!({"stagedAction": "Other"}), "\"Other\" is none of"),
        (json!({"selector": "=="}), "spec.selector"),
        (
            json!({"doNotTrack": true, "applyOnForward": true}),
            "doNotTrack",
        ),
    ] {
        stage(&mut calculator, key, &spec);
        let reason = preview(&calculator, "x", &table).unwrap_err();
        assert!(reason.contains(words), "{spec}: {reason}");
        assert!(reason.contains("StagedGlobalNetworkPolicy x"), "{reason}");
    }
    assert_eq!(
        preview(&calculator, "y", &table),
        Err("there is no staged policy y".to_owned())
    );
    stage(&mut calculator, "stagednetworkpolicies/ns/w", &json!({}));
    stage(
        &mut calculator,
        "stagedkubernetesnetworkpolicies/ns/w",
        &json!({}),
    );
    let reason = preview(&calculator, "ns/w", &table).unwrap_err();
    assert!(reason.contains("several staged policies"), "{reason}");
    assert!(preview(&calculator, "StagedNetworkPolicy ns/w", &table).is_ok());
    let removed = format!("{PREFIX}stagednetworkpolicies/ns/w");
    calculator.change(&removed, None);
    assert!(preview(&calculator, "ns/w", &table).is_ok());
}

#[test]
fn flow_of_a_removed_endpoint_is_unknown() {
    let mut calculator = world(&open());
    let table = table(&calculator);
    stage(
        &mut calculator,
        "stagedglobalnetworkpolicies/x",
        &json!({"selector": "all()"}),
    );
    let removed = format!("{PREFIX}workloadendpoints/ns/h0-k8s-p2-eth0");
    calculator.change(&removed, None);
    calculator.recompute();
    let found = preview(&calculator, "x", &table).unwrap();
    // The egress of the three flows, and the unknown ingress of them.
    assert_eq!(counts(&found), [6, 0, 0, 3]);
}
