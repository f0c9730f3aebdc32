//! Cut connections: those that the policies forbid since a change have a bit of their connection mark.
//! Their packets are dropped in both directions, before any rule accepts those of established connections.
//!
//! ```text
//! cut-forward (filter - 2)   the bit; TCP of a new connection that does not begin with SYN
//! cut-input                  the same, from workloads
//! cut-output                 the same, to workloads
//! cut-host-forward           the same through interfaces with policies of host endpoints for such packets
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

/// Returns the chain for packets through the host at interfaces whose host endpoints decide about such packets,
/// if connections are cut. `all`: so does the host endpoint for all interfaces, except for excluded ones.
pub(super) fn of_hosts<'n>(
    frame: &Frame,
    named: impl Iterator<Item = &'n String>,
    all: bool,
    excluded: &BTreeSet<String>,
) -> Option<(String, Chain)> {
    frame.cut_mark?;
    let at = |name: &String| Side::BOTH.map(|side| Match::Interface(side, name.clone()));
    let named = named.flat_map(at).map(|at| middle(Some(at)));
    let mut rules: Vec<Rule> = named.collect();
    if all {
        let excluded = excluded.iter().flat_map(at);
        rules.extend(excluded.map(|at| rule(vec![at], Verdict::Return)));
        rules.push(middle(None));
    }
    (!rules.is_empty()).then(|| base("cut-host-forward", Hook::CutForward, rules))
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
