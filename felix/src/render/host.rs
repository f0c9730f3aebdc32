//! Host endpoints: the packets of the host itself, and packets that it forwards.
//!
//! ```text
//! host-input       host-endpoints-in  ─ map ─→ host-in-<interface>           packets to the host
//! host-output      host-endpoints-out ─ map ─→ host-out-<interface>          packets of the host
//! host-forward     host-forward-in    ─ map ─→ host-forward-in-<interface>   packets through it
//! host-forward-to  host-forward-out   ─ map ─→ host-forward-out-<interface>
//! host-untranslated  host-untranslated-in ─ map ─→ host-untranslated-<interface>  preDNAT
//! host-untracked         host-untracked-in  ─ map ─→ host-untracked-in-<interface>  doNotTrack
//! host-untracked-output  host-untracked-out ─ map ─→ host-untracked-out-<interface>
//!
//! host-failsafe-in, host-failsafe-out   neighbor discovery, failsafe ports
//! host-failsafe-…-untracked             the same before connection tracking, with replies
//! ```
//!
//! An interface that the map lacks has the chain `…/all` of the host endpoint for all interfaces, if
//! there is one. These chains exist only while the host has a host endpoint. They evaluate no packet
//! between the host and its workloads, whatever the failsafe ports are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::assembly::Part;
use super::build::{
    Frame, Passage, answers, base, chain, counted, dispatch_prefixes, no_connection, rule,
};
use super::cut;
use super::decision::{Denial, PacketLog};
use super::encapsulation;
use super::failsafe::{self, Failsafe};
use super::flows;
use super::guard::committed;
use super::owner::Direction;
use super::ruleset::{
    Action, Chain, End, Hook, Key, Match, Rule, Set, SetKind, Side, Value, Verdict,
};

const FAILSAFE_IN: &str = "host-failsafe-in";
const FAILSAFE_OUT: &str = "host-failsafe-out";
const FAILSAFE_IN_UNTRACKED: &str = "host-failsafe-in-untracked";
const FAILSAFE_OUT_UNTRACKED: &str = "host-failsafe-out-untracked";
/// The chains of failsafe ports, in and out.
pub(crate) const FAILSAFE_CHAINS: [&str; 2] = [FAILSAFE_IN, FAILSAFE_OUT];
const LOOPBACK_INTERFACE: &str = "lo";

/// The interface of a host endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostInterface {
    /// The one with this name.
    Named(String),
    /// All for which no name is given.
    All,
}

/// The rules of a host endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRules {
    /// Packets to the host.
    pub to_host: Passage,
    /// Packets of the host.
    pub from_host: Passage,
    /// Packets through the host that it receives on this interface.
    pub forward_in: Passage,
    /// Packets through the host that it sends on this interface.
    pub forward_out: Passage,
    /// Packets to the host and through it, before their destination is translated.
    pub untranslated: Passage,
    /// Packets to the host and through it, and packets of the host, before connection tracking.
    pub untracked: [Passage; 2],
    /// Policies also apply to packets that are part of no connection; otherwise they are dropped.
    pub takes_invalid: bool,
    /// The action for packets that no policy and no profile allows.
    pub denial: Denial,
    /// The packet log to which the last rules for packets of the host report.
    pub flows: Option<PacketLog>,
}

impl HostRules {
    /// Returns whether a policy may mark packets that arrive.
    fn marks_arriving(&self) -> bool {
        self.untranslated.asks() || self.untracked[0].asks()
    }

    /// Returns whether a policy may mark packets of the host.
    fn marks_sent(&self) -> bool {
        self.untracked[1].asks()
    }
}

/// A hook at which host endpoints are evaluated.
#[derive(Clone, Copy)]
struct Place {
    /// The base chain.
    base: &'static str,
    hook: Hook,
    side: Side,
    /// The map from interfaces to chains, and the beginning of the names of these.
    map: &'static str,
    prefix: &'static str,
}

const INPUT: Place = Place {
    base: "host-input",
    hook: Hook::HostInput,
    side: Side::Input,
    map: "host-endpoints-in",
    prefix: "host-in",
};
const OUTPUT: Place = Place {
    base: "host-output",
    hook: Hook::HostOutput,
    side: Side::Output,
    map: "host-endpoints-out",
    prefix: "host-out",
};
const FORWARD: Place = Place {
    base: "host-forward",
    hook: Hook::HostForward,
    side: Side::Input,
    map: "host-forward-in",
    prefix: "host-forward-in",
};
const FORWARD_TO: Place = Place {
    base: "host-forward-to",
    hook: Hook::HostForwardTo,
    side: Side::Output,
    map: "host-forward-out",
    prefix: "host-forward-out",
};

const UNTRANSLATED: Place = Place {
    base: "host-untranslated",
    hook: Hook::HostUntranslated,
    side: Side::Input,
    map: "host-untranslated-in",
    prefix: "host-untranslated",
};
const UNTRACKED: Place = Place {
    base: "host-untracked",
    hook: Hook::HostUntracked,
    side: Side::Input,
    map: "host-untracked-in",
    prefix: "host-untracked-in",
};
const UNTRACKED_OUTPUT: Place = Place {
    base: "host-untracked-output",
    hook: Hook::HostUntrackedOutput,
    side: Side::Output,
    map: "host-untracked-out",
    prefix: "host-untracked-out",
};

/// The host endpoints by their interfaces.
struct Endpoints<'p> {
    rules: &'p BTreeMap<HostInterface, HostRules>,
    /// The interfaces to which no host endpoint applies.
    excluded: &'p BTreeSet<String>,
}

/// Returns the part of all host endpoints, without the chains that their passages use. To `excluded`
/// interfaces, the host endpoint for all interfaces does not apply.
pub fn host_part(
    frame: &Frame,
    failsafe: &Failsafe,
    endpoints: &BTreeMap<HostInterface, HostRules>,
    excluded: &BTreeSet<String>,
) -> Part {
    let endpoints = &Endpoints {
        rules: endpoints,
        excluded,
    };
    let mut part = Part::default();
    let mut with_discovery = |name: &str, rules: Vec<Rule>| {
        let mut all = Vec::from(failsafe::discovery());
        all.extend(rules);
        put(&mut part, chain(name, all));
    };
    let inbound = failsafe::rules(&failsafe.inbound, End::Destination, End::Source);
    with_discovery(FAILSAFE_IN, inbound);
    let outbound = failsafe::rules(&failsafe.outbound, End::Destination, End::Destination);
    with_discovery(FAILSAFE_OUT, outbound);
    let mut input = dispatch_prefixes(frame, Side::Input, &Verdict::Return);
    input.extend(encapsulation::received(frame.encapsulation));
    add(&mut part, INPUT, input, endpoints, |rules| {
        let all = local(&rules.to_host, FAILSAFE_IN, rules.marks_arriving(), rules);
        flows::of_end(rules.flows, Direction::Ingress, all)
    });
    add(&mut part, OUTPUT, output(frame), endpoints, |rules| {
        let all = local(&rules.from_host, FAILSAFE_OUT, rules.marks_sent(), rules);
        flows::of_end(rules.flows, Direction::Egress, all)
    });
    let have_policies = |of: fn(&HostRules) -> [&Passage; 2]| {
        let mut passages = endpoints.rules.values().flat_map(of);
        passages.any(Passage::asks)
    };
    if have_policies(|rules| [&rules.forward_in, &rules.forward_out]) {
        add(&mut part, FORWARD, Vec::new(), endpoints, |rules| {
            forwarded(&rules.forward_in, rules.marks_arriving(), rules)
        });
        // The mark decides about the way in only: policies where a packet leaves always apply.
        add(&mut part, FORWARD_TO, Vec::new(), endpoints, |rules| {
            forwarded(&rules.forward_out, false, rules)
        });
    }
    let clear = || Rule {
        action: Action::ClearMark,
        ..rule(Vec::new(), Verdict::Return)
    };
    let decides = |rules: &HostRules| {
        let mut passages = [&rules.forward_in, &rules.forward_out, &rules.untranslated].into_iter();
        passages.any(Passage::asks)
    };
    let deciding = endpoints.rules.iter().filter(|(_, rules)| decides(rules));
    let named = deciding
        .clone()
        .filter_map(|(interface, _)| match interface {
            HostInterface::Named(name) => Some(name),
            HostInterface::All => None,
        });
    let all = deciding
        .clone()
        .any(|(interface, _)| *interface == HostInterface::All);
    for chain in cut::of_hosts(frame, named, all, excluded) {
        put(&mut part, chain);
    }
    let has_untracked = have_policies(|rules| rules.untracked.each_ref());
    if have_policies(|rules| [&rules.untranslated; 2]) {
        // Before connection tracking, the mark is cleared and set.
        let mark = if has_untracked { marked() } else { clear() };
        let mut first = vec![mark];
        first.extend(encapsulation::received_from_ends(frame.encapsulation));
        first.push(counted(vec![answers()], Verdict::Accept, "answers"));
        add(&mut part, UNTRANSLATED, first, endpoints, |rules| {
            early(&rules.untranslated, FAILSAFE_IN, rules)
        });
    }
    if has_untracked {
        let [inbound, outbound] = untracked_failsafe(failsafe);
        put(&mut part, chain(FAILSAFE_IN_UNTRACKED, inbound));
        put(&mut part, chain(FAILSAFE_OUT_UNTRACKED, outbound));
        let mut first = vec![clear()];
        first.extend(encapsulation::received_from_ends(frame.encapsulation));
        add(&mut part, UNTRACKED, first, endpoints, |rules| {
            untracked(&rules.untracked[0], FAILSAFE_IN_UNTRACKED)
        });
        let mut first = vec![clear()];
        first.extend(encapsulation::sent(frame.encapsulation));
        add(&mut part, UNTRACKED_OUTPUT, first, endpoints, |rules| {
            untracked(&rules.untracked[1], FAILSAFE_OUT_UNTRACKED)
        });
    }
    part
}

/// Returns the rules for failsafe ports before connection tracking, in and out. A reply is no packet of a
/// known connection there. So it is recognized by its port, and must be tracked, too.
fn untracked_failsafe(failsafe: &Failsafe) -> [Vec<Rule>; 2] {
    let (inbound, outbound) = (&failsafe.inbound, &failsafe.outbound);
    let [requests, replies] = [End::Destination, End::Source];
    [
        [
            failsafe::rules(inbound, requests, End::Source),
            failsafe::rules(outbound, replies, End::Source),
        ],
        [
            failsafe::rules(outbound, requests, End::Destination),
            failsafe::rules(inbound, replies, End::Destination),
        ],
    ]
    .map(|both| {
        let mut rules = Vec::from(failsafe::discovery());
        rules.extend(both.concat());
        rules
    })
}

fn put(part: &mut Part, (name, chain): (String, Chain)) {
    part.chains.insert(name, Arc::new(chain));
}

/// Adds the chains of a place. The rules of its base chain begin with `first`.
fn add(
    part: &mut Part,
    place: Place,
    first: Vec<Rule>,
    endpoints: &Endpoints<'_>,
    rules_of: impl Fn(&HostRules) -> Vec<Rule>,
) {
    let mut rules = first;
    rules.push(Rule {
        action: Action::Lookup(place.side, place.map.into()),
        ..rule(Vec::new(), Verdict::Return)
    });
    let map = Set::of(SetKind::InterfaceVerdict, []);
    part.sets.insert(place.map.into(), Arc::new(map));
    for (interface, endpoint) in endpoints.rules {
        let name = match interface {
            HostInterface::Named(name) => format!("{}-{name}", place.prefix),
            // No interface has a slash in its name.
            HostInterface::All => format!("{}/all", place.prefix),
        };
        let goto = Verdict::Goto(name.clone());
        match interface {
            HostInterface::Named(name) => {
                let key = Key::interface(name);
                let goto = Some(Value::Verdict(goto));
                part.elements.push((place.map, key, goto));
            }
            HostInterface::All => {
                let keys = endpoints.excluded.iter().map(|name| Key::interface(name));
                let pass = || Some(Value::Verdict(Verdict::Return));
                let passes = keys.map(|key| (place.map, key, pass()));
                part.elements.extend(passes);
                let loopback = Match::Interface(place.side, LOOPBACK_INTERFACE.into());
                rules.push(rule(vec![loopback], Verdict::Return));
                rules.push(rule(Vec::new(), goto));
            }
        }
        put(part, chain(&name, rules_of(endpoint)));
    }
    put(part, base(place.base, place.hook, rules));
}

/// Returns the first rules for packets of the host. A packet of which the destination was translated has
/// the output interface of its former destination here, so no interface is known.
fn output(frame: &Frame) -> Vec<Rule> {
    let mut rules = dispatch_prefixes(frame, Side::Output, &Verdict::Return);
    rules.push(counted(
        vec![Match::DestinationTranslated],
        Verdict::Return,
        "translated destination",
    ));
    rules.extend(encapsulation::sent(frame.encapsulation));
    rules
}

/// Returns the rules for packets to the host or of it. `marks`: a policy may have set the mark.
fn local(passage: &Passage, failsafe: &str, marks: bool, endpoint: &HostRules) -> Vec<Rule> {
    let mut rules = vec![counted(vec![answers()], Verdict::Accept, "answers")];
    rules.extend(marks.then(marked));
    rules.push(rule(Vec::new(), Verdict::Jump(failsafe.into())));
    if passage.allowed && !passage.asks() && !endpoint.takes_invalid {
        rules.push(no_connection());
    }
    rules.extend(decision(passage, endpoint));
    rules
}

/// Returns the rule for packets that a policy accepted at an earlier hook. The mark is no proof unless
/// the first of these hooks clears it.
fn marked() -> Rule {
    let words = "accepted before translation";
    counted(vec![Match::Marked], Verdict::Accept, words)
}

/// Returns the rules before address translation.
fn early(passage: &Passage, failsafe: &str, endpoint: &HostRules) -> Vec<Rule> {
    let mut rules = Vec::new();
    if passage.asks() {
        rules.push(rule(Vec::new(), Verdict::Jump(failsafe.into())));
    }
    rules.extend(decision(passage, endpoint));
    rules
}

/// Returns the rules before connection tracking.
fn untracked(passage: &Passage, failsafe: &str) -> Vec<Rule> {
    let mut rules = Vec::new();
    if passage.asks() {
        rules.push(rule(Vec::new(), Verdict::Jump(failsafe.into())));
        rules.extend(committed());
    }
    let through = passage.through.iter();
    rules.extend(through.map(|chain| rule(Vec::new(), Verdict::Jump(chain.clone()))));
    rules.push(counted(Vec::new(), Verdict::Accept, passage.reason.clone()));
    rules
}

/// Returns the rules for packets through the host. `marks`: a policy may have set the mark.
fn forwarded(passage: &Passage, marks: bool, endpoint: &HostRules) -> Vec<Rule> {
    let mut rules = Vec::new();
    if passage.asks() {
        rules.push(counted(vec![answers()], Verdict::Accept, "answers"));
        rules.extend(marks.then(marked));
    }
    rules.extend(decision(passage, endpoint));
    rules
}

/// Returns the rules that decide about new connections.
fn decision(passage: &Passage, endpoint: &HostRules) -> Vec<Rule> {
    let mut rules = Vec::new();
    if passage.asks() {
        if !endpoint.takes_invalid {
            rules.push(no_connection());
        }
        rules.extend(committed());
    }
    let through = passage.through.iter();
    rules.extend(through.map(|chain| rule(Vec::new(), Verdict::Jump(chain.clone()))));
    let action = match passage.allowed {
        true => Action::Verdict(Verdict::Accept),
        false => endpoint.denial.action(),
    };
    rules.push(Rule {
        action,
        ..counted(Vec::new(), Verdict::Drop, passage.reason.clone())
    });
    rules
}
