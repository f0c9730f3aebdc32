//! Generated policies, programmed by Felix, read back from the kernel, and compared with an
//! independent evaluation of the datastore. Then changed rules: each change is found. Needs root and
//! `CAMBRIC_LAB=1`.

#[path = "../../../rule-audit/tests/common/mod.rs"]
mod common;
#[path = "readback/mutants.rs"]
mod mutants;
#[path = "readback/sample.rs"]
mod sample;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rule_audit::{Fabric, Listing, Report, audit};
use serde_json::{Value, json};

use crate::world::host::Host;
use crate::world::{lab, run};

/// Number of generated datastores.
const STORES: usize = 12;
/// Number of generated datastores whose rules are changed.
const CHANGED: usize = 1;

type Stored = BTreeMap<String, Value>;

/// Lists the rules of the thread's namespace.
fn listing() -> Listing {
    let text = run("nft --json --numeric --stateless list ruleset");
    Listing::parse(&text).unwrap()
}

fn compared(stored: &Stored) -> Report {
    audit(&fabric(stored), &listing())
}

fn fabric(stored: &Stored) -> Fabric {
    Fabric::read(stored, common::NODE, |_| {})
}

/// Returns generated datastores.
fn stores(count: usize) -> Vec<Stored> {
    let mut runner = TestRunner::default();
    let strategy = common::store();
    let stores = (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current());
    stores.collect()
}

/// Replaces the content of the datastore, and waits until the kernel's rules are equal to it.
fn program(host: &Host, old: &Stored, new: &Stored) {
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        host.delete(key);
    }
    for (key, value) in new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(*value))
    {
        host.put(key, value);
    }
    let last = RefCell::new(Report::default());
    let deadline = std::time::Instant::now() + crate::world::host::PATIENCE;
    while !last.borrow().is_equal() || last.borrow().subjects.is_empty() {
        let report = last.replace(compared(new));
        let stored = serde_json::to_string_pretty(new).unwrap();
        assert!(
            std::time::Instant::now() < deadline,
            "the rules of the kernel are not those of the datastore:\n{report:#?}\n{stored}\n{}",
            run("nft --stateless list table inet cambric-felix"),
        );
    }
}

/// Returns a datastore with one policy for one endpoint: ports and networks.
fn small() -> Stored {
    let key = |rest: &str| format!("{}{rest}", common::PREFIX);
    let endpoint = json!({
        "metadata": {"name": "n1-k8s-p1-eth0", "namespace": "prod", "labels": {"app": "web"}},
        "spec": {"orchestrator": "k8s", "node": "n1", "pod": "p1", "endpoint": "eth0",
            "interfaceName": "cali1", "profiles": [],
            "ipNetworks": ["10.65.1.1/32", "fd65::1:1/128"]},
    });
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "selector": "app == 'web'", "types": ["Ingress", "Egress"],
        "ingress": [
            {"action": "Deny", "source": {"nets": ["10.65.2.0/31"]}},
            {"action": "Allow", "protocol": "TCP", "source": {"nets": ["10.65.0.0/16", "fd65::/16"]},
                "destination": {"ports": [80, "8000:8010"]}}],
        "egress": [{"action": "Allow", "protocol": "UDP", "destination": {"notPorts": [53]}}],
    }});
    Stored::from([
        (key("workloadendpoints/prod/n1-k8s-p1-eth0"), endpoint),
        (key("networkpolicies/prod/p"), policy),
    ])
}

/// Adds host endpoints, of which the rules are not compared, and a policy of them.
fn add_hosts(stored: &mut Stored) {
    let key = |rest: &str| format!("{}{rest}", common::PREFIX);
    let host = |interface: &str| {
        json!({"metadata": {"labels": {"role": "host"}},
            "spec": {"node": common::NODE, "interfaceName": interface}})
    };
    let policy = json!({"spec": {"selector": "role == 'host'", "applyOnForward": true,
        "ingress": [{"action": "Allow", "source": {"nets": ["192.0.2.0/24", "2001:db8::/32"]}}]}});
    stored.insert(key("hostendpoints/all"), host("*"));
    stored.insert(key("hostendpoints/uplink"), host("uplink"));
    stored.insert(key("globalnetworkpolicies/of-hosts"), policy);
    for kind in ["preDNAT", "doNotTrack"] {
        let policy = json!({"spec": {"selector": "role == 'host'", kind: true,
            "applyOnForward": true, "ingress": [{"action": "Allow", "protocol": "TCP"}]}});
        let name = format!("globalnetworkpolicies/{}", kind.to_lowercase());
        stored.insert(key(&name), policy);
    }
}

// Promise (Felix): The rules in the kernel decide about every packet as the stored policies do.
#[test]
fn rules_read_back_are_equal_to_the_policies() {
    lab("rules_read_back_are_equal_to_the_policies", || {
        let host = Host::new();
        let mut old = small();
        program(&host, &Stored::new(), &old);
        for mut store in stores(STORES) {
            add_hosts(&mut store);
            program(&host, &old, &store);
            old = store;
        }
        let notes = compared(&old).notes;
        for chain in ["host-input", "host-untranslated", "host-untracked"] {
            assert!(
                notes.contains(&format!("chain {chain} is not compared")),
                "{notes:?}"
            );
        }
    });
}

#[test]
fn changed_rules_are_found_with_a_packet() {
    lab("changed_rules_are_found_with_a_packet", || {
        let mut host = Host::new();
        let mut old = Stored::new();
        let mut found = mutants::Tally::default();
        let stores = [vec![small()], stores(CHANGED)].concat();
        for (at, store) in stores.iter().enumerate() {
            if at > 0 {
                host.start();
            }
            program(&host, &old, store);
            // Felix would revert a change of its table.
            host.stop();
            mutants::change_all(&fabric(store), &mut found);
            old.clone_from(store);
        }
        println!("{found}");
        found.assert_all_found();
    });
}
