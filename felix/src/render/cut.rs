//! Cut connections: those that the policies forbid since a change have a bit of their connection mark.
//! Their packets are dropped in both directions, before any rule accepts those of established connections.
//!
//! ```text
//! cut-forward (filter - 2)   the bit; TCP of a new connection that does not begin with SYN
//! cut-input                  the same, from workloads
//! cut-output                 the same, to workloads
//! ```
//!
//! The kernel tracks a TCP connection also from its middle on. So after the entry of a cut connection has
//! ended, the next segment of either end would be a new connection, which policies may allow in the other
//! direction.

use std::collections::BTreeMap;

use super::build::{Frame, base, counted};
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

/// Returns the rules for the middles of unknown TCP connections at workload interfaces.
fn middles(frame: &Frame, side: Side) -> impl Iterator<Item = Rule> {
    let prefixes = frame.interface_prefixes.iter();
    prefixes.map(move |prefix| {
        let matches = vec![
            Match::InterfacePrefix(side, prefix.clone()),
            Match::Protocol(TCP, Is::Yes),
            Match::Connection(ConnectionStates::New),
            Match::NoSyn,
        ];
        counted(matches, Verdict::Drop, "middle of an unknown connection")
    })
}
