//! Policies: the incremental result equals the result computed from the values alone, and packets
//! are treated as the policies specify.

mod broken;
mod many;
mod start;
mod ties;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::Recomputed as _;
use super::{Calculator, Desired};
use crate::render::tests::copy;
use crate::render::{
    Action, ConnectionStates, End, Family, Is, Key, Match, Ruleset, Value as Element, Verdict,
    rule_text,
};

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

fn endpoint(host: usize, n: usize, labels: &[&str], profile: bool) -> (String, Value) {
    let name = format!("h{host}-openstack-vm{n}-p");
    let labels: BTreeMap<&str, &str> = labels.iter().map(|label| (*label, "x")).collect();
    let value = json!({
        "metadata": {"name": name, "namespace": "openstack", "labels": labels},
        "spec": {
            "orchestrator": "openstack", "workload": format!("vm{n}"), "node": format!("h{host}"),
            "endpoint": "p", "interfaceName": format!("tap{n}"),
            "profiles": if profile { json!(["open"]) } else { json!([]) },
            "ipNetworks": [format!("10.65.{host}.{n}/32"), format!("fd65::{host}:{n}/128")],
            "ports": if n.is_multiple_of(2) {
                json!([{"name": "http", "protocol": "TCP", "port": 80},
                    {"name": "web", "protocol": "TCP", "port": 80},
                    {"name": "http", "protocol": "UDP", "port": 85}])
            } else {
                json!([{"name": "http", "protocol": 6, "port": 92}])
            },
        },
    });
    (format!("{PREFIX}workloadendpoints/openstack/{name}"), value)
}

fn policy(name: &str, spec: &Value) -> (String, Value) {
    let key = format!("{PREFIX}networkpolicies/openstack/{name}");
    (key, json!({"metadata": {"name": name}, "spec": spec}))
}

fn change(calculator: &mut Calculator, key: &str, value: Option<&Value>) {
    let octets = value.map(Value::to_string);
    calculator.change(key, octets.as_ref().map(String::as_bytes));
}

fn calculator_of<'v>(values: impl IntoIterator<Item = (&'v String, &'v Value)>) -> Calculator {
    let mut calculator = Calculator::new("h0", None);
    for (key, value) in values {
        change(&mut calculator, key, Some(value));
    }
    calculator
}

fn any_label() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c"])
}

/// Returns an end of a rule.
fn any_entity() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => Just(json!({})),
        2 => any_label().prop_map(|l| json!({"selector": format!("has({l})")})),
        1 => any_label().prop_map(|l| json!({"notSelector": format!("has({l})")})),
        1 => Just(json!({"nets": ["10.65.0.0/31", "10.65.1.2/32", "fd65::1:0/112"]})),
        1 => Just(json!({"notNets": ["10.65.1.0/24"]})),
    ]
}

fn any_rule() -> impl Strategy<Value = Value> {
    let action = prop::sample::select(vec!["Allow", "Allow", "Deny", "Pass", "Log"]);
    let version = prop::sample::select(vec![Value::Null, json!(4), json!(6)]);
    let protocol = prop::sample::select(vec![Value::Null, json!("TCP"), json!(17)]);
    let ports = prop::sample::select(vec![
        Value::Null,
        json!([80]),
        json!([80, "90:91"]),
        json!(["70:85"]),
        json!(["http"]),
        json!(["http", "none"]),
        json!([80, "web", "90:91", "http"]),
    ]);
    (
        action,
        version,
        protocol,
        ports,
        any_entity(),
        any_entity(),
        any::<bool>(),
    )
        .prop_map(
            |(action, version, protocol, ports, source, mut destination, negated)| {
                let mut rule = json!({"action": action, "source": source});
                if !version.is_null() {
                    rule["ipVersion"] = version;
                }
                if !protocol.is_null() {
                    if !ports.is_null() {
                        destination[if negated { "notPorts" } else { "ports" }] = ports;
                        rule["protocol"] = protocol;
                    } else {
                        rule[if negated { "notProtocol" } else { "protocol" }] = protocol;
                    }
                }
                rule["destination"] = destination;
                rule
            },
        )
}

fn any_policy() -> impl Strategy<Value = (String, Value)> {
    let rules = || prop::collection::vec(any_rule(), 0..4);
    let order = prop::sample::select(vec![Value::Null, json!(1), json!(2.5)]);
    let tier = prop::sample::select(vec!["", "first", "default"]);
    (0..5_u8, order, tier, any_label(), rules(), rules()).prop_map(
        |(n, order, tier, label, ingress, egress)| {
            let selector = format!("has({label})");
            let mut spec = json!({"tier": tier, "selector": selector, "ingress": ingress,
                "egress": egress});
            if !order.is_null() {
                spec["order"] = order;
            }
            policy(&format!("p{n}"), &spec)
        },
    )
}

/// Returns the rules of a direction of a profile: allow all, deny all, or with conditions.
fn any_profile_rules() -> impl Strategy<Value = Value> {
    let allow = json!({"action": "Allow"});
    let of_c = json!({"action": "Allow", "source": {"selector": "has(c)"}});
    let not_udp = json!({"action": "Deny", "protocol": 17});
    prop::sample::select(vec![
        json!([]),
        json!([allow]),
        json!([{"action": "Deny"}]),
        json!([of_c]),
        json!([not_udp, allow]),
    ])
}

fn any_value() -> impl Strategy<Value = (String, Value)> {
    let labels = prop::collection::btree_set(any_label(), 0..3);
    let endpoints =
        (0..3_usize, 0..4_usize, labels, any::<bool>()).prop_map(|(host, n, labels, p)| {
            endpoint(host, n, &labels.into_iter().collect::<Vec<_>>(), p)
        });
    let tiers = any::<bool>().prop_map(|passes| {
        let action = if passes { "Pass" } else { "Deny" };
        let spec = json!({"order": 1, "defaultAction": action});
        (format!("{PREFIX}tiers/first"), json!({"spec": spec}))
    });
    let profiles = (any_label(), any_profile_rules(), any_profile_rules()).prop_map(
        |(label, ingress, egress)| {
            let spec = json!({"labelsToApply": {label: ""}, "ingress": ingress, "egress": egress});
            (format!("{PREFIX}profiles/open"), json!({"spec": spec}))
        },
    );
    prop_oneof![4 => endpoints, 4 => any_policy(), 1 => tiers, 1 => profiles]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    // Promise: as felix packets_meet_what_was_written
    #[test]
    fn the_incremental_result_is_that_of_the_values_alone(
        steps in prop::collection::vec((any_value(), any::<bool>()), 1..40),
    ) {
        let mut calculator = Calculator::new("h0", None);
        let mut stored: BTreeMap<String, Value> = BTreeMap::new();
        let mut last: Option<Desired> = None;
        let mut held = Ruleset::default();
        for ((key, value), keep) in steps {
            if keep {
                stored.insert(key.clone(), value.clone());
                change(&mut calculator, &key, Some(&value));
            } else {
                stored.remove(&key);
                change(&mut calculator, &key, None);
            }
            let news = calculator.has_news();
            let touched = calculator.recompute().rules;
            let desired = calculator.desired().clone();
            prop_assert_eq!(&desired, &calculator_of(&stored).recomputed());
            // Every difference is among the touched parts.
            copy(&mut held, desired.rules(), &touched);
            prop_assert_eq!(&held, desired.rules());
            // Without a reported change nothing differs.
            if !news {
                prop_assert!(last.is_none_or(|last| last == desired));
            }
            last = Some(desired);
        }
    }

    // Promise (Felix): Policies are enforced as written, and an incremental change has the same
    // result as a full computation.
    #[test]
    fn packets_meet_what_was_written(
        values in prop::collection::vec(any_value(), 1..25),
        packets in prop::collection::vec(any_packet(), 1..20),
        profile in any::<bool>(),
    ) {
        let mut stored: BTreeMap<String, Value> = values.into_iter().collect();
        let (key, value) = endpoint(0, 1, &["a", "b"], profile);
        stored.insert(key, value);
        let desired = calculator_of(&stored).recomputed();
        prop_assert_eq!(unreachable(&desired), Vec::<&String>::new());
        for packet in packets {
            for ingress in [true, false] {
                let chain = if ingress { "to-tap1" } else { "from-tap1" };
                let passes = evaluate(&desired, chain, &packet) == Some(true);
                prop_assert_eq!(passes, reference(&stored, ingress, &packet), "{} {:?}", chain, packet);
                let port = (packet.protocol != 47).then_some(packet.port);
                let ends = (packet.source, packet.destination);
                let what = (packet.protocol, port);
                let explained = crate::explain::tests::passes(desired.rules(), chain, ends, what);
                prop_assert_eq!(explained, passes, "explained: {} {:?}", chain, packet);
            }
        }
    }
}

/// Returns the chains that no packet reaches.
fn unreachable(desired: &Desired) -> Vec<&String> {
    let (chains, sets) = (&desired.rules().chains, &desired.rules().sets);
    let rules = chains.values().flat_map(|chain| &chain.rules);
    let elements = sets.values().flat_map(|set| set.elements.values());
    let verdicts = rules
        .filter_map(|rule| match &rule.action {
            Action::Verdict(verdict) => Some(verdict),
            _ => None,
        })
        .chain(elements.filter_map(|value| match value {
            Some(Element::Verdict(verdict)) => Some(verdict),
            _ => None,
        }));
    let named = verdicts.filter_map(|verdict| match verdict {
        Verdict::Jump(name) | Verdict::Goto(name) => Some(name),
        _ => None,
    });
    let named: BTreeSet<&String> = named.collect();
    let unhooked = chains.iter().filter(|(_, chain)| chain.hook.is_none());
    unhooked
        .map(|(name, _)| name)
        .filter(|name| !named.contains(name))
        .collect()
}

/// The first packet of a connection.
#[derive(Clone, Copy, Debug)]
struct Packet {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    port: u16,
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let protocol = prop::sample::select(vec![6_u8, 17, 47]);
    let port = prop::sample::select(vec![69_u16, 70, 80, 85, 86, 90, 91, 92]);
    let address = || (0..3_u8, 0..4_u8);
    (any::<bool>(), address(), address(), protocol, port).prop_map(
        |(v6, from, to, protocol, port)| {
            let text = |(host, n)| match v6 {
                true => format!("fd65::{host}:{n}"),
                false => format!("10.65.{host}.{n}"),
            };
            Packet {
                source: text(from).parse().unwrap(),
                destination: text(to).parse().unwrap(),
                protocol,
                port,
            }
        },
    )
}

/// Evaluates the chains of the packet filter for it; `None` if they return.
fn evaluate(desired: &Desired, chain: &str, packet: &Packet) -> Option<bool> {
    for rule in &desired.rules().chains[chain].rules {
        if !rule.matches.iter().all(|m| holds(desired, m, packet)) {
            continue;
        }
        match &rule.action {
            Action::Verdict(Verdict::Accept) => return Some(true),
            Action::Verdict(Verdict::Drop) => return Some(false),
            Action::Verdict(Verdict::Return) => return None,
            Action::Verdict(Verdict::Jump(to)) => {
                if let Some(fate) = evaluate(desired, to, packet) {
                    return Some(fate);
                }
            }
            Action::Log(_) => {}
            _ => panic!("{}", rule_text(rule)),
        }
    }
    None
}

fn holds(desired: &Desired, condition: &Match, packet: &Packet) -> bool {
    let end = |end: &End| match end {
        End::Source => packet.source,
        End::Destination => packet.destination,
    };
    let has = |set: &str, found: &dyn Fn(&Key) -> bool| {
        desired.rules().sets[set].elements.keys().any(found)
    };
    let family = Family::of(packet.source);
    let is = |is: &Is, holds: bool| holds == (*is == Is::Yes);
    match condition {
        Match::Connection(ConnectionStates::EstablishedOrRelated | ConnectionStates::Invalid) => {
            false
        }
        Match::Family(wanted) => *wanted == family,
        Match::Protocol(protocol, yes) => is(yes, packet.protocol == *protocol),
        Match::InNet(at, net, yes) => {
            Family::of(net.addr()) == family && is(yes, net.contains(&end(at)))
        }
        Match::InSet(at, of, set, yes) => {
            let found = has(set, &|key| match key {
                Key::Address(address) => *address == end(at),
                Key::Net(net) => net.contains(&end(at)),
                _ => false,
            });
            *of == family && is(yes, found)
        }
        Match::Port(End::Destination, protocol, port, yes) => {
            packet.protocol == *protocol && is(yes, packet.port == *port)
        }
        Match::EndpointPortIn(End::Destination, of, set, yes) => {
            let wanted = Key::EndpointPort(packet.destination, packet.protocol, packet.port);
            *of == family && is(yes, has(set, &|key| *key == wanted))
        }
        Match::PortIn(End::Destination, protocol, set, yes) => {
            let found = has(set, &|key| match key {
                Key::Ports(first, last) => (*first..=*last).contains(&packet.port),
                _ => false,
            });
            packet.protocol == *protocol && is(yes, found)
        }
        other => panic!("{other}"),
    }
}

/// Evaluates the stored values directly by the rules of the data model: slow and simple. The
/// workload is `vm1` of `h0`, which names no profile or `open`.
fn reference(stored: &BTreeMap<String, Value>, ingress: bool, packet: &Packet) -> bool {
    let own = &stored[&endpoint(0, 1, &[], false).0];
    let field = if ingress { "ingress" } else { "egress" };
    let rank = |order: &Value| order.as_f64().unwrap_or(f64::INFINITY);
    let tier_of = |spec: &Value| match spec["tier"].as_str() {
        None | Some("") => "default".to_owned(),
        Some(tier) => tier.to_owned(),
    };
    let tier_rank = |tier: &str| match stored.get(&format!("{PREFIX}tiers/{tier}")) {
        Some(stored) => rank(&stored["spec"]["order"]),
        None if tier == "default" => 1_000_000.0,
        None => f64::INFINITY,
    };
    let mut policies: Vec<(f64, String, f64, &String, &Value)> = Vec::new();
    for (key, value) in stored
        .iter()
        .filter(|(key, _)| key.contains("networkpolicies"))
    {
        let spec = &value["spec"];
        let has = |list: &str| spec[list].as_array().is_some_and(|rules| !rules.is_empty());
        let covered = if ingress {
            has("ingress") || !has("egress")
        } else {
            has("egress")
        };
        if covered && selected(stored, &spec["selector"], own) {
            let tier = tier_of(spec);
            policies.push((tier_rank(&tier), tier, rank(&spec["order"]), key, spec));
        }
    }
    policies.sort_by(|a, b| a.partial_cmp_keys(b));
    let mut at = 0;
    while at < policies.len() {
        let tier = policies[at].1.clone();
        let end = at + policies[at..].iter().take_while(|p| p.1 == tier).count();
        let rules = policies[at..end]
            .iter()
            .flat_map(|p| p.4[field].as_array().into_iter().flatten());
        let decisive = rules.filter(|rule| matches(stored, rule, packet));
        let mut decisions = decisive.map(|rule| rule["action"].as_str().unwrap());
        match decisions.find(|action| *action != "Log") {
            Some("Allow") => return true,
            Some("Deny") => return false,
            Some(_) => {}
            None => {
                let action = stored.get(&format!("{PREFIX}tiers/{tier}"));
                if action.is_none_or(|tier| tier["spec"]["defaultAction"] != "Pass") {
                    return false;
                }
            }
        }
        at = end;
    }
    let names = own["spec"]["profiles"].as_array().unwrap();
    let profile = stored.get(&format!("{PREFIX}profiles/open"));
    let rules = profile.filter(|_| !names.is_empty());
    let rules = rules.and_then(|profile| profile["spec"][field].as_array());
    let mut rules = rules.into_iter().flatten();
    let decisive = rules.find(|rule| matches(stored, rule, packet));
    decisive.is_some_and(|rule| rule["action"] == "Allow")
}

trait Ranked {
    fn partial_cmp_keys(&self, other: &Self) -> std::cmp::Ordering;
}

impl Ranked for (f64, String, f64, &String, &Value) {
    fn partial_cmp_keys(&self, other: &Self) -> std::cmp::Ordering {
        let tiers = self.0.total_cmp(&other.0).then(self.1.cmp(&other.1));
        tiers
            .then(self.2.total_cmp(&other.2))
            .then(self.3.cmp(other.3))
    }
}

/// Returns whether `has(<label>)` matches the endpoint.
fn selected(stored: &BTreeMap<String, Value>, selector: &Value, endpoint: &Value) -> bool {
    let label = selector.as_str().unwrap();
    let label = label.trim_start_matches("has(").trim_end_matches(')');
    let profile = stored.get(&format!("{PREFIX}profiles/open"));
    let names = endpoint["spec"]["profiles"]
        .as_array()
        .is_some_and(|names| !names.is_empty());
    let taken_on = || profile.is_some_and(|p| p["spec"]["labelsToApply"].get(label).is_some());
    endpoint["metadata"]["labels"].get(label).is_some() || (names && taken_on())
}

fn matches(stored: &BTreeMap<String, Value>, rule: &Value, packet: &Packet) -> bool {
    let version = if packet.source.is_ipv4() { 4 } else { 6 };
    let protocol = |value: &Value| {
        if value == "TCP" {
            6
        } else {
            value.as_u64().unwrap()
        }
    };
    let wanted = |field: &str, holds: &dyn Fn(&Value) -> bool| rule.get(field).is_none_or(holds);
    wanted("ipVersion", &|v| *v == version)
        && wanted("protocol", &|p| protocol(p) == u64::from(packet.protocol))
        && wanted("notProtocol", &|p| {
            protocol(p) != u64::from(packet.protocol)
        })
        && at_end(stored, &rule["source"], packet.source, packet)
        && at_end(stored, &rule["destination"], packet.destination, packet)
}

fn at_end(
    stored: &BTreeMap<String, Value>,
    entity: &Value,
    address: IpAddr,
    packet: &Packet,
) -> bool {
    let anyone = |wanted: &dyn Fn(&Value) -> bool| {
        let mut endpoints = stored
            .iter()
            .filter(|(key, _)| key.contains("workloadendpoints"));
        endpoints.any(|(_, endpoint)| {
            let nets = endpoint["spec"]["ipNetworks"].as_array().unwrap();
            let has = |net: &Value| {
                let net: ipnet::IpNet = net.as_str().unwrap().parse().unwrap();
                net.contains(&address)
            };
            nets.iter().any(has) && wanted(endpoint)
        })
    };
    let member = |selector: &Value| anyone(&|endpoint| selected(stored, selector, endpoint));
    let within = |nets: &Value| {
        let mut nets = nets.as_array().unwrap().iter();
        nets.any(|net| {
            net.as_str()
                .unwrap()
                .parse::<ipnet::IpNet>()
                .unwrap()
                .contains(&address)
        })
    };
    // Ranges of IPv4 alone make a rule an IPv4 rule.
    let of_family = |nets: &Value| {
        let mut nets = nets.as_array().unwrap().iter();
        nets.any(|net| net.as_str().unwrap().contains(':') == address.is_ipv6())
    };
    // A name counts for the endpoints that the rule selects.
    let named = |name: &str| {
        anyone(&|endpoint| {
            let ports = endpoint["spec"]["ports"].as_array().unwrap();
            let has = |port: &Value| {
                let protocol = match port["protocol"].as_str() {
                    Some("TCP") => 6,
                    Some(_) => 17,
                    None => port["protocol"].as_u64().unwrap(),
                };
                port["name"] == name
                    && protocol == u64::from(packet.protocol)
                    && port["port"] == packet.port
            };
            let chosen = entity.get("selector");
            ports.iter().any(has) && chosen.is_none_or(|s| selected(stored, s, endpoint))
        })
    };
    let port = |ports: &Value| {
        ports
            .as_array()
            .unwrap()
            .iter()
            .any(|port| match port.as_str() {
                None => *port == packet.port,
                Some(text) => match text.split_once(':') {
                    Some((first, last)) => {
                        (first.parse().unwrap()..=last.parse().unwrap()).contains(&packet.port)
                    }
                    None => named(text),
                },
            })
    };
    let wanted = |field: &str, holds: &dyn Fn(&Value) -> bool| entity.get(field).is_none_or(holds);
    wanted("selector", &|s| member(s))
        && wanted("notSelector", &|s| anyone(&|_| true) && !member(s))
        && wanted("nets", &|n| within(n))
        && wanted("notNets", &|n| of_family(n) && !within(n))
        && wanted("ports", &|p| port(p))
        && wanted("notPorts", &|p| !port(p))
}
