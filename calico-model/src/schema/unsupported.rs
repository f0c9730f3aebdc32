//! The fields of a resource without effect.

use std::fmt;

use serde_json::{Map, Value};

use super::policy::RULE;
use super::{Field, Fields, Program, Shape, Support, fields, is_set, may_match};
use crate::key::kind::Kind;
use crate::resource::rule::{Action, Rule};

/// A field that is set in a resource without the requested effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedField {
    /// Its path, such as `spec.ingress[0].http`.
    pub field: String,
    /// The reason, and the measure taken.
    pub reason: String,
    /// The program that reports it in its status, if there is one.
    pub due: Option<Program>,
}

impl fmt::Display for UnsupportedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

const UNKNOWN: &str = "the field is unknown and has no effect";
const NAME: &str = "a FelixConfiguration with another name than default and node.<hostname> needs a \
    nodeSelector: its settings have no effect";

/// Returns the fields of a stored resource that are set and have no effect.
pub fn unsupported_fields(kind: Kind, resource: &Value) -> Vec<UnsupportedField> {
    let mut found = Vec::new();
    if kind == Kind::FelixConfiguration
        && let Some(name) = resource.pointer("/metadata/name").and_then(Value::as_str)
        && name != "default"
        && !name.starts_with("node.")
        && !resource.pointer("/spec/nodeSelector").is_some_and(is_set)
    {
        found.push(unsupported("metadata.name", NAME, Some(Program::Felix)));
        return found;
    }
    let spec = fields(kind).iter().find(|field| field.name == "spec");
    if let Some(spec) = spec {
        let due = reporter(kind);
        let value = resource.get("spec").unwrap_or(&Value::Null);
        field("spec", spec, value, due, &mut found);
    }
    found
}

/// Returns the first unsupported condition of a rule: the rule must not be applied without it.
pub fn unsupported_in_rule(rule: &Rule) -> Option<UnsupportedField> {
    in_rule(serde_json::to_value(rule))
}

/// Returns the same; a rule that cannot be serialized may contain any condition.
pub(super) fn in_rule<E: fmt::Display>(rule: Result<Value, E>) -> Option<UnsupportedField> {
    let mut found = Vec::new();
    match rule {
        Ok(Value::Object(rule)) => object("", &rule, RULE, None, &mut found),
        Ok(_) => found.push(unsupported("", "the rule is no object", None)),
        Err(error) => {
            let reason = format!("the rule cannot be checked: {error}");
            found.push(unsupported("", reason, None));
        }
    }
    found.into_iter().next()
}

/// Returns the program that reports unknown fields of a kind. There is none for Node, which
/// calico-node writes, and none for kinds that no daemon reads.
const fn reporter(kind: Kind) -> Option<Program> {
    match kind {
        Kind::BgpConfiguration | Kind::BgpPeer | Kind::BgpFilter | Kind::BfdConfiguration => {
            Some(Program::Bgp)
        }
        Kind::FelixConfiguration
        | Kind::IpPool
        | Kind::WorkloadEndpoint
        | Kind::HostEndpoint
        | Kind::Profile
        | Kind::NetworkPolicy
        | Kind::GlobalNetworkPolicy
        | Kind::Tier
        | Kind::NetworkSet
        | Kind::GlobalNetworkSet => Some(Program::Felix),
        _ => None,
    }
}

fn unsupported(
    field: impl Into<String>,
    reason: impl Into<String>,
    due: Option<Program>,
) -> UnsupportedField {
    UnsupportedField {
        field: field.into(),
        reason: reason.into(),
        due,
    }
}

fn field(
    path: &str,
    field: &Field,
    value: &Value,
    reporter: Option<Program>,
    found: &mut Vec<UnsupportedField>,
) {
    match field.support {
        Support::By(_) | Support::Record => {}
        Support::No { due, asks, reason } if asks(value) => {
            found.push(unsupported(path, reason, due));
        }
        Support::No { .. } => {}
        Support::Parts => part(path, field.shape, value, reporter, found),
    }
}

fn part(
    path: &str,
    shape: Shape,
    value: &Value,
    reporter: Option<Program>,
    found: &mut Vec<UnsupportedField>,
) {
    let Some((fields, is_list)) = shape.parts() else {
        return;
    };
    if !is_list {
        if let Value::Object(value) = value {
            object(path, value, fields, reporter, found);
        }
        return;
    }
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        let Value::Object(item) = item else { continue };
        let known = found.len();
        object(&format!("{path}[{at}]"), item, fields, reporter, found);
        if let Shape::Rules = shape {
            let action = item.get("action").cloned().unwrap_or_default();
            let action: Option<Action> = serde_json::from_value(action).ok();
            let instead = action.map(Action::when_unsupported);
            for one in found.iter_mut().skip(known) {
                one.reason = [Some(&*one.reason), instead]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join("; ");
            }
        }
    }
}

fn object(
    path: &str,
    value: &Map<String, Value>,
    fields: Fields,
    reporter: Option<Program>,
    found: &mut Vec<UnsupportedField>,
) {
    for (name, inner) in value {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        match fields.iter().find(|field| field.name == name) {
            Some(known) => field(&path, known, inner, reporter, found),
            None if may_match(inner) => found.push(unsupported(path, UNKNOWN, reporter)),
            None => {}
        }
    }
}
