//! Generated policies, programmed by Felix, read back from the kernel, and compared with an
//! independent evaluation of the datastore. Then changed rules: each change is found. Needs root and
//! `CAMBRIC_LAB=1`.

#[path = "../../../rule-audit/tests/common/mod.rs"]
pub(crate) mod common;
#[path = "readback/mutants.rs"]
pub(crate) mod mutants;
#[path = "readback/sample.rs"]
mod sample;
#[path = "readback/typed.rs"]
pub(crate) mod typed;

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
/// Number of changes of the computed rules of each datastore.
const MISTAKES: usize = 220;
/// Minimum number of them that are found.
const MISTAKES_MIN: usize = 200;

/// Tables of the labs in the host's namespace: they translate services, and drop resets of the host.
const KNOWN_TABLES: [&str; 2] = ["other", "silent"];

pub(crate) type Stored = BTreeMap<String, Value>;

/// Lists the rules of the thread's namespace.
pub(crate) fn listing() -> Listing {
    let text = run("nft --json --numeric --stateless list ruleset");
    Listing::parse(&text).unwrap()
}

fn compared(stored: &Stored) -> Report {
    audit(&fabric(stored), &listing())
}

pub(crate) fn fabric(stored: &Stored) -> Fabric {
    Fabric::read(stored, common::NODE, |settings| {
        settings.known_tables = KNOWN_TABLES.map(|name| ("inet".into(), name.into())).into();
    })
}

/// Returns generated datastores.
fn stores(count: usize) -> Vec<Stored> {
    stores_by(&mut TestRunner::default(), count)
}

fn stores_by(runner: &mut TestRunner, count: usize) -> Vec<Stored> {
    let strategy = common::store();
    let stores = (0..count).map(|_| strategy.new_tree(runner).unwrap().current());
    stores.collect()
}

/// Replaces the content of the datastore, and waits until the kernel's rules are equal to it.
pub(crate) fn program(host: &Host, old: &Stored, new: &Stored) {
    program_as(host, old, new, &fabric(new));
}

/// Replaces the content of the datastore, and waits until the kernel's rules are equal to this fabric.
pub(crate) fn program_as(host: &Host, old: &Stored, new: &Stored, fabric: &Fabric) {
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
        let report = last.replace(audit(fabric, &listing()));
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

/// Adds host endpoints with policies of all kinds; `kinds` selects some of them by bits.
pub(crate) fn add_hosts(stored: &mut Stored, kinds: usize) {
    let mut put = |key: &str, value: Value| {
        stored.insert(format!("{}{key}", common::PREFIX), value);
    };
    let is = |bit: usize| kinds >> bit & 1 == 1;
    let host = |interface: &str, labels: Value, profiles: Value| {
        json!({"metadata": {"labels": labels},
            "spec": {"node": common::NODE, "interfaceName": interface, "profiles": profiles}})
    };
    let role = json!({"role": "host"});
    if is(0) {
        let profiles = if is(1) {
            json!(["kns.prod"])
        } else {
            json!([])
        };
        put(
            "hostendpoints/all",
            host("*", json!({"app": "web"}), profiles),
        );
    }
    let profiles = json!(["projectcalico-default-allow"]);
    put("hostendpoints/uplink", host("uplink", role, profiles));
    let rules = json!([
        {"action": "Allow", "source": {"nets": ["192.0.2.0/24", "2001:db8::/32"]}},
        {"action": "Deny", "protocol": "TCP", "destination": {"ports": [80, "90:95"]}},
    ]);
    let policy = json!({"spec": {"selector": "role == 'host'", "applyOnForward": is(2),
        "ingress": rules, "egress": rules}});
    put("globalnetworkpolicies/of-hosts", policy);
    for (bit, kind, types) in [
        (3, "preDNAT", json!(["Ingress"])),
        (4, "doNotTrack", json!(["Ingress", "Egress"])),
    ] {
        if is(bit) {
            let mut spec = json!({"selector": "role == 'host' || app == 'web'",
                "applyOnForward": true, "types": types, "ingress": rules});
            spec[kind] = true.into();
            if kind == "doNotTrack" {
                spec["egress"] = rules.clone();
            }
            let name = format!("globalnetworkpolicies/{}", kind.to_lowercase());
            put(&name, json!({ "spec": spec }));
        }
    }
    if is(5) {
        let spec = json!({"cidr": "10.65.0.0/16", "ipipMode": "Always", "vxlanMode": "Never"});
        put("ippools/one", json!({ "spec": spec }));
        let spec =
            json!({"bgp": {"ipv4Address": "10.0.0.12/24"}, "addresses": [{"address": "10.9.9.9"}]});
        put("nodes/n2", json!({ "spec": spec }));
    }
    let mut spec = json!({"externalNodesList": ["203.0.113.0/28"], "vxlanEnabled": is(1)});
    if is(6) {
        spec["failsafeInboundHostPorts"] = json!([{"port": 22, "net": "10.0.0.0/8"},
            {"protocol": "UDP", "port": 500, "net": "2001:db8::/32"}]);
        spec["failsafeOutboundHostPorts"] = json!([]);
    }
    spec["disableConntrackInvalidCheck"] = is(7).into();
    put("felixconfigurations/default", json!({ "spec": spec }));
}

/// Adds floating addresses, pools, and settings of address translation; `kinds` selects some of them by bits.
pub(crate) fn add_translation(stored: &mut Stored, kinds: usize) {
    let is = |bit: usize| kinds >> bit & 1 == 1;
    let endpoints = stored.values_mut().filter(|value| {
        value["spec"]["node"] == common::NODE && value["spec"]["ipNetworks"].is_array()
    });
    for (n, endpoint) in (1..).zip(endpoints).filter(|(n, _)| is(*n)) {
        let inside = endpoint["spec"]["ipNetworks"].clone();
        let inside = |at: usize| {
            let network = inside[at].as_str().unwrap();
            network.split('/').next().unwrap().to_owned()
        };
        endpoint["spec"]["ipNATs"] = json!([
            {"externalIP": format!("172.16.0.{}", 100 + n), "internalIP": inside(0)},
            {"externalIP": format!("172.16.0.{n}"), "internalIP": inside(0)},
            {"externalIP": format!("fd16::{n}"), "internalIP": inside(1)},
        ]);
    }
    for (name, cidr, outgoing) in [
        ("two", "10.65.1.0/24", is(0)),
        ("three", "fd65::/64", is(1)),
        ("four", "10.66.0.0/16", false),
    ] {
        let spec = json!({"cidr": cidr, "natOutgoing": outgoing, "disabled": is(2)});
        stored.insert(
            format!("{}ippools/{name}", common::PREFIX),
            json!({ "spec": spec }),
        );
    }
    let key = format!("{}felixconfigurations/default", common::PREFIX);
    let spec = &mut stored.get_mut(&key).unwrap()["spec"];
    spec["floatingIPs"] = if is(3) { "Enabled" } else { "Disabled" }.into();
    for (bit, field, value) in [
        (4, "natOutgoingExclusions", "IPPoolsAndHostIPs"),
        (5, "natPortRange", "32768:65535"),
        (6, "natOutgoingAddress", "10.0.0.11"),
        (7, "iptablesNATOutgoingInterfaceFilter", "upl+"),
        (0, "metadataAddr", "10.0.0.11"),
    ] {
        if is(bit) {
            spec[field] = value.into();
        }
    }
}

/// Returns combinations of all kinds of host endpoints and their policies.
fn host_kinds(at: usize) -> usize {
    const KINDS: [usize; STORES] = [
        0b0000_0001,
        0b0001_1110,
        0b0000_1101,
        0b0011_0111,
        0b0111_1101,
        0b1001_1001,
        0b1111_1111,
        0b0010_0000,
        0b0101_0101,
        0b0001_0100,
        0b1000_1000,
        0b0111_1111,
    ];
    KINDS[at % STORES]
}

// Promise (Felix): The rules in the kernel decide about every packet as the stored policies do.
#[test]
fn rules_read_back_are_equal_to_the_policies() {
    lab("rules_read_back_are_equal_to_the_policies", || {
        let host = Host::new();
        let mut old = small();
        program(&host, &Stored::new(), &old);
        for (at, mut store) in stores(STORES).into_iter().enumerate() {
            add_hosts(&mut store, host_kinds(at));
            add_translation(&mut store, host_kinds(at + 5));
            program(&host, &old, &store);
            old = store;
        }
        let report = compared(&old);
        for chain in [
            "host-input",
            "host-untracked",
            "translate",
            "translate-source",
        ] {
            let note = format!("chain {chain} is not compared");
            assert!(!report.notes.contains(&note), "{:?}", report.notes);
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

// Promise: as felix rules_read_back_are_equal_to_the_policies
#[test]
fn mistakes_in_computed_rules_are_found() {
    lab("mistakes_in_computed_rules_are_found", || {
        let mut tally = mutants::Tally::default();
        let mut stores = vec![small()];
        // The numbers depend on the rules, so these are the same in each run.
        stores.extend(stores_by(&mut TestRunner::deterministic(), 1));
        for (at, mut store) in stores.into_iter().enumerate() {
            add_hosts(&mut store, host_kinds(at + 3));
            add_translation(&mut store, host_kinds(at + 2));
            typed::change(&store, MISTAKES, &mut tally);
        }
        println!("{tally}");
        tally.assert_none_missed();
        let [found, _] = tally.counts();
        assert!(found >= MISTAKES_MIN, "{found} mistakes were found");
    });
}

#[test]
fn rules_of_cut_connections_are_read_back() {
    lab("rules_of_cut_connections_are_read_back", || {
        let mut host = Host::new();
        host.stop();
        host.settings = "cutting.enabled = true".into();
        host.start();
        let mut store = small();
        add_hosts(&mut store, host_kinds(1));
        program(&host, &Stored::new(), &store);
        let fabric = Fabric::read(&store, common::NODE, |settings| settings.cuts = true);
        let read = || audit(&fabric, &listing());
        let report = read();
        assert!(report.is_equal(), "{report:#?}");
        for chain in ["cut-forward", "cut-input", "cut-output"] {
            let note = format!("chain {chain} is not compared");
            assert!(!report.notes.contains(&note), "{:?}", report.notes);
            assert!(listed(chain).contains("0x40000000"), "{chain}");
        }
        // Felix would revert a change of its table.
        host.stop();
        for chain in ["cut-forward", "cut-input", "cut-output"] {
            let before = listed(chain);
            run(&format!(
                "nft insert rule inet cambric-felix {chain} ct state established accept"
            ));
            let report = read();
            assert!(report.is_different(), "{chain} {report:#?}");
            run(&format!("nft flush chain inet cambric-felix {chain}"));
            assert!(read().is_different(), "{chain}");
            restore(&before);
            assert!(read().is_equal(), "{chain}");
        }
    });
}

#[test]
fn limits_of_records_are_read_back() {
    lab("limits_of_records_are_read_back", || {
        let mut host = Host::new();
        let mut store = small();
        let key = format!("{}felixconfigurations/default", common::PREFIX);
        store.insert(key, json!({"spec": {"flowLogsLocalReporter": "Enabled"}}));
        program(&host, &Stored::new(), &store);
        host.until("the rules report", || {
            run("nft list table inet cambric-felix").contains("update @flow-rates-10000 ")
        });
        let report = compared(&store);
        assert!(report.is_equal(), "{report:#?}");
        // Felix would revert a change of its table.
        host.stop();
        let chain = "pi-np/prod/p";
        let before = listed(chain);
        assert!(before.contains("goto flow-unsent-drop"), "{before}");
        for wrong in ["goto flow-unsent-accept", "accept", "return"] {
            let after = before.replace("goto flow-unsent-drop", wrong);
            run(&format!("nft flush chain inet cambric-felix {chain}"));
            restore(&after);
            let report = compared(&store);
            assert!(!report.is_equal(), "{wrong} {report:#?}");
        }
        run(&format!("nft flush chain inet cambric-felix {chain}"));
        restore(&before);
        assert!(compared(&store).is_equal());
        let unsent = "flow-unsent-drop";
        run(&format!("nft flush chain inet cambric-felix {unsent}"));
        assert!(!compared(&store).is_equal());
    });
}

/// Returns a chain of Felix's table as `nft` reads it.
fn listed(chain: &str) -> String {
    run(&format!(
        "nft --numeric --stateless list chain inet cambric-felix {chain}"
    ))
}

/// Replaces the rules of a chain that is empty.
fn restore(listed: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), listed).unwrap();
    run(&format!("nft -f {}", file.path().display()));
}
