//! Planted mistakes of a conversion. Each changes what the conversion reads, or the resources that it
//! returns.

use std::collections::BTreeMap;

use serde_json::{Value, json};

const PODS: &str = "projectcalico.org/orchestrator == 'k8s'";

/// A planted mistake.
pub(crate) enum Mistake {
    /// A change of each object of Kubernetes: the conversion reads it wrongly.
    Objects(fn(&mut Value)),
    /// A change of the spec of each policy.
    Policies(fn(&mut Value)),
    /// A change of each rule of a policy.
    Rules(fn(&mut Value)),
    /// A change of each source and destination of a rule.
    Ends(fn(&mut Value)),
    /// A change of each selector of a policy.
    Selectors(fn(&str) -> String),
    /// A change of each range of ports.
    Ranges(fn(u32, u32) -> (u32, u32)),
    /// A change of all resources of a kind.
    Kind(&'static str, fn(&mut Value)),
}

use Mistake::{Ends, Kind, Objects, Policies, Ranges, Rules, Selectors};

/// All mistakes, each with its name.
pub(crate) const MISTAKES: &[(&str, Mistake)] = &[
    ("rules deny in place of allowing", Rules(deny)),
    (
        "ingress and egress are exchanged",
        Policies(exchange_directions),
    ),
    ("the peer is at the other end", Rules(exchange_ends)),
    ("except is ignored", Ends(|end| remove(end, "notNets"))),
    ("only the first except is read", Ends(first_except)),
    ("networks are one bit too wide", Ends(widen)),
    ("networks of IPv6 are ignored", Ends(without_v6)),
    ("an invalid network means everybody", Objects(open_networks)),
    ("an invalid port opens all ports", Objects(open_ports)),
    (
        "an empty namespaceSelector counts as missing",
        Ends(empty_as_missing),
    ),
    (
        "a missing namespaceSelector counts as empty",
        Ends(missing_as_empty),
    ),
    (
        "namespaceSelector is ignored",
        Ends(|end| remove(end, "namespaceSelector")),
    ),
    ("podSelector of a peer is ignored", Ends(all_pods)),
    ("network sets count as pods", Ends(without_orchestrator)),
    (
        "In and NotIn are exchanged",
        Selectors(|text| exchange(text, " not in ", " in ")),
    ),
    (
        "Exists and DoesNotExist are exchanged",
        Selectors(|text| exchange(text, "! has(", "has(")),
    ),
    ("only the first value is read", Selectors(first_value)),
    (
        "matchExpressions are ignored",
        Selectors(|text| keep(text, |term| !is_expression(term))),
    ),
    (
        "matchLabels are ignored",
        Selectors(|text| keep(text, |term| term == PODS || is_expression(term))),
    ),
    (
        "one term is enough",
        Selectors(|text| text.replace(" && ", " || ")),
    ),
    (
        "endPort is one too small",
        Ranges(|first, last| (first, last - 1)),
    ),
    (
        "endPort is one too large",
        Ranges(|first, last| (first, last + 1)),
    ),
    ("endPort is ignored", Ranges(|first, _| (first, first))),
    (
        "a port by name is one of the source",
        Rules(named_port_of_source),
    ),
    ("ports by name are ignored", Rules(without_named_ports)),
    (
        "ports are ignored",
        Rules(|rule| remove(&mut rule["destination"], "ports")),
    ),
    ("the default protocol is UDP", Objects(default_is_udp)),
    (
        "types are ingress by default",
        Objects(|object| default_types(object, &["Ingress"])),
    ),
    (
        "types are both by default",
        Objects(|object| default_types(object, &["Ingress", "Egress"])),
    ),
    (
        "the subject is ignored",
        Policies(|spec| spec["selector"] = PODS.into()),
    ),
    ("only the first rule is written", Policies(first_rule)),
    ("no peers match nothing", Objects(no_peers_are_none)),
    ("priorities are inverted", Policies(invert_order)),
    ("the tiers are exchanged", Policies(exchange_tiers)),
    ("Pass accepts", Rules(pass_accepts)),
    ("unreadable denials are left out", Policies(without_denials)),
    ("ended pods keep their addresses", Objects(keep_running)),
    (
        "ports of init containers are left out",
        Objects(without_init_containers),
    ),
    (
        "protocols of ports by name are ignored",
        Kind("workloadendpoints", all_tcp),
    ),
    (
        "labels of pods are left out",
        Kind("workloadendpoints", without_labels),
    ),
    (
        "labels of namespaces are left out",
        Kind("profiles", |value| {
            remove(&mut value["spec"], "labelsToApply")
        }),
    ),
    (
        "profiles allow nothing",
        Kind("profiles", |value| remove(&mut value["spec"], "ingress")),
    ),
];

impl Mistake {
    /// Changes an object that is to be converted.
    pub(crate) fn change_object(&self, object: &mut Value) {
        if let Objects(change) = self {
            change(object);
        }
    }

    /// Changes the resources.
    pub(crate) fn change_store(&self, store: &mut BTreeMap<String, Value>) {
        for (key, value) in store.iter_mut() {
            if let Kind(kind, change) = self
                && key.contains(&format!("/{kind}/"))
            {
                change(value);
            }
            if key.contains("networkpolicies/") {
                self.change_policy(&mut value["spec"]);
            }
        }
    }

    fn change_policy(&self, spec: &mut Value) {
        match self {
            Policies(change) => change(spec),
            Rules(change) => each_rule(spec, change),
            Ends(change) => each_end(spec, |end| {
                if end.is_object() {
                    change(end);
                }
            }),
            Selectors(change) => {
                let change = |fields: &mut Value| {
                    for field in ["selector", "namespaceSelector"] {
                        if let Some(text) = fields[field].as_str() {
                            fields[field] = change(text).into();
                        }
                    }
                };
                change(spec);
                each_end(spec, |end| {
                    if end.is_object() {
                        change(end);
                    }
                });
            }
            Ranges(change) => each_port(spec, |port| {
                let text = port.as_str().unwrap_or_default();
                let ends = text
                    .split_once(':')
                    .map(|(first, last)| (first.parse(), last.parse()));
                if let Some((Ok(first), Ok(last))) = ends
                    && last < 65535
                {
                    let (first, last) = change(first, last);
                    *port = format!("{first}:{last}").into();
                }
            }),
            Objects(_) | Kind(..) => {}
        }
    }
}

fn each_rule(spec: &mut Value, mut change: impl FnMut(&mut Value)) {
    for list in ["ingress", "egress"] {
        let rules = spec.get_mut(list).and_then(Value::as_array_mut);
        rules.into_iter().flatten().for_each(&mut change);
    }
}

fn each_end(spec: &mut Value, mut change: impl FnMut(&mut Value)) {
    each_rule(spec, |rule| {
        for end in ["source", "destination"] {
            rule.get_mut(end).into_iter().for_each(&mut change);
        }
    });
}

fn each_port(spec: &mut Value, mut change: impl FnMut(&mut Value)) {
    each_end(spec, |end| {
        let ports = end.get_mut("ports").and_then(Value::as_array_mut);
        ports.into_iter().flatten().for_each(&mut change);
    });
}

fn remove(value: &mut Value, field: &str) {
    if let Some(object) = value.as_object_mut() {
        object.remove(field);
    }
}

fn deny(rule: &mut Value) {
    rule["action"] = "Deny".into();
}

fn exchange_directions(spec: &mut Value) {
    each_rule(spec, exchange_ends);
    let [ingress, egress] = ["ingress", "egress"].map(|list| spec[list].take());
    spec["ingress"] = egress;
    spec["egress"] = ingress;
}

fn exchange_ends(rule: &mut Value) {
    let ports = rule["destination"]["ports"].take();
    let [source, destination] = ["source", "destination"].map(|end| rule[end].take());
    rule["source"] = destination;
    rule["destination"] = source;
    if !ports.is_null() {
        rule["destination"]["ports"] = ports;
    }
}

fn first_except(end: &mut Value) {
    let nets = end.get_mut("notNets").and_then(Value::as_array_mut);
    nets.into_iter().for_each(|nets| nets.truncate(1));
}

fn widen(end: &mut Value) {
    let nets = end.get_mut("nets").and_then(Value::as_array_mut);
    for net in nets.into_iter().flatten() {
        let (address, length) = net
            .as_str()
            .and_then(|text| text.split_once('/'))
            .expect("a network");
        let length: u8 = length.parse().expect("a length");
        *net = format!("{address}/{}", length.saturating_sub(1)).into();
    }
}

/// Leaves no network but one that no packet has, because no networks mean all addresses.
fn without_v6(end: &mut Value) {
    let nets = end.get_mut("nets").and_then(Value::as_array_mut);
    if let Some(nets) = nets {
        nets.retain(|net| net.as_str().is_some_and(|text| !text.contains(':')));
        if nets.is_empty() {
            nets.push("203.0.113.99/32".into());
        }
    }
}

/// Makes each rule with an unreadable network one for all peers, as Calico does.
fn open_networks(object: &mut Value) {
    each_object_rule(object, |rule, peers| {
        let text = rule[peers].to_string();
        if ["10.0.0.1\"", "010.0.0.0/8", "/08", "/33", "\"x\""]
            .iter()
            .any(|bad| text.contains(bad))
        {
            remove(rule, peers);
        }
    });
}

/// Makes each rule with an invalid port one for all ports.
fn open_ports(object: &mut Value) {
    each_object_rule(object, |rule, _| {
        let ports = rule["ports"].as_array().cloned().unwrap_or_default();
        let is_valid = |port: &Value| match &port["port"] {
            Value::Number(number) => number
                .as_u64()
                .is_some_and(|number| (1..65536).contains(&number)),
            _ => true,
        };
        if !ports.iter().all(is_valid) {
            remove(rule, "ports");
        }
    });
}

fn each_object_rule(object: &mut Value, mut change: impl FnMut(&mut Value, &'static str)) {
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        let rules = object["spec"].get_mut(list).and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            change(rule, peers);
        }
    }
}

fn empty_as_missing(end: &mut Value) {
    if end["namespaceSelector"] == "all()" {
        remove(end, "namespaceSelector");
    }
}

fn missing_as_empty(end: &mut Value) {
    if end["selector"].is_string() && end["namespaceSelector"].is_null() {
        end["namespaceSelector"] = "all()".into();
    }
}

fn all_pods(end: &mut Value) {
    if end["selector"].is_string() {
        end["selector"] = PODS.into();
    }
}

fn without_orchestrator(end: &mut Value) {
    if let Some(text) = end["selector"].as_str() {
        let text = text
            .replace(&format!("{PODS} && "), "")
            .replace(PODS, "all()");
        end["selector"] = text.into();
    }
}

fn exchange(text: &str, one: &str, other: &str) -> String {
    let marked = text.replace(one, "\0").replace(other, one);
    marked.replace('\0', other)
}

/// Shortens each list of values to the first one.
fn first_value(text: &str) -> String {
    let terms = text
        .split(" && ")
        .map(|term| match (term.split_once(", "), term.find(" }")) {
            (Some((first, _)), Some(_)) => format!("{first} }}"),
            _ => term.to_owned(),
        });
    terms.collect::<Vec<_>>().join(" && ")
}

fn is_expression(term: &str) -> bool {
    term.contains(" in {") || term.contains("has(")
}

/// Keeps some terms of a selector.
fn keep(text: &str, is_kept: impl Fn(&str) -> bool) -> String {
    let terms: Vec<&str> = text.split(" && ").filter(|term| is_kept(term)).collect();
    match terms.is_empty() {
        true => "all()".to_owned(),
        false => terms.join(" && "),
    }
}

fn has_name(ports: &Value) -> bool {
    let ports = ports.as_array().into_iter().flatten();
    ports.into_iter().any(is_name)
}

fn is_name(port: &Value) -> bool {
    let text = port.as_str().unwrap_or_default();
    text.starts_with(|first: char| first.is_ascii_alphabetic())
}

fn named_port_of_source(rule: &mut Value) {
    if has_name(&rule["destination"]["ports"]) {
        let ports = rule["destination"]["ports"].take();
        rule["source"]["ports"] = ports;
    }
}

fn without_named_ports(rule: &mut Value) {
    if let Some(ports) = rule["destination"]
        .get_mut("ports")
        .and_then(Value::as_array_mut)
    {
        ports.retain(|port| !is_name(port));
    }
}

fn default_is_udp(object: &mut Value) {
    each_object_rule(object, |rule, _| {
        let ports = rule.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports
            .into_iter()
            .flatten()
            .filter(|port| port["protocol"].is_null())
        {
            port["protocol"] = "UDP".into();
        }
    });
}

fn default_types(object: &mut Value, types: &[&str]) {
    let spec = &mut object["spec"];
    let is_policy = spec.get("podSelector").is_some();
    let is_empty = spec["policyTypes"].as_array().is_none_or(Vec::is_empty);
    if is_policy && is_empty {
        spec["policyTypes"] = json!(types);
    }
}

fn first_rule(spec: &mut Value) {
    for list in ["ingress", "egress"] {
        let rules = spec.get_mut(list).and_then(Value::as_array_mut);
        rules.into_iter().for_each(|rules| rules.truncate(1));
    }
}

fn no_peers_are_none(object: &mut Value) {
    each_object_rule(object, |rule, peers| {
        if rule[peers].as_array().is_none_or(Vec::is_empty) {
            rule[peers] = json!([{"ipBlock": {"cidr": "203.0.113.99/32"}}]);
        }
    });
}

fn invert_order(spec: &mut Value) {
    let order = spec["order"].as_u64().unwrap_or_default();
    spec["order"] = json!(1000_u64.saturating_sub(order));
}

fn exchange_tiers(spec: &mut Value) {
    spec["tier"] = match spec["tier"].as_str() {
        Some("kube-admin") => "kube-baseline".into(),
        Some("kube-baseline") => "kube-admin".into(),
        _ => spec["tier"].take(),
    };
}

fn pass_accepts(rule: &mut Value) {
    if rule["action"] == "Pass" {
        rule["action"] = "Allow".into();
    }
}

fn without_denials(spec: &mut Value) {
    for list in ["ingress", "egress"] {
        let rules = spec.get_mut(list).and_then(Value::as_array_mut);
        let denies_all = json!({"action": "Deny"});
        rules
            .into_iter()
            .for_each(|rules| rules.retain(|rule| *rule != denies_all));
    }
}

fn keep_running(object: &mut Value) {
    if object["status"]["phase"].is_string() {
        object["status"]["phase"] = "Running".into();
    }
}

fn without_init_containers(object: &mut Value) {
    remove(&mut object["spec"], "initContainers");
}

fn all_tcp(value: &mut Value) {
    let ports = value["spec"].get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        port["protocol"] = "TCP".into();
    }
}

fn without_labels(value: &mut Value) {
    let labels = value["metadata"]
        .get_mut("labels")
        .and_then(Value::as_object_mut);
    if let Some(labels) = labels {
        labels.retain(|key, _| key.starts_with("projectcalico.org/"));
    }
}
