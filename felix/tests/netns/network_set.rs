//! Rules that select network sets, with real packets through the real packet filter. Needs root and
//! `CAMBRIC_LAB=1`.

use crate::world::host::{Host, OPEN, RESOURCES, announce, workload};
use crate::world::{lab, run};
use daemon_common::{Command, Reply};
use serde_json::{Value, json};

/// Writes the only policy, for all ingress of workloads.
fn policy(host: &Host, rules: &Value) {
    let value = json!({
        "kind": "GlobalNetworkPolicy", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "p"}, "spec": {"ingress": rules, "types": ["Ingress"]},
    });
    host.put(&format!("{RESOURCES}globalnetworkpolicies/p"), &value);
}

fn network_set(host: &Host, name: &str, nets: &Value) {
    let value = json!({
        "kind": "GlobalNetworkSet", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "labels": {"set": "yes"}}, "spec": {"nets": nets},
    });
    host.put(&format!("{RESOURCES}globalnetworksets/{name}"), &value);
}

fn listed(host: &Host, what: &str, done: impl Fn(&str) -> bool) {
    host.until(what, || done(&run("nft list table inet cambric-felix")));
}

/// Waits until the status names a field of a resource.
fn noted(host: &Host, resource: &str, words: &str) {
    host.until(resource, || {
        let Reply::Status(status) = host.ask(&Command::Status {}) else {
            return false;
        };
        let mut notes = status.notes.iter();
        notes.any(|note| note.contains(resource) && note.contains(words))
    });
}

#[test]
fn resources_without_effect_are_named_in_the_status() {
    lab("resources_without_effect_are_named_in_the_status", || {
        let host = Host::new();
        let metadata = json!({"name": "x"});
        let staged = json!({"metadata": metadata, "spec": {"ingress": [{"action": "Deny"}]}});
        host.put(
            &format!("{RESOURCES}stagedglobalnetworkpolicies/x"),
            &staged,
        );
        let spec = json!({"performanceHints": ["AssumeNeededOnEveryNode"]});
        let policy = json!({"metadata": metadata, "spec": spec});
        host.put(&format!("{RESOURCES}globalnetworkpolicies/x"), &policy);
        for (resource, words) in [
            (
                "stagedglobalnetworkpolicies/x",
                "spec: staged policies are not enforced",
            ),
            ("globalnetworkpolicies/x", "spec.performanceHints: "),
        ] {
            noted(&host, resource, words);
        }
    });
}

#[test]
fn network_sets_decide_about_packets() {
    lab("network_sets_decide_about_packets", || {
        let host = Host::new();
        let all: Vec<_> = (1..=3).map(workload).collect();
        (1..=3).for_each(|n| announce(&host, n, OPEN));
        let [by_set, not_by_set] =
            ["selector", "notSelector"].map(|field| json!({ field: "set == 'yes'" }));
        let allow = json!({"action": "Allow"});
        policy(&host, &json!([{"action": "Deny", "source": by_set}, allow]));
        (1..=3).for_each(|n| host.wait_up(&format!("cali{n}")));
        let pings = |from: usize, to: u8| {
            let namespace = &all[from - 1].namespace;
            namespace.pings(&format!("10.65.0.{to}")) && namespace.pings(&format!("fd65::{to}"))
        };
        let is_cut_off = |from: usize, to: &str| all[from - 1].namespace.is_cut_off(to);
        listed(&host, "the policy", |text| text.contains("pi-gnp/p"));
        assert!(pings(1, 3) && pings(2, 3), "no set: nothing is denied");

        // Networks that overlap and touch each other.
        let nets = json!([
            "10.65.0.0/31",
            "10.65.0.1/32",
            "fd65::/127",
            "10.64.0.0/16",
            "192.0.2.0/25",
            "192.0.2.128/25",
            "255.255.255.255/32"
        ]);
        network_set(&host, "one", &nets);
        listed(&host, "the networks", |text| text.contains("10.65.0.0/31"));
        for to in ["10.65.0.3", "fd65::3"] {
            assert!(is_cut_off(1, to), "denied by the network set");
        }
        assert!(pings(2, 3), "beside the network set");

        // A larger network replaces the smaller ones, and restores them when removed.
        network_set(&host, "two", &json!(["10.65.0.0/24", "fd65::/64"]));
        listed(&host, "the larger network", |text| {
            !text.contains("10.65.0.0/31")
        });
        assert!(is_cut_off(2, "10.65.0.3"));
        network_set(&host, "two", &json!([]));
        listed(&host, "the smaller network", |text| {
            text.contains("10.65.0.0/31")
        });
        assert!(is_cut_off(1, "10.65.0.3") && pings(2, 3));

        // The same for a rule that allows sources outside the sets.
        policy(&host, &json!([{"action": "Allow", "source": not_by_set}]));
        listed(&host, "the other rule", |text| {
            text.contains("saddr != @cali4")
        });
        assert!(is_cut_off(1, "10.65.0.3") && pings(2, 3));

        // A single network contains everything, and without sets nothing is selected.
        network_set(&host, "two", &json!(["0.0.0.0/0", "::/0"]));
        listed(&host, "all", |text| !text.contains("10.64.0.0/16"));
        assert!(is_cut_off(2, "10.65.0.3") && is_cut_off(2, "fd65::3"));
        for name in ["one", "two"] {
            host.delete(&format!("{RESOURCES}globalnetworksets/{name}"));
        }
        host.until("nothing is selected", || pings(1, 3));
    });
}
