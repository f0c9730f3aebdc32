//! A plain evaluation of stored policies for one packet of a new connection: rule by rule, member by
//! member, without programs or indexes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use crate::common::PREFIX;

type Store = BTreeMap<String, Value>;
type Labels = BTreeMap<String, String>;
/// The order of the tier, its name, the order of the policy, the rest of its position, its spec and
/// its namespace.
type Placed<'s> = (f64, String, f64, String, &'s Value, Option<&'s str>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) ports: [u16; 2],
    pub(crate) icmp: (u8, u8),
}

/// Returns whether a packet from or to an endpoint passes.
pub(crate) fn passes(store: &Store, name: &str, is_ingress: bool, packet: &Packet) -> bool {
    let key = format!("{PREFIX}workloadendpoints/{name}");
    let endpoint = &store[&key];
    let namespace = name.split('/').next().unwrap();
    let own = labels(store, &key, endpoint);
    let field = if is_ingress { "ingress" } else { "egress" };
    let mut policies: Vec<Placed> = Vec::new();
    for (key, policy) in store {
        let Some(rest) = key.strip_prefix(PREFIX) else {
            continue;
        };
        let parts: Vec<&str> = rest.split('/').collect();
        let (of, stored) = match *parts {
            ["networkpolicies", of, stored] => (Some(of), stored),
            ["globalnetworkpolicies", stored] => (None, stored),
            _ => continue,
        };
        let spec = &policy["spec"];
        if of.is_some_and(|of| of != namespace) || !applies(spec, &own) || !has(spec, field) {
            continue;
        }
        let tier = spec["tier"]
            .as_str()
            .filter(|tier| !tier.is_empty())
            .unwrap_or("default");
        let tier_order = match tier {
            "first" => 1.0,
            "default" => 1e6,
            _ => f64::INFINITY,
        };
        let order = spec["order"].as_f64().unwrap_or(f64::INFINITY);
        let real = match tier {
            "default" => stored.strip_prefix("default.").unwrap_or(stored),
            _ => stored,
        };
        let kind = if of.is_some() {
            "NetworkPolicy"
        } else {
            "GlobalNetworkPolicy"
        };
        let tie = format!("{real}/{}/{kind}", of.unwrap_or_default());
        policies.push((tier_order, tier.to_owned(), order, tie, spec, of));
    }
    policies.sort_by(|a, b| {
        a.0.total_cmp(&b.0)
            .then(a.2.total_cmp(&b.2))
            .then_with(|| a.3.cmp(&b.3))
    });
    let mut rest = &policies[..];
    'tiers: while let Some((_, tier, ..)) = rest.first() {
        let end = rest
            .iter()
            .position(|one| one.1 != *tier)
            .unwrap_or(rest.len());
        for (.., spec, of) in &rest[..end] {
            for rule in spec[field].as_array().unwrap() {
                if !matches(store, rule, *of, packet) {
                    continue;
                }
                match rule["action"].as_str().unwrap() {
                    "Allow" => return true,
                    "Deny" => return false,
                    "Pass" => {
                        rest = &rest[end..];
                        continue 'tiers;
                    }
                    _ => {}
                }
            }
        }
        let stored = store.get(&format!("{PREFIX}tiers/{tier}"));
        if stored.is_none_or(|tier| tier["spec"]["defaultAction"] != "Pass") {
            return false;
        }
        rest = &rest[end..];
    }
    for profile in endpoint["spec"]["profiles"].as_array().unwrap() {
        if profile == "projectcalico-default-allow" {
            return true;
        }
        let key = format!("{PREFIX}profiles/{}", profile.as_str().unwrap());
        let Some(profile) = store.get(&key) else {
            return false;
        };
        for rule in profile["spec"][field].as_array().unwrap() {
            if matches(store, rule, None, packet) {
                return rule["action"] == "Allow";
            }
        }
    }
    false
}

fn applies(spec: &Value, own: &Labels) -> bool {
    let text = |field: &str| spec[field].as_str().unwrap_or("all()");
    let accounts = spec["serviceAccountSelector"].as_str();
    selects(text("selector"), own)
        && spec["namespaceSelector"]
            .as_str()
            .is_none_or(|text| in_namespace(text, own))
        && accounts.is_none_or(|text| of_account(text, own))
}

fn has(spec: &Value, field: &str) -> bool {
    if let Some(types) = spec["types"].as_array() {
        return types
            .iter()
            .any(|one| one.as_str().unwrap().eq_ignore_ascii_case(field));
    }
    let is_empty = |field: &str| spec[field].as_array().unwrap().is_empty();
    match field {
        "ingress" => !is_empty("ingress") || is_empty("egress"),
        _ => !is_empty("egress"),
    }
}

/// Returns labels with those of the profiles.
fn labels(store: &Store, key: &str, value: &Value) -> Labels {
    let mut all: Labels = BTreeMap::new();
    let of = |value: &Value| -> Labels {
        let labels = value.as_object().into_iter().flatten();
        labels
            .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()))
            .collect()
    };
    let parts: Vec<&str> = key[PREFIX.len()..].split('/').collect();
    let mut profiles: Vec<String> = Vec::new();
    match *parts {
        ["workloadendpoints", namespace, _] => {
            let list = value["spec"]["profiles"].as_array().unwrap();
            profiles.extend(list.iter().map(|one| one.as_str().unwrap().to_owned()));
            all.insert("projectcalico.org/namespace".into(), namespace.into());
            let account = value["spec"]["serviceAccountName"].as_str().unwrap();
            if !account.is_empty() {
                all.insert("projectcalico.org/serviceaccount".into(), account.into());
            }
        }
        ["networksets", namespace, _] => {
            profiles.push(format!("kns.{namespace}"));
            all.insert("projectcalico.org/namespace".into(), namespace.into());
        }
        _ => {}
    }
    all.extend(of(&value["metadata"]["labels"]));
    for profile in profiles {
        if let Some(profile) = store.get(&format!("{PREFIX}profiles/{profile}")) {
            for (label, value) in of(&profile["spec"]["labelsToApply"]) {
                all.entry(label).or_insert(value);
            }
        }
    }
    all
}

/// The generated selectors, each with its meaning.
fn selects(text: &str, labels: &Labels) -> bool {
    let app = labels.get("app").map(String::as_str);
    let role = labels.get("x/role").map(String::as_str);
    match text {
        "all()" => true,
        "app == 'web'" => app == Some("web"),
        "app != 'web'" => app != Some("web"),
        "has(x/role)" => role.is_some(),
        "!has(x/role)" => role.is_none(),
        "app in {'web', 'db'}" => app.is_some(),
        "app not in {'db'}" => app != Some("db"),
        "app contains 'e' && x/role starts with 'b'" => app == Some("web") && role == Some("b-a"),
        "x/role ends with 'a' || app == \"db\"" => role.is_some() || app == Some("db"),
        "!(app == 'db' || has(x/role))" => app != Some("db") && role.is_none(),
        other => panic!("{other}"),
    }
}

fn in_namespace(text: &str, labels: &Labels) -> bool {
    let has = labels.contains_key("projectcalico.org/namespace");
    match text {
        "env == 'live'" => labels.get("pcns.env").is_some_and(|env| env == "live"),
        "!has(env)" => !labels.contains_key("pcns.env"),
        "all()" => has,
        "global()" => !has,
        other => panic!("{other}"),
    }
}

fn of_account(text: &str, labels: &Labels) -> bool {
    match text {
        "team == 'x'" => labels.get("pcsa.team").is_some_and(|team| team == "x"),
        "all()" => labels.contains_key("projectcalico.org/serviceaccount"),
        other => panic!("{other}"),
    }
}

fn matches(store: &Store, rule: &Value, namespace: Option<&str>, packet: &Packet) -> bool {
    let version = if packet.source.is_ipv4() { 4 } else { 6 };
    if rule["ipVersion"].as_u64().is_some_and(|own| own != version) {
        return false;
    }
    let wanted = protocol(&rule["protocol"]).filter(|number| *number != 0);
    if wanted.is_some_and(|number| number != packet.protocol) {
        return false;
    }
    if protocol(&rule["notProtocol"]) == Some(packet.protocol) {
        return false;
    }
    let is_icmp = |icmp: &Value| {
        let (kind, code) = packet.icmp;
        icmp["type"].as_u64() == Some(kind.into())
            && icmp["code"]
                .as_u64()
                .is_none_or(|own| own == u64::from(code))
    };
    if rule["icmp"].is_object() && !is_icmp(&rule["icmp"]) {
        return false;
    }
    if rule["notICMP"].is_object() && is_icmp(&rule["notICMP"]) {
        return false;
    }
    let ends = [
        ("source", packet.source, 0),
        ("destination", packet.destination, 1),
    ];
    ends.into_iter().all(|(field, address, at)| {
        end(
            store,
            &rule[field],
            namespace,
            packet.protocol,
            address,
            packet.ports[at],
        )
    })
}

fn protocol(value: &Value) -> Option<u8> {
    match value.as_str() {
        Some("TCP") => Some(6),
        Some("SCTP") => Some(132),
        Some("ICMP") => Some(1),
        Some("ICMPv6") => Some(58),
        _ => Some(u8::try_from(value.as_u64()?).unwrap()),
    }
}

fn end(
    store: &Store,
    end: &Value,
    namespace: Option<&str>,
    number: u8,
    address: IpAddr,
    port: u16,
) -> bool {
    for (field, is) in [("nets", true), ("notNets", false)] {
        let Some(nets) = end[field].as_array() else {
            continue;
        };
        let nets: Vec<&str> = nets.iter().map(|net| net.as_str().unwrap()).collect();
        let of_family: Vec<&&str> = nets
            .iter()
            .filter(|net| net.contains(':') == address.is_ipv6())
            .collect();
        if of_family.is_empty() || of_family.iter().any(|net| contains(net, address)) != is {
            return false;
        }
    }
    if has_selector(end, namespace) && !holders(store, end, namespace, address).any(|_| true) {
        return false;
    }
    if let Some(text) = end["notSelector"].as_str() {
        let is_member = |(key, value): (&String, &Value)| {
            holds(value, address) && selects(text, &labels(store, key, value))
        };
        if members(store).any(is_member) {
            return false;
        }
    }
    let in_ports = |list: &Value| {
        list.as_array()
            .unwrap()
            .iter()
            .any(|one| match one.as_str() {
                None => one.as_u64() == Some(port.into()),
                Some(text) => match text.split_once(':') {
                    Some((first, last)) => {
                        (first.parse().unwrap()..=last.parse().unwrap()).contains(&port)
                    }
                    None => holders(store, end, namespace, address).any(|holder| {
                        let ports = holder["spec"]["ports"].as_array().into_iter().flatten();
                        ports.into_iter().any(|own| {
                            let of = if own["protocol"] == "TCP" { 6 } else { 17 };
                            own["name"] == text && of == number && own["port"] == port
                        })
                    }),
                },
            })
    };
    (end["ports"].is_null() || in_ports(&end["ports"]))
        && (end["notPorts"].is_null() || !in_ports(&end["notPorts"]))
}

fn has_selector(end: &Value, namespace: Option<&str>) -> bool {
    let has = |field: &str| !end[field].is_null();
    has("selector")
        || has("namespaceSelector")
        || has("serviceAccounts")
        || (namespace.is_some() && has("notSelector"))
}

fn members(store: &Store) -> impl Iterator<Item = (&String, &Value)> {
    store.iter().filter(|(key, _)| {
        let kind = key[PREFIX.len()..].split('/').next().unwrap();
        [
            "workloadendpoints",
            "networksets",
            "globalnetworksets",
            "hostendpoints",
        ]
        .contains(&kind)
    })
}

/// Returns the members with an address that an end selects; without selectors all of them.
fn holders<'s>(
    store: &'s Store,
    end: &'s Value,
    namespace: Option<&'s str>,
    address: IpAddr,
) -> impl Iterator<Item = &'s Value> {
    let found = members(store).filter(move |(key, value)| {
        let own = labels(store, key, value);
        let in_own = || {
            let of = own.get("projectcalico.org/namespace").map(String::as_str);
            !has_selector(end, namespace) || namespace.is_none() || of == namespace
        };
        let accounts = &end["serviceAccounts"];
        let account = own.get("projectcalico.org/serviceaccount");
        let is_named = accounts["names"].as_array().is_none_or(|names| {
            names
                .iter()
                .any(|name| account.is_some_and(|own| name == own.as_str()))
        });
        holds(value, address)
            && end["selector"]
                .as_str()
                .is_none_or(|text| selects(text, &own))
            && match end["namespaceSelector"].as_str() {
                Some(text) => in_namespace(text, &own),
                None => in_own(),
            }
            && is_named
            && accounts["selector"]
                .as_str()
                .is_none_or(|text| of_account(text, &own))
    });
    found.map(|(_, value)| value)
}

fn holds(value: &Value, address: IpAddr) -> bool {
    ["ipNetworks", "nets", "expectedIPs"]
        .into_iter()
        .any(|field| {
            let nets = value["spec"][field].as_array().into_iter().flatten();
            nets.into_iter()
                .any(|net| contains(net.as_str().unwrap(), address))
        })
}

/// Compares an address with a network, bit by bit.
fn contains(net: &str, address: IpAddr) -> bool {
    let bits = |address: IpAddr| -> Vec<bool> {
        let octets = match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let bits = octets
            .into_iter()
            .flat_map(|octet| (0..8).map(move |at| octet << at & 128 > 0));
        bits.collect()
    };
    let (base, length) = match net.split_once('/') {
        Some((base, length)) => (base, Some(length.parse().unwrap())),
        None => (net, None),
    };
    let (base, own) = (bits(base.parse().unwrap()), bits(address));
    let length: usize = length.unwrap_or(base.len());
    base.len() == own.len() && base[..length] == own[..length]
}
