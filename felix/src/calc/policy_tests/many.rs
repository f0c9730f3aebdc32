//! The cost of a change among many endpoints, measured by counting, because times vary on a busy
//! machine.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{PREFIX, calculator_of, change, endpoint, policy};
use crate::calc::Calculator;
use crate::limits::INHERITANCE_STEPS_PER_TURN;
use crate::render::tests::copy;
use crate::render::{Ruleset, Touched, changes};
use crate::work;

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

/// Returns a profile whose endpoints inherit a label with this value.
fn profile(value: &str) -> Value {
    let allow = json!([{"action": "Allow"}]);
    json!({"spec": {"labelsToApply": {"zone": value}, "ingress": allow, "egress": allow}})
}

#[test]
fn label_of_a_profile_reaches_its_endpoints_in_parts() {
    let endpoints = usize::try_from(INHERITANCE_STEPS_PER_TURN).unwrap();
    let open = format!("{PREFIX}profiles/open");
    let mut stored = BTreeMap::from([(open.clone(), profile("a"))]);
    let remote = |n: usize, label: &str| {
        let (key, mut value) = endpoint(1, n, &[label], true);
        let address = format!("10.67.{}.{}/32", n / 250, n % 250);
        value["spec"]["ipNetworks"] = json!([address]);
        (key, value)
    };
    stored.extend((0..endpoints).map(|n| remote(n, "web")));
    stored.extend([endpoint(0, 1, &["server"], true)]);
    for zone in ["a", "b", "c"] {
        let source = json!({"selector": format!("zone == '{zone}' && has(web)")});
        let spec = json!({"selector": "has(server)", "ingress": [{"action": "Allow",
            "source": source}]});
        stored.extend([policy(zone, &spec)]);
    }
    let mut calculator = calculator_of(&stored);
    calculator.recompute();
    let mut parts = 0;
    let mut changes = vec![
        // During the first change: another one, and one of an endpoint.
        remote(7, "db"),
        (open.clone(), profile("c")),
        (open, profile("b")),
    ];
    work::take();
    while let Some((key, value)) = changes.pop() {
        change(&mut calculator, &key, Some(&value));
        stored.insert(key, value);
        for _ in 0..3 {
            work::take();
            let is_done = calculator.advance();
            // The last endpoint of a part may evaluate several selectors.
            let steps = work::take();
            assert!(steps <= INHERITANCE_STEPS_PER_TURN + 8, "{steps}");
            assert_eq!(is_done, !calculator.is_advancing());
            parts += usize::from(!is_done);
        }
    }
    while !calculator.advance() {
        parts += 1;
    }
    // Each endpoint evaluates two selectors before and after the change.
    assert!(parts >= 5, "{parts}");
    assert!(calculator.has_news());
    let (gone, _) = remote(3, "web");
    change(&mut calculator, &gone, None);
    stored.remove(&gone);
    calculator.recompute();
    let mut fresh = calculator_of(&stored);
    fresh.recompute();
    assert_eq!(calculator.desired(), fresh.desired());
    // The figures are counted with each change.
    let endpoints = endpoints as u64;
    assert_eq!(fresh.figures().cluster_num_workload_endpoints, endpoints);
    assert_eq!(calculator.figures(), fresh.figures());
}

#[test]
fn member_of_a_set_of_ten_thousand_costs_a_few_steps() {
    let remote = |n: usize, label: &str| {
        let (key, mut value) = endpoint(1, n, &[label], false);
        let address = format!("10.67.{}.{}/32", n / 250, n % 250);
        value["spec"]["ipNetworks"] = json!([address]);
        (key, value)
    };
    let mut stored: BTreeMap<String, Value> = (0..10_000).map(|n| remote(n, "web")).collect();
    stored.extend([endpoint(0, 1, &["server"], false)]);
    let source = json!({"selector": "has(web)"});
    let spec =
        json!({"selector": "has(server)", "ingress": [{"action": "Allow", "source": source}]});
    stored.extend([policy("p", &spec)]);
    let mut calculator = calculator_of(&stored);
    calculator.recompute();
    let mut held = calculator.desired().rules().clone();
    let elements = |rules: &Ruleset| {
        let sets = rules.sets.values().map(|set| set.elements.len());
        sets.max().unwrap_or_default()
    };
    assert_eq!(elements(&held), 10_000);
    for (label, left) in [("db", 9_999), ("web", 10_000)] {
        let (key, value) = remote(5_000, label);
        work::take();
        change(&mut calculator, &key, Some(&value));
        let touched = calculator.recompute().rules;
        let wanted = calculator.desired().rules();
        let steps = changes(&held, wanted, &touched);
        held.follow(wanted, &touched, &Touched::default());
        let counted = work::take();
        assert_eq!((steps.len(), elements(&held)), (1, left));
        assert!(counted <= 20, "{counted} steps");
    }
    assert!(held == *calculator.desired().rules());
}

/// Number of network sets, and of the networks of each.
const NETWORK_SETS: usize = 100;
const NETWORKS: usize = 1_000;

/// Returns network `n` of all, of four addresses.
fn network(n: usize) -> String {
    let place = u32::try_from(4 * n).unwrap();
    format!("{}/30", Ipv4Addr::from(0x0a00_0000 + place))
}

// Promise: as felix a_change_among_many_is_a_few_steps
#[test]
fn network_of_a_hundred_thousand_costs_a_few_steps() {
    let set = |at: usize, others: &[&str]| {
        let nets = (at * NETWORKS..(at + 1) * NETWORKS - others.len()).map(network);
        let nets: Vec<String> = nets.chain(others.iter().map(ToString::to_string)).collect();
        let value = json!({"metadata": {"labels": {"bad": ""}}, "spec": {"nets": nets}});
        (format!("{PREFIX}globalnetworksets/s{at}"), value)
    };
    let mut stored: BTreeMap<String, Value> = (0..NETWORK_SETS).map(|at| set(at, &[])).collect();
    stored.extend([endpoint(0, 1, &["server"], false)]);
    let rule = json!({"action": "Deny", "source": {"selector": "has(bad)"}});
    let spec = json!({"selector": "has(server)", "ingress": [rule, {"action": "Allow"}]});
    let policy = format!("{PREFIX}globalnetworkpolicies/p");
    stored.insert(policy, json!({ "spec": spec }));
    let mut calculator = calculator_of(&stored);
    calculator.recompute();
    let mut held = calculator.desired().rules().clone();
    let elements = |rules: &Ruleset| {
        let sets = rules.sets.values().map(|set| set.elements.len());
        sets.max().unwrap_or_default()
    };
    assert_eq!(elements(&held), NETWORK_SETS * NETWORKS);
    let last = NETWORKS * NETWORK_SETS;
    // Another network instead of the last one of a set; one that contains eight of the next set, which
    // are then left out; and the original ones again.
    for (others, elements_left) in [
        (&["192.0.2.0/24"][..], last),
        (&["10.0.156.64/27"][..], last - 8),
        (&[][..], last),
    ] {
        let (key, value) = set(7, others);
        work::take();
        change(&mut calculator, &key, Some(&value));
        let touched = calculator.recompute().rules;
        let wanted = calculator.desired().rules();
        let steps = changes(&held, wanted, &touched);
        held.follow(wanted, &touched, &Touched::default());
        let counted = work::take();
        assert_eq!(elements(&held), elements_left, "{others:?}");
        assert!(steps.len() <= 2, "{steps:#?}");
        // Beside the comparison of the changed network set with its former value: only the elements that change.
        assert!(counted < 60, "{counted} steps");
    }
    assert!(held == *calculator.desired().rules());
}
