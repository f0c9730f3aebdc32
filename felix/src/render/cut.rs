//! Cut connections: those that the policies forbid since a change have a bit of their connection mark.
//! Their packets are dropped in both directions, before any rule accepts those of established connections.
//!
//! ```text
//! cut-forward (filter - 2)   the bit; TCP of a new connection that does not begin with SYN
//! cut-input                  the same, from workloads
//! cut-output                 the same, to workloads
//! cut-host-forward           the same through interfaces with policies of host endpoints for such packets
//! cut-host-excluded          the same, for packets from excluded interfaces to others
//! ```
//!
//! The kernel tracks a TCP connection also from its middle on. So after the entry of a cut connection has
//! ended, the next segment of either end would be a new connection, which policies may allow in the other
//! direction.

use std::collections::{BTreeMap, BTreeSet};

use super::build::{Frame, base, counted, rule};
use super::guard::TCP;
use super::ruleset::{Chain, ConnectionStates, Hook, Is, Match, Rule, Side, Verdict};

const CUT: &str = "cut connection";
/// The chain for packets from interfaces that the host endpoint for all interfaces excludes.
const EXCLUDED: &str = "cut-host-excluded";

/// Returns the chains, if connections are cut.
pub(super) fn chains(frame: &Frame) -> BTreeMap<String, Chain> {
    let Some(mark) = frame.cut_mark else {
        return BTreeMap::new();
    };
    let cut = || counted(vec![Match::ConnectionMark(mark)], Verdict::Drop, CUT);
    let rules = |sides: &[Side]| {
        let middles = sides.iter().flat_map(|side| middles(frame, *side));
        std::iter::once(cut()).chain(middles).collect()
    };
    [
        base("cut-forward", Hook::CutForward, rules(&Side::BOTH)),
        base("cut-input", Hook::CutInput, rules(&[Side::Input])),
        base("cut-output", Hook::CutOutput, rules(&[Side::Output])),
    ]
    .into()
}

/// Returns the chains for packets through the host at interfaces whose host endpoints decide about such packets,
/// if connections are cut. `all`: so does the host endpoint for all interfaces, except for excluded ones.
pub(super) fn of_hosts<'n>(
    frame: &Frame,
    named: impl Iterator<Item = &'n String>,
    all: bool,
    excluded: &BTreeSet<String>,
) -> Vec<(String, Chain)> {
    if frame.cut_mark.is_none() {
        return Vec::new();
    }
    let at = |side, name: &String| Match::Interface(side, name.clone());
    let named = named.flat_map(|name| Side::BOTH.map(|side| middle(Some(at(side, name)))));
    let mut rules: Vec<Rule> = named.collect();
    let mut chains = Vec::new();
    if all {
        // A packet is exempt only if both interfaces are excluded.
        let from = |name| rule(vec![at(Side::Input, name)], Verdict::Goto(EXCLUDED.into()));
        rules.extend(excluded.iter().map(from));
        rules.push(middle(None));
        if !excluded.is_empty() {
            let to = |name| rule(vec![at(Side::Output, name)], Verdict::Return);
            let excluded = excluded.iter().map(to);
            let rules = excluded.chain([middle(None)]).collect();
            chains.push((EXCLUDED.to_owned(), Chain { hook: None, rules }));
        }
    }
    if !rules.is_empty() {
        chains.push(base("cut-host-forward", Hook::CutForward, rules));
    }
    chains
}

/// Returns the rules for the middles of unknown TCP connections at workload interfaces.
fn middles(frame: &Frame, side: Side) -> impl Iterator<Item = Rule> {
    let prefixes = frame.interface_prefixes.iter();
    prefixes.map(move |prefix| middle(Some(Match::InterfacePrefix(side, prefix.clone()))))
}

fn middle(at: Option<Match>) -> Rule {
    let mut matches: Vec<Match> = at.into_iter().collect();
    matches.extend([
        Match::Protocol(TCP, Is::Yes),
        Match::Connection(ConnectionStates::New),
        Match::NoSyn,
    ]);
    counted(matches, Verdict::Drop, "middle of an unknown connection")
}

#[cfg(test)]
mod tests {
    use super::super::text::rule_text;
    use super::*;

    #[test]
    fn only_packets_between_excluded_interfaces_are_exempt() {
        let frame = Frame {
            cut_mark: Some(4),
            ..Frame::default()
        };
        let excluded = ["eth8", "eth9"].map(str::to_owned).into();
        let chains: BTreeMap<String, Chain> = of_hosts(&frame, [].into_iter(), true, &excluded)
            .into_iter()
            .collect();
        let texts = |name: &str| -> Vec<String> {
            let rules = chains[name].rules.iter().map(rule_text);
            rules.collect()
        };
        let all = texts("cut-host-forward");
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], "iifname \"eth8\" goto cut-host-excluded");
        assert!(
            all[2].starts_with("meta l4proto tcp ct state new"),
            "{}",
            all[2]
        );
        assert!(all[2].contains("drop"), "{}", all[2]);
        let from_excluded = texts(EXCLUDED);
        assert_eq!(from_excluded[1], "oifname \"eth9\" return");
        assert_eq!(from_excluded[2], all[2]);
        let none = of_hosts(&frame, [].into_iter(), true, &BTreeSet::new());
        assert_eq!(none.len(), 1);
    }
}
