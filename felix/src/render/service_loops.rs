//! Packets to service addresses that no program has translated: the host would send them back to
//! where the range of services is advertised, and they would go round until their TTL ends.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::build::counted;
use super::outgoing::ranges;
use super::ruleset::{Action, End, Family, Is, Key, Match, Rule, Verdict};

/// The sets of the ranges of services, by family.
pub(super) const RANGES: [&str; 2] = ["service-ranges-ipv4", "service-ranges-ipv6"];
const COMMENT: &str = "service address without translation";

/// The action for these packets (`serviceLoopPrevention`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LoopPrevention {
    /// They are dropped.
    #[default]
    Drop,
    /// They are rejected.
    Reject,
    /// They are forwarded.
    Disabled,
}

/// Returns the sets, each with its ranges.
pub(super) fn sets(given: &[IpNet]) -> [(&'static str, Family, BTreeSet<Key>); 2] {
    let [v4, v6] = RANGES;
    [(v4, Family::V4), (v6, Family::V6)].map(|(name, family)| (name, family, ranges(given, family)))
}

/// Returns the rules, for the families with ranges.
pub(super) fn rules(prevention: LoopPrevention, used: [bool; 2]) -> Vec<Rule> {
    let action = match prevention {
        LoopPrevention::Drop => Action::Verdict(Verdict::Drop),
        LoopPrevention::Reject => Action::Reject,
        LoopPrevention::Disabled => return Vec::new(),
    };
    let families = Family::ALL.into_iter().zip(RANGES).zip(used);
    let used = families.filter(|(_, used)| *used);
    used.map(|((family, name), _)| {
        let to_service = Match::InSet(End::Destination, family, name.into(), Is::Yes);
        Rule {
            action: action.clone(),
            ..counted(vec![to_service], Verdict::Drop, COMMENT)
        }
    })
    .collect()
}
