//! ClusterNetworkPolicies (`policy.networking.k8s.io/v1alpha2`) as policies of Calico, in tiers.
//!
//! The API requires that a rule with an unreadable part fails closed: an `Accept` matches nothing,
//! and a `Deny` or `Pass` denies everything.

use calico_model::{
    Action, EntityRule, GlobalNetworkPolicySpec, Network, PolicyType, Resource, Rule, TierSpec,
};
use serde_json::{Number, Value, json};

use crate::limits::PRIORITY_MAX;
use crate::name::{ADMIN_PREFIX, BASELINE_PREFIX, prefixed};
use crate::network::network;
use crate::object::{begin, list, not, object};
use crate::policy::annotate;
use crate::port::{ByProtocol, Match, PROTOCOLS, Ports, is_name, number};
use crate::report::{Converted, Fault, Outcome, Reports};
use crate::rule::{RuleList, fields, too_long, whole};
use crate::selector::{PODS, terms};

/// The tier of administrators, in front of NetworkPolicies.
pub const ADMIN_TIER: &str = "kube-admin";

/// The baseline tier, behind NetworkPolicies.
pub const BASELINE_TIER: &str = "kube-baseline";

/// The orders of both tiers; that of the tier `default` is 1,000,000.
const TIER_ORDERS: [(&str, u32); 2] = [(ADMIN_TIER, 1_000), (BASELINE_TIER, 10_000_000)];

/// The consequence of an unreadable place or subject of a policy.
const DENIES: &str = "the policy keeps only its Deny rules, for all pods that its valid terms \
                      select, in front of the others";

/// Returns the tiers of ClusterNetworkPolicies. They must exist before a policy in them.
pub fn tiers() -> [Resource<TierSpec>; 2] {
    TIER_ORDERS.map(|(name, order)| {
        let spec = TierSpec {
            order: Some(Number::from(order)),
            default_action: Some(Action::Pass),
            ..TierSpec::default()
        };
        Resource::new(name, spec)
    })
}

/// The place of a policy among the others.
struct Place {
    tier: &'static str,
    prefix: &'static str,
    priority: u64,
}

/// Converts a ClusterNetworkPolicy. One without rules affects no traffic and has no resource.
pub fn cluster_network_policy(value: &Value) -> Converted<Resource<GlobalNetworkPolicySpec>> {
    let (mut reports, is_valid) = begin("ClusterNetworkPolicy", value, false);
    if !is_valid {
        return reports.unreadable();
    }
    let spec = &value["spec"];
    if !spec.is_object() {
        let reason = not(spec, "an object");
        reports.add("spec", format!("{reason}; the policy stays as it is"));
        return reports.unreadable();
    }
    const FIELDS: [&str; 5] = ["tier", "priority", "subject", "ingress", "egress"];
    if let Err(fault) = object(spec, "spec", &FIELDS) {
        reports.fault(fault, "it has no effect");
    }
    let mut converted = GlobalNetworkPolicySpec::default();
    let place = subject(&spec["subject"], &mut converted).and_then(|()| place(spec));
    let is_whole = place.is_ok();
    let place = place.unwrap_or_else(|fault| {
        reports.fault(fault, DENIES);
        Place {
            tier: ADMIN_TIER,
            prefix: prefix(spec),
            priority: 0,
        }
    });
    converted.tier = place.tier.to_owned();
    converted.order = Some(Number::from(place.priority));
    for direction in [PolicyType::Ingress, PolicyType::Egress] {
        let mut rules = self::direction(spec, direction, &mut reports);
        rules.retain(|rule| is_whole || rule.action == Action::Deny);
        if !rules.is_empty() {
            converted.types.push(direction);
        }
        match direction {
            PolicyType::Ingress => converted.ingress = rules,
            PolicyType::Egress => converted.egress = rules,
        }
    }
    if converted.types.is_empty() {
        return reports.done(Outcome::Absent);
    }
    let mut resource = Resource::new(&prefixed(place.prefix, &reports.object.name), converted);
    annotate(&mut resource, place.prefix, &reports);
    reports.done(Outcome::Resource(resource))
}

/// Returns the prefix of the name. An unknown tier has that of administrators.
fn prefix(spec: &Value) -> &'static str {
    match spec["tier"].as_str() {
        Some("Baseline") => BASELINE_PREFIX,
        _ => ADMIN_PREFIX,
    }
}

fn place(spec: &Value) -> Result<Place, Fault> {
    let tier = match spec["tier"].as_str() {
        Some("Admin") => ADMIN_TIER,
        Some("Baseline") => BASELINE_TIER,
        _ => {
            let reason = not(&spec["tier"], "\"Admin\" or \"Baseline\"");
            return Err(("spec.tier".to_owned(), reason));
        }
    };
    let priority = spec["priority"].as_u64();
    let priority = priority.filter(|priority| *priority <= PRIORITY_MAX);
    let fault = || {
        let expected = format!("a number from 0 to {PRIORITY_MAX}");
        (
            "spec.priority".to_owned(),
            not(&spec["priority"], &expected),
        )
    };
    Ok(Place {
        tier,
        prefix: prefix(spec),
        priority: priority.ok_or_else(fault)?,
    })
}

/// Reads the pods that the policy applies to. The readable terms are set in any case.
fn subject(value: &Value, spec: &mut GlobalNetworkPolicySpec) -> Result<(), Fault> {
    let path = "spec.subject";
    PODS.clone_into(&mut spec.selector);
    "all()".clone_into(&mut spec.namespace_selector);
    let (field, inner) = only(value, path, &["namespaces", "pods"])?;
    let path = format!("{path}.{field}");
    let (selected, fault) = match field {
        "namespaces" => namespaces(inner, &path),
        _ => pods(inner, &path),
    };
    spec.selector = selected.selector;
    spec.namespace_selector = selected.namespace_selector;
    whole((), [fault])
}

/// Returns the only field of an object that must have exactly one of these.
fn only<'v>(
    value: &'v Value,
    path: &str,
    known: &[&'static str],
) -> Result<(&'static str, &'v Value), Fault> {
    let object = object(value, path, known)?;
    let mut set = known.iter().filter_map(|field| {
        let value = object.get(*field).filter(|value| !value.is_null())?;
        Some((*field, value))
    });
    match (set.next(), set.next()) {
        (Some(only), None) => Ok(only),
        (_, second) => {
            let number = if second.is_some() {
                "more than one"
            } else {
                "none"
            };
            let reason = format!("{number} of the fields {} is set", known.join(", "));
            Err((path.to_owned(), reason))
        }
    }
}

/// Selects all pods of namespaces.
fn namespaces(value: &Value, path: &str) -> (EntityRule, Option<Fault>) {
    let found = terms(value, path);
    let selected = EntityRule {
        selector: PODS.to_owned(),
        namespace_selector: found.of_namespaces(),
        ..EntityRule::default()
    };
    (selected, found.fault)
}

/// Selects pods in namespaces. Without a selector of namespaces, all namespaces are meant.
fn pods(value: &Value, path: &str) -> (EntityRule, Option<Fault>) {
    let of_pods = terms(&value["podSelector"], &format!("{path}.podSelector"));
    let of_namespaces = terms(
        &value["namespaceSelector"],
        &format!("{path}.namespaceSelector"),
    );
    let selected = EntityRule {
        selector: of_pods.of_pods(),
        namespace_selector: of_namespaces.of_namespaces(),
        ..EntityRule::default()
    };
    let unknown = object(value, path, &["podSelector", "namespaceSelector"]).err();
    let missing = || match value["podSelector"].is_null() {
        true => Some((format!("{path}.podSelector"), "is required".to_owned())),
        false => None,
    };
    let fault = unknown.or_else(missing).or(of_pods.fault);
    (selected, fault.or(of_namespaces.fault))
}

/// Converts the rules of a direction.
fn direction(spec: &Value, direction: PolicyType, reports: &mut Reports) -> Vec<Rule> {
    let (name, _) = fields(direction);
    let path = format!("spec.{name}");
    let found = match list(&spec[name], &path) {
        Ok(found) => found,
        Err(fault) => {
            reports.fault(fault, "all traffic of this direction is denied");
            return vec![Rule::every(Action::Deny)];
        }
    };
    let denial = || Rule::every(Action::Deny);
    let mut all = RuleList::default();
    for (at, rule) in found.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let has_room = match convert(rule, &path, direction, &mut all) {
            Ok(has_room) => has_room,
            Err(fault) if rule["action"] == "Accept" => {
                reports.fault(fault, "the rule is left out");
                continue;
            }
            Err(fault) => {
                reports.fault(fault, "all traffic that reaches the rule is denied");
                all.push(denial())
            }
        };
        if !has_room {
            reports.fault(
                (path, too_long()),
                "all traffic that reaches the rule is denied",
            );
            all.close(denial());
            break;
        }
    }
    all.into_rules()
}

/// Converts a rule, with its name as an annotation. Returns whether there is room for it.
fn convert(
    value: &Value,
    path: &str,
    direction: PolicyType,
    all: &mut RuleList,
) -> Result<bool, Fault> {
    let (_, name) = fields(direction);
    object(value, path, &["name", "action", name, "protocols"])?;
    let action = match value["action"].as_str() {
        Some("Accept") => Action::Allow,
        Some("Deny") => Action::Deny,
        Some("Pass") => Action::Pass,
        _ => {
            let reason = not(&value["action"], "\"Accept\", \"Deny\" or \"Pass\"");
            return Err((format!("{path}.action"), reason));
        }
    };
    let (ports, has_names) = protocols(&value["protocols"], &format!("{path}.protocols"))?;
    let peers = peers(
        &value[name],
        &format!("{path}.{name}"),
        direction,
        has_names,
    )?;
    let mut base = Rule::every(action);
    if let Some(text) = value["name"].as_str().filter(|text| !text.is_empty()) {
        base.metadata = Some(json!({"annotations": {"name": text}}));
    }
    Ok(all.add(&base, &ports, &peers, direction))
}

/// Converts peers, of which at least one is required.
fn peers(
    value: &Value,
    path: &str,
    direction: PolicyType,
    has_names: bool,
) -> Result<Vec<EntityRule>, Fault> {
    let given = list(value, path)?;
    if given.is_empty() {
        return Err((path.to_owned(), "a peer is required".to_owned()));
    }
    let given = given.iter().enumerate();
    let peers =
        given.map(|(at, value)| peer(value, &format!("{path}[{at}]"), direction, has_names));
    peers.collect()
}

fn peer(
    value: &Value,
    path: &str,
    direction: PolicyType,
    has_names: bool,
) -> Result<EntityRule, Fault> {
    let known: &[&str] = match direction {
        PolicyType::Ingress => &["namespaces", "pods"],
        PolicyType::Egress => &["namespaces", "pods", "networks"],
    };
    let (field, inner) = only(value, path, known)?;
    let path = format!("{path}.{field}");
    let (peer, fault) = match field {
        "namespaces" => namespaces(inner, &path),
        "pods" => pods(inner, &path),
        _ if has_names => {
            let reason = "networks have no ports with names";
            return Err((path, reason.to_owned()));
        }
        _ => return networks(inner, &path),
    };
    whole(peer, [fault])
}

fn networks(value: &Value, path: &str) -> Result<EntityRule, Fault> {
    let given = list(value, path)?;
    if given.is_empty() {
        return Err((path.to_owned(), "a network is required".to_owned()));
    }
    let nets = given.iter().enumerate().map(|(at, value)| {
        let net = network(value).map_err(|reason| (format!("{path}[{at}]"), reason))?;
        Ok(Network(net))
    });
    Ok(EntityRule {
        nets: nets.collect::<Result<_, Fault>>()?,
        ..EntityRule::default()
    })
}

/// Converts protocols, and returns whether one of them is the name of a port. A name is valid for
/// all protocols.
fn protocols(value: &Value, path: &str) -> Result<(Vec<Ports>, bool), Fault> {
    let given = list(value, path)?;
    if given.is_empty() {
        return Ok((vec![(None, Vec::new())], false));
    }
    let (mut all, mut has_names) = (ByProtocol::default(), false);
    for (at, value) in given.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let known = ["sctp", "tcp", "udp", "destinationNamedPort"];
        let (field, inner) = only(value, &path, &known)?;
        let path = format!("{path}.{field}");
        let of_field = known
            .iter()
            .zip(PROTOCOLS)
            .find(|(name, _)| **name == field);
        match of_field {
            Some((_, protocol)) => all.add(protocol, port(inner, &path)?),
            None => {
                let name = inner.as_str().filter(|name| is_name(name));
                let name = name.ok_or_else(|| (path, not(inner, "the name of a port")))?;
                has_names = true;
                for protocol in PROTOCOLS {
                    all.add(protocol, Match::Name(name.to_owned()));
                }
            }
        }
    }
    Ok((all.into_ports(), has_names))
}

/// Reads the ports of a protocol.
fn port(value: &Value, path: &str) -> Result<Match, Fault> {
    let (_, port) = only(value, path, &["destinationPort"])?;
    let path = format!("{path}.destinationPort");
    let (field, inner) = only(port, &path, &["number", "range"])?;
    let path = format!("{path}.{field}");
    if field == "number" {
        let number = number(inner).ok_or_else(|| (path, not(inner, "a port")))?;
        return Ok(Match::Range(number, number));
    }
    object(inner, &path, &["start", "end"])?;
    let ends = number(&inner["start"]).zip(number(&inner["end"]));
    match ends.filter(|(first, last)| first <= last) {
        Some((first, last)) => Ok(Match::Range(first, last)),
        None => Err((path, not(inner, "a range of ports"))),
    }
}

#[cfg(test)]
mod tests;
