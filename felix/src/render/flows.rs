//! The flow log: rules that decide report the packet to a group of the kernel's packet log (NFLOG),
//! with a prefix that names the decision.
//!
//! ```text
//! A I rule pi-np/prod/web ingress[0]   a rule of a policy or profile accepts
//! D E rule po-gnp/deny egress[2]       a rule denies
//! D I tier default                     no policy of a tier decides
//! A I end profile open                 a profile as a whole decides, or none allows
//! ```
//!
//! A limit precedes each of these rules: the packets of an input interface beyond it get the same verdict
//! without a record, in a chain that counts them.
//!
//! ```text
//! tcp dport 80 update @flow-rates-10000 { iifname limit rate over 10000/second … } counter goto flow-unsent-drop
//! tcp dport 80 counter log prefix "D I rule pi-np/prod/web ingress[0]" group 80 drop
//! ```

use std::collections::BTreeMap;

use super::decision::{PacketLog, Report};
use super::owner::Direction;
use super::ruleset::{Action, Chain, ConnectionStates, Limit, Match, Rule, Verdict};
use crate::limits::LOG_PREFIX_OCTETS_MAX;

/// The beginning of the name of the set of the rates of records. Each input interface has one.
const RATES: &str = "flow-rates-";

/// The chains of packets beyond the limit, by their verdict: accept, drop, reject.
pub(crate) const UNSENT: [&str; 3] = [
    "flow-unsent-accept",
    "flow-unsent-drop",
    "flow-unsent-reject",
];

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

/// Returns the name of the set of the rates under a limit, if there is one. The name has the limit, because
/// an element of a set keeps the limit with which the kernel has made it.
pub(super) fn rates(records_per_second: u32) -> Option<String> {
    (records_per_second > 0).then(|| format!("{RATES}{records_per_second}"))
}

/// Returns the chains of packets beyond the limit, if there is one. Each counts its packets.
pub(super) fn chains(records_per_second: u32) -> BTreeMap<String, Chain> {
    if records_per_second == 0 {
        return BTreeMap::new();
    }
    let actions = [
        Action::Verdict(Verdict::Accept),
        Action::Verdict(Verdict::Drop),
        Action::Reject,
    ];
    let chains = UNSENT.into_iter().zip(actions);
    let chains = chains.map(|(name, action)| {
        let counts = Rule {
            matches: Vec::new(),
            counter: true,
            report: None,
            action,
            comment: Some("no record: over the limit".to_owned()),
        };
        let rules = vec![counts];
        (name.to_owned(), Chain { hook: None, rules })
    });
    chains.collect()
}

/// Returns whether a rule is the limit of the next one.
fn is_limit(rule: &Rule) -> bool {
    matches!(rule.matches.last(), Some(Match::OverLimit(_, set)) if set.starts_with(RATES))
}

/// Returns a rule, after its limit if it reports.
fn limited(log: PacketLog, rule: Rule) -> impl Iterator<Item = Rule> {
    let [accept, drop, reject] = UNSENT;
    let to = match &rule.action {
        Action::Verdict(Verdict::Accept) => Some(accept),
        Action::Verdict(Verdict::Drop) => Some(drop),
        Action::Reject => Some(reject),
        _ => None,
    };
    let to = to.filter(|_| rule.report.is_some());
    let limit = to.zip(rates(log.records_per_second)).map(|(to, rates)| {
        let mut matches = rule.matches.clone();
        let per_second = Limit::PerSecond(log.records_per_second);
        matches.push(Match::OverLimit(per_second, rates));
        Rule {
            matches,
            counter: true,
            report: None,
            action: Action::Verdict(Verdict::Goto(to.to_owned())),
            comment: None,
        }
    });
    limit.into_iter().chain([rule])
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
pub(super) fn of_rules(
    log: Option<PacketLog>,
    direction: Direction,
    chain: &str,
    rules: &mut Vec<Rule>,
) {
    rules.retain(|rule| !is_limit(rule));
    for rule in &mut *rules {
        let comment = rule.comment.as_deref().unwrap_or_default();
        let is_place = comment.starts_with(direction.field()) && comment.ends_with(']');
        let place = if is_place { comment } else { "" };
        let cause = Cause::Rule {
            chain: chain.to_owned(),
            place: place.to_owned(),
        };
        rule.report = log.and_then(|log| report(log.group, direction, &rule.action, cause));
    }
    if let Some(log) = log {
        let all = std::mem::take(rules).into_iter();
        *rules = all.flat_map(|rule| limited(log, rule)).collect();
    }
}

/// Makes the last rule of a tier report, and returns it after its limit. `tier` is the token of its name.
pub(super) fn of_tier(
    log: Option<PacketLog>,
    direction: Direction,
    tier: &str,
    mut rule: Rule,
) -> Vec<Rule> {
    let Some(log) = log else {
        return vec![rule];
    };
    let cause = Cause::Tier(tier.to_owned());
    rule.report = report(log.group, direction, &rule.action, cause);
    limited(log, rule).collect()
}

/// Makes the last one of the rules of an endpoint report, and returns the rules.
///
/// If no earlier rule accepts the packets of established connections, only new ones are reported.
pub(super) fn of_end(
    log: Option<PacketLog>,
    direction: Direction,
    mut rules: Vec<Rule>,
) -> Vec<Rule> {
    let Some(log) = log else {
        return rules;
    };
    let Some(mut last) = rules.pop() else {
        return rules;
    };
    let words = last.comment.clone().unwrap_or_default();
    let found = report(log.group, direction, &last.action, Cause::End(words));
    let accepts = decision(&last.action) == Some(true);
    if accepts && !rules.iter().any(accepts_answers) {
        let new = Rule {
            matches: vec![Match::Connection(ConnectionStates::New)],
            report: found,
            ..last.clone()
        };
        rules.extend(limited(log, new));
    } else {
        last.report = found;
    }
    rules.extend(limited(log, last));
    rules
}

fn accepts_answers(rule: &Rule) -> bool {
    let answers = [Match::Connection(ConnectionStates::EstablishedOrRelated)];
    rule.matches == answers && decision(&rule.action) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::super::names::token;
    use super::super::ruleset::Is;
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

    fn log(records_per_second: u32) -> Option<PacketLog> {
        Some(PacketLog {
            group: 80,
            records_per_second,
        })
    }

    fn counted(matches: Vec<Match>, verdict: Verdict, comment: &str) -> Rule {
        Rule {
            matches,
            counter: true,
            report: None,
            action: Action::Verdict(verdict),
            comment: Some(comment.to_owned()),
        }
    }

    fn shape(rules: &[Rule]) -> Vec<(bool, bool, &Action)> {
        let shape = |rule| (is_limit(rule), rule.report.is_some(), &rule.action);
        rules.iter().map(shape).collect()
    }

    #[test]
    fn limit_precedes_each_rule_that_reports() {
        let (accept, drop) = (Verdict::Accept, Verdict::Drop);
        let tcp = || vec![Match::Protocol(6, Is::Yes)];
        let plain = vec![
            counted(tcp(), accept.clone(), "ingress[0]"),
            counted(tcp(), Verdict::Return, "ingress[1]"),
            Rule {
                action: Action::Reject,
                ..counted(Vec::new(), drop, "ingress[2]")
            },
        ];
        let mut rules = plain.clone();
        let direction = Direction::Ingress;
        let goto = |name: &str| Action::Verdict(Verdict::Goto(name.to_owned()));
        let (accept, pass) = (Action::Verdict(accept), Action::Verdict(Verdict::Return));
        // The second time, the limits of the first time are replaced.
        for per_second in [5, 7] {
            of_rules(log(per_second), direction, "pi-x", &mut rules);
            let wanted = [
                (true, false, &goto(UNSENT[0])),
                (false, true, &accept),
                (false, false, &pass),
                (true, false, &goto(UNSENT[2])),
                (false, true, &Action::Reject),
            ];
            assert_eq!(shape(&rules), wanted);
            let set = format!("flow-rates-{per_second}");
            let over = Match::OverLimit(Limit::PerSecond(per_second), set);
            assert_eq!(rules[0].matches, [tcp(), vec![over]].concat());
        }
        of_rules(log(0), direction, "pi-x", &mut rules);
        assert_eq!(rules.len(), plain.len());
        of_rules(None, direction, "pi-x", &mut rules);
        assert_eq!(rules, plain);
    }

    #[test]
    fn end_of_rules_has_a_limit_for_new_connections() {
        let last = counted(Vec::new(), Verdict::Accept, "profile open");
        let rules = of_end(log(5), Direction::Egress, vec![last.clone()]);
        let new = Match::Connection(ConnectionStates::New);
        let over = Match::OverLimit(Limit::PerSecond(5), "flow-rates-5".to_owned());
        let matches: Vec<&[Match]> = rules.iter().map(|rule| &*rule.matches).collect();
        assert_eq!(matches, [&[new.clone(), over][..], &[new], &[]]);
        let tier = of_tier(log(5), Direction::Egress, "x", last.clone());
        assert_eq!(tier.len(), 2);
        assert_eq!(of_tier(None, Direction::Egress, "x", last.clone()), [last]);
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
