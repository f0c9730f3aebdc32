//! The cost of a start, in any order of lists, measured in evaluated selectors and other steps.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{PREFIX, change};
use crate::calc::{Calculator, Desired};
use crate::render::{
    Action, Change, Elements, Match, Rule, Touched, Verdict, changes, preparation, prepare,
};
use crate::work;

/// Values by key, one list for each kind.
type Lists = [BTreeMap<String, Value>; 3];

/// Returns as many policies as applications, each for one of them and with rules about the next.
/// Endpoints of this host and of others belong to these applications. All are in one namespace, and
/// all share a label.
fn lists(policies: usize, remote: usize, local: usize) -> Lists {
    let tier = |name: &str, order: usize| {
        let value = json!({"spec": {"order": order, "defaultAction": "Pass"}});
        (format!("{PREFIX}tiers/{name}"), value)
    };
    let policy = |n: usize| {
        let selector = |n: usize| format!("app == 'a{}' && all == 'x'", n % policies);
        let allow = json!({"action": "Allow", "source": {"selector": selector(n + 1)}});
        let tier = if n.is_multiple_of(2) {
            "first"
        } else {
            "second"
        };
        let spec = json!({"tier": tier, "selector": selector(n),
            "order": n, "ingress": [allow]});
        let key = format!("{PREFIX}networkpolicies/openstack/p{n}");
        (
            key,
            json!({"metadata": {"name": format!("p{n}")}, "spec": spec}),
        )
    };
    let endpoint = |n: usize| {
        let host = if n < local { 0 } else { 1 + n / 100 };
        let name = format!("h{host}-openstack-vm{n}-p");
        let labels = json!({"app": format!("a{}", n * 7 % policies), "all": "x",
            "pod": format!("{n}")});
        let address = format!("10.65.{}.{}/32", n / 250, n % 250);
        let spec = json!({"orchestrator": "openstack", "workload": format!("vm{n}"),
            "node": format!("h{host}"), "endpoint": "p", "interfaceName": format!("tap{n}"),
            "profiles": ["kns"], "ipNetworks": [address]});
        let key = format!("{PREFIX}workloadendpoints/openstack/{name}");
        (
            key,
            json!({"metadata": {"name": name, "namespace": "openstack", "labels": labels},
            "spec": spec}),
        )
    };
    [
        [tier("first", 1), tier("second", 2)].into(),
        (0..policies).map(policy).collect(),
        (0..local + remote).map(endpoint).collect(),
    ]
}

/// Returns the result of values in this order, recomputed after each `step` of them, and the number of
/// evaluated selectors.
fn started<'v>(
    values: impl IntoIterator<Item = (&'v String, &'v Value)>,
    step: usize,
) -> (Desired, u64) {
    let mut calculator = Calculator::new("h0", None);
    for (at, (key, value)) in values.into_iter().enumerate() {
        change(&mut calculator, key, Some(value));
        if (at + 1).is_multiple_of(step) {
            calculator.recompute();
        }
    }
    calculator.recompute();
    (calculator.desired().clone(), calculator.selector_checks())
}

/// Returns the lists one after the other in each order, and all values interleaved.
fn orders(lists: &Lists) -> Vec<(String, Vec<(&String, &Value)>)> {
    let names = ["tiers", "policies", "endpoints"];
    let mut orders = Vec::new();
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let name = order.map(|at| names[at]).join(", ");
        let values = order.iter().flat_map(|at| &lists[*at]).collect();
        orders.push((name, values));
    }
    let mut mixed: Vec<_> = lists.iter().flatten().enumerate().collect();
    mixed.sort_by_key(|(at, _)| at * 7_919 % 1_009);
    let mixed = mixed.into_iter().map(|(_, value)| value).collect();
    orders.push(("interleaved".into(), mixed));
    orders
}

#[test]
fn order_of_lists_changes_neither_outcome_nor_cost() {
    const POLICIES: usize = 80;
    let lists = lists(POLICIES, 200, 20);
    let values = (POLICIES + 220) as u64;
    let (expected, _) = started(lists.iter().flatten(), usize::MAX);
    assert!(!expected.rules().chains.is_empty());
    for (name, values_in_order) in orders(&lists) {
        for step in [usize::MAX, 151, 40] {
            let (desired, checks) = started(values_in_order.iter().copied(), step);
            assert!(desired == expected, "{name} in steps of {step}");
            println!("{name} in steps of {step}: {checks} checks");
            // A new selector is evaluated once for each endpoint that it may select.
            assert!(checks <= 8 * values, "{name} in steps of {step}: {checks}");
        }
    }
}

/// Returns the evaluated selectors, and all other counted steps, from the first value to the
/// transactions of the whole filter, of which each prepares at most `limit` objects.
fn start_steps<'v>(
    values: impl IntoIterator<Item = (&'v String, &'v Value)>,
    limit: usize,
) -> [u64; 2] {
    work::take();
    let (desired, checks) = started(values, usize::MAX);
    let wanted = desired.rules();
    let mut held = Calculator::new("h0", None).desired().rules().clone();
    let mut differences = Touched::between(&held, wanted);
    let mut parts = 0;
    while prepare(&mut held, wanted, &mut differences, limit).is_some() {
        parts += 1;
    }
    assert!(parts > 4, "{parts}");
    changes(&held, wanted, &differences);
    [checks, work::take()]
}

#[test]
fn start_with_four_times_as_much_costs_four_times_as_much() {
    const LIMIT: usize = 10;
    let steps = |size: usize| {
        let lists = lists(size, 2 * size, size / 4);
        let all = orders(&lists).into_iter();
        all.map(|(name, values)| (name, start_steps(values, LIMIT)))
            .collect::<Vec<_>>()
    };
    for ((name, small), (_, large)) in steps(60).into_iter().zip(steps(240)) {
        println!("{name}: {small:?} checks and steps, then {large:?}");
        for (small, large) in small.into_iter().zip(large) {
            // A part that is quadratic takes 16 times as many.
            assert!(
                small > 0 && large <= 5 * small,
                "{name}: {small}, then {large}"
            );
        }
    }
}

#[test]
fn large_filter_is_prepared_out_of_reach_of_packets() {
    const LIMIT: usize = 20;
    let lists = lists(60, 100, 20);
    let (desired, _) = started(lists.iter().flatten(), usize::MAX);
    let wanted = desired.rules();
    let before = started([], usize::MAX).0.rules().clone();
    let touched = Touched::between(&before, wanted);
    let mut held = before.clone();
    let (mut parts, mut prepared) = (0, 0);
    while let Some(part) = preparation(&held, wanted, &touched, LIMIT) {
        let steps = changes(&held, wanted, &part);
        assert!((1..=3 * LIMIT).contains(&steps.len()), "{}", steps.len());
        for step in &steps {
            match step {
                Change::AddSet(name, _) | Change::AddElements(name, ..) => {
                    assert!(!before.sets.contains_key(name), "{step:?}");
                }
                Change::AddChain(name, None) => assert!(!before.chains.contains_key(name)),
                Change::AddRule(name, rule) => {
                    assert!(!before.chains.contains_key(name), "{step:?}");
                    assert!(
                        named(rule)
                            .all(|name| held.sets.contains_key(name)
                                || held.chains.contains_key(name)),
                        "{step:?}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        held.follow(wanted, &part, &Touched::default());
        (parts, prepared) = (parts + 1, prepared + steps.len());
    }
    assert!(parts > 4, "{parts}");
    // Nothing is done twice.
    let rest = changes(&held, wanted, &touched).len();
    assert_eq!(prepared + rest, changes(&before, wanted, &touched).len());
    held.follow(wanted, &touched, &Touched::default());
    assert!(held == *wanted);
    // A small difference is written at once.
    assert_eq!(preparation(&before, wanted, &touched, usize::MAX), None);
}

#[test]
fn changes_of_what_is_there_need_no_preparation() {
    const LIMIT: usize = 20;
    let lists = lists(60, 100, 20);
    let (desired, _) = started(lists.iter().flatten(), usize::MAX);
    let wanted = desired.rules();
    let before = started([], usize::MAX).0.rules().clone();
    let touched = Touched::between(&before, wanted);
    assert!(preparation(&before, wanted, &touched, LIMIT).is_some());
    // Everything may differ, but nothing is missing.
    let mut changed = wanted.clone();
    for set in changed.sets.values_mut() {
        set.elements = Elements::default();
    }
    assert_eq!(preparation(&changed, wanted, &touched, LIMIT), None);
    // Everything is removed.
    assert_eq!(preparation(wanted, &before, &touched, LIMIT), None);
    // First as much is missing as one transaction may contain, and then one more.
    let mut held = wanted.clone();
    let sets = wanted.sets.keys();
    let sets = sets.filter(|name| !before.sets.contains_key(*name));
    let sets: Vec<&String> = sets.collect();
    for name in &sets[..LIMIT] {
        held.sets.remove(*name);
    }
    assert_eq!(preparation(&held, wanted, &touched, LIMIT), None);
    held.sets.remove(sets[LIMIT]);
    assert!(preparation(&held, wanted, &touched, LIMIT).is_some());
}

/// Returns the sets and chains that a rule of a policy or tier names.
fn named(rule: &Rule) -> impl Iterator<Item = &String> {
    let sets = rule.matches.iter().filter_map(|one| match one {
        Match::InSet(_, _, set, _) | Match::PortIn(_, _, set, _) => Some(set),
        _ => None,
    });
    let target = match &rule.action {
        Action::Verdict(Verdict::Jump(name) | Verdict::Goto(name)) => Some(name),
        _ => None,
    };
    sets.chain(target)
}
