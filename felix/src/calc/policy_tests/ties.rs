//! The order of policies and tiers with the same `order`, as in Calico 3.32: policies by
//! `<name>/<namespace>/<kind>`, tiers by name, those that are not stored last.
//!
//! The facts are those of `PolKVLess` and `TierLess` in `felix/calc/policy_sorter.go` of
//! projectcalico/calico. Its `policy_sorter_test.go` tests the text of an entry only, so each condition of
//! these two functions has a row here.

use serde_json::{Value, json};

use super::{PREFIX, change, endpoint};
use crate::calc::Calculator;

/// Kind, namespace and name of a policy, its tier and its order.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Option<f64>,
);

fn key((kind, namespace, name, ..): Row) -> String {
    match kind {
        "np" => format!("{PREFIX}networkpolicies/{namespace}/{name}"),
        _ => format!("{PREFIX}globalnetworkpolicies/{name}"),
    }
}

/// Returns the chains of the policies for the workload, in order.
fn met(rows: &[Row]) -> Vec<String> {
    let mut calculator = Calculator::new("h0", None);
    let (endpoint_key, value) = endpoint(0, 1, &[], false);
    change(&mut calculator, &endpoint_key, Some(&value));
    for (name, order) in [("b", json!(5)), ("a", json!(5)), ("no-order", Value::Null)] {
        let spec = json!({"spec": {"order": order, "defaultAction": "Pass"}});
        change(
            &mut calculator,
            &format!("{PREFIX}tiers/{name}"),
            Some(&spec),
        );
    }
    for row in rows {
        let (_, _, name, tier, order) = *row;
        let spec = json!({"tier": tier, "order": order, "types": ["Ingress"],
            "ingress": [{"action": "Allow"}]});
        let value = json!({"metadata": {"name": name}, "spec": spec});
        change(&mut calculator, &key(*row), Some(&value));
    }
    calculator.recompute();
    let rules = calculator.desired().rules();
    let jumps = |chain: &str| -> Vec<String> {
        let rules = rules.chains[chain]
            .rules
            .iter()
            .map(crate::render::rule_text);
        rules
            .filter_map(|text| Some(text.strip_prefix("jump ")?.to_owned()))
            .collect()
    };
    let tiers = jumps("to-tap1");
    tiers.iter().flat_map(|tier| jumps(tier)).collect()
}

/// In Calico's order.
const ROWS: [Row; 13] = [
    // Tiers of one order by name, then the tier without an order, then the one that is not stored.
    ("gnp", "", "z", "a", None),
    ("gnp", "", "y", "b", None),
    // -0 is 0.
    ("gnp", "", "minus", "default", Some(0.0)),
    ("gnp", "", "zero", "default", Some(-0.0)),
    // `-` and `.` precede `/`, digits and letters follow it.
    ("gnp", "", "web-2", "default", Some(7.0)),
    ("gnp", "", "web.a", "default", Some(7.0)),
    ("gnp", "", "web", "default", Some(7.0)),
    ("np", "openstack", "web", "default", Some(7.0)),
    ("gnp", "", "web0", "default", Some(7.0)),
    ("gnp", "", "webb", "default", Some(7.0)),
    ("gnp", "", "a", "default", None),
    ("gnp", "", "x", "no-order", None),
    ("gnp", "", "w", "missing", None),
];

#[test]
fn policies_of_one_order_are_sorted_as_in_calico_3_32() {
    let name = |row: Row| match row.0 {
        "np" => format!("pi-np/{}/{}", row.1, row.2),
        _ => format!("pi-gnp/{}", row.2),
    };
    let wanted: Vec<String> = ROWS.into_iter().map(name).collect();
    assert_eq!(met(&ROWS), wanted);
    let mut reversed = ROWS;
    reversed.reverse();
    assert_eq!(met(&reversed), wanted, "whatever the order of updates");
}
