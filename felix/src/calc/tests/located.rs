//! The names of addresses for the flow log.

use super::*;
use crate::render::{Match, PacketLog};

const FLOW_LOG: PacketLog = PacketLog {
    group: 80,
    records_per_second: 10,
};

fn remote(pod: &str, networks: &[&str]) -> (String, Value) {
    (
        endpoint_key(pod),
        endpoint("r1-c08", pod, "cali1", networks, &[]),
    )
}

fn set(name: &str, nets: &[&str]) -> (String, Value) {
    let value = json!({"metadata": {"name": name}, "spec": {"nets": nets}});
    (key("globalnetworksets", name), value)
}

fn workload_at(calculator: &Calculator, address: &str) -> Option<String> {
    let found = calculator.remote_endpoint_at(address.parse().unwrap());
    found.map(|endpoint| endpoint.workload)
}

fn set_at(calculator: &Calculator, address: &str) -> Option<String> {
    calculator.network_set_at(address.parse().unwrap())
}

#[test]
fn remote_endpoint_is_found_by_its_present_addresses() {
    // Before and after the flow log is turned on.
    let mut calculator = calculator_of(&[remote("a", &["10.65.0.1/32", "fd65::1/128"])]);
    assert_eq!(workload_at(&calculator, "10.65.0.1"), None);
    calculator.set_flows(Some(FLOW_LOG));
    let (b, value) = remote("b", &["10.65.0.2/32"]);
    change(&mut calculator, &b, Some(&value));
    for (address, workload) in [
        ("10.65.0.1", Some("prod/a")),
        ("fd65::1", Some("prod/a")),
        ("10.65.0.2", Some("prod/b")),
        ("10.65.0.3", None),
    ] {
        let found = workload_at(&calculator, address);
        assert_eq!(found.as_deref(), workload, "{address}");
    }
    let (_, moved) = remote("b", &["10.65.0.3/32"]);
    change(&mut calculator, &b, Some(&moved));
    assert_eq!(workload_at(&calculator, "10.65.0.2"), None);
    assert_eq!(workload_at(&calculator, "10.65.0.3").unwrap(), "prod/b");
    change(&mut calculator, &b, None);
    assert_eq!(workload_at(&calculator, "10.65.0.3"), None);
    calculator.set_flows(None);
    assert_eq!(workload_at(&calculator, "10.65.0.1"), None);
}

#[test]
fn most_specific_network_set_is_found() {
    let (wide, narrow) = (
        set("wide", &["10.0.0.0/8", "::/0"]),
        set("narrow", &["10.1.0.0/16"]),
    );
    let same = json!({"metadata": {"name": "same", "namespace": "prod"},
        "spec": {"nets": ["10.1.0.0/16"]}});
    let same = (key("networksets", "prod/same"), same);
    let mut calculator = calculator_of(&[wide, narrow.clone(), same.clone()]);
    calculator.set_flows(Some(FLOW_LOG));
    let found = |calculator: &Calculator, address| set_at(calculator, address).unwrap_or_default();
    assert_eq!(found(&calculator, "10.1.2.3"), "NetworkSet prod/same");
    change(&mut calculator, &same.0, None);
    assert_eq!(found(&calculator, "10.1.2.3"), "GlobalNetworkSet narrow");
    assert_eq!(found(&calculator, "10.2.2.3"), "GlobalNetworkSet wide");
    assert_eq!(found(&calculator, "fd00::1"), "GlobalNetworkSet wide");
    assert_eq!(found(&calculator, "11.0.0.1"), "");
    change(&mut calculator, &narrow.0, None);
    assert_eq!(found(&calculator, "10.1.2.3"), "GlobalNetworkSet wide");
}

#[test]
fn changed_limit_of_records_has_another_set() {
    let policy = json!({"spec": {"ingress": [{"action": "Allow"}, {"action": "Deny"}]}});
    let mut calculator = calculator_of(&[
        (
            endpoint_key("a"),
            endpoint(HOST, "a", "cali1", &["10.65.0.1/32"], &[]),
        ),
        (key("globalnetworkpolicies", "default.p"), policy),
    ]);
    for limit in [5, 7, 0, 7] {
        calculator.set_flows(Some(PacketLog {
            records_per_second: limit,
            ..FLOW_LOG
        }));
        calculator.recompute();
        let rules = calculator.desired().rules();
        let sets = rules.sets.keys();
        let sets: Vec<&String> = sets.filter(|name| name.starts_with("flow-rates")).collect();
        let wanted = match limit {
            0 => Vec::new(),
            _ => vec![format!("flow-rates-{limit}")],
        };
        assert_eq!(sets, wanted.iter().collect::<Vec<_>>());
        let all = rules.chains.values().flat_map(|chain| &chain.rules);
        let used = all.flat_map(|rule| &rule.matches);
        let used = used.filter_map(|one| match one {
            Match::OverLimit(_, set) if set.starts_with("flow-rates") => Some(set.clone()),
            _ => None,
        });
        let used: BTreeSet<String> = used.collect();
        assert_eq!(used, wanted.into_iter().collect(), "{limit}");
    }
}
