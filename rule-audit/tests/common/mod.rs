//! Generated datastores: endpoints of two hosts, policies with all kinds of conditions, tiers and
//! profiles. Values are small, so that rules often match.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

pub(crate) const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

/// A key without the prefix, and the spec with its labels.
pub(crate) type Pair = (String, Value);

/// The local endpoints are on this node.
pub(crate) const NODE: &str = "n1";

/// Labels of endpoints, network sets and host endpoints.
fn labels() -> impl Strategy<Value = Value> {
    let app = prop::sample::select(vec![None, Some("web"), Some("db")]);
    let role = prop::sample::select(vec![None, Some("a"), Some("b-a")]);
    (app, role).prop_map(|(app, role)| {
        let mut labels = json!({});
        if let Some(app) = app {
            labels["app"] = app.into();
        }
        if let Some(role) = role {
            labels["x/role"] = role.into();
        }
        labels
    })
}

/// Endpoint `n` of a host: `cali<n>`, 10.65.<host>.<n>, fd65::<host>:<n>.
fn endpoint(node: u8, n: u8) -> impl Strategy<Value = Pair> {
    let namespace = prop::sample::select(vec!["prod", "test"]);
    let account = prop::sample::select(vec!["", "sa1"]);
    let profiles = prop::sample::select(vec![0_u8, 1, 1, 1, 2, 3]);
    let numbers = prop::sample::select(vec![80_u16, 81, 8080]);
    let orchestrator = prop::sample::select(vec!["k8s", "k8s", "k8s", "openstack"]);
    (
        labels(),
        namespace,
        account,
        profiles,
        numbers,
        orchestrator,
    )
        .prop_map(
            move |(labels, namespace, account, profiles, number, orchestrator)| {
                let name = match orchestrator {
                    "k8s" => format!("n{node}-k8s-p{n}-eth0"),
                    _ => format!("n{node}-openstack-p{n}-eth0"),
                };
                let own = format!("kns.{namespace}");
                let profiles = match profiles {
                    0 => json!([]),
                    1 => json!([own, "ksa.sa1"]),
                    2 => json!([own, "missing"]),
                    _ => json!(["projectcalico-default-allow"]),
                };
                let spec = json!({
                    "orchestrator": orchestrator, "node": format!("n{node}"), "endpoint": "eth0",
                    "pod": format!("p{n}"), "workload": format!("p{n}"),
                    "interfaceName": format!("cali{n}"), "profiles": profiles,
                    "serviceAccountName": account,
                    "ipNetworks": [format!("10.65.{node}.{n}/32"), format!("fd65::{node}:{n}/128")],
                    "ports": [{"name": "http", "protocol": "TCP", "port": number},
                        {"name": "http", "protocol": "UDP", "port": 53},
                        {"name": "dns", "protocol": "UDP", "port": 53}],
                });
                let spec = match orchestrator {
                    "k8s" => without(spec, "workload"),
                    _ => without(spec, "pod"),
                };
                let value = json!({"labels": labels, "spec": spec});
                (format!("workloadendpoints/{namespace}/{name}"), value)
            },
        )
}

fn without(mut spec: Value, field: &str) -> Value {
    if let Some(spec) = spec.as_object_mut() {
        spec.remove(field);
    }
    spec
}

fn selector() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "all()",
        "app == 'web'",
        "app == 'web'",
        "app != 'web'",
        "has(x/role)",
        "!has(x/role)",
        "app in {'web', 'db'}",
        "app not in {'db'}",
        "app contains 'e' && x/role starts with 'b'",
        "x/role ends with 'a' || app == \"db\"",
        "!(app == 'db' || has(x/role))",
    ])
}

fn namespaces() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["env == 'live'", "all()", "global()", "!has(env)"])
}

fn ports() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!([80]),
        json!(["80:90", 8080]),
        json!([53, 79, 81]),
        json!(["http"]),
        json!([79, "http", "dns"]),
        json!(["unknown"]),
        json!(["0:65535"]),
    ])
}

/// One end of a rule; ports only if the protocol has them.
fn end(has_ports: bool) -> impl Strategy<Value = Value> {
    let selectors = prop::option::weighted(0.4, selector());
    let negated = prop::option::weighted(0.15, selector());
    let namespaces = prop::option::weighted(0.2, namespaces());
    let accounts = prop::option::weighted(
        0.1,
        prop::sample::select(vec![
            json!({"names": ["sa1"]}),
            json!({"selector": "team == 'x'"}),
            json!({"names": ["sa1", "sa2"], "selector": "all()"}),
        ]),
    );
    let nets = prop::sample::select(vec![
        json!(["10.65.0.0/16"]),
        json!(["10.65.1.0/30", "10.65.1.2/31", "fd65::1:0/120"]),
        json!(["fd65::/16"]),
        json!(["0.0.0.0/0"]),
        json!(["10.65.2.1"]),
    ]);
    let nets = || prop::option::weighted(0.15, nets.clone());
    let ports = || match has_ports {
        true => prop::option::weighted(0.4, ports()).boxed(),
        false => Just(None).boxed(),
    };
    let parts = (
        selectors,
        negated,
        namespaces,
        accounts,
        nets(),
        nets(),
        ports(),
        ports(),
    );
    parts.prop_map(
        |(own, negated, namespaces, accounts, nets, not_nets, ports, not_ports)| {
            let mut end = json!({});
            let mut set = |field: &str, value: Option<Value>| {
                if let Some(value) = value {
                    end[field] = value;
                }
            };
            set("selector", own.map(Value::from));
            set("notSelector", negated.map(Value::from));
            set("namespaceSelector", namespaces.map(Value::from));
            set("serviceAccounts", accounts);
            set("nets", nets);
            set("notNets", not_nets);
            set("ports", ports);
            set("notPorts", not_ports);
            end
        },
    )
}

fn rule(is_profile: bool) -> impl Strategy<Value = Value> {
    let actions = match is_profile {
        true => vec!["Allow", "Allow", "Deny"],
        false => vec!["Allow", "Allow", "Allow", "Deny", "Deny", "Pass", "Log"],
    };
    let version = prop::sample::select(vec![Value::Null, Value::Null, json!(4), json!(6)]);
    let protocol = prop::sample::select(vec![
        Value::Null,
        json!("TCP"),
        json!("TCP"),
        json!(17),
        json!("SCTP"),
        json!("ICMP"),
        json!("ICMPv6"),
        json!(47),
        json!(0),
    ]);
    let icmp = prop::option::weighted(
        0.6,
        prop::sample::select(vec![
            json!({"type": 8}),
            json!({"type": 8, "code": 0}),
            json!({"type": 128, "code": 1}),
        ]),
    );
    (
        prop::sample::select(actions),
        version,
        protocol,
        icmp,
        any::<[bool; 2]>(),
    )
        .prop_flat_map(
            |(action, version, protocol, icmp, [is_negated, is_other])| {
                let has_ports = protocol == "TCP" || protocol == 17 || protocol == "SCTP";
                (end(has_ports), end(has_ports)).prop_map(move |(source, destination)| {
                    let mut rule = json!({"action": action, "source": source,
                    "destination": destination});
                    if !version.is_null() {
                        rule["ipVersion"] = version.clone();
                    }
                    if !protocol.is_null() {
                        let is_plain = has_ports || protocol == "ICMP" || protocol == "ICMPv6";
                        let field = match is_negated && !is_plain && protocol != 0 {
                            true => "notProtocol",
                            false => "protocol",
                        };
                        rule[field] = protocol.clone();
                    }
                    if let (Some(icmp), true) = (&icmp, protocol == "ICMP" || protocol == "ICMPv6")
                    {
                        rule[if is_other { "notICMP" } else { "icmp" }] = icmp.clone();
                    }
                    rule
                })
            },
        )
}

fn rules(is_profile: bool) -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(rule(is_profile), 0..4)
}

fn policy() -> impl Strategy<Value = Pair> {
    let name = prop::sample::select(vec!["web", "web-2", "default.db", "p1", "p2", "p3"]);
    let place = prop::sample::select(vec![Some("prod"), Some("prod"), Some("test"), None]);
    let order = prop::option::of(prop::sample::select(vec![json!(1), json!(2.5), json!(-3)]));
    let tier = prop::sample::select(vec!["", "default", "first", "first", "unknown"]);
    let types = prop::sample::select(vec![
        Value::Null,
        json!(["Ingress"]),
        json!(["Egress"]),
        json!(["Ingress", "Egress"]),
    ]);
    let subjects = (
        prop::option::weighted(0.7, selector()),
        prop::option::weighted(0.2, namespaces()),
        prop::option::weighted(0.1, Just("team == 'x'")),
    );
    let parts = (
        name,
        place,
        order,
        tier,
        types,
        subjects,
        rules(false),
        rules(false),
    );
    parts.prop_map(
        |(name, place, order, tier, types, subjects, ingress, egress)| {
            let mut spec = json!({"tier": tier, "ingress": ingress, "egress": egress});
            let (own, namespaces, accounts) = subjects;
            let namespaces = namespaces.filter(|_| place.is_none());
            for (field, value) in [
                ("order", order),
                ("selector", own.map(Value::from)),
                ("namespaceSelector", namespaces.map(Value::from)),
                ("serviceAccountSelector", accounts.map(Value::from)),
                ("types", Some(types).filter(|types| !types.is_null())),
            ] {
                if let Some(value) = value {
                    spec[field] = value;
                }
            }
            let key = match place {
                Some(namespace) => format!("networkpolicies/{namespace}/{name}"),
                None => format!("globalnetworkpolicies/{name}"),
            };
            (key, json!({"labels": {}, "spec": spec}))
        },
    )
}

fn profiles() -> impl Strategy<Value = Vec<Pair>> {
    let one = (rules(true), rules(true));
    prop::collection::vec(one, 3).prop_map(|all| {
        let names = [
            ("kns.prod", json!({"pcns.env": "live"})),
            ("kns.test", json!({"pcns.kind": "test"})),
            ("ksa.sa1", json!({"pcsa.team": "x"})),
        ];
        let pairs = names.into_iter().zip(all);
        let pairs = pairs.map(|((name, labels), (ingress, egress))| {
            let spec = json!({"labelsToApply": labels, "ingress": ingress, "egress": egress});
            (
                format!("profiles/{name}"),
                json!({"labels": {}, "spec": spec}),
            )
        });
        pairs.collect()
    })
}

fn sets() -> impl Strategy<Value = Vec<Pair>> {
    let labels = prop::collection::vec(labels(), 3);
    labels.prop_map(|labels| {
        let nets = json!(["192.0.2.0/25", "10.65.2.0/30", "fd65::2:0/124"]);
        let ports = json!([{"name": "http", "protocol": "TCP", "port": 79}]);
        let all = [
            ("networksets/prod/one", json!({"nets": nets})),
            (
                "globalnetworksets/two",
                json!({"nets": ["198.51.100.7/32", "2001:db8::/64"]}),
            ),
            (
                "hostendpoints/three",
                json!({"node": "n3", "interfaceName": "eth0",
                "expectedIPs": ["10.0.0.3"], "ports": ports}),
            ),
        ];
        let pairs = all.into_iter().zip(labels);
        let pairs = pairs
            .map(|((key, spec), labels)| (key.to_owned(), json!({"labels": labels, "spec": spec})));
        pairs.collect()
    })
}

/// Returns a datastore, by full keys.
pub(crate) fn store() -> impl Strategy<Value = BTreeMap<String, Value>> {
    let local: Vec<_> = (1..=4).map(|n| endpoint(1, n).boxed()).collect();
    let remote: Vec<_> = (1..=3).map(|n| endpoint(2, n).boxed()).collect();
    let policies = prop::collection::vec(policy(), 0..7);
    let tier = any::<bool>().prop_map(|passes| {
        let action = if passes { "Pass" } else { "Deny" };
        let spec = json!({"order": 1, "defaultAction": action});
        vec![(
            "tiers/first".to_owned(),
            json!({"labels": {}, "spec": spec}),
        )]
    });
    (local, remote, policies, tier, profiles(), sets()).prop_map(
        |(local, remote, policies, tier, profiles, sets)| {
            let all = [local, remote, policies, tier, profiles, sets]
                .into_iter()
                .flatten();
            let pairs = all.map(|(key, value)| {
                let name = key.rsplit('/').next().unwrap_or_default();
                let metadata = json!({"name": name, "labels": value["labels"]});
                let value = json!({"metadata": metadata, "spec": value["spec"]});
                (format!("{PREFIX}{key}"), value)
            });
            pairs.collect()
        },
    )
}
