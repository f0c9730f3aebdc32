//! The listing of a host with three endpoints against datastores that fit it, or do not.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use rule_audit::{Fabric, Listing, Report, Subject, audit};
use serde_json::{Value, json};

const LISTING: &str = include_str!("listing.json");
const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

fn endpoint(n: u8, interface: &str, addresses: &[&str], profile: &str) -> (String, Value) {
    let name = format!("n1-k8s-p{n}-eth0");
    let spec = json!({"orchestrator": "k8s", "node": "n1", "pod": format!("p{n}"),
        "endpoint": "eth0", "interfaceName": interface, "profiles": [profile],
        "ipNetworks": addresses});
    let key = format!("{PREFIX}workloadendpoints/prod/{name}");
    (
        key,
        json!({"metadata": {"name": name, "namespace": "prod"}, "spec": spec}),
    )
}

fn profile(name: &str, ingress: &[&str], egress: &[&str]) -> (String, Value) {
    let rules = |actions: &[&str]| -> Vec<Value> {
        actions
            .iter()
            .map(|action| json!({"action": action}))
            .collect()
    };
    let spec = json!({"ingress": rules(ingress), "egress": rules(egress)});
    (format!("{PREFIX}profiles/{name}"), json!({ "spec": spec }))
}

fn store() -> BTreeMap<String, Value> {
    BTreeMap::from([
        endpoint(1, "cali1", &["10.65.0.1/32", "fd65::1/128"], "open"),
        endpoint(2, "cali2", &["10.65.0.2/32"], "out"),
        endpoint(3, "tap3", &["fd65::3/128"], "closed"),
        profile("open", &["Allow"], &["Allow"]),
        profile("out", &[], &["Allow"]),
        profile("closed", &[], &[]),
    ])
}

fn compared(store: &BTreeMap<String, Value>, listing: &str) -> Report {
    let fabric = Fabric::read(store, "n1", |_| {});
    audit(&fabric, &Listing::parse(listing).unwrap())
}

/// Returns the chains with differences, and the number of subjects with some.
fn chains(report: &Report) -> (Vec<String>, usize) {
    let different = report
        .subjects
        .values()
        .flat_map(|results| &results.different);
    let mut chains: Vec<String> = different.map(|finding| finding.chain.clone()).collect();
    chains.sort();
    chains.dedup();
    let subjects = report.subjects.values();
    (
        chains,
        subjects
            .filter(|results| !results.different.is_empty())
            .count(),
    )
}

#[test]
fn listing_is_equal_to_its_datastore() {
    let report = compared(&store(), LISTING);
    assert!(report.is_equal(), "{report:#?}");
    // Three endpoints, an unknown interface of each prefix, an uplink; six chains, two IP versions.
    assert_eq!(report.subjects.len(), 6);
    assert!(report.subjects.values().all(|results| results.equal == 12));
    assert!(report.notes.iter().any(|note| note.contains("guard")));
}

#[test]
fn other_datastore_is_different_with_a_packet() {
    let changes: [(&str, (String, Value), &[&str]); 4] = [
        (
            "closed",
            profile("open", &[], &["Allow"]),
            &["forward-to", "output"],
        ),
        (
            "opened",
            profile("closed", &["Allow"], &[]),
            &["forward-to", "output"],
        ),
        (
            "address",
            endpoint(2, "cali2", &["10.65.0.9/32"], "out"),
            &["prerouting"],
        ),
        (
            "interface",
            endpoint(2, "cali9", &["10.65.0.2/32"], "out"),
            &["forward", "forward-to", "input", "output", "prerouting"],
        ),
    ];
    for (what, (key, value), wanted) in changes {
        let mut store = store();
        store.insert(key, value);
        let report = compared(&store, LISTING);
        let (found, _) = chains(&report);
        // Packets of established connections to a host are accepted, so `input` may differ too.
        assert!(
            wanted
                .iter()
                .all(|chain| found.iter().any(|own| own == chain)),
            "{what} {found:?}"
        );
        let findings = report
            .subjects
            .values()
            .flat_map(|results| &results.different);
        assert!(
            findings.into_iter().all(|finding| finding.packet.is_some()),
            "{what}"
        );
    }
}

#[test]
fn changed_listing_is_different_in_its_chain() {
    let cases = [
        // Elements of a map, a policy, a priority, a hook, an element of a set.
        (
            r#"["cali1", {"goto": {"target": "to-cali1"}}]"#,
            r#"["cali1", {"goto": {"target": "to-tap3"}}]"#,
            "forward-to",
        ),
        (
            r#"["cali2", {"goto": {"target": "from-cali2"}}]"#,
            r#"["cali7", {"goto": {"target": "from-cali2"}}]"#,
            "forward",
        ),
        (
            r#""hook": "output", "prio": 0, "policy": "accept""#,
            r#""hook": "output", "prio": 0, "policy": "drop""#,
            "output",
        ),
        (
            r#""hook": "input", "prio": 1"#,
            r#""hook": "input", "prio": 2"#,
            "input-to-host",
        ),
        (
            r#""hook": "prerouting", "prio": -300"#,
            r#""hook": "output", "prio": -300"#,
            "prerouting",
        ),
        (
            r#"{"concat": ["cali1", "10.65.0.1"]}"#,
            r#"{"concat": ["cali1", "10.65.0.3"]}"#,
            "prerouting",
        ),
    ];
    for (old, new, chain) in cases {
        assert!(LISTING.contains(old), "{old}");
        let report = compared(&store(), &LISTING.replacen(old, new, 1));
        let (found, _) = chains(&report);
        assert!(found.iter().any(|own| own == chain), "{new} {report:#?}");
    }
}

#[test]
fn unknown_part_is_never_equal() {
    let (old, new) = (r#"{"accept": null}]"#, r#"{"queue": null}]"#);
    let changed = LISTING
        .lines()
        .map(|line| match line.contains(r#""chain": "to-cali1""#) {
            true => line.replace(old, new),
            false => line.to_owned(),
        });
    let report = compared(&store(), &changed.collect::<Vec<_>>().join("\n"));
    assert!(!report.is_equal() && !report.is_different(), "{report:#?}");
    let base = json!({"chain": {"family": "inet", "table": "cambric-felix", "name": "extra",
        "type": "filter", "hook": "forward", "prio": 9, "policy": "accept"}});
    let more = LISTING.replacen("\n]}", &format!(",\n{base}\n]}}"), 1);
    let report = compared(&store(), &more);
    assert!(!report.is_equal() && !report.is_different(), "{report:#?}");
    let report = compared(&store(), r#"{"nftables": []}"#);
    assert!(report.is_different());
    assert!(report.subjects.contains_key(&Subject::Table));
}
