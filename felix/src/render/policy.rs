//! Rules of policies and profiles as chains.

use std::collections::BTreeMap;
use std::sync::Arc;

use calico_model::{Action as Decision, Rule as Stored, Selector};

use super::build::{counted, rule};
use super::conditions::alternatives;
use super::encapsulation;
use super::names::{SetId, chain_name, short_hash};
use super::ruleset::{Action, Chain, Rule, Set, Verdict};
use super::selection::{Compiled, Unsupported};
use crate::limits::LOG_PREFIX;

/// A direction of traffic, as seen from the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// What it is sent.
    Ingress,
    /// What it sends.
    Egress,
}

impl Direction {
    /// The first letters of chains' names.
    const fn letters(self) -> (&'static str, &'static str) {
        match self {
            Self::Ingress => ("pi-", "ti-"),
            Self::Egress => ("po-", "te-"),
        }
    }

    /// The field of a spec that holds its rules.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// Makes a chain of rules. `id` tells whose they are (`np/<namespace>/<name>`), `namespace` which
/// namespace bare selectors are limited to.
///
/// A rule that cannot be followed errs on the closed side: one that allows is left out, one that
/// denies or passes closes all that follows it.
pub fn compile(
    direction: Direction,
    id: &str,
    namespace: Option<&str>,
    rules: &[Stored],
) -> Compiled {
    let mut compiled = Compiled::empty(direction, id);
    let mut chain = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let place = format!("{}[{at}]", direction.field());
        let found = alternatives(rule, namespace, &mut compiled).map_err(|fault| {
            Unsupported::new(format!("spec.{place}.{}", fault.field), fault.reason)
        });
        let fault = match found {
            Ok(found) => {
                compiled.passes |= rule.action == Decision::Pass && !found.is_empty();
                let rules = found.into_iter().map(|matches| Rule {
                    matches,
                    counter: true,
                    action: action(rule.action),
                    comment: Some(place.clone()),
                });
                chain.extend(rules);
                continue;
            }
            Err(fault) => fault,
        };
        let closes = matches!(rule.action, Decision::Deny | Decision::Pass);
        let reason = format!("{}; {}", fault.reason, rule.action.when_unsupported());
        if closes {
            let words = format!("{}: {}", fault.field, fault.reason);
            chain.push(counted(Vec::new(), Verdict::Drop, comment(&words)));
        }
        compiled
            .unsupported
            .push(Unsupported::new(fault.field, reason));
        if closes {
            break;
        }
    }
    compiled.chain = Arc::new(Chain {
        hook: None,
        rules: chain,
    });
    if direction == Direction::Egress {
        name_encapsulation(id, namespace, rules, &mut compiled);
    }
    compiled
}

/// Takes the rules that name encapsulation into a chain of their own.
fn name_encapsulation(
    id: &str,
    namespace: Option<&str>,
    rules: &[Stored],
    compiled: &mut Compiled,
) {
    let mut chain = Vec::new();
    for (at, stored) in rules.iter().enumerate() {
        let Some(stored) = encapsulation::named(stored) else {
            continue;
        };
        // What is wrong with it was told of the rule as a whole.
        let found = alternatives(&stored, namespace, compiled).unwrap_or_default();
        let place = format!("{}[{at}]", Direction::Egress.field());
        let rules = found.into_iter();
        chain.extend(rules.map(|matches| counted(matches, Verdict::Accept, place.clone())));
    }
    if !chain.is_empty() {
        let name = chain_name("pe-", id);
        let rules = Chain {
            hook: None,
            rules: chain,
        };
        compiled.encapsulation = Some((name, Arc::new(rules)));
    }
}

impl Compiled {
    fn empty(direction: Direction, id: &str) -> Self {
        Self {
            name: chain_name(direction.letters().0, id),
            chain: Arc::default(),
            passes: false,
            selectors: BTreeMap::new(),
            sets: BTreeMap::new(),
            encapsulation: None,
            unsupported: Vec::new(),
        }
    }

    /// The chain of a policy that cannot be read: nothing passes.
    pub fn closed(direction: Direction, id: &str, reason: &str) -> Self {
        Self::empty(direction, id).then_closed(reason)
    }

    /// The same rules, after which nothing passes.
    #[must_use]
    pub fn then_closed(mut self, reason: &str) -> Self {
        let rule = counted(Vec::new(), Verdict::Drop, comment(reason));
        Arc::make_mut(&mut self.chain).rules.push(rule);
        self
    }

    pub(super) fn use_selector(&mut self, selector: Selector) -> SetId {
        let id = SetId::of(&selector);
        self.selectors.insert(id.clone(), selector);
        id
    }

    pub(super) fn use_set(&mut self, prefix: &str, set: Set) -> String {
        let keys: Vec<String> = set.elements.keys().map(ToString::to_string).collect();
        let name = format!("{prefix}{}", short_hash(&keys.join(" ")));
        self.sets.insert(name.clone(), Arc::new(set));
        name
    }
}

/// The name of [`tier_chain`]. Endpoints that the same policies are for share it.
pub fn tier_name(direction: Direction, tier: &str, denies: bool, policies: &[&Compiled]) -> String {
    let names: Vec<&str> = policies.iter().map(|policy| &*policy.name).collect();
    let hash = short_hash(&format!("{denies} {}", names.join(" ")));
    chain_name(direction.letters().1, &format!("{tier}-{hash}"))
}

/// The chain of a tier for endpoints that these policies of it are for. To pass on to the next tier
/// is to return from it, so policies with such rules stand in it themselves.
pub fn tier_chain(tier: &str, denies: bool, policies: &[&Compiled]) -> Chain {
    let mut rules = Vec::new();
    for policy in policies {
        if !policy.passes {
            rules.push(rule(Vec::new(), Verdict::Jump(policy.name.clone())));
            continue;
        }
        rules.extend(policy.chain.rules.iter().cloned().map(|rule| {
            let place = rule.comment.unwrap_or_default();
            Rule {
                comment: Some(comment(&format!("{} {place}", policy.name))),
                ..rule
            }
        }));
    }
    if denies {
        let words = comment(&format!("tier {tier}: no policy decides"));
        rules.push(counted(Vec::new(), Verdict::Drop, words));
    }
    Chain { hook: None, rules }
}

fn action(decision: Decision) -> Action {
    match decision {
        Decision::Allow => Action::Verdict(Verdict::Accept),
        Decision::Deny => Action::Verdict(Verdict::Drop),
        Decision::Pass => Action::Verdict(Verdict::Return),
        Decision::Log => Action::Log(LOG_PREFIX.into()),
    }
}

/// Words that can stand between the quotes of a comment.
fn comment(words: &str) -> String {
    let fits = |c: &char| c.is_ascii_graphic() || *c == ' ';
    let plain = words.replace(['"', '\\'], "'");
    plain.chars().filter(fits).take(127).collect()
}
