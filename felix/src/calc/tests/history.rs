//! Metamorphic test: in whatever order the same final values arrive, the result is the same.

use std::collections::BTreeSet;

use calico_model::SERVICES_PREFIX;
use proptest::prelude::*;

use super::*;
use crate::render::Ruleset;
use crate::render::tests::copy;

fn any_value(nth: usize) -> impl Strategy<Value = Option<Value>> {
    let networks = prop::sample::subsequence(
        vec![
            "10.65.0.1/32",
            "10.65.0.2/32",
            "10.65.0.3",
            "fd65::1/128",
            "fd65::2/128",
        ],
        0..4,
    );
    let profiles = prop::sample::subsequence(vec!["p", "q", "projectcalico-default-allow"], 0..=2);
    let interface = prop::sample::select(vec!["cali1", "cali2", "tap3", "eth0"]);
    let node = prop::sample::select(vec![HOST, HOST, HOST, "r1-c08"]);
    let inside = prop::sample::select(vec!["10.65.0.1", "10.65.0.3", "fd65::1"]);
    let outside = prop::sample::select(vec!["192.0.2.1", "10.65.0.2", "2001:db8::1"]);
    let floating = prop::collection::vec((inside, outside), 0..3);
    let value = (node, interface, networks, profiles, floating).prop_map(
        move |(node, interface, networks, profiles, floating)| {
            let name = format!("w{nth}");
            let mut value = endpoint(node, &name, interface, &networks, &profiles);
            let nats = floating
                .iter()
                .map(|(inside, outside)| json!({"internalIP": inside, "externalIP": outside}));
            value["spec"]["ipNATs"] = nats.collect();
            value["spec"]["qosControls"] = match floating.len() {
                0 => Value::Null,
                1 => json!({"dscp": nth, "egressPacketRate": 7, "egressBandwidth": 8000}),
                _ => json!({"ingressMaxConnections": 3}),
            };
            value
        },
    );
    prop::option::weighted(0.8, value)
}

fn web() -> Value {
    json!({"name": "web", "namespace": "prod"})
}

/// Returns a part of the service's endpoints.
fn any_slice() -> impl Strategy<Value = Option<Value>> {
    let addresses = vec!["10.65.0.1", "10.65.0.2", "fd65::1"];
    let addresses = prop::sample::subsequence(addresses, 0..=3);
    let ports = prop::sample::subsequence(vec![80_u16, 443], 0..=2);
    let value = (addresses, ports).prop_map(|(addresses, ports)| {
        let ports = ports.iter().map(|port| json!({ "port": port }));
        json!({"endpoints": [{ "addresses": addresses }], "ports": Value::from_iter(ports)})
    });
    prop::option::weighted(0.7, value)
}

fn any_profile() -> impl Strategy<Value = Option<Value>> {
    let rules = || {
        prop::sample::subsequence(
            vec![
                json!({"action": "Deny", "protocol": "UDP"}),
                json!({"action": "Allow", "protocol": "TCP"}),
                json!({"action": "Log"}),
                json!({"action": "Deny", "destination": {"services": web()}}),
                json!({"action": "Allow", "source": {"services": web()}}),
                json!({"action": "Allow"}),
                json!({"action": "Deny"}),
            ],
            0..=2,
        )
    };
    let value = (rules(), rules()).prop_map(|(i, e)| json!({"spec": {"ingress": i, "egress": e}}));
    prop::option::weighted(0.8, value)
}

fn any_settings() -> impl Strategy<Value = Option<Value>> {
    let action = prop::sample::select(vec!["Drop", "Accept", "Return"]);
    let prefix = prop::sample::select(vec!["", "cali", "tap,eth"]);
    let floating = prop::sample::select(vec!["Enabled", "Disabled"]);
    let value = (action, prefix, floating, any::<bool>()).prop_map(|(a, p, f, v6)| {
        json!({"spec": {"defaultEndpointToHostAction": a, "interfacePrefix": p,
            "failsafeInboundHostPorts": if v6 { json!([{"port": 22}]) } else { Value::Null },
            "floatingIPs": f, "ipv6Support": v6, "natPortRange": 4000 + u16::from(v6),
            "logPrefix": if v6 { "%n" } else { "" }, "disableConntrackInvalidCheck": !v6,
            "nftablesFilterDenyAction": if a == "Drop" { "Drop" } else { "Reject" }}})
    });
    prop::option::weighted(0.8, value)
}

fn any_pool() -> impl Strategy<Value = Option<Value>> {
    let range = prop::sample::select(vec![
        "10.65.0.0/24",
        "10.65.0.0/16",
        "10.66.0.0/16",
        "fd65::/48",
    ]);
    let value = (range, any::<bool>()).prop_map(|(cidr, nat)| {
        let mode = if cidr.len() % 2 == 0 {
            "Always"
        } else {
            "CrossSubnet"
        };
        let vxlan = if nat { mode } else { "Never" };
        json!({"spec": {"cidr": cidr, "natOutgoing": nat, "vxlanMode": vxlan}})
    });
    prop::option::weighted(0.8, value)
}

fn any_host() -> impl Strategy<Value = Option<Value>> {
    let interface = prop::sample::select(vec!["eth0", "eth1", "*", "cali1", ""]);
    let node = prop::sample::select(vec![HOST, HOST, HOST, "r1-c08"]);
    let profiles = prop::sample::subsequence(vec!["p", "q", "projectcalico-default-allow"], 0..=2);
    let ips = prop::sample::subsequence(vec!["10.65.0.1", "192.0.2.9"], 0..=2);
    let value = (interface, node, profiles, ips).prop_map(|(interface, node, profiles, ips)| {
        let labels = match interface {
            "eth0" => json!({"host": "yes"}),
            _ => json!({}),
        };
        json!({"metadata": {"labels": labels}, "spec": {"interfaceName": interface, "node": node,
            "profiles": profiles, "expectedIPs": ips}})
    });
    prop::option::weighted(0.8, value)
}

fn any_node() -> impl Strategy<Value = Option<Value>> {
    let address = prop::sample::select(vec!["", "10.0.0.1/24", "10.0.0.2/24", "10.0.1.3/24"]);
    let tunnel = prop::sample::select(vec!["", "10.65.0.0", "10.65.0.65", "10.65.0.70"]);
    let mac = prop::sample::select(vec!["", "66:00:00:00:00:01", "66:00:00:00:00:02"]);
    let v6 = prop::sample::select(vec!["", "fd65::40", "fd65::80"]);
    let value = (address, tunnel, mac, v6).prop_map(|(address, tunnel, mac, v6)| {
        json!({"spec": {"bgp": {"ipv4Address": address, "ipv6Address": "fd00::7/64"},
            "ipv4VXLANTunnelAddr": tunnel, "vxlanTunnelMACAddr": mac,
            "ipv6VXLANTunnelAddr": v6}})
    });
    prop::option::weighted(0.8, value)
}

fn any_host_policy() -> impl Strategy<Value = Option<Value>> {
    let selector = prop::sample::select(vec!["all()", "has(host)", "!has(host)"]);
    let kind = prop::sample::select(vec!["applyOnForward", "doNotTrack", "preDNAT", "x"]);
    let value = (selector, kind, any::<bool>()).prop_map(|(selector, kind, egress)| {
        let rule = json!([{"action": "Deny", "source": {"selector": "has(host)"}}]);
        let list = if egress { "egress" } else { "ingress" };
        json!({"spec": {"selector": selector, kind: true, list: rule}})
    });
    prop::option::weighted(0.8, value)
}

/// Returns the affinity of a block to a host.
fn any_affinity() -> impl Strategy<Value = (String, Option<Value>)> {
    let host = prop::sample::select(vec![HOST, "r1-c08", "n3"]);
    let block = prop::sample::select(vec![
        "ipv4/block/10.65.0.0-26",
        "ipv4/block/10.65.0.64-26",
        "ipv6/block/fd65::-122",
    ]);
    let state = prop::sample::select(vec!["confirmed", "pending"]);
    let state = state.prop_map(|state| json!({ "state": state }));
    (host, block, prop::option::weighted(0.8, state))
        .prop_map(|(host, block, state)| (format!("/calico/ipam/v2/host/{host}/{block}"), state))
}

/// Returns an endpoint of another host.
fn any_remote() -> impl Strategy<Value = Option<Value>> {
    let networks = vec!["10.65.0.1/32", "10.65.0.66/32", "fd65::1/128"];
    let networks = prop::sample::subsequence(networks, 1..=2);
    let value = networks.prop_map(|networks| endpoint("n3", "x", "cali9", &networks, &[]));
    prop::option::weighted(0.8, value)
}

/// Returns changes of some keys, each key with several values one after the other.
fn any_changes() -> impl Strategy<Value = Vec<(String, Option<Value>)>> {
    let endpoint = |nth: usize| {
        any_value(nth)
            .prop_map(move |v| (endpoint_key(&format!("w{nth}")), v))
            .boxed()
    };
    let profile = |name: &'static str| {
        any_profile()
            .prop_map(move |v| (key("profiles", name), v))
            .boxed()
    };
    let settings = |name: &'static str| {
        any_settings()
            .prop_map(move |v| (key("felixconfigurations", name), v))
            .boxed()
    };
    let mut any: Vec<_> = (0..4).map(endpoint).collect();
    any.extend([
        profile("p"),
        profile("q"),
        settings("default"),
        settings("node.r1-c07"),
    ]);
    let pool = |name: &'static str| {
        any_pool()
            .prop_map(move |v| (key("ippools", name), v))
            .boxed()
    };
    any.extend([pool("a"), pool("b")]);
    let slice = |name: &'static str| {
        let key = format!("{SERVICES_PREFIX}prod/web/{name}");
        any_slice().prop_map(move |v| (key.clone(), v)).boxed()
    };
    any.extend([slice("a"), slice("b")]);
    let host = |name: &'static str| {
        any_host()
            .prop_map(move |v| (key("hostendpoints", name), v))
            .boxed()
    };
    let host_policy = |name: &'static str| {
        any_host_policy()
            .prop_map(move |v| (key("globalnetworkpolicies", name), v))
            .boxed()
    };
    any.extend([host("a"), host("b"), host_policy("c"), host_policy("d")]);
    let node = |name: &'static str| {
        any_node()
            .prop_map(move |v| (key("nodes", name), v))
            .boxed()
    };
    any.extend([node(HOST), node("r1-c08"), node("n3")]);
    let remote = key("workloadendpoints", "prod/n3-k8s-x-eth0");
    any.extend([
        any_affinity().boxed(),
        any_affinity().boxed(),
        any_remote().prop_map(move |v| (remote.clone(), v)).boxed(),
    ]);
    prop::collection::vec(prop::strategy::Union::new(any), 0..32)
}

/// Returns the result of changes that are recomputed all at once.
fn outcome(changes: &[(String, Option<Value>)]) -> Desired {
    let mut calculator = Calculator::new(HOST, None);
    for (key, value) in changes {
        change(&mut calculator, key, value.as_ref());
    }
    calculator.recomputed()
}

/// Returns the result of changes that are recomputed one by one; each difference must be reported.
fn followed(changes: &[(String, Option<Value>)]) -> Desired {
    let mut calculator = Calculator::new(HOST, None);
    let mut rules = Ruleset::default();
    for (key, value) in changes {
        change(&mut calculator, key, value.as_ref());
        let before = calculator.desired().clone();
        let recomputed = calculator.recompute();
        let after = calculator.desired();
        copy(&mut rules, after.rules(), &recomputed.rules);
        assert_eq!(rules, *after.rules(), "not touched");
        let interfaces = different(&before.interfaces, &after.interfaces);
        assert!(interfaces.is_subset(&recomputed.interfaces));
        let endpoints = different(&before.endpoints, &after.endpoints);
        assert!(endpoints.is_subset(&recomputed.endpoints));
        let left = before.routes.iter();
        let left = left.filter(|(address, name)| after.routes.get(*address) != Some(*name));
        let left: BTreeSet<IpAddr> = left.map(|(address, _)| *address).collect();
        assert_eq!(left, recomputed.left);
        assert!(before.settings == after.settings || recomputed.settings);
        let (before, after, touched) = (&before.overlay, &after.overlay, &recomputed.overlay);
        assert!(different(&before.ends, &after.ends).is_subset(&touched.ends));
        assert!(different(&before.routes, &after.routes).is_subset(&touched.routes));
        assert!(before.devices == after.devices || touched.devices);
    }
    calculator.recomputed()
}

/// Returns the keys with different values.
fn different<K: Ord + Clone, V: PartialEq>(
    one: &BTreeMap<K, V>,
    other: &BTreeMap<K, V>,
) -> BTreeSet<K> {
    let keys = one.keys().chain(other.keys());
    let different = keys.filter(|key| one.get(*key) != other.get(*key));
    different.cloned().collect()
}

/// Returns only the last value of each key, in the order of the keys.
fn squashed(changes: &[(String, Option<Value>)]) -> Vec<(String, Option<Value>)> {
    let last: BTreeMap<String, Option<Value>> = changes.iter().cloned().collect();
    last.into_iter().collect()
}

proptest! {
    #[test]
    fn order_and_batching_of_changes_do_not_matter(
        changes in any_changes(),
        shuffled in any_changes().prop_flat_map(|c| (Just(squashed(&c)), Just(squashed(&c)).prop_shuffle())),
    ) {
        let expected = outcome(&changes);
        let squashed = squashed(&changes);
        prop_assert_eq!(&followed(&changes), &expected, "one by one");
        prop_assert_eq!(&outcome(&squashed), &expected, "squashed");
        let reversed: Vec<_> = squashed.iter().rev().cloned().collect();
        prop_assert_eq!(&outcome(&reversed), &expected, "reversed");
        let doubled: Vec<_> = changes.iter().flat_map(|c| [c.clone(), c.clone()]).collect();
        prop_assert_eq!(&outcome(&doubled), &expected, "doubled");
        // Split: every value is deleted before it is set.
        let split: Vec<_> = changes.iter().flat_map(|(k, v)| [(k.clone(), None), (k.clone(), v.clone())]).collect();
        prop_assert_eq!(&outcome(&split), &expected, "split");
        prop_assert_eq!(outcome(&shuffled.1), outcome(&shuffled.0), "shuffled");
    }

    #[test]
    fn whatever_is_routed_is_guarded(changes in any_changes()) {
        let desired = outcome(&changes);
        let elements = |set: &str| desired.rules().sets[set].elements.len();
        let floating = ["floating-ipv4", "floating-ipv6"]
            .map(|set| desired.rules().sets.get(set).map_or(0, |set| set.elements.len()));
        let sources = elements("sources-ipv4") + elements("sources-ipv6");
        prop_assert_eq!(desired.routes.len(), sources + floating[0] + floating[1]);
        for name in desired.routes.values() {
            prop_assert!(desired.interfaces.contains_key(name));
            prop_assert!(desired.settings.is_workload_interface(name));
        }
        prop_assert_eq!(desired.interfaces.len(), elements("workloads"));
    }

    #[test]
    fn any_octets_are_answered(octets in prop::collection::vec(any::<u8>(), 0..64), text in "\\PC*") {
        let mut calculator = Calculator::new(HOST, None);
        for name in ["workloadendpoints/prod/r1--c07-k8s-a-eth0", "profiles/p", "felixconfigurations/default", "ippools/a", "hostendpoints/a"] {
            let name = format!("/calico/resources/v3/projectcalico.org/{name}");
            calculator.change(&name, Some(&octets));
            calculator.change(&name, Some(text.as_bytes()));
            calculator.change(&text, Some(&octets));
        }
        calculator.recomputed();
    }
}
