//! The deciding policy or profile of a flow, by name.

use daemon_common::report::RuleOwner;

use crate::calc::Calculator;
use crate::render::{Cause, Reported};

/// The deciding part of the policies, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct By {
    /// The tier of a policy.
    tier: Option<String>,
    /// Kind and name of a policy or profile.
    list: Option<String>,
    /// The place of the rule in it.
    rule: Option<String>,
    words: String,
}

impl By {
    /// Returns the deciding part of a reported decision. A policy that does not exist any more has the
    /// name of its chain.
    pub(super) fn of(calculator: &Calculator, reported: &Reported) -> Self {
        match &reported.cause {
            Cause::Rule { chain, place } => {
                let rule = (!place.is_empty()).then(|| place.clone());
                match calculator.owner_of(chain) {
                    Some(owner) => Self {
                        tier: owner.tier,
                        list: Some(owner.name),
                        rule,
                        words: place.clone(),
                    },
                    None => Self {
                        rule,
                        ..Self::words(&format!("chain {chain}"))
                    },
                }
            }
            Cause::Tier(tier) => Self {
                tier: Some(tier.clone()),
                ..Self::words(&format!("tier {tier}: no policy decides"))
            },
            Cause::End(words) => Self {
                list: words
                    .strip_prefix("profile ")
                    .filter(|name| !name.contains(' '))
                    .map(|name| format!("Profile {name}")),
                ..Self::words(words)
            },
        }
    }

    /// Returns a cause without a list.
    pub(super) fn words(words: &str) -> Self {
        Self {
            words: words.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the octets of its names.
    pub(super) fn octets(&self) -> usize {
        let names = [&self.tier, &self.list, &self.rule].into_iter().flatten();
        self.words.len() + names.map(String::len).sum::<usize>()
    }

    /// Returns whether it is a policy or profile with this name, with or without its kind.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let list = self.list.as_deref().unwrap_or_default();
        list == name || list.split_once(' ').is_some_and(|(_, own)| own == name)
    }

    /// Returns the report.
    pub(crate) fn report(&self) -> RuleOwner {
        RuleOwner {
            tier: self.tier.clone(),
            list: self.list.clone(),
            rule: self.rule.clone(),
            words: self.words.clone(),
        }
    }
}
