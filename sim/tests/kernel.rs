//! The simulated packet filter is that of a real kernel: it accepts the same transactions, and its
//! listing is the same. Needs root and `CAMBRIC_LAB=1`.

use std::cell::RefCell;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use cambric_felix::apply::Rules;
use cambric_felix::render::Change;
use netns_lab::in_lab;
use serde_json::Value;
use sim::{Options, Plants, RulesPlant, listed, run};

/// Transactions between two comparisons of the listings.
const COMPARE_EVERY: usize = 10;

/// Returns the transactions of one node in a run.
fn transactions(seed: u64) -> Vec<Vec<Change>> {
    let options = Options {
        nodes: 2,
        reflectors: 1,
        workloads: 6,
        chaos: Duration::from_secs(90),
        pause: Duration::from_secs(1),
        churn: [1, 1, 2, 0],
        crashes: [0; 5],
        cuts: [0; 3],
        stalls: [0; 4],
        policies: [8, 4, 2, 0],
        ..Options::default()
    };
    let all: Rc<RefCell<Vec<Vec<Change>>>> = Rc::default();
    let seen = Rc::clone(&all);
    let plant: RulesPlant = Rc::new(move |machine, steps| {
        if machine == "node1" {
            seen.borrow_mut().push(steps.clone());
        }
    });
    let plants = Plants {
        rules: Some(plant),
        ..Plants::default()
    };
    run(seed, options, plants).unwrap_or_else(|failure| panic!("{failure}"));
    all.take()
}

#[test]
fn simulated_packet_filter_is_that_of_a_kernel() {
    in_lab("simulated_packet_filter_is_that_of_a_kernel", async |lab| {
        let host = lab.host("kernel").await.expect("a host");
        let all = transactions(1);
        assert!(all.len() > COMPARE_EVERY, "{} transactions", all.len());
        host.run(|| {
            let mut rules = Rules::open().expect("nftables");
            for (at, steps) in all.iter().enumerate() {
                rules
                    .write(steps)
                    .unwrap_or_else(|error| panic!("transaction {at}: {error}"));
                if at % COMPARE_EVERY == 0 || at + 1 == all.len() {
                    let simulated = listed(&all[..=at]).expect("it is carried out");
                    compare(&simulated, &list(), at);
                }
            }
        })
        .expect("the test runs on the host");
    });
}

fn list() -> String {
    let nft = Command::new("nft")
        .args("--json --numeric --stateless list ruleset".split(' '))
        .output()
        .expect("nft runs");
    assert!(nft.status.success(), "{nft:?}");
    String::from_utf8(nft.stdout).expect("text")
}

/// Compares the objects of Felix's table of the family `inet`.
fn compare(simulated: &str, kernels: &str, at: usize) {
    let (simulated, kernels) = (objects(simulated), objects(kernels));
    for object in &simulated {
        assert!(
            kernels.contains(object),
            "after {at}: only simulated: {object}"
        );
    }
    for object in &kernels {
        assert!(
            simulated.contains(object),
            "after {at}: only in the kernel: {object}"
        );
    }
    assert_eq!(order(&simulated), order(&kernels), "after {at}");
}

/// Returns the rules in their order.
fn order(objects: &[Value]) -> Vec<&Value> {
    let mut rules: Vec<&Value> = objects
        .iter()
        .filter(|one| one["rule"].is_object())
        .collect();
    // By chain; the order in a chain stays.
    rules.sort_by_key(|one| one["rule"]["chain"].to_string());
    rules
}

fn objects(listing: &str) -> Vec<Value> {
    let listing: Value = serde_json::from_str(listing).expect("JSON");
    let list = listing["nftables"].as_array().expect("a list").iter();
    let mut all = Vec::new();
    for object in list {
        let (kind, body) = object
            .as_object()
            .and_then(|one| one.iter().next())
            .expect("an object with one field");
        let is_own = body["table"] == "cambric-felix" && body["family"] == "inet";
        if is_own {
            let mut body = body.clone();
            normalize(kind, &mut body);
            all.push(serde_json::json!({ kind: body }));
        }
    }
    all
}

/// Removes what differs without a meaning: handles, the order of elements, flags and limits of sets that
/// rules fill, and conditions that a later condition of the rule implies.
fn normalize(kind: &str, body: &mut Value) {
    let object = body.as_object_mut().expect("an object");
    for field in ["handle", "size", "timeout"] {
        object.remove(field);
    }
    if kind == "set" || kind == "map" {
        let flags = object.get("flags").and_then(Value::as_array).cloned();
        let mut flags = flags.unwrap_or_default();
        // Older versions of `nft` do not list them.
        flags.retain(|flag| flag != "dynamic" && flag != "timeout");
        object.insert("flags".to_owned(), flags.into());
        let mut elements = object
            .get("elem")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        elements.sort_by_key(Value::to_string);
        object.insert("elem".to_owned(), elements.into());
    }
    if kind == "rule" {
        let expressions = object["expr"].as_array().expect("expressions").clone();
        let text = object["expr"].to_string();
        let is_implied = |one: &Value| {
            let key = one["match"]["left"]["meta"]["key"].as_str();
            let payloads = ["ip", "ip6", "tcp", "udp", "icmp", "icmpv6"];
            let has = |names: &[&str]| {
                names
                    .iter()
                    .any(|name| text.contains(&format!("\"protocol\":\"{name}\"")))
            };
            match key {
                Some("nfproto") => has(&payloads[..2]),
                Some("l4proto") => one["match"]["op"] == "==" && has(&payloads[2..]),
                _ => false,
            }
        };
        let kept: Vec<Value> = expressions
            .into_iter()
            .filter(|one| !is_implied(one))
            .collect();
        object.insert("expr".to_owned(), kept.into());
    }
}
