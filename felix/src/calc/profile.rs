//! What the rules of a profile come to.
//!
//! Rules with conditions are not enforced yet. They err on the closed side: a conditional `Allow`
//! allows nothing, a conditional `Deny` or `Pass` closes what follows it.

use model::{Action, ProfileSpec, Rule};

/// The outcome of one direction of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Everything passes.
    Allow,
    /// Nothing passes.
    Deny,
    /// The next profile decides.
    #[default]
    Next,
}

/// One direction of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Direction {
    /// What it comes to.
    pub(super) outcome: Outcome,
    /// The first rule that was not taken by its conditions.
    pub(super) conditional: Option<usize>,
}

/// A profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    /// What its endpoints are sent.
    pub(super) ingress: Direction,
    /// What they send.
    pub(super) egress: Direction,
}

impl Profile {
    pub(super) fn new(spec: &ProfileSpec) -> Self {
        Self {
            ingress: direction(&spec.ingress),
            egress: direction(&spec.egress),
        }
    }

    /// The profile that allows everything.
    pub(super) const fn default_allow() -> Self {
        let open = Direction {
            outcome: Outcome::Allow,
            conditional: None,
        };
        Self {
            ingress: open,
            egress: open,
        }
    }
}

fn direction(rules: &[Rule]) -> Direction {
    let mut conditional = None;
    for (at, rule) in rules.iter().enumerate() {
        if rule.action == Action::Log {
            continue;
        }
        let bound = !rule.is_unconditional();
        if bound {
            conditional.get_or_insert(at);
        }
        let outcome = match (rule.action, bound) {
            (Action::Allow, false) => Outcome::Allow,
            (Action::Pass, false) => Outcome::Next,
            (Action::Deny, _) | (Action::Pass, true) => Outcome::Deny,
            (Action::Allow, true) | (Action::Log, _) => continue,
        };
        return Direction {
            outcome,
            conditional,
        };
    }
    Direction {
        outcome: Outcome::Next,
        conditional,
    }
}
