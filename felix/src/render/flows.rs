//! The flow log: rules that decide report the packet to a group of the kernel's packet log (NFLOG),
//! with a prefix that names the decision.
//!
//! ```text
//! A I rule pi-np/prod/web ingress[0]   a rule of a policy or profile accepts
//! D E rule po-gnp/deny egress[2]       a rule denies
//! D I tier default                     no policy of a tier decides
//! A I end profile open                 a profile as a whole decides, or none allows
//! ```

use super::decision::Report;
use super::owner::Direction;
use super::ruleset::{Action, ConnectionStates, Match, Rule, Verdict};
use crate::limits::LOG_PREFIX_OCTETS_MAX;

/// A reported decision about the first packet of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reported {
    /// Whether the packet is accepted.
    pub allowed: bool,
    /// Whether the packet is one to the endpoint or from it.
    pub direction: Direction,
    /// The deciding part.
    pub cause: Cause,
}

/// The deciding part of a [`Reported`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A rule of a policy or profile.
    Rule {
        /// The token of its chain.
        chain: String,
        /// Its place in the list, such as `ingress[0]`; empty for a rule that closes an invalid list.
        place: String,
    },
    /// The end of a tier, by the token of its name.
    Tier(String),
    /// The end of all rules, in words.
    End(String),
}

impl Reported {
    /// Parses a prefix; `None` if it is one of another program.
    pub(crate) fn parse(prefix: &str) -> Option<Self> {
        let mut words = prefix.splitn(4, ' ');
        let allowed = match words.next()? {
            "A" => true,
            "D" => false,
            _ => return None,
        };
        let direction = match words.next()? {
            "I" => Direction::Ingress,
            "E" => Direction::Egress,
            _ => return None,
        };
        let (kind, rest) = (words.next()?, words.next()?);
        let cause = match kind {
            "rule" => {
                let (chain, place) = rest.split_once(' ').unwrap_or((rest, ""));
                Cause::Rule {
                    chain: chain.to_owned(),
                    place: place.to_owned(),
                }
            }
            "tier" => Cause::Tier(rest.to_owned()),
            "end" => Cause::End(rest.to_owned()),
            _ => return None,
        };
        Some(Self {
            allowed,
            direction,
            cause,
        })
    }

    fn prefix(&self) -> String {
        let allowed = if self.allowed { 'A' } else { 'D' };
        let direction = match self.direction {
            Direction::Ingress => 'I',
            Direction::Egress => 'E',
        };
        let rest = match &self.cause {
            Cause::Rule { chain, place } if place.is_empty() => format!("rule {chain}"),
            Cause::Rule { chain, place } => format!("rule {chain} {place}"),
            Cause::Tier(tier) => format!("tier {tier}"),
            Cause::End(words) => format!("end {words}"),
        };
        let text = format!("{allowed} {direction} {rest}");
        text.chars().take(LOG_PREFIX_OCTETS_MAX).collect()
    }
}

/// Returns whether an action decides about a packet of a connection: accepted (true) or denied.
const fn decision(action: &Action) -> Option<bool> {
    match action {
        Action::Verdict(Verdict::Accept) => Some(true),
        Action::Verdict(Verdict::Drop) | Action::Reject => Some(false),
        // Every packet of an untracked connection would be reported, and later hooks accept those
        // with a mark without a rule of a policy.
        _ => None,
    }
}

fn report(group: u16, direction: Direction, action: &Action, cause: Cause) -> Option<Box<Report>> {
    let reported = Reported {
        allowed: decision(action)?,
        direction,
        cause,
    };
    let prefix = reported.prefix();
    Some(Box::new(Report { group, prefix }))
}

/// Makes the deciding rules of a policy or profile report, or not. `chain` is the token of its chain.
pub(super) fn of_rules(group: Option<u16>, direction: Direction, chain: &str, rules: &mut [Rule]) {
    for rule in rules {
        let comment = rule.comment.as_deref().unwrap_or_default();
        let is_place = comment.starts_with(direction.field()) && comment.ends_with(']');
        let place = if is_place { comment } else { "" };
        let cause = Cause::Rule {
            chain: chain.to_owned(),
            place: place.to_owned(),
        };
        rule.report = group.and_then(|group| report(group, direction, &rule.action, cause));
    }
}

/// Makes the last rule of a tier report. `tier` is the token of its name.
pub(super) fn of_tier(group: Option<u16>, direction: Direction, tier: &str, rule: &mut Rule) {
    let cause = Cause::Tier(tier.to_owned());
    rule.report = group.and_then(|group| report(group, direction, &rule.action, cause));
}

/// Makes the last one of the rules of an endpoint report, and returns the rules.
///
/// If no earlier rule accepts the packets of established connections, only new ones are reported.
pub(super) fn of_end(group: Option<u16>, direction: Direction, mut rules: Vec<Rule>) -> Vec<Rule> {
    let Some(group) = group else {
        return rules;
    };
    let Some(mut last) = rules.pop() else {
        return rules;
    };
    let words = last.comment.clone().unwrap_or_default();
    let found = report(group, direction, &last.action, Cause::End(words));
    let accepts = decision(&last.action) == Some(true);
    if accepts && !rules.iter().any(accepts_answers) {
        rules.push(Rule {
            matches: vec![Match::Connection(ConnectionStates::New)],
            report: found,
            ..last.clone()
        });
    } else {
        last.report = found;
    }
    rules.push(last);
    rules
}

fn accepts_answers(rule: &Rule) -> bool {
    let answers = [Match::Connection(ConnectionStates::EstablishedOrRelated)];
    rule.matches == answers && decision(&rule.action) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::super::names::token;
    use super::*;
    use crate::limits::FLOW_NAME_OCTETS_MAX;

    #[test]
    fn prefix_is_read_as_it_was_written() {
        let rule = |chain: &str, place: &str| Cause::Rule {
            chain: chain.to_owned(),
            place: place.to_owned(),
        };
        for (text, allowed, direction, cause) in [
            (
                "A I rule pi-np/prod/web ingress[0]",
                true,
                Direction::Ingress,
                rule("pi-np/prod/web", "ingress[0]"),
            ),
            (
                "D E rule po-gnp/x",
                false,
                Direction::Egress,
                rule("po-gnp/x", ""),
            ),
            (
                "D I tier default",
                false,
                Direction::Ingress,
                Cause::Tier("default".into()),
            ),
            (
                "A E end profile open",
                true,
                Direction::Egress,
                Cause::End("profile open".into()),
            ),
        ] {
            let reported = Reported {
                allowed,
                direction,
                cause,
            };
            assert_eq!(reported.prefix(), text);
            assert_eq!(Reported::parse(text), Some(reported));
        }
        for other in [
            "",
            "A",
            "A I",
            "A I rule",
            "x I rule y",
            "A x end y",
            "A I x y",
        ] {
            assert_eq!(Reported::parse(other), None, "{other}");
        }
    }

    #[test]
    fn longest_prefix_of_a_rule_is_whole() {
        let chain = token(&"x".repeat(FLOW_NAME_OCTETS_MAX));
        let reported = Reported {
            allowed: false,
            direction: Direction::Ingress,
            cause: Cause::Rule {
                chain: chain.clone(),
                place: format!("ingress[{}]", u32::MAX),
            },
        };
        assert!(reported.prefix().len() <= LOG_PREFIX_OCTETS_MAX);
        assert_eq!(Reported::parse(&reported.prefix()), Some(reported));
        for long in [
            "x".repeat(FLOW_NAME_OCTETS_MAX + 1),
            "a b".into(),
            "ü".into(),
        ] {
            assert!(token(&long).starts_with('_') && token(&long).len() < 30);
        }
    }
}
