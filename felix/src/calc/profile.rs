//! The effect of the rules of a profile.

use std::collections::BTreeMap;

use calico_model::{Action, ProfileSpec, Rule};

use crate::render::{Compiled, Context, Direction, Owner, compile};

/// One direction of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Outcome {
    /// All traffic passes.
    Allow,
    /// All traffic is dropped.
    Deny,
    /// The next profile decides.
    #[default]
    Next,
    /// Rules with conditions decide, and if none matches, the next profile.
    Ask(Compiled),
}

/// A profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Profile {
    /// Rules for traffic to its endpoints.
    pub(super) ingress: Outcome,
    /// Rules for traffic from them.
    pub(super) egress: Outcome,
    /// Labels that its endpoints inherit.
    pub(super) labels: BTreeMap<String, String>,
}

impl Profile {
    pub(super) fn new(name: &str, spec: &ProfileSpec) -> Self {
        Self {
            ingress: outcome(Direction::Ingress, name, &spec.ingress),
            egress: outcome(Direction::Egress, name, &spec.egress),
            labels: spec.labels_to_apply.clone(),
        }
    }

    /// Returns the profile that allows everything.
    pub(super) const fn default_allow() -> Self {
        Self {
            ingress: Outcome::Allow,
            egress: Outcome::Allow,
            labels: BTreeMap::new(),
        }
    }

    /// Returns the profile with its rules in this context.
    #[must_use]
    pub(super) fn within(mut self, context: &Context) -> Self {
        for side in [&mut self.ingress, &mut self.egress] {
            if let Outcome::Ask(compiled) = side
                && let Some(other) = compiled.within(context)
            {
                *compiled = other;
            }
        }
        self
    }

    pub(super) const fn side(&self, direction: Direction) -> &Outcome {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }

    pub(super) fn chains(&self) -> impl Iterator<Item = &Compiled> {
        let sides = [&self.ingress, &self.egress].into_iter();
        sides.filter_map(|side| match side {
            Outcome::Ask(compiled) => Some(compiled),
            _ => None,
        })
    }
}

fn outcome(direction: Direction, name: &str, rules: &[Rule]) -> Outcome {
    if !rules.iter().any(|rule| rule.action == Action::Log) {
        let first = rules.first();
        match first.map(|rule| (rule.action, rule.is_unconditional())) {
            None | Some((Action::Pass, true)) => return Outcome::Next,
            Some((Action::Allow, true)) => return Outcome::Allow,
            Some((Action::Deny, true)) => return Outcome::Deny,
            _ => {}
        }
    }
    let owner = Owner {
        id: format!("profile/{name}"),
        kind: "pro",
        name: name.to_owned(),
        ..Owner::default()
    };
    Outcome::Ask(compile(direction, &owner, rules, &Context::default()))
}
