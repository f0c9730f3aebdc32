//! The cost of a change among many endpoints, measured by counting, because times vary on a busy
//! machine.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{PREFIX, calculator_of, change, endpoint, policy};
use crate::calc::Calculator;
use crate::render::changes;
use crate::render::tests::copy;

const ENDPOINTS: usize = 10_000;
const GROUPS: usize = 20;

fn key(n: usize) -> String {
    format!("{PREFIX}workloadendpoints/openstack/h0-openstack-vm{n}-p")
}

fn member(n: usize, group: usize, address: &str) -> Value {
    let (_, mut value) = endpoint(0, n, &[&format!("g{group}")], false);
    value["spec"]["ipNetworks"] = json!([format!("{address}/32")]);
    value
}

/// Returns endpoints that each belong to one group; members of a group may communicate.
fn many() -> Calculator {
    let mut stored = BTreeMap::new();
    for n in 0..ENDPOINTS {
        let address = format!("10.66.{}.{}", n / 250, n % 250);
        stored.insert(key(n), member(n, n % GROUPS, &address));
    }
    for n in 0..GROUPS {
        let selector = format!("has(g{n})");
        let spec = json!({"selector": selector, "ingress": [{"action": "Allow", "source":
            {"selector": selector}}], "egress": [{"action": "Allow"}]});
        let (key, value) = policy(&format!("g{n}"), &spec);
        stored.insert(key, value);
    }
    calculator_of(&stored)
}

// Promise (Felix): The cost of a change depends on the change, not on the size of the datastore.
#[test]
fn a_change_among_many_is_a_few_steps() {
    let mut calculator = many();
    let start = std::time::Instant::now();
    let whole = calculator.recompute();
    println!(
        "{ENDPOINTS} endpoints, {GROUPS} policies: {:?}",
        start.elapsed()
    );
    assert_eq!(whole.endpoints.len(), ENDPOINTS);
    let before = calculator.desired().rules().clone();
    // To another group, to another address, one of another host that is the first with IPv6, and the
    // next one.
    let [first, next] = [7, 27].map(|n| endpoint(1, n, &["g7"], false));
    let changes_of_one = [
        (key(7), member(7, 8, "10.66.0.7"), 1, 14),
        (key(8), member(8, 8, "10.67.0.8"), 1, 6),
        (first.0, first.1, 0, 6),
        (next.0, next.1, 0, 2),
    ];
    let mut held = before;
    for (key, value, places, steps_max) in changes_of_one {
        let start = std::time::Instant::now();
        change(&mut calculator, &key, Some(&value));
        let changed = start.elapsed();
        let recomputed = calculator.recompute();
        println!(
            "changed in {changed:?}, recomputed in {:?}",
            start.elapsed()
        );
        // Only changed endpoints are processed.
        assert_eq!(recomputed.endpoints.len(), places);
        assert_eq!(recomputed.interfaces.len(), places);
        assert!(recomputed.rules.chains.len() <= 8, "{:?}", recomputed.rules);
        let keys: usize = recomputed.rules.sets.values().map(|keys| keys.len()).sum();
        assert!(keys <= 10, "{:?}", recomputed.rules);
        let wanted = calculator.desired().rules();
        let steps = changes(&held, wanted, &recomputed.rules);
        assert!(!steps.is_empty() && steps.len() <= steps_max, "{steps:#?}");
        copy(&mut held, wanted, &recomputed.rules);
    }
    assert!(held == *calculator.desired().rules());
}
