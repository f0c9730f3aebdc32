//! The passage of an endpoint's traffic: the chains of its policies and profiles, in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use calico_model::DEFAULT_ALLOW_PROFILE;

use super::calculator::Calculator;
use super::policy::{Policy, Stage};
use super::profile::{Outcome, Profile};
use super::read::profile_key;
use super::types::Problem;
use crate::render::{Compiled, Direction, Part, Passage, tier_chain, tier_name};

static DEFAULT_ALLOW: Profile = Profile::default_allow();

/// Collects the passages of an endpoint, with the parts of the packet filter that they need.
pub(super) struct Passages<'c> {
    calculator: &'c Calculator,
    /// The key of the endpoint.
    key: &'c str,
    pub(super) part: Part,
    pub(super) problems: BTreeSet<Problem>,
    missing: Vec<Missing>,
    /// Chains of rules that explicitly allow encapsulation.
    pub(super) encapsulation: Vec<String>,
}

/// A missing profile that a direction needs.
struct Missing {
    profile: String,
    direction: Direction,
    /// Policies or other profiles precede it.
    is_asked_last: bool,
}

impl<'c> Passages<'c> {
    pub(super) fn new(calculator: &'c Calculator, key: &'c str) -> Self {
        Self {
            calculator,
            key,
            part: Part::default(),
            problems: BTreeSet::new(),
            missing: Vec::new(),
            encapsulation: Vec::new(),
        }
    }

    /// Returns the passage of a direction: tiers in order, then profiles in order. The first that
    /// decides counts; without a decision all traffic is dropped.
    pub(super) fn passage(&mut self, profiles: &[String], direction: Direction) -> Passage {
        let mut through = self.tiers(direction, Stage::Normal);
        for name in profiles {
            let Some(profile) = self.profile(name) else {
                self.missing.push(Missing {
                    profile: name.clone(),
                    direction,
                    is_asked_last: !through.is_empty(),
                });
                let reason = format!("profile {name} does not exist");
                self.problem_of(
                    &profile_key(name),
                    "",
                    &format!("{reason}; its endpoints pass nothing"),
                );
                return Passage {
                    through,
                    allowed: false,
                    reason,
                };
            };
            let allowed = match profile.side(direction) {
                Outcome::Allow => true,
                Outcome::Deny => false,
                Outcome::Next => continue,
                Outcome::Ask(chain) => {
                    self.take_sets(&profile_key(name), chain);
                    self.take_chain(chain);
                    through.push(chain.name.clone());
                    continue;
                }
            };
            return Passage {
                through,
                allowed,
                reason: format!("profile {name}"),
            };
        }
        let reason = match (through.is_empty(), profiles.is_empty()) {
            (false, _) => "no policy or profile allows it",
            (true, true) => "no profile or policy",
            (true, false) => "no profile allows it",
        };
        Passage {
            through,
            allowed: false,
            reason: reason.into(),
        }
    }

    /// Returns the passage of a direction through the policies of a stage alone: traffic that none of
    /// them decides passes.
    pub(super) fn of_policies(&mut self, direction: Direction, stage: Stage) -> Passage {
        let through = self.tiers(direction, stage);
        let reason = match through.is_empty() {
            true => "no policy applies",
            false => "no policy decides",
        };
        Passage {
            through,
            allowed: true,
            reason: reason.into(),
        }
    }

    /// Returns the chains of the tiers with policies of a stage for the endpoint.
    fn tiers(&mut self, direction: Direction, stage: Stage) -> Vec<String> {
        let (calculator, key) = (self.calculator, self.key);
        let policies = || {
            let used = calculator.index.used(key);
            let policies = used.filter_map(|key| Some((key, calculator.policies.get(key)?)));
            policies.filter(|(_, policy)| stage.has(policy.scope))
        };
        for (key, policy) in policies() {
            if let Some(side) = policy.side(direction) {
                self.take_sets(key, side);
                // The rules of a policy with `Pass` are in the chain of its tier instead.
                if !side.passes {
                    self.take_chain(side);
                }
            }
        }
        let mut through = Vec::new();
        for asked in calculator.tiers.asked(direction, policies()) {
            if asked.unknown {
                self.unknown_tier(asked.tier, policies());
            }
            let denies = asked.denies && stage.denies();
            let name = tier_name(direction, asked.tier, denies, &asked.policies);
            let chain = tier_chain(asked.tier, denies, &asked.policies);
            self.part.chains.insert(name.clone(), Arc::new(chain));
            through.push(name);
        }
        through
    }

    fn unknown_tier<'p>(
        &mut self,
        tier: &str,
        policies: impl Iterator<Item = (&'p str, &'p Policy)>,
    ) {
        let reason = format!(
            "tier {tier} does not exist: it is evaluated as the last one, with the default action \
             Deny"
        );
        for (key, _) in policies.filter(|(_, policy)| policy.tier == tier) {
            self.problem_of(key, "spec.tier", &reason);
        }
    }

    fn take_chain(&mut self, chain: &Compiled) {
        let (name, rules) = (chain.name.clone(), Arc::clone(&chain.chain));
        self.part.chains.insert(name, rules);
    }

    /// Collects the sets that rules use and the rules that allow encapsulation, and records the
    /// unsupported parts of the rules.
    fn take_sets(&mut self, key: &str, chain: &Compiled) {
        if let Some((name, rules)) = &chain.encapsulation {
            self.part.chains.insert(name.clone(), Arc::clone(rules));
            self.encapsulation.push(name.clone());
        }
        let sets = chain.sets.iter();
        let sets = sets.map(|(name, set)| (name.clone(), Arc::clone(set)));
        self.part.sets.extend(sets);
        for fault in &chain.unsupported {
            self.problem_of(key, &fault.field, &fault.reason);
        }
    }

    fn profile(&self, name: &str) -> Option<&'c Profile> {
        match name {
            DEFAULT_ALLOW_PROFILE => Some(&DEFAULT_ALLOW),
            _ => self.calculator.profiles.get(name),
        }
    }

    pub(super) fn problem(&mut self, field: &str, reason: &str) {
        self.problems.insert(Problem::new(self.key, field, reason));
    }

    /// Records a problem of a resource that the endpoint needs.
    fn problem_of(&mut self, key: &str, field: &str, reason: &str) {
        self.problems.insert(Problem::new(key, field, reason));
    }

    /// Returns the effect of missing profiles on the endpoint.
    pub(super) fn missing(&self) -> Option<String> {
        let missing = &self.missing;
        let profile = &missing.first()?.profile;
        let directions: Vec<&str> = missing.iter().map(|one| one.direction.field()).collect();
        let is_all = directions.len() == 2 && missing.iter().all(|one| !one.is_asked_last);
        let dropped = match is_all {
            true => "all traffic".to_owned(),
            false => format!(
                "{} traffic that nothing else allows is",
                directions.join(" and ")
            ),
        };
        Some(format!(
            "profile \"{profile}\" does not exist: {dropped} dropped"
        ))
    }
}
