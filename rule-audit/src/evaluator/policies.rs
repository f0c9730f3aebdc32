//! Policies and tiers.

use serde_json::Value;

use super::endpoints::Endpoint;
use super::rules::{Rule, rules, selector};
use super::selector::Selector;
use super::values::{NAMESPACE, OF_ACCOUNT, OF_NAMESPACE, SERVICE_ACCOUNT, texts};
use crate::space::Act;

/// The tier of policies that name none.
const DEFAULT_TIER: &str = "default";
/// The order of this tier if it is not stored.
const DEFAULT_TIER_ORDER: f64 = 1_000_000.0;

/// A direction of traffic, from the view of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Traffic to it.
    Ingress,
    /// Traffic from it.
    Egress,
}

impl Direction {
    /// Returns the other direction.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Ingress => Self::Egress,
            Self::Egress => Self::Ingress,
        }
    }
}

/// The packets that policies decide about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Packets of a workload, or packets to and of the host.
    Normal,
    /// Packets through the host, at its host endpoints.
    Forward,
    /// Packets that arrive, before their destination is translated.
    Untranslated,
    /// Packets before connection tracking.
    Untracked,
}

/// The packets of host endpoints that a policy applies to, besides those of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Packets to the host and of it; also those through it, or not.
    Normal(bool),
    /// `preDNAT`.
    Untranslated,
    /// `doNotTrack`.
    Untracked,
}

/// A policy.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) tier: String,
    purpose: Purpose,
    order: f64,
    tie: String,
    /// The namespace of a NetworkPolicy.
    namespace: Option<String>,
    /// The endpoints that it applies to.
    subjects: Selector,
    pub(super) ingress: Option<Vec<Rule>>,
    pub(super) egress: Option<Vec<Rule>>,
    /// Why it cannot be evaluated, if so: then it makes the outcome for all its endpoints unknown.
    pub(super) fault: Option<String>,
}

/// A tier.
#[derive(Clone, Debug)]
pub(super) struct Tier {
    order: f64,
    pub(super) denies: bool,
    pub(super) fault: Option<String>,
}

impl Policy {
    pub(super) fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        let rules = match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        };
        rules.as_deref()
    }

    pub(super) fn applies_to(&self, endpoint: &Endpoint) -> bool {
        let namespace = self.namespace.as_ref();
        namespace.is_none_or(|own| *own == endpoint.namespace)
            && self.subjects.selects_map(&endpoint.labels)
    }

    /// Returns whether it decides about the packets of a stage.
    pub(super) fn is_of(&self, stage: Stage) -> bool {
        match (self.purpose, stage) {
            (Purpose::Normal(_), Stage::Normal)
            | (Purpose::Normal(true), Stage::Forward)
            | (Purpose::Untranslated, Stage::Untranslated)
            | (Purpose::Untracked, Stage::Untracked) => true,
            (Purpose::Normal(_) | Purpose::Untranslated | Purpose::Untracked, _) => false,
        }
    }

    /// Returns the act for packets that one of its rules allows.
    pub(super) const fn accepts(&self) -> Act {
        match self.purpose {
            Purpose::Normal(_) => Act::Accept,
            Purpose::Untranslated => Act::Marked,
            Purpose::Untracked => Act::Untracked,
        }
    }

    /// Returns the sort key in its tier.
    pub(super) fn position(&self) -> (f64, &str) {
        (self.order, &self.tie)
    }
}

/// Returns the sort key of a tier, and whether a packet is dropped that none of its policies decides.
pub(super) fn rank<'t>(name: &'t str, stored: Option<&Tier>) -> ((bool, f64, &'t str), bool) {
    match stored {
        Some(tier) => ((false, tier.order, name), tier.denies),
        None if name == DEFAULT_TIER => ((false, DEFAULT_TIER_ORDER, name), true),
        None => ((true, f64::INFINITY, name), true),
    }
}

pub(super) fn tier(value: &Value) -> Tier {
    let spec = &value["spec"];
    let action = &spec["defaultAction"];
    let order = order(&spec["order"]);
    let is_known = action.is_null() || action == "Deny" || action == "Pass" || action == "";
    let is_readable = is_known && order.is_some();
    Tier {
        order: order.unwrap_or(f64::INFINITY),
        denies: action != "Pass",
        fault: (!is_readable).then(|| "its tier is unreadable".to_owned()),
    }
}

fn order(value: &Value) -> Option<f64> {
    match value {
        Value::Null => Some(f64::INFINITY),
        number => number.as_f64(),
    }
}

/// Reads a policy.
pub(super) fn policy(namespace: Option<&str>, stored: &str, value: &Value) -> Policy {
    let spec = &value["spec"];
    let tier = match spec["tier"].as_str() {
        None | Some("") => DEFAULT_TIER,
        Some(tier) => tier,
    };
    let (kind, plural) = match namespace {
        Some(_) => ("NetworkPolicy", "networkpolicies"),
        None => ("GlobalNetworkPolicy", "globalnetworkpolicies"),
    };
    let own = namespace.unwrap_or_default();
    let place = match namespace {
        Some(namespace) => format!("{plural}/{namespace}/{stored}"),
        None => format!("{plural}/{stored}"),
    };
    let read = |field: &str| rules(&spec[field], namespace, &format!("{place} spec.{field}"));
    let (ingress, egress) = (read("ingress"), read("egress"));
    let types = types(spec);
    let subjects = subjects(namespace, spec);
    let number = order(&spec["order"]);
    let purpose = match namespace {
        Some(_) => Ok(Purpose::Normal(false)),
        None => purpose(spec),
    };
    let fault = match (&subjects, &types) {
        (Err(field), _) => Some(format!("spec.{field}")),
        (_, None) => Some("spec.types".to_owned()),
        _ if ingress.is_none() => Some("spec.ingress".to_owned()),
        _ if egress.is_none() => Some("spec.egress".to_owned()),
        _ if number.is_none() => Some("spec.order".to_owned()),
        _ if purpose.is_err() => purpose.err().map(|field| format!("spec.{field}")),
        _ if !(spec["tier"].is_null() || spec["tier"].is_string()) => Some("spec.tier".to_owned()),
        _ => None,
    };
    let fault = fault.map(|field| format!("{place}: {field} is unreadable"));
    let types = match fault {
        Some(_) => [true; 2],
        None => types.unwrap_or_default(),
    };
    Policy {
        tier: tier.to_owned(),
        purpose: purpose.unwrap_or(Purpose::Normal(true)),
        order: number.unwrap_or(f64::INFINITY),
        tie: format!("{}/{own}/{kind}", name(stored, tier, value)),
        namespace: namespace.map(str::to_owned),
        subjects: subjects.unwrap_or(Selector::All),
        ingress: ingress
            .filter(|_| types[0])
            .or_else(|| types[0].then(Vec::new)),
        egress: egress
            .filter(|_| types[1])
            .or_else(|| types[1].then(Vec::new)),
        fault,
    }
}

/// Reads the purpose of a global policy; the error is the field that is unreadable.
fn purpose(spec: &Value) -> Result<Purpose, &'static str> {
    let is = |field: &'static str| match &spec[field] {
        Value::Null => Ok(false),
        value => value.as_bool().ok_or(field),
    };
    let (untracked, untranslated) = (is("doNotTrack")?, is("preDNAT")?);
    match (untracked, untranslated) {
        (true, true) => Err("preDNAT"),
        (true, false) => Ok(Purpose::Untracked),
        (false, true) => Ok(Purpose::Untranslated),
        (false, false) => Ok(Purpose::Normal(is("applyOnForward")?)),
    }
}

/// Returns the name of a policy: older clients store the tier in it, newer ones an annotation.
fn name(stored: &str, tier: &str, value: &Value) -> String {
    let annotation = &value["metadata"]["annotations"]["projectcalico.org/metadata"];
    let annotation = annotation.as_str().and_then(|text| {
        let read: Value = serde_json::from_str(text).ok()?;
        Some(read["name"].as_str()?.to_owned())
    });
    match annotation {
        Some(name) => name,
        None if tier == DEFAULT_TIER => {
            stored.strip_prefix("default.").unwrap_or(stored).to_owned()
        }
        None => stored.to_owned(),
    }
}

/// Returns whether a policy applies to ingress and to egress; `None` if the types are unreadable.
fn types(spec: &Value) -> Option<[bool; 2]> {
    let given = texts(&spec["types"]);
    let length = spec["types"].as_array().map_or(0, Vec::len);
    if given.len() != length || !(spec["types"].is_null() || spec["types"].is_array()) {
        return None;
    }
    if given.iter().any(|one| one != "Ingress" && one != "Egress") {
        return None;
    }
    if !given.is_empty() {
        return Some(["Ingress", "Egress"].map(|one| given.iter().any(|given| given == one)));
    }
    let has = |field: &str| {
        spec[field]
            .as_array()
            .is_some_and(|rules| !rules.is_empty())
    };
    Some([has("ingress") || !has("egress"), has("egress")])
}

fn subjects(namespace: Option<&str>, spec: &Value) -> Result<Selector, String> {
    let mut parts = Vec::new();
    if let Some(namespace) = namespace {
        parts.push(Selector::equal(NAMESPACE, namespace));
    } else if let Some(namespaces) = selector(spec, "namespaceSelector")? {
        parts.push(namespaces.inherited(OF_NAMESPACE, NAMESPACE));
    }
    if let Some(accounts) = selector(spec, "serviceAccountSelector")? {
        parts.push(accounts.inherited(OF_ACCOUNT, SERVICE_ACCOUNT));
    }
    parts.extend(selector(spec, "selector")?);
    Ok(Selector::And(parts))
}
