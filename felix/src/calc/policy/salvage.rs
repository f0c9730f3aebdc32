//! The substitute for an unparsable policy without an earlier valid value.
//!
//! The policy may have been one that denies, so it must not count as missing; but it must not close
//! more than necessary. All parsable parts are applied. An unparsable rule drops everything that
//! reaches it. If its endpoints, directions or position are unknown, the policy closes everything
//! that it may apply to, before all policies that it may precede.

use calico_model::{Metadata, PolicySpec, PolicyType, Resource, ResourceKey, Rule, Selector};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::super::types::Problem;
use super::order::BEFORE_ALL;
use super::read::{Policy, Scope, owner, place, tie};
use crate::render::{Compiled, Context, Direction, compile, subjects};

/// The fields of a spec; `None` if they cannot be separated.
#[derive(Clone, Copy)]
struct Fields<'v>(Option<&'v Map<String, Value>>);

impl<'v> Fields<'v> {
    /// Returns a field, or its default if it is missing; `None` if it is unparsable.
    fn get<T: DeserializeOwned + Default>(self, name: &str) -> Option<T> {
        match self.0?.get(name) {
            None | Some(Value::Null) => Some(T::default()),
            Some(value) => T::deserialize(value).ok(),
        }
    }

    fn selector(self, name: &str) -> Option<String> {
        let text: String = self.get(name)?;
        let reads = text.trim().is_empty() || text.parse::<Selector>().is_ok();
        reads.then_some(text)
    }

    /// Returns the rules of a direction.
    fn rules(self, direction: Direction) -> Rules {
        let stored: Option<Vec<Value>> = self.get(direction.field());
        let mut rules = Rules {
            given: stored.as_ref().map(|stored| !stored.is_empty()),
            good: Vec::new(),
            whole: false,
        };
        for rule in stored.iter().flatten() {
            match Rule::deserialize(rule) {
                Ok(rule) => rules.good.push(rule),
                Err(_) => return rules,
            }
        }
        rules.whole = stored.is_some();
        rules
    }
}

/// The parsable rules of a direction.
struct Rules {
    /// Whether there are any, if known.
    given: Option<bool>,
    /// The rules before the first unparsable one.
    good: Vec<Rule>,
    /// All rules are included.
    whole: bool,
}

/// Returns the substitute, and its description.
pub(crate) fn broken(key: &ResourceKey, octets: &[u8], problem: &Problem) -> (Policy, String) {
    let value: Option<Value> = serde_json::from_slice(octets).ok();
    let nothing = Map::new();
    let fields =
        Fields(value.as_ref().and_then(Value::as_object).and_then(
            |whole| match whole.get("spec") {
                None | Some(Value::Null) => Some(&nothing),
                Some(spec) => spec.as_object(),
            },
        ));
    let metadata = value.as_ref().and_then(|value| value.get("metadata"));
    let selectors = ["selector", "namespaceSelector", "serviceAccountSelector"];
    let [selector, namespaces, accounts] = selectors.map(|name| fields.selector(name));
    let untracked: Option<bool> = fields.get("doNotTrack");
    let untranslated: Option<bool> = fields.get("preDNAT");
    let forwarded: Option<bool> = fields.get("applyOnForward");
    let (tier, order) = (fields.get::<String>("tier"), fields.get("order"));
    let ingress = fields.rules(Direction::Ingress);
    let egress = fields.rules(Direction::Egress);
    let types = types(fields, &ingress, &egress);

    // Unknown: it may apply to forwarded packets.
    let scope = Scope::from_fields(
        untracked == Some(true),
        untranslated == Some(true),
        forwarded != Some(false),
    );
    let is_placed = tier.is_some() && order.is_some();
    let is_for = [&selector, &namespaces, &accounts];
    let is_known = is_placed
        && is_for.iter().all(|part| part.is_some())
        && types.is_some()
        && untracked.is_some()
        && untranslated.is_some();
    let reason = problem.what();
    let name = name(key, metadata, tier.as_deref());
    let owner = owner(key, &name, tier.as_deref().unwrap_or_default(), scope);
    let context = Context::default();
    let side = |kind, direction, rules: &Rules| {
        let asked = types.as_ref().is_none_or(|types| types.contains(&kind));
        (asked && scope.has(direction)).then(|| match is_known {
            true if rules.whole => compile(direction, &owner, &rules.good, &context),
            true => compile(direction, &owner, &rules.good, &context).then_closed(&reason),
            false => Compiled::closed(direction, &owner.id, &reason),
        })
    };
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let subjects = subjects(
        key.namespace(),
        &part(&selector),
        &part(&namespaces),
        &part(&accounts),
    );
    let policy = Policy {
        tie: tie(key, &name),
        tier: match tier.as_deref() {
            None => BEFORE_ALL.to_owned(),
            Some("") => calico_model::DEFAULT_TIER.to_owned(),
            Some(tier) => tier.to_owned(),
        },
        order: match &order {
            None => f64::NEG_INFINITY,
            Some(order) => place(Option::as_ref(order)),
        },
        scope,
        // Each part was found to be a selector.
        subjects: subjects.unwrap_or_default(),
        ingress: side(PolicyType::Ingress, Direction::Ingress, &ingress),
        egress: side(PolicyType::Egress, Direction::Egress, &egress),
        broken: true,
    };
    let words = words(&policy, is_known);
    (policy, words)
}

/// Returns the directions that it applies to, as in [`PolicySpec::effective_types`]; `None` if
/// unknown.
fn types(fields: Fields<'_>, ingress: &Rules, egress: &Rules) -> Option<Vec<PolicyType>> {
    let given: Vec<PolicyType> = fields.get("types")?;
    if !given.is_empty() {
        return Some(given);
    }
    Some(match (ingress.given?, egress.given?) {
        (true, true) => vec![PolicyType::Ingress, PolicyType::Egress],
        (false, true) => vec![PolicyType::Egress],
        (_, false) => vec![PolicyType::Ingress],
    })
}

/// Returns the name for users, as far as it can be determined.
fn name(key: &ResourceKey, metadata: Option<&Value>, tier: Option<&str>) -> String {
    let metadata = metadata.and_then(|metadata| Metadata::deserialize(metadata).ok());
    let resource = Resource {
        metadata: Metadata {
            name: key.name().to_owned(),
            ..metadata.unwrap_or_default()
        },
        spec: PolicySpec::<true> {
            tier: tier.unwrap_or_default().to_owned(),
            ..PolicySpec::default()
        },
        ..Resource::default()
    };
    resource.real_name()
}

/// Returns the description of the substitute.
fn words(policy: &Policy, is_known: bool) -> String {
    let closes = match (&policy.ingress, &policy.egress) {
        (None, None) => return "it applies to no packet".into(),
        (Some(_), Some(_)) => "ingress and egress",
        (Some(_), None) => "ingress",
        (None, Some(_)) => "egress",
    };
    match is_known {
        true => "its readable rules are applied; an unreadable rule drops all packets that reach \
             it"
        .into(),
        false => format!(
            "until it is readable, it closes {closes} of all endpoints that it may \
            apply to"
        ),
    }
}
