//! The stored policies as programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::packet::{Family, Field, Packet, state};
use crate::ranges::number;
use crate::space::{Outcome, Space};

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

/// A store with the endpoint 10.65.0.1 on `n1`, and others on `n2`.
fn store() -> BTreeMap<String, Value> {
    let mut store = BTreeMap::new();
    for (node, n, labels) in [
        ("n1", 1, json!({"app": "web"})),
        ("n2", 2, json!({"app": "web"})),
        ("n2", 3, json!({"app": "db", "pcns.env": "forged"})),
    ] {
        let name = format!("{node}-k8s-p{n}-eth0");
        let spec = json!({"orchestrator": "k8s", "node": node, "pod": format!("p{n}"),
            "endpoint": "eth0", "interfaceName": format!("cali{n}"), "profiles": ["kns.prod"],
            "serviceAccountName": if n == 3 { "db" } else { "" },
            "ipNetworks": [format!("10.65.0.{n}/32"), format!("fd65::{n}/128")],
            "ports": [{"name": "http", "protocol": "TCP", "port": 8000 + n}]});
        let value = json!({"metadata": {"name": name, "namespace": "prod", "labels": labels},
            "spec": spec});
        store.insert(format!("{PREFIX}workloadendpoints/prod/{name}"), value);
    }
    let labels = json!({"labelsToApply": {"pcns.env": "live"},
        "ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]});
    store.insert(
        format!("{PREFIX}profiles/kns.prod"),
        json!({ "spec": labels }),
    );
    let set =
        json!({"metadata": {"labels": {"role": "outside"}}, "spec": {"nets": ["192.0.2.0/24"]}});
    store.insert(format!("{PREFIX}globalnetworksets/outside"), set);
    store
}

fn put(store: &mut BTreeMap<String, Value>, key: &str, spec: &Value) {
    store.insert(
        format!("{PREFIX}{key}"),
        json!({"metadata": {}, "spec": spec}),
    );
}

fn from(source: &str, protocol: u128, port: u128) -> Packet {
    let source: std::net::IpAddr = source.parse().unwrap();
    let family = if source.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    Packet::new(family)
        .with(Field::Source, number(source))
        .with(Field::Protocol, protocol)
        .with(Field::DestinationPort, port)
}

/// Returns the outcome of a packet to 10.65.0.1.
fn outcome(store: &BTreeMap<String, Value>, packet: &Packet) -> Outcome {
    at(store, Hook::ForwardTo, packet)
}

fn at(store: &BTreeMap<String, Value>, hook: Hook, packet: &Packet) -> Outcome {
    let fabric = Fabric::read(store, "n1", |_| {});
    assert_eq!(fabric.endpoints.len(), 1);
    let mut space = Space::new();
    let endpoint = &fabric.endpoints[0];
    let mut spec = Spec::new(&fabric);
    let program = spec.program(&mut space, endpoint, hook, packet.family);
    space.run(program, packet).0
}

#[test]
fn rules_match_their_fields() {
    let (two, three) = (from("10.65.0.2", 6, 8001), from("10.65.0.3", 17, 53));
    let outside = from("192.0.2.9", 6, 8002);
    let ping = from("10.65.0.2", 1, 0)
        .with(Field::IcmpType, 8)
        .with(Field::IcmpCode, 1);
    let six = from("fd65::2", 6, 80);
    for (rule, packet, matches) in [
        (json!({}), two, true),
        (json!({"ipVersion": 4}), six, false),
        (json!({"protocol": "tcp"}), two, true),
        (json!({"protocol": "6"}), two, true),
        (json!({"protocol": 0}), three, true),
        (json!({"notProtocol": "TCP"}), two, false),
        (
            json!({"protocol": "TCP", "destination": {"ports": [80, "8000:8002"]}}),
            two,
            true,
        ),
        (
            json!({"protocol": "TCP", "destination": {"ports": [80]}}),
            two,
            false,
        ),
        (
            json!({"protocol": "TCP", "destination": {"notPorts": [80]}}),
            two,
            true,
        ),
        (
            json!({"protocol": "TCP", "destination": {"ports": ["http"]}}),
            two,
            false,
        ),
        (json!({"source": {"nets": ["10.65.0.0/30"]}}), two, true),
        (json!({"source": {"nets": ["10.65.0.0/30"]}}), six, false),
        (json!({"source": {"notNets": ["10.65.0.0/30"]}}), two, false),
        (json!({"source": {"notNets": ["10.65.0.0/30"]}}), six, false),
        (json!({"source": {"notNets": ["fd00::/8"]}}), two, false),
        (json!({"source": {"selector": "app == 'web'"}}), two, true),
        (json!({"source": {"selector": "app == 'web'"}}), six, true),
        (
            json!({"source": {"selector": "app == 'web'"}}),
            three,
            false,
        ),
        (
            json!({"source": {"notSelector": "app == 'web'"}}),
            three,
            true,
        ),
        (
            json!({"source": {"notSelector": "app == 'web'"}}),
            outside,
            false,
        ),
        (
            json!({"source": {"selector": "role == 'outside'"}}),
            outside,
            false,
        ),
        (
            json!({"source": {"selector": "role == 'outside'", "namespaceSelector": "global()"}}),
            outside,
            true,
        ),
        (
            json!({"source": {"namespaceSelector": "env == 'live'"}}),
            three,
            true,
        ),
        (
            json!({"source": {"namespaceSelector": "env == 'forged'"}}),
            three,
            false,
        ),
        (
            json!({"source": {"namespaceSelector": "all()"}}),
            outside,
            false,
        ),
        (
            json!({"source": {"serviceAccounts": {"names": ["db"]}}}),
            three,
            true,
        ),
        (
            json!({"source": {"serviceAccounts": {"names": ["db"]}}}),
            two,
            false,
        ),
        (json!({"protocol": "ICMP", "icmp": {"type": 8}}), ping, true),
        (
            json!({"protocol": "ICMP", "icmp": {"type": 8, "code": 0}}),
            ping,
            false,
        ),
        (
            json!({"protocol": "ICMP", "notICMP": {"type": 8, "code": 0}}),
            ping,
            true,
        ),
        (
            json!({"protocol": "ICMP", "notICMP": {"type": 8, "code": 1}}),
            ping,
            false,
        ),
    ] {
        let mut store = store();
        let mut rule = rule;
        rule["action"] = "Allow".into();
        put(
            &mut store,
            "networkpolicies/prod/p",
            &json!({"ingress": [rule]}),
        );
        let wanted = if matches {
            Outcome::Accept
        } else {
            Outcome::Drop
        };
        assert_eq!(outcome(&store, &packet), wanted, "{rule} {packet}");
    }
}

#[test]
fn names_of_ports_are_those_of_the_selected_end() {
    let mut store = store();
    let rule = json!({"action": "Allow", "protocol": "TCP",
        "destination": {"ports": ["http"], "selector": "app == 'web'"}});
    put(
        &mut store,
        "networkpolicies/prod/p",
        &json!({"ingress": [rule]}),
    );
    let to = |n: u8, port| {
        let to: std::net::IpAddr = [10, 65, 0, n].into();
        from("10.65.0.2", 6, port).with(Field::Destination, number(to))
    };
    assert_eq!(outcome(&store, &to(1, 8001)), Outcome::Accept);
    assert_eq!(outcome(&store, &to(1, 8002)), Outcome::Drop);
    assert_eq!(outcome(&store, &to(2, 8002)), Outcome::Accept);
    assert_eq!(outcome(&store, &to(3, 8003)), Outcome::Drop);
}

/// Returns the outcome of a rule followed by an `Allow`, with these slices of services.
fn with_slices(rule: &Value, slices: &[(&str, Value)], packet: &Packet) -> Outcome {
    let mut store = store();
    for (key, value) in slices {
        store.insert(format!("{SERVICES}{key}"), value.clone());
    }
    let rules = json!({"ingress": [rule, {"action": "Allow"}]});
    put(&mut store, "networkpolicies/prod/p", &rules);
    outcome(&store, packet)
}

#[test]
fn service_of_a_rule_is_its_slices() {
    let slice = |addresses: &[&str], ports: Value| json!({"endpoints": [{"addresses": addresses}], "ports": ports});
    let slices = [
        (
            "prod/web/a",
            slice(&["10.65.0.2", "fd65::2", "www"], json!([{"port": 8000}])),
        ),
        (
            "prod/web/b",
            slice(
                &["10.65.0.3"],
                json!([{"protocol": "UDP", "port": 53},
            {"protocol": "ICMP", "port": 54}, {"protocol": "TCP"}, {"port": 0}]),
            ),
        ),
        ("test/web/a", slice(&["10.65.0.4"], json!([{"port": 8000}]))),
        ("prod/empty/a", json!({})),
        // No keys of slices.
        ("prod/web", slice(&["10.65.0.9"], json!([{"port": 8000}]))),
        (
            "prod/web/a/b",
            slice(&["10.65.0.9"], json!([{"port": 8000}])),
        ),
        ("prod/web/-", slice(&["10.65.0.9"], json!([{"port": 8000}]))),
    ];
    let of = |name: &str| json!({"services": {"name": name}});
    let elsewhere = json!({"services": {"name": "web", "namespace": "test"}});
    for (services, source, matches) in [
        (of("web"), "10.65.0.2", true),
        (of("web"), "fd65::2", true),
        (of("web"), "10.65.0.3", true),
        (of("web"), "10.65.0.4", false),
        (of("web"), "10.65.0.9", false),
        (of("web"), "fd65::3", false),
        (of("empty"), "10.65.0.2", false),
        (elsewhere.clone(), "10.65.0.4", true),
        (elsewhere, "10.65.0.2", false),
    ] {
        let rule = json!({"action": "Deny", "source": services});
        let found = with_slices(&rule, &slices, &from(source, 6, 1));
        assert_eq!(found == Outcome::Drop, matches, "{rule} {source}");
    }
    let rule = json!({"action": "Deny", "destination": of("web")});
    for (to, protocol, port, matches) in [
        ("10.65.0.2", 6, 8000, true),
        ("10.65.0.2", 17, 8000, false),
        ("10.65.0.2", 6, 8001, false),
        ("10.65.0.3", 6, 8000, false),
        ("10.65.0.3", 17, 53, true),
        ("10.65.0.3", 1, 54, false),
        ("fd65::2", 6, 8000, true),
        ("fd65::3", 6, 8000, false),
    ] {
        let to: std::net::IpAddr = to.parse().unwrap();
        let packet = from(&to.to_string(), protocol, port).with(Field::Destination, number(to));
        let found = with_slices(&rule, &slices, &packet);
        assert_eq!(found == Outcome::Drop, matches, "{to} {protocol} {port}");
    }
}

#[test]
fn rule_of_a_missing_service_is_closed() {
    let packet = from("10.65.0.2", 6, 80);
    let unreadable = [
        json!([]),
        json!({"endpoints": {}}),
        json!({"endpoints": [{"addresses": [7]}]}),
        json!({"ports": [{"port": "80"}]}),
        json!({"ports": [{"port": 65_536}]}),
        json!({"ports": [{"protocol": true}]}),
        json!({"endpoints": [{"addresses": vec!["10.0.0.1"; 100_001]}]}),
    ];
    for (action, closed) in [
        ("Allow", Outcome::Accept),
        ("Deny", Outcome::Drop),
        ("Pass", Outcome::Drop),
        ("Log", Outcome::Accept),
    ] {
        // Other conditions do not spare a packet.
        let rule = json!({"action": action, "ipVersion": 6, "source": {"services": {"name": "x"}}});
        assert_eq!(with_slices(&rule, &[], &packet), closed, "{action}");
        let empty = [("prod/x/a", json!({}))];
        assert_eq!(
            with_slices(&rule, &empty, &packet),
            Outcome::Accept,
            "{action}"
        );
        // Felix may have a former value.
        for value in &unreadable {
            let wanted = if action == "Log" {
                Outcome::Accept
            } else {
                Outcome::Unknown
            };
            let slices = [empty[0].clone(), ("prod/x/b", value.clone())];
            assert_eq!(
                with_slices(&rule, &slices, &packet),
                wanted,
                "{action} {value}"
            );
        }
    }
}

#[test]
fn unsupported_field_makes_the_outcome_unknown() {
    for rule in [
        json!({"source": {"services": {"namespace": "prod"}}}),
        json!({"source": {"services": {"name": "x", "kind": "y"}}}),
        json!({"source": {"services": {"name": "x"}, "nets": ["10.0.0.0/8"]}}),
        json!({"protocol": "TCP", "destination": {"services": {"name": "x"}, "ports": [80]}}),
        json!({"http": {"methods": ["GET"]}}),
        json!({"color": "red"}),
        json!({"protocol": "FOO"}),
        json!({"destination": {"ports": [80]}}),
        json!({"protocol": "TCP", "destination": {"ports": ["90:80"]}}),
        json!({"icmp": {"type": 8}}),
        json!({"protocol": "ICMP", "icmp": {"code": 8}}),
        json!({"ipVersion": 5}),
        json!({"source": {"selector": "app =="}}),
        json!({"source": {"nets": ["10.0.0/8"]}}),
        json!({"source": 7}),
    ] {
        let mut store = store();
        let mut rule = rule;
        rule["action"] = "Allow".into();
        put(
            &mut store,
            "networkpolicies/prod/p",
            &json!({"ingress": [rule]}),
        );
        let packet = from("10.65.0.2", 6, 80);
        assert_eq!(outcome(&store, &packet), Outcome::Unknown, "{rule}");
    }
    for spec in [
        json!({"selector": "app =="}),
        json!({"types": ["Sideways"]}),
        json!({"ingress": {}}),
        json!({"ingress": [{"action": "Maybe"}]}),
        json!({"order": "first"}),
    ] {
        let mut store = store();
        put(&mut store, "networkpolicies/prod/p", &spec);
        assert_eq!(
            outcome(&store, &from("10.65.0.2", 6, 80)),
            Outcome::Unknown,
            "{spec}"
        );
    }
}

#[test]
fn tiers_and_orders_decide_in_turn() {
    let packet = from("10.65.0.2", 6, 80);
    let rules = |action: &str| json!([{"action": action}]);
    let mut store = store();
    assert_eq!(outcome(&store, &packet), Outcome::Accept);
    put(
        &mut store,
        "networkpolicies/other/p",
        &json!({"ingress": rules("Deny")}),
    );
    assert_eq!(outcome(&store, &packet), Outcome::Accept);
    // `-` precedes `/`.
    put(
        &mut store,
        "networkpolicies/prod/default.web",
        &json!({"ingress": rules("Deny")}),
    );
    assert_eq!(outcome(&store, &packet), Outcome::Drop);
    put(
        &mut store,
        "networkpolicies/prod/web-2",
        &json!({"ingress": rules("Allow")}),
    );
    assert_eq!(outcome(&store, &packet), Outcome::Accept);
    put(
        &mut store,
        "globalnetworkpolicies/z",
        &json!({"order": 1, "ingress": rules("Deny")}),
    );
    assert_eq!(outcome(&store, &packet), Outcome::Drop);
    // A tier with `Pass`, before the tier `default`, which is not stored.
    put(
        &mut store,
        "tiers/first",
        &json!({"order": 5, "defaultAction": "Pass"}),
    );
    let udp = json!([{"action": "Allow", "protocol": "UDP"}]);
    put(
        &mut store,
        "globalnetworkpolicies/first.a",
        &json!({"tier": "first", "ingress": udp}),
    );
    assert_eq!(outcome(&store, &packet), Outcome::Drop);
    assert_eq!(outcome(&store, &from("10.65.0.2", 17, 80)), Outcome::Accept);
    let passes = json!([{"action": "Pass", "protocol": "UDP"}]);
    let spec = json!({"tier": "first", "order": 1, "ingress": passes});
    put(&mut store, "globalnetworkpolicies/first.b", &spec);
    assert_eq!(outcome(&store, &from("10.65.0.2", 17, 80)), Outcome::Drop);
    // A missing tier is the last one, and denies.
    let mut store = self::store();
    let spec = json!({"tier": "none", "ingress": rules("Pass")});
    put(&mut store, "globalnetworkpolicies/p", &spec);
    assert_eq!(outcome(&store, &packet), Outcome::Accept);
    let udp = json!([{"action": "Pass", "protocol": "UDP"}]);
    put(
        &mut store,
        "globalnetworkpolicies/p",
        &json!({"tier": "none", "ingress": udp}),
    );
    assert_eq!(outcome(&store, &packet), Outcome::Drop);
}

#[test]
fn types_are_those_of_the_rules_if_none_are_given() {
    let packet = from("10.65.0.2", 6, 80);
    for (spec, ingress, egress) in [
        (json!({}), Outcome::Drop, Outcome::Accept),
        (json!({"types": ["Egress"]}), Outcome::Accept, Outcome::Drop),
        (
            json!({"types": ["Ingress", "Egress"]}),
            Outcome::Drop,
            Outcome::Drop,
        ),
        (
            json!({"egress": [{"action": "Deny"}]}),
            Outcome::Accept,
            Outcome::Drop,
        ),
        (
            json!({"doNotTrack": true}),
            Outcome::Accept,
            Outcome::Accept,
        ),
        (json!({"preDNAT": true}), Outcome::Accept, Outcome::Accept),
    ] {
        let mut store = store();
        put(&mut store, "globalnetworkpolicies/p", &spec);
        assert_eq!(at(&store, Hook::ForwardTo, &packet), ingress, "{spec}");
        assert_eq!(at(&store, Hook::Forward, &packet), egress, "{spec}");
    }
}

#[test]
fn states_of_connections_precede_the_rules() {
    let packet = from("10.65.0.2", 6, 80);
    let with = |state| packet.with(Field::State, state);
    let mut store = store();
    assert_eq!(outcome(&store, &with(state::INVALID)), Outcome::Drop);
    let deny = json!({"ingress": [{"action": "Deny"}]});
    put(&mut store, "networkpolicies/prod/p", &deny);
    assert_eq!(outcome(&store, &with(state::ESTABLISHED)), Outcome::Accept);
    assert_eq!(outcome(&store, &with(state::RELATED)), Outcome::Accept);
    assert_eq!(outcome(&store, &with(state::INVALID)), Outcome::Drop);
    assert_eq!(outcome(&store, &with(state::UNTRACKED)), Outcome::Drop);
    // Without a policy and with a missing profile, established connections are dropped too.
    let mut store = self::store();
    store.remove(&format!("{PREFIX}profiles/kns.prod"));
    for state in 0..5 {
        assert_eq!(outcome(&store, &with(state)), Outcome::Drop, "{state}");
    }
}

#[test]
fn invalid_packet_is_dropped_whatever_a_profile_allows() {
    let packet = from("10.65.0.2", 6, 80).with(Field::State, state::INVALID);
    let allow = |rule: Value| {
        let mut store = store();
        let spec = json!({"ingress": [rule], "egress": []});
        put(&mut store, "profiles/kns.prod", &spec);
        outcome(&store, &packet)
    };
    assert_eq!(allow(json!({"action": "Allow"})), Outcome::Drop);
    assert_eq!(allow(json!({"action": "Deny"})), Outcome::Drop);
    let tcp = json!({"action": "Allow", "protocol": "TCP"});
    assert_eq!(allow(tcp), Outcome::Drop);
}

#[test]
fn invalid_packet_passes_rules_without_the_check() {
    let packet = from("10.65.0.2", 6, 80).with(Field::State, state::INVALID);
    let mut store = store();
    let rules = json!({"ingress": [{"action": "Allow", "protocol": "TCP"}]});
    put(&mut store, "networkpolicies/prod/p", &rules);
    for (disabled, wanted) in [
        (json!(false), Outcome::Drop),
        (json!(true), Outcome::Accept),
        (json!("true"), Outcome::Drop),
    ] {
        let spec = json!({ "disableConntrackInvalidCheck": disabled });
        put(&mut store, "felixconfigurations/default", &spec);
        assert_eq!(outcome(&store, &packet), wanted, "{disabled}");
    }
    let udp = from("10.65.0.2", 17, 80).with(Field::State, state::INVALID);
    let on = json!({"disableConntrackInvalidCheck": true});
    put(&mut store, "felixconfigurations/default", &on);
    assert_eq!(outcome(&store, &udp), Outcome::Drop);
}

#[test]
fn host_and_sources_have_their_own_rules() {
    let store = store();
    let own = from("10.65.0.1", 6, 80);
    assert_eq!(at(&store, Hook::Source, &own), Outcome::Accept);
    assert_eq!(
        at(&store, Hook::Source, &from("10.65.0.2", 6, 80)),
        Outcome::Drop
    );
    let solicited = from("fe80::1", 58, 0).with(Field::IcmpType, 135);
    assert_eq!(at(&store, Hook::Source, &solicited), Outcome::Accept);
    assert_eq!(
        at(&store, Hook::Source, &solicited.with(Field::IcmpType, 128)),
        Outcome::Drop
    );
    assert_eq!(at(&store, Hook::InputToHost, &own), Outcome::Drop);
    let mut store = store;
    put(
        &mut store,
        "felixconfigurations/node.n1",
        &json!({"defaultEndpointToHostAction": "RETURN"}),
    );
    assert_eq!(at(&store, Hook::InputToHost, &own), Outcome::Accept);
    let deny = json!({"types": ["Ingress", "Egress"]});
    put(&mut store, "networkpolicies/prod/p", &deny);
    assert_eq!(at(&store, Hook::Output, &own), Outcome::Drop);
    assert_eq!(
        at(&store, Hook::Output, &own.with(Field::SourceLocal, 1)),
        Outcome::Accept
    );
    assert_eq!(at(&store, Hook::Input, &own), Outcome::Drop);
    assert_eq!(at(&store, Hook::Input, &solicited), Outcome::Accept);
}

#[test]
fn conflicting_endpoints_are_not_evaluated() {
    let mut store = store();
    let key = format!("{PREFIX}workloadendpoints/prod/n1-k8s-p1-eth0");
    let mut value = store[&key].clone();
    value["spec"]["interfaceName"] = "cali9".into();
    store.insert(
        format!("{PREFIX}workloadendpoints/prod/n1-k8s-p9-eth0"),
        value,
    );
    let fabric = Fabric::read(&store, "n1", |_| {});
    assert!(
        fabric
            .endpoints
            .iter()
            .all(|endpoint| endpoint.fault.is_some())
    );
}

/// A store with the host endpoint of `eth0`, and one for all other interfaces.
fn hosts() -> BTreeMap<String, Value> {
    let mut store = store();
    for (name, interface) in [("a-eth0", "eth0"), ("b-eth0", "eth0"), ("all", "*")] {
        let labels = json!({"role": if name == "b-eth0" { "other" } else { "edge" }});
        let spec = json!({"node": "n1", "interfaceName": interface, "profiles": ["open"]});
        store.insert(
            format!("{PREFIX}hostendpoints/{name}"),
            json!({"metadata": {"labels": labels}, "spec": spec}),
        );
    }
    let open = json!({"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]});
    put(&mut store, "profiles/open", &open);
    store
}

fn at_host(
    store: &BTreeMap<String, Value>,
    hook: HostHook,
    interface: &str,
    packet: Packet,
) -> Outcome {
    let fabric = Fabric::read(store, "n1", |_| {});
    let mut space = Space::new();
    let program = Spec::new(&fabric).host_program(&mut space, interface, hook, packet.family);
    space.run(program, &packet).0
}

/// Returns a policy of the host endpoints that denies TCP to port 80, and all but UDP.
fn of_hosts(more: &Value) -> Value {
    let rules = json!([{"action": "Allow", "protocol": "UDP"}, {"action": "Deny", "protocol": "TCP",
        "destination": {"ports": [80, 22]}}]);
    let mut spec = json!({"selector": "role == 'edge'", "types": ["Ingress", "Egress"],
        "ingress": rules, "egress": rules});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    spec
}

#[test]
fn automatic_host_endpoint_is_one_for_all_interfaces() {
    let mut store = store();
    let node = json!({"metadata": {"labels": {"role": "edge"},
            "annotations": {"cambric.io/host-endpoint": "auto"}},
        "spec": {"bgp": {"ipv4Address": "10.0.0.11/24"}}});
    store.insert(format!("{PREFIX}nodes/n1"), node);
    let tcp = from("192.0.2.1", 6, 80);
    let decided = |store: &BTreeMap<String, Value>| at_host(store, HostHook::Input, "eth0", tcp);
    assert_eq!(decided(&store), Outcome::Accept);
    put(&mut store, "globalnetworkpolicies/p", &of_hosts(&json!({})));
    assert_eq!(decided(&store), Outcome::Drop);
    // It does not apply to an interface of interfaceExclude.
    let excluded = at_host(&store, HostHook::Input, "kube-ipvs0", tcp);
    assert_eq!(excluded, Outcome::Accept);
    // A stored one of its name has precedence.
    let spec = json!({"node": "n1", "interfaceName": "kube-ipvs0"});
    put(&mut store, "hostendpoints/n1-auto-hep", &spec);
    assert_eq!(decided(&store), Outcome::Accept);
}

#[test]
fn policies_of_host_endpoints_decide_at_their_hooks() {
    use HostHook::{Forward, ForwardTo, Input, Output, Untracked, UntrackedOutput, Untranslated};
    let (tcp, udp) = (from("192.0.2.1", 6, 80), from("192.0.2.1", 17, 80));
    let icmp = from("192.0.2.1", 1, 0);
    let mut store = hosts();
    // Profiles decide about packets to the host; all others pass.
    for hook in HostHook::ALL {
        assert_eq!(
            at_host(&store, hook, "eth0", tcp),
            Outcome::Accept,
            "{hook:?}"
        );
    }
    let drop = [Outcome::Drop, Outcome::Accept, Outcome::Drop];
    let pass = [Outcome::Accept; 3];
    let decided = |store: &BTreeMap<String, Value>, hook, interface| {
        [tcp, udp, icmp].map(|packet| at_host(store, hook, interface, packet))
    };
    for (more, hooks) in [
        (json!({}), &[Input, Output][..]),
        (
            json!({"applyOnForward": true}),
            &[Input, Output, Forward, ForwardTo],
        ),
    ] {
        put(&mut store, "globalnetworkpolicies/p", &of_hosts(&more));
        for hook in HostHook::ALL {
            let wanted = if hooks.contains(&hook) { drop } else { pass };
            assert_eq!(decided(&store, hook, "eth0"), wanted, "{more} {hook:?}");
            assert_eq!(decided(&store, hook, "eth1"), wanted, "{more} {hook:?}");
            assert_eq!(decided(&store, hook, "lo"), pass, "{hook:?}");
        }
        assert_eq!(decided(&store, Input, "cali1"), pass);
        let is_forwarded = more["applyOnForward"] == true;
        let wanted = if is_forwarded { drop } else { pass };
        assert_eq!(decided(&store, Forward, "cali1"), wanted);
    }
    for (kind, hooks, allowed) in [
        ("preDNAT", &[Untranslated][..], Outcome::Marked),
        (
            "doNotTrack",
            &[Untracked, UntrackedOutput],
            Outcome::Untracked,
        ),
    ] {
        put(
            &mut store,
            "globalnetworkpolicies/p",
            &of_hosts(&json!({kind: true})),
        );
        for hook in HostHook::ALL {
            // The default action of a tier does not apply.
            let wanted = match hooks.contains(&hook) {
                true => [Outcome::Drop, allowed, Outcome::Accept],
                false => pass,
            };
            assert_eq!(decided(&store, hook, "eth0"), wanted, "{kind} {hook:?}");
            let has_effect = kind == "preDNAT";
            let wanted = if has_effect { wanted } else { pass };
            assert_eq!(decided(&store, hook, "eth1"), wanted, "{kind} {hook:?}");
        }
    }
}

#[test]
fn accepted_packets_of_host_endpoints_meet_no_policy() {
    use HostHook::{Forward, ForwardTo, Input, Output, Untracked, Untranslated};
    let mut store = hosts();
    let forward = json!({"applyOnForward": true});
    put(&mut store, "globalnetworkpolicies/p", &of_hosts(&forward));
    let tcp = from("192.0.2.1", 6, 80);
    let marked = tcp.with(Field::Marked, 1);
    assert_eq!(at_host(&store, Input, "eth0", marked), Outcome::Drop);
    for (kind, hooks) in [
        ("preDNAT", &[Input, Forward][..]),
        ("doNotTrack", &[Input, Forward, Output]),
    ] {
        put(
            &mut store,
            "globalnetworkpolicies/early",
            &of_hosts(&json!({kind: true})),
        );
        for hook in [Input, Output, Forward, ForwardTo] {
            let wanted = if hooks.contains(&hook) {
                Outcome::Accept
            } else {
                Outcome::Drop
            };
            assert_eq!(
                at_host(&store, hook, "eth0", marked),
                wanted,
                "{kind} {hook:?}"
            );
            assert_eq!(at_host(&store, hook, "eth0", tcp), Outcome::Drop);
        }
    }
    let established = tcp.with(Field::State, state::ESTABLISHED);
    for hook in [Input, Output, Forward, ForwardTo] {
        assert_eq!(at_host(&store, hook, "eth0", established), Outcome::Accept);
    }
    let translated = tcp.with(Field::Translated, 1);
    assert_eq!(at_host(&store, Output, "eth0", translated), Outcome::Accept);
    let ssh = from("192.0.2.1", 6, 22);
    assert_eq!(at_host(&store, Input, "eth0", ssh), Outcome::Accept);
    assert_eq!(at_host(&store, Forward, "eth0", ssh), Outcome::Drop);
    assert_eq!(at_host(&store, Output, "eth0", ssh), Outcome::Drop);
    let ports = json!([{"port": 80, "net": "192.0.2.0/24"}]);
    let spec = json!({"failsafeInboundHostPorts": ports, "vxlanEnabled": true,
        "externalNodesList": ["192.0.2.1"]});
    put(&mut store, "felixconfigurations/default", &spec);
    assert_eq!(at_host(&store, Input, "eth0", tcp), Outcome::Accept);
    assert_eq!(at_host(&store, Input, "eth0", ssh), Outcome::Drop);
    let other = from("198.51.100.1", 6, 80);
    assert_eq!(at_host(&store, Input, "eth0", other), Outcome::Drop);
    assert_eq!(at_host(&store, Untracked, "eth0", tcp), Outcome::Accept);
    let deny = json!({"selector": "all()", "preDNAT": true, "ingress": [{"action": "Deny"}]});
    put(&mut store, "globalnetworkpolicies/early", &deny);
    let tunnel = from("192.0.2.1", 17, 4789);
    assert_eq!(
        at_host(&store, Untranslated, "eth0", tunnel),
        Outcome::Accept
    );
    let other = from("198.51.100.1", 17, 4789);
    assert_eq!(at_host(&store, Untranslated, "eth0", other), Outcome::Drop);
}

#[test]
fn host_endpoint_without_interface_is_not_evaluated() {
    let mut store = hosts();
    let spec = json!({"node": "n1", "expectedIPs": ["10.0.0.1"]});
    put(&mut store, "hostendpoints/c", &spec);
    put(
        &mut store,
        "hostendpoints/d",
        &json!({"node": "n1", "interfaceName": "cali7"}),
    );
    let fabric = Fabric::read(&store, "n1", |_| {});
    let faults = fabric.hosts.iter().filter(|host| host.fault.is_some());
    assert_eq!(faults.count(), 1);
    assert!(fabric.hosts.iter().all(|host| host.interface != "cali7"));
}
