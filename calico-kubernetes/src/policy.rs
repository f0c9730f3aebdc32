//! NetworkPolicies as policies of Calico.

use calico_model::{
    Action, DEFAULT_TIER, EntityRule, Network, NetworkPolicySpec, PolicyType, Resource, Rule,
};
use serde_json::{Number, Value};

use crate::name::{POLICY_PREFIX, prefixed};
use crate::network::network;
use crate::object::{begin, list, not, object};
use crate::port::{ByProtocol, Match, Ports, is_name, number, protocol};
use crate::report::{Converted, Fault, Outcome, Reports};
use crate::rule::{RuleList, fields, too_long, whole};
use crate::selector::{PODS, terms};

/// The order of these policies in their tier.
const ORDER: u32 = 1000;

/// The annotation with the name of the object if the resource has another one.
pub const NAME_ANNOTATION: &str = "cambric.io/kubernetes-name";

/// The consequence of an invalid subject or direction.
const ISOLATES: &str = "the policy isolates all pods that its valid terms select";

/// The protocol of a port without one.
const TCP: &str = "TCP";

/// Converts a NetworkPolicy (`networking.k8s.io/v1`).
///
/// All of its rules allow. So an invalid part is left out, with all that it would allow: a port, a
/// peer or a rule. If the selected pods or the directions are invalid, the policy has no rules.
pub fn network_policy(value: &Value) -> Converted<Resource<NetworkPolicySpec>> {
    let (mut reports, is_valid) = begin("NetworkPolicy", value, true);
    if !is_valid {
        return reports.unreadable();
    }
    let spec = spec(&value["spec"], &mut reports);
    let stored = prefixed(POLICY_PREFIX, &reports.object.name);
    let mut resource = Resource::namespaced(&reports.object.namespace, &stored, spec);
    annotate(&mut resource, POLICY_PREFIX, &reports);
    reports.done(Outcome::Resource(resource))
}

/// Adds the name of the object if its resource does not contain it.
pub(crate) fn annotate<const GLOBAL: bool>(
    resource: &mut Resource<calico_model::PolicySpec<GLOBAL>>,
    prefix: &str,
    reports: &Reports,
) {
    if !resource.metadata.name.starts_with(prefix) {
        let name = reports.object.name.clone();
        let annotations = &mut resource.metadata.annotations;
        annotations.insert(NAME_ANNOTATION.to_owned(), name);
    }
}

fn spec(value: &Value, reports: &mut Reports) -> NetworkPolicySpec {
    let mut spec = NetworkPolicySpec {
        tier: DEFAULT_TIER.to_owned(),
        order: Some(Number::from(ORDER)),
        selector: PODS.to_owned(),
        types: vec![PolicyType::Ingress, PolicyType::Egress],
        ..NetworkPolicySpec::default()
    };
    if !value.is_object() && !value.is_null() {
        reports.fault(("spec".to_owned(), not(value, "an object")), ISOLATES);
        return spec;
    }
    const FIELDS: [&str; 4] = ["podSelector", "policyTypes", "ingress", "egress"];
    if let Err(fault) = object(value, "spec", &FIELDS)
        && !value.is_null()
    {
        reports.fault(fault, "it has no effect");
    }
    let subject = terms(&value["podSelector"], "spec.podSelector");
    spec.selector = subject.of_pods();
    match whole((), [subject.fault]) {
        Ok(()) => {
            spec.ingress = direction(value, PolicyType::Ingress, reports);
            spec.egress = direction(value, PolicyType::Egress, reports);
        }
        Err(fault) => reports.fault(fault, ISOLATES),
    }
    match types(value) {
        (types, None) => spec.types = types,
        (valid, Some(fault)) => {
            // Rules of a direction that the policy may not have could open pods that others isolate.
            reports.fault(
                fault,
                "the policy isolates in the directions without a valid type",
            );
            if !valid.contains(&PolicyType::Ingress) {
                spec.ingress.clear();
            }
            if !valid.contains(&PolicyType::Egress) {
                spec.egress.clear();
            }
        }
    }
    spec
}

/// Reads the directions, and the first fault. Without any, they follow from the rules, as servers set
/// them.
fn types(spec: &Value) -> (Vec<PolicyType>, Option<Fault>) {
    let types = match list(&spec["policyTypes"], "spec.policyTypes") {
        Ok(types) => types,
        Err(fault) => return (Vec::new(), Some(fault)),
    };
    let (mut given, mut invalid) = ([false; 2], None);
    for (at, one) in types.iter().enumerate() {
        match one.as_str() {
            Some("Ingress") => given[0] = true,
            Some("Egress") => given[1] = true,
            _ => {
                let field = format!("spec.policyTypes[{at}]");
                let reason = not(one, "\"Ingress\" or \"Egress\"");
                invalid.get_or_insert((field, reason));
            }
        }
    }
    if types.is_empty() {
        let egress = &spec["egress"];
        let is_empty = egress.is_null() || egress.as_array().is_some_and(Vec::is_empty);
        given = [true, !is_empty];
    }
    let all = [PolicyType::Ingress, PolicyType::Egress];
    let all = all.into_iter().zip(given).filter(|(_, given)| *given);
    (all.map(|(direction, _)| direction).collect(), invalid)
}

/// Converts the rules of a direction.
fn direction(spec: &Value, direction: PolicyType, reports: &mut Reports) -> Vec<Rule> {
    let (name, _) = fields(direction);
    let path = format!("spec.{name}");
    let found = match list(&spec[name], &path) {
        Ok(found) => found,
        Err(fault) => {
            reports.fault(fault, "the direction has no rules");
            return Vec::new();
        }
    };
    let mut all = RuleList::default();
    for (at, rule) in found.iter().enumerate() {
        let path = format!("{path}[{at}]");
        match convert(rule, &path, direction, &mut all, reports) {
            Ok(true) => {}
            Ok(false) => {
                reports.fault((path, too_long()), "further rules are left out");
                break;
            }
            Err(fault) => reports.fault(fault, "the rule is left out"),
        }
    }
    all.into_rules()
}

/// Converts a rule. Returns whether there is room for it.
fn convert(
    value: &Value,
    path: &str,
    direction: PolicyType,
    all: &mut RuleList,
    reports: &mut Reports,
) -> Result<bool, Fault> {
    let (_, name) = fields(direction);
    object(value, path, &[name, "ports"])?;
    let peers = peers(&value[name], &format!("{path}.{name}"), reports)?;
    let ports = ports(&value["ports"], &format!("{path}.ports"), reports)?;
    Ok(all.add(&Rule::every(Action::Allow), &ports, &peers, direction))
}

/// Converts peers. Without any, all traffic is meant; if all of them are invalid, none.
fn peers(value: &Value, path: &str, reports: &mut Reports) -> Result<Vec<EntityRule>, Fault> {
    let given = list(value, path)?;
    if given.is_empty() {
        return Ok(vec![EntityRule::default()]);
    }
    let mut all = Vec::new();
    for (at, value) in given.iter().enumerate() {
        match peer(value, &format!("{path}[{at}]"), reports) {
            Ok(peer) => all.push(peer),
            Err(fault) => reports.fault(fault, "the peer is left out"),
        }
    }
    Ok(all)
}

fn peer(value: &Value, path: &str, reports: &mut Reports) -> Result<EntityRule, Fault> {
    const FIELDS: [&str; 3] = ["podSelector", "namespaceSelector", "ipBlock"];
    object(value, path, &FIELDS)?;
    let [pods, namespaces, block] = FIELDS.map(|field| &value[field]);
    match (block, pods.is_null() && namespaces.is_null()) {
        (Value::Null, true) => Err((path.to_owned(), "the peer is empty".to_owned())),
        (Value::Null, false) => selected(pods, namespaces, path),
        (_, false) => {
            let reason = "ipBlock and a selector exclude each other";
            Err((path.to_owned(), reason.to_owned()))
        }
        (block, true) => self::block(block, &format!("{path}.ipBlock"), reports),
    }
}

/// Converts a peer of selectors. Without a selector of namespaces, the pods are those of the
/// policy's namespace.
fn selected(pods: &Value, namespaces: &Value, path: &str) -> Result<EntityRule, Fault> {
    let of_pods = terms(pods, &format!("{path}.podSelector"));
    let of_namespaces = terms(namespaces, &format!("{path}.namespaceSelector"));
    let peer = EntityRule {
        selector: of_pods.of_pods(),
        namespace_selector: match namespaces {
            Value::Null => String::new(),
            _ => of_namespaces.of_namespaces(),
        },
        ..EntityRule::default()
    };
    whole(peer, [of_pods.fault, of_namespaces.fault])
}

/// Converts a network with exceptions. An exception outside the network excludes nothing.
fn block(value: &Value, path: &str, reports: &mut Reports) -> Result<EntityRule, Fault> {
    object(value, path, &["cidr", "except"])?;
    let field = format!("{path}.cidr");
    let net = network(&value["cidr"]).map_err(|reason| (field, reason))?;
    let mut peer = EntityRule {
        nets: vec![Network(net)],
        ..EntityRule::default()
    };
    let path = format!("{path}.except");
    for (at, except) in list(&value["except"], &path)?.iter().enumerate() {
        let field = format!("{path}[{at}]");
        let found = network(except).map_err(|reason| (field.clone(), reason))?;
        if net.contains(&found) || found.contains(&net) {
            peer.not_nets.push(Network(found));
        } else {
            reports.add(
                field,
                format!("{found} is not in {net}; it excludes nothing"),
            );
        }
    }
    Ok(peer)
}

/// Converts ports. Without any, all traffic is meant; if all of them are invalid, none.
fn ports(value: &Value, path: &str, reports: &mut Reports) -> Result<Vec<Ports>, Fault> {
    let given = list(value, path)?;
    if given.is_empty() {
        return Ok(vec![(None, Vec::new())]);
    }
    let mut all = ByProtocol::default();
    for (at, value) in given.iter().enumerate() {
        match port(value, &format!("{path}[{at}]")) {
            Ok((protocol, ports)) => all.add(protocol, ports),
            Err(fault) => reports.fault(fault, "the port is left out"),
        }
    }
    Ok(all.into_ports())
}

fn port(value: &Value, path: &str) -> Result<(&'static str, Match), Fault> {
    object(value, path, &["protocol", "port", "endPort"])?;
    let protocol = match &value["protocol"] {
        Value::Null => TCP,
        name => protocol(name).ok_or_else(|| {
            let reason = not(name, "TCP, UDP or SCTP");
            (format!("{path}.protocol"), reason)
        })?,
    };
    let ports = match (&value["port"], &value["endPort"]) {
        (Value::Null, Value::Null) => Match::All,
        (Value::String(name), Value::Null) if is_name(name) => Match::Name(name.clone()),
        (first, end) => {
            let reason = || not(first, "a port, or the name of a port without an endPort");
            let first = number(first).ok_or_else(|| (format!("{path}.port"), reason()))?;
            range(first, end, path)?
        }
    };
    Ok((protocol, ports))
}

fn range(first: u16, end: &Value, path: &str) -> Result<Match, Fault> {
    if end.is_null() {
        return Ok(Match::Range(first, first));
    }
    let last = number(end).filter(|last| *last >= first);
    let fault = || {
        let reason = not(end, &format!("a port from {first} to 65535"));
        (format!("{path}.endPort"), reason)
    };
    last.map(|last| Match::Range(first, last)).ok_or_else(fault)
}

#[cfg(test)]
mod tests;
