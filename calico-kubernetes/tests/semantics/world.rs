//! Random clusters, and the packets that are compared.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Map, Value, json};

use crate::direct::{Cluster, Direction, Probe, addresses, is_networked};

const NAMESPACES: [&str; 3] = ["a", "b", "c"];

/// Addresses outside of the cluster; a network set has the second one.
pub(crate) const OUTSIDE: [&str; 4] = ["192.0.2.1", "192.0.2.200", "10.66.0.1", "2001:db8::1"];

/// The ports of packets.
const PORTS: [u16; 8] = [53, 79, 80, 81, 82, 83, 8080, 65535];

/// The protocols of packets.
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// Returns random clusters.
pub(crate) fn clusters() -> impl Strategy<Value = Cluster> {
    let pods = vec(pod(), 3..6).prop_map(|pods| {
        let pods = pods.into_iter().enumerate();
        pods.map(|(at, pod)| placed(at, pod)).collect()
    });
    let policies = vec(policy(), 0..5).prop_map(|all| named(all, "p"));
    let cluster_policies = vec(cluster_policy(), 0..4).prop_map(|all| {
        let mut all = named(all, "c");
        // Priorities are unique in their tier.
        for (at, policy) in all.iter_mut().enumerate() {
            let priority = policy["spec"]["priority"].as_u64().unwrap_or_default();
            policy["spec"]["priority"] = json!(priority * 4 + at as u64);
        }
        all
    });
    let labels = [labels(), labels(), labels()];
    (labels, pods, policies, cluster_policies).prop_map(
        |(labels, pods, policies, cluster_policies)| {
            let namespaces = NAMESPACES.iter().zip(labels);
            let namespaces = namespaces
                .map(|(name, labels)| json!({"metadata": {"name": name, "labels": labels}}));
            Cluster {
                namespaces: namespaces.collect(),
                pods,
                policies,
                cluster_policies,
            }
        },
    )
}

/// Returns the packets to the pods of a cluster and from them.
pub(crate) fn probes(cluster: &Cluster) -> Vec<(usize, Direction, Probe)> {
    let of_pods = cluster.pods.iter().flat_map(addresses);
    let outside = OUTSIDE.iter().filter_map(|text| text.parse().ok());
    let others: Vec<IpAddr> = of_pods.chain(outside).collect();
    let pods = cluster.pods.iter().enumerate();
    let mut all = Vec::new();
    for (subject, pod) in pods.filter(|(_, pod)| is_networked(pod)) {
        let own = addresses(pod);
        let pairs = own.iter().flat_map(|own| {
            let others = others.iter().filter(move |other| *other != own);
            let others = others.filter(move |other| other.is_ipv4() == own.is_ipv4());
            others.map(move |other| (*own, *other))
        });
        for (own, other) in pairs {
            for (protocol, port) in PROTOCOLS
                .iter()
                .flat_map(|one| PORTS.map(|port| (*one, port)))
            {
                for (direction, source, destination) in [
                    (Direction::Ingress, other, own),
                    (Direction::Egress, own, other),
                ] {
                    let probe = Probe {
                        source,
                        destination,
                        protocol,
                        port,
                    };
                    all.push((subject, direction, probe));
                }
            }
        }
    }
    all
}

/// Returns parts that are valid nowhere in a policy.
pub(crate) fn unreadable() -> impl Strategy<Value = Value> {
    select(vec![json!(7.5), json!({"unknown": 7}), json!([7.5])])
}

/// Replaces a part of one policy by an unreadable one.
pub(crate) fn damaged(cluster: &Cluster, place: Index, part: &Value) -> Cluster {
    let mut damaged = cluster.clone();
    let policies = damaged.policies.iter_mut();
    let all: Vec<&mut Value> = policies.chain(&mut damaged.cluster_policies).collect();
    let mut places: Vec<(usize, String)> = Vec::new();
    for (at, policy) in all.iter().enumerate() {
        let mut paths = Vec::new();
        paths_below(&policy["spec"], "/spec", &mut paths);
        places.extend(paths.into_iter().map(|path| (at, path)));
    }
    if !places.is_empty() {
        let (policy, path) = place.get(&places);
        for (_, policy) in all.into_iter().enumerate().filter(|(at, _)| at == policy) {
            if let Some(found) = policy.pointer_mut(path) {
                *found = part.clone();
            }
        }
    }
    damaged
}

fn paths_below(value: &Value, path: &str, paths: &mut Vec<String>) {
    let fields = value.as_object().into_iter().flatten();
    let fields = fields.map(|(name, inner)| (name.replace('/', "~1"), inner));
    let list = value.as_array().into_iter().flatten().enumerate();
    let list = list.map(|(at, inner)| (at.to_string(), inner));
    for (name, inner) in fields.chain(list) {
        let path = format!("{path}/{name}");
        paths_below(inner, &path, paths);
        paths.push(path);
    }
}

fn named(mut all: Vec<Value>, prefix: &str) -> Vec<Value> {
    for (at, object) in all.iter_mut().enumerate() {
        object["metadata"]["name"] = format!("{prefix}{at}").into();
    }
    all
}

fn labels() -> impl Strategy<Value = Value> {
    let pair = (
        select(vec!["app", "x.y/role"]),
        select(vec!["", "web", "db"]),
    );
    vec(pair, 0..3).prop_map(|pairs| {
        let pairs = pairs.into_iter();
        let pairs = pairs.map(|(key, value)| (key.to_owned(), json!(value)));
        Value::Object(pairs.collect::<Map<_, _>>())
    })
}

/// Returns pods without names and addresses.
fn pod() -> impl Strategy<Value = Value> {
    let ports = vec![
        json!({"name": "http", "containerPort": 80}),
        json!({"name": "http", "containerPort": 8080, "protocol": "TCP"}),
        json!({"name": "http", "containerPort": 82, "protocol": "UDP"}),
        json!({"name": "dns", "containerPort": 53, "protocol": "UDP"}),
        json!({"name": "dns", "containerPort": 53, "protocol": "TCP"}),
        json!({"name": "call", "containerPort": 81, "protocol": "SCTP"}),
    ];
    let ports = || subsequence(ports.clone(), 0..4);
    let phase = prop_oneof![8 => Just("Running"), 1 => Just("Succeeded"), 1 => Just("Failed")];
    let on_host = prop_oneof![9 => Just(false), 1 => Just(true)];
    let parts = (
        select(NAMESPACES.to_vec()),
        labels(),
        ports(),
        ports(),
        phase,
        on_host,
    );
    parts.prop_map(|(namespace, labels, first, second, phase, on_host)| {
        json!({"metadata": {"namespace": namespace, "labels": labels},
            "spec": {"nodeName": "n1", "hostNetwork": on_host,
                "containers": [{"ports": first}, {}], "initContainers": [{"ports": second}]},
            "status": {"phase": phase}})
    })
}

/// Gives a pod a name and addresses. A pod that has ended has those of the next one.
fn placed(at: usize, mut pod: Value) -> Value {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let number = match phase {
        "Running" => at + 1,
        _ => at + 2,
    };
    pod["metadata"]["name"] = format!("pod-{at}").into();
    pod["status"]["podIPs"] = match pod["spec"]["hostNetwork"] == true {
        true => json!([{"ip": format!("10.20.0.{number}")}]),
        false => json!([{"ip": format!("10.65.0.{number}")}, {"ip": format!("fd65::{number}")}]),
    };
    pod
}

/// Returns label selectors; those of peers are sometimes unreadable.
fn selector(may_be_unreadable: bool) -> BoxedStrategy<Value> {
    let key = || select(vec!["app", "x.y/role"]);
    let values = subsequence(vec!["", "web", "db"], 1..4);
    let one_of = (key(), select(vec!["In", "NotIn"]), values).prop_map(
        |(key, operator, values)| json!({"key": key, "operator": operator, "values": values}),
    );
    let exists = (key(), select(vec!["Exists", "DoesNotExist"]))
        .prop_map(|(key, operator)| json!({"key": key, "operator": operator}));
    let unreadable = Just(json!({"key": "app", "operator": "Gt", "values": ["1"]}));
    let rare = u32::from(may_be_unreadable);
    let expression = prop_oneof![12 => one_of, 12 => exists, rare => unreadable];
    let expressions = vec(expression, 0..3);
    (option::of(labels()), option::of(expressions))
        .prop_map(|(labels, expressions)| {
            let mut selector = json!({});
            if let Some(labels) = labels {
                selector["matchLabels"] = labels;
            }
            if let Some(expressions) = expressions {
                selector["matchExpressions"] = json!(expressions);
            }
            selector
        })
        .boxed()
}

fn block() -> impl Strategy<Value = Value> {
    let cidr = prop_oneof![
        12 => select(vec!["0.0.0.0/0", "0.0.0.0/0", "10.0.0.0/8", "10.65.0.0/24", "10.65.0.2/31",
            "192.0.2.0/24", "::/0", "fd65::/64", "fd65::2/127", "2001:DB8::/32"]),
        1 => select(vec!["10.0.0.1", "010.0.0.0/8", "10.0.0.0/08", "10.0.0.0/33", "x"]),
    ];
    let except = prop_oneof![
        24 => select(vec!["10.65.0.1/32", "10.65.0.2/32", "10.65.0.4/31", "192.0.2.128/25",
            "192.0.2.1/32", "fd65::2/127", "10.0.0.0/8"]),
        1 => select(vec!["10.0.0.1", "10.0.0.0/33"]),
    ];
    let except = option::weighted(0.8, vec(except, 0..4));
    (cidr, except).prop_map(|(cidr, except)| match except {
        Some(except) => json!({"cidr": cidr, "except": except}),
        None => json!({ "cidr": cidr }),
    })
}

fn peer() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => selector(true).prop_map(|pods| json!({ "podSelector": pods })),
        4 => selector(true).prop_map(|namespaces| json!({ "namespaceSelector": namespaces })),
        4 => (selector(true), selector(true)).prop_map(|(pods, namespaces)| {
            json!({"podSelector": pods, "namespaceSelector": namespaces})
        }),
        12 => block().prop_map(|block| json!({ "ipBlock": block })),
        1 => Just(json!({})),
    ]
}

fn port() -> impl Strategy<Value = Value> {
    let protocol = option::of(select(PROTOCOLS.to_vec()));
    let number = prop_oneof![
        2 => Just(Value::Null),
        6 => select(PORTS.to_vec()).prop_map(Value::from),
        6 => select(vec!["http", "dns", "call", "none"]).prop_map(Value::from),
        1 => select(vec![json!(0), json!(65536), json!(80.5)]),
    ];
    let end = option::of(select(vec![80_u32, 82, 83, 9000, 65535]));
    (protocol, number, end).prop_map(|(protocol, number, end)| {
        let mut port = json!({});
        if let Some(protocol) = protocol {
            port["protocol"] = protocol.into();
        }
        if let (Some(end), Some(_)) = (end, number.as_u64()) {
            port["endPort"] = end.into();
        }
        if !number.is_null() {
            port["port"] = number;
        }
        port
    })
}

fn rule(peers: &'static str) -> impl Strategy<Value = Value> {
    let parts = (
        option::of(vec(peer(), 0..3)),
        option::weighted(0.4, vec(port(), 0..4)),
    );
    parts.prop_map(move |(all, ports)| {
        let mut rule = json!({});
        if let Some(all) = all {
            rule[peers] = json!(all);
        }
        if let Some(ports) = ports {
            rule["ports"] = json!(ports);
        }
        rule
    })
}

fn policy() -> impl Strategy<Value = Value> {
    let types = option::of(subsequence(vec!["Ingress", "Egress"], 0..3));
    let lists = (
        option::of(vec(rule("from"), 0..3)),
        option::of(vec(rule("to"), 0..3)),
    );
    let parts = (select(NAMESPACES.to_vec()), selector(false), types, lists);
    parts.prop_map(|(namespace, selector, types, (ingress, egress))| {
        let mut spec = json!({ "podSelector": selector });
        for (field, value) in [
            ("policyTypes", types.map(|types| json!(types))),
            ("ingress", ingress.map(|rules| json!(rules))),
            ("egress", egress.map(|rules| json!(rules))),
        ] {
            if let Some(value) = value {
                spec[field] = value;
            }
        }
        json!({"metadata": {"namespace": namespace}, "spec": spec})
    })
}

fn selection(may_be_unreadable: bool) -> impl Strategy<Value = Value> {
    let pods = (
        selector(may_be_unreadable),
        option::of(selector(may_be_unreadable)),
    );
    prop_oneof![
        selector(may_be_unreadable).prop_map(|namespaces| json!({ "namespaces": namespaces })),
        pods.prop_map(|(pods, namespaces)| match namespaces {
            Some(namespaces) => {
                json!({"pods": {"podSelector": pods, "namespaceSelector": namespaces}})
            }
            None => json!({"pods": { "podSelector": pods }}),
        }),
    ]
}

fn cluster_rule(peers: &'static str) -> impl Strategy<Value = Value> {
    let networks = select(vec![
        "10.65.0.0/30",
        "192.0.2.0/24",
        "fd65::/64",
        "::/0",
        "0.0.0.0/0",
    ]);
    let networks = vec(networks, 1..3).prop_map(|networks| json!({ "networks": networks }));
    let unknown = select(vec![
        json!({}),
        json!({"nodes": {}}),
        json!({"networks": ["x"]}),
    ]);
    let of_networks = if peers == "to" { 6 } else { 0 };
    let peer = prop_oneof![
        12 => selection(true),
        of_networks => networks,
        1 => unknown,
    ];
    let number = select(PORTS.to_vec()).prop_map(|number| json!({ "number": number }));
    let range = select(vec![(79, 81), (80, 83), (1, 65535)])
        .prop_map(|(start, end)| json!({"range": {"start": start, "end": end}}));
    let of = |port: Value, name: &str| json!({ name: {"destinationPort": port} });
    let port = prop_oneof![number, range];
    let port =
        (port, select(vec!["tcp", "udp", "sctp"])).prop_map(move |(port, name)| of(port, name));
    let name = select(vec!["http", "dns"]).prop_map(|name| json!({ "destinationNamedPort": name }));
    let protocols = option::of(vec(prop_oneof![2 => port, 1 => name], 1..3));
    let action = select(vec!["Accept", "Deny", "Pass"]);
    (action, vec(peer, 1..3), protocols).prop_map(move |(action, all, protocols)| {
        let mut rule = json!({"action": action, peers: all});
        let is_named = |list: &[Value]| {
            list.iter()
                .any(|one| one.get("destinationNamedPort").is_some())
        };
        let has_networks = all.iter().any(|peer| peer.get("networks").is_some());
        // The API forbids ports by name for networks.
        if let Some(protocols) = protocols.filter(|list| !(has_networks && is_named(list))) {
            rule["protocols"] = json!(protocols);
        }
        rule
    })
}

fn cluster_policy() -> impl Strategy<Value = Value> {
    let tier = select(vec!["Admin", "Baseline"]);
    let lists = (
        vec(cluster_rule("from"), 0..3),
        vec(cluster_rule("to"), 0..3),
    );
    (tier, 0_u32..100, selection(false), lists).prop_map(
        |(tier, priority, subject, (ingress, egress))| {
            json!({"metadata": {}, "spec": {"tier": tier, "priority": priority,
                "subject": subject, "ingress": ingress, "egress": egress}})
        },
    )
}
