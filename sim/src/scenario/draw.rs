//! Draws policies, profiles, tiers, network sets and host endpoints. Names and values are few, so that
//! changes meet and rules match.

use serde_json::{Value, json};

use crate::chance::Chance;

/// A selector that cannot be parsed.
const BROKEN_SELECTOR: &str = "app == (";

const SELECTORS: [&str; 9] = [
    "all()",
    "app == 'web'",
    "app == 'web'",
    "app != 'web'",
    "has(role)",
    "!has(role)",
    "app in {'web', 'db'} && role == 'a'",
    "color == 'red'",
    "!(app == 'db' || has(role))",
];

/// Draws the key of an object, without the common prefix.
pub(super) fn key(chance: &mut Chance, namespace: &str, nodes: &[&str]) -> String {
    let one = |chance: &mut Chance, names: &[&str]| {
        chance.pick(names).copied().unwrap_or_default().to_owned()
    };
    match chance.below(20) {
        0..=5 => {
            let name = one(chance, &["p1", "p2", "p2-x", "p3"]);
            format!("networkpolicies/{namespace}/{name}")
        }
        6..=9 => format!("globalnetworkpolicies/{}", one(chance, &["g1", "g2", "g3"])),
        10 => {
            let name = one(chance, &["of-hosts", "untracked", "untranslated"]);
            format!("globalnetworkpolicies/{name}")
        }
        11 | 12 => format!("profiles/{}", one(chance, &["kns.sim", "ksa.sim.one"])),
        13 => format!("tiers/{}", one(chance, &["first", "second"])),
        14 => format!("networksets/{namespace}/{}", one(chance, &["n1", "n2"])),
        15 | 16 => format!("globalnetworksets/{}", one(chance, &["s1", "s2"])),
        17 => format!("hostendpoints/{}.all", one(chance, nodes)),
        _ => format!("hostendpoints/{}.eth0", one(chance, nodes)),
    }
}

/// Returns whether an object is a policy.
pub(super) fn is_policy(key: &str) -> bool {
    key.contains("/networkpolicies/") || key.contains("/globalnetworkpolicies/")
}

/// Returns whether a value is invalid.
pub(crate) fn is_broken(value: &[u8]) -> bool {
    let value: Result<Value, _> = serde_json::from_slice(value);
    !value.is_ok_and(|value| value["spec"]["selector"] != BROKEN_SELECTOR)
}

/// Draws an invalid value.
pub(super) fn broken(chance: &mut Chance, key: &str) -> Vec<u8> {
    let value = value(chance, key);
    if chance.strikes(500) {
        let half = value.len() / 2;
        return value.into_iter().take(half).collect();
    }
    let mut value: Value = serde_json::from_slice(&value).unwrap_or_default();
    value["spec"]["selector"] = BROKEN_SELECTOR.into();
    value.to_string().into_bytes()
}

/// Draws the value of an object.
pub(super) fn value(chance: &mut Chance, key: &str) -> Vec<u8> {
    let mut parts = key.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let kind = key.split('/').nth(5).unwrap_or_default();
    let mut metadata = json!({"name": name});
    let spec = match kind {
        "profiles" => profile(chance),
        "tiers" => {
            let action = one_of(chance, &[json!("Deny"), json!("Pass")]);
            json!({"order": chance.below(3), "defaultAction": action})
        }
        "networksets" | "globalnetworksets" => {
            metadata["labels"] = labels(chance);
            json!({"nets": some(chance, &NETS, 2)})
        }
        "hostendpoints" => {
            metadata["labels"] = labels(chance);
            metadata["labels"]["host"] = "yes".into();
            let (node, interface) = name.rsplit_once('.').unwrap_or((name, "eth0"));
            let interface = if interface == "all" { "*" } else { interface };
            let profiles = match chance.strikes(500) {
                true => json!(["projectcalico-default-allow"]),
                false => json!([]),
            };
            json!({"node": node, "interfaceName": interface, "profiles": profiles})
        }
        _ => policy(chance, name),
    };
    let value = json!({"metadata": metadata, "spec": spec});
    value.to_string().into_bytes()
}

fn one_of(chance: &mut Chance, values: &[Value]) -> Value {
    chance.pick(values).cloned().unwrap_or_default()
}

fn labels(chance: &mut Chance) -> Value {
    let all = [
        json!({}),
        json!({"app": "web"}),
        json!({"app": "db", "role": "a"}),
    ];
    one_of(chance, &all)
}

const NETS: [&str; 7] = [
    "10.65.0.0/30",
    "10.65.0.4/30",
    "10.65.0.2/32",
    "192.0.2.0/24",
    "fd65::/125",
    "fd65::3/128",
    "2001:db8::/64",
];

/// Draws up to so many of these values, at least one.
fn some(chance: &mut Chance, values: &[&str], most: usize) -> Value {
    let count = 1 + chance.below(most);
    let drawn = (0..count).filter_map(|_| chance.pick(values).copied());
    let mut drawn: Vec<&str> = drawn.collect();
    drawn.sort_unstable();
    drawn.dedup();
    json!(drawn)
}

fn profile(chance: &mut Chance) -> Value {
    let labels = [
        json!({"pcns.env": "live"}),
        json!({"pcns.env": "test", "color": "red"}),
        json!({"color": "red"}),
        json!({}),
    ];
    let mut spec = json!({"labelsToApply": one_of(chance, &labels)});
    for direction in ["ingress", "egress"] {
        let mut all = rules(chance, &["Allow", "Deny"]);
        // Mostly everything else is allowed, so that policies matter.
        if chance.strikes(700) {
            all.push(json!({"action": "Allow"}));
        }
        spec[direction] = all.into();
    }
    spec
}

fn policy(chance: &mut Chance, name: &str) -> Value {
    let selectors = SELECTORS.map(Value::from);
    let mut spec = json!({"selector": one_of(chance, &selectors)});
    let tiers = [
        json!("default"),
        json!("default"),
        json!("first"),
        json!("second"),
    ];
    spec["tier"] = one_of(chance, &tiers);
    if chance.strikes(700) {
        spec["order"] = one_of(chance, &[json!(1), json!(2.5), json!(-3)]);
    }
    let mut directions = vec!["ingress", "egress"];
    match name {
        "of-hosts" => spec["applyOnForward"] = chance.strikes(500).into(),
        "untracked" | "untranslated" => {
            let field = if name == "untracked" {
                "doNotTrack"
            } else {
                "preDNAT"
            };
            spec[field] = true.into();
            spec["applyOnForward"] = true.into();
            spec["tier"] = "default".into();
        }
        _ => {}
    }
    let is_of_hosts = ["of-hosts", "untracked", "untranslated"].contains(&name);
    if is_of_hosts {
        spec["selector"] = "host == 'yes'".into();
    }
    match (name, chance.below(3)) {
        ("untranslated", _) | (_, 0) => directions = vec!["ingress"],
        (_, 1) => directions = vec!["egress"],
        _ => {}
    }
    let types: Vec<&str> = directions
        .iter()
        .map(|one| {
            if *one == "ingress" {
                "Ingress"
            } else {
                "Egress"
            }
        })
        .collect();
    spec["types"] = json!(types);
    let actions: &[&str] = match is_of_hosts {
        true => &["Allow", "Deny"],
        false => &["Allow", "Allow", "Deny", "Deny", "Pass", "Log"],
    };
    for direction in directions {
        let mut all = rules(chance, actions);
        if chance.strikes(500) {
            all.push(json!({"action": "Allow"}));
        }
        spec[direction] = all.into();
    }
    spec
}

fn rules(chance: &mut Chance, actions: &[&str]) -> Vec<Value> {
    let count = chance.below(4);
    (0..count).map(|_| rule(chance, actions)).collect()
}

fn rule(chance: &mut Chance, actions: &[&str]) -> Value {
    let mut rule = json!({"action": chance.pick(actions).copied().unwrap_or("Deny")});
    let protocols = [
        Value::Null,
        Value::Null,
        json!("TCP"),
        json!("TCP"),
        json!("UDP"),
        json!("ICMP"),
    ];
    let protocol = one_of(chance, &protocols);
    if !protocol.is_null() {
        rule["protocol"] = protocol.clone();
    }
    if protocol == "ICMP" && chance.strikes(500) {
        rule["icmp"] = json!({"type": 8});
    }
    let has_ports = protocol == "TCP" || protocol == "UDP";
    for (field, has_ports) in [("source", false), ("destination", has_ports)] {
        rule[field] = end(chance, has_ports);
    }
    rule
}

/// Draws one end of a rule; ports only if the protocol has them.
fn end(chance: &mut Chance, has_ports: bool) -> Value {
    let selectors = SELECTORS.map(Value::from);
    let mut end = json!({});
    if chance.strikes(350) {
        end["selector"] = one_of(chance, &selectors);
    }
    if chance.strikes(100) {
        end["notSelector"] = one_of(chance, &selectors);
    }
    if chance.strikes(150) {
        let namespaces = ["env == 'live'", "all()", "!has(env)"].map(Value::from);
        end["namespaceSelector"] = one_of(chance, &namespaces);
    }
    if chance.strikes(150) {
        end["nets"] = some(chance, &NETS, 3);
    }
    if chance.strikes(100) {
        end["notNets"] = some(chance, &NETS, 2);
    }
    let ports = [
        json!([80]),
        json!(["80:90", 8080]),
        json!([53, 79, 81]),
        json!(["http"]),
        json!([79, "http", "dns"]),
    ];
    if has_ports && chance.strikes(500) {
        end["ports"] = one_of(chance, &ports);
    }
    if has_ports && chance.strikes(100) {
        end["notPorts"] = one_of(chance, &ports);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_recognized_and_valid_ones_are_not() {
        let mut chance = Chance::new(1);
        let mut kinds = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let key = format!(
                "{}{}",
                crate::policies::PREFIX,
                key(&mut chance, "sim", &["n1"])
            );
            assert!(!is_broken(&value(&mut chance, &key)), "{key}");
            kinds.extend(key.split('/').nth(5).map(str::to_owned));
            if is_policy(&key) {
                assert!(is_broken(&broken(&mut chance, &key)), "{key}");
            }
        }
        assert_eq!(kinds.len(), 7, "{kinds:?}");
    }
}
