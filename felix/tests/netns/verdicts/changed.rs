//! Changed rules in the kernel: each change is found by the comparison with the stored policies and by a
//! sent packet, or is proven to change nothing.
//!
//! The chains of the original and of the changed rules are compared over all packets from each place to each
//! other one. A packet about which they differ is sent, after the packets that make its connection. Only the
//! treatment by the kernel counts: it must differ from that of the original rules, which treat all sent
//! packets again at the end.

#[path = "changed/sendable.rs"]
pub(super) mod sendable;
#[path = "changed/treated.rs"]
mod treated;
#[path = "changed/ways.rs"]
mod ways;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

use cambric_felix::apply::Rules;
use cambric_felix::render::{Ruleset, creation};
use rule_audit::packet::Packet;
use rule_audit::space::{Comparison, Outcome, ProgramId, compare};
use rule_audit::{Fabric, Listing};

use super::draw::Draw;
use super::hosts::at_link;
use super::wires::Party;
use super::{Lab, Stored, is_long, stores};
use crate::readback::mutants::{Reason, reason};
use crate::readback::{add_hosts, add_translation, fabric, listing, typed};
use crate::world::{lab, try_run};
use sendable::exchange;
use treated::Trial;
use ways::{Chains, Way, World};

/// Packets that are sent for one change.
const SENT: usize = 8;
/// How often packets are sent of which the kernel chooses the port, from a range at least twice as large as
/// the wanted one.
const ATTEMPTS: u32 = 64;
/// Changes of each datastore, in a run of all tests and in a long run.
const CHANGES: [usize; 2] = [250, 700];
/// Minimum number of changes that the kernel accepts.
const ACCEPTED_MIN: usize = 200;
/// Minimum number of changes that packets find.
const FOUND_MIN: usize = 100;
/// The kinds of host endpoints and translations. Without `doNotTrack`, fewer hooks decide in the same way.
const KINDS: [(usize, usize); 2] = [(0b0000_1101, 0b0010_1011), (0b0001_1101, 0b0000_1011)];
pub(super) const FELIX: &str = "cambric-felix";

/// A way, with the programs of the original rules for it.
struct Original {
    way: Way,
    whole: ProgramId,
    /// For packets that the lab can send.
    sendable: ProgramId,
}

/// Why no packet shows a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Proof {
    /// Read-back is equal over all packets: earlier rules decide about all packets of the rule.
    NotReached,
    /// Read-back is equal over all packets: other rules decide in the same way.
    SameDecision,
    /// Another base chain decides in the same way about all packets of each way.
    OtherChain,
    /// Read-back finds it. The original rules leave the port of a translated source to the kernel, and the
    /// changed ones restrict it: each packet is also one of the original rules.
    FreePort,
    /// Read-back reports the rule as unknown, so the check fails; the kernel treats the packets that it
    /// cannot evaluate as before.
    Unknown,
}

/// The results of all changes.
#[derive(Default)]
struct Results {
    /// Packets that are treated differently, by kind of the change.
    sent: Vec<(&'static str, Trial)>,
    proven: Vec<(&'static str, Proof, String)>,
    rejected: BTreeMap<&'static str, usize>,
    /// Changes that are neither found nor proven to change nothing.
    missed: Vec<String>,
}

/// The result of the comparison of all ways for one change.
enum Shown {
    /// Packets that the rules treat differently.
    Differently(Vec<Trial>),
    /// All packets that the lab can send are treated in the same way, but not this one.
    NotSent(String),
    /// Not all packets can be evaluated; the kernel may treat these differently.
    Unknown(Vec<Trial>, String),
    /// Only the ports of translated sources are restricted.
    FreePort,
    /// All packets are treated in the same way.
    Same,
}

impl Shown {
    /// Compares the ways of changed rules with the original ones.
    fn of(world: &mut World<'_>, originals: &[Original], changed: &Listing) -> Self {
        let mut chains = Chains::new(changed);
        let mut different = Vec::new();
        for original in originals {
            let whole = chains.way(world, &original.way);
            if whole != original.whole {
                different.push((original, whole));
            }
        }
        let (mut trials, mut doubtful) = (Vec::new(), Vec::new());
        let mut has_free_port = false;
        for (original, whole) in &different {
            let way = &original.way;
            let new = world.sendable(way, *whole);
            let start = Packet::new(way.family);
            let result = compare(&mut world.space, start, original.sendable, new);
            let (all, difference) = match result {
                Comparison::Different(difference) => (&mut trials, difference),
                Comparison::Unknown(difference)
                    if difference.wanted.outcome != Outcome::Unknown =>
                {
                    (&mut doubtful, difference)
                }
                _ => continue,
            };
            let wanted = world.arrival(way, difference.wanted.outcome);
            // A place also receives its own packets.
            let is_own = |receiver| receiver == way.sender && receiver != Party::Host;
            if all.len() == SENT || wanted.is_some_and(|arrival| is_own(arrival.receiver)) {
                continue;
            }
            let exchange = exchange(way, &difference.packet);
            if exchange.last.probe.from == exchange.last.probe.to {
                continue;
            }
            let found = difference.found.outcome;
            let found = (found != Outcome::Unknown).then(|| world.arrival(way, found));
            let (one, other) = (wanted, found.flatten());
            let attempts = match (one, other) {
                (Some(wanted), Some(found)) if wanted.includes(&found) => {
                    has_free_port = true;
                    continue;
                }
                (Some(wanted), Some(found)) if found.includes(&wanted) => ATTEMPTS,
                _ => 1,
            };
            all.push(Trial {
                exchange,
                wanted,
                attempts,
            });
        }
        if !trials.is_empty() {
            return Self::Differently(trials);
        }
        if has_free_port {
            return Self::FreePort;
        }
        let mut unknown = None;
        for (original, whole) in &different {
            let way = &original.way;
            let old = world.possible(way, original.whole);
            let new = world.possible(way, *whole);
            let start = Packet::new(way.family);
            match compare(&mut world.space, start, old, new) {
                Comparison::Equal => {}
                Comparison::Different(difference) => {
                    let text = format!(
                        "{way:?}: {}, {:?} => {:?}",
                        difference.packet, difference.wanted.outcome, difference.found.outcome
                    );
                    return Self::NotSent(text);
                }
                other => {
                    unknown.get_or_insert_with(|| format!("{way:?}: {other:?}"));
                }
            }
        }
        unknown.map_or(Self::Same, |text| Self::Unknown(doubtful, text))
    }
}

impl Lab {
    /// Writes changed rules into the kernel, at most about this number, and sends packets that show it.
    fn change(&mut self, store: &Stored, count: usize, draw: &mut Draw) -> Results {
        let routes = floating(store);
        let fabric = fabric(store);
        let own = typed::computed(store);
        let mut rules = Rules::open().unwrap();
        let mut write = |ruleset: &Ruleset| {
            let is_written = rules.write(&creation(ruleset)).is_ok();
            // The kernel has published all sets when another transaction is done.
            try_run("nft --check add table inet published");
            is_written
        };
        assert!(write(&own));
        let original = listing();
        let report = rule_audit::audit(&fabric, &original);
        assert!(report.is_equal(), "{report:#?}");
        let mut world = World::new(&routes);
        let mut chains = Chains::new(&original);
        let originals: Vec<Original> = Way::all()
            .into_iter()
            .map(|way| {
                let whole = chains.way(&mut world, &way);
                let sendable = world.sendable(&way, whole);
                Original {
                    way,
                    whole,
                    sendable,
                }
            })
            .collect();
        let mark = world.space.mark();
        let all = typed::mutants(&own);
        let step = all.len().div_ceil(count);
        let first = draw.below(step);
        let mut results = Results::default();
        for mutant in all.into_iter().skip(first).step_by(step) {
            if !write(&mutant.ruleset) {
                *results.rejected.entry(mutant.kind).or_default() += 1;
                continue;
            }
            let changed = listing();
            let shown = Shown::of(&mut world, &originals, &changed);
            let place = |reason: &str| format!("{}: {}\n{reason}", mutant.kind, mutant.change);
            let report = rule_audit::audit(&fabric, &changed);
            match shown {
                Shown::Differently(trials) => {
                    let mut all = trials.iter();
                    let found = all.find(|trial| self.is_shown(trial));
                    match found {
                        Some(_) if report.is_equal() => {
                            let text = place("packets find it, and read-back does not");
                            results.missed.push(text);
                        }
                        Some(trial) => results.sent.push((mutant.kind, trial.clone())),
                        None => {
                            let text = format!("the kernel treats as before: {trials:#?}");
                            results.missed.push(place(&text));
                        }
                    }
                }
                Shown::FreePort if report.is_different() => {
                    let proof = (mutant.kind, Proof::FreePort, mutant.change.clone());
                    results.proven.push(proof);
                }
                Shown::FreePort => results.missed.push(place("read-back does not find it")),
                Shown::NotSent(text) => results.missed.push(place(&text)),
                Shown::Unknown(_, text) if report.is_equal() => results.missed.push(place(&text)),
                Shown::Unknown(trials, _) => {
                    let mut all = trials.into_iter();
                    match all.find(|trial| self.is_shown(trial)) {
                        Some(trial) => results.sent.push((mutant.kind, trial)),
                        None => {
                            let proof = (mutant.kind, Proof::Unknown, mutant.change.clone());
                            results.proven.push(proof);
                        }
                    }
                }
                Shown::Same => {
                    let proof = proof(&fabric, &original, &report, mutant.rule.as_ref());
                    results
                        .proven
                        .push((mutant.kind, proof, mutant.change.clone()));
                }
            }
            world.space.forget(mark);
        }
        assert!(write(&own));
        for (kind, trial) in results.sent.clone() {
            if !self.is_treated(&trial) {
                let text =
                    format!("{kind}: the original rules treat it in another way: {trial:#?}");
                results.missed.push(text);
            }
        }
        results
    }
}

/// Returns why a change has no effect that packets of the lab show.
fn proof(
    fabric: &Fabric,
    original: &Listing,
    report: &rule_audit::Report,
    rule: Option<&(String, usize)>,
) -> Proof {
    if !report.is_equal() {
        return Proof::OtherChain;
    }
    match reason(fabric, original, rule) {
        Reason::NotReached => Proof::NotReached,
        Reason::SameDecision => Proof::SameDecision,
    }
}

impl Results {
    /// Returns the number of changes that the kernel has accepted.
    fn accepted(&self) -> usize {
        self.sent.len() + self.proven.len() + self.missed.len()
    }
}

impl Display for Results {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rejected: usize = self.rejected.values().sum();
        writeln!(
            f,
            "{} found by packets, {} proven, {} missed, {rejected} rejected by the kernel",
            self.sent.len(),
            self.proven.len(),
            self.missed.len(),
        )?;
        let mut kinds: BTreeMap<&str, [usize; 6]> = BTreeMap::new();
        for (kind, _) in &self.sent {
            kinds.entry(kind).or_default()[0] += 1;
        }
        for (kind, proof, _) in &self.proven {
            kinds.entry(kind).or_default()[1 + *proof as usize] += 1;
        }
        for (kind, [packets, unreached, same, other, free, unread]) in kinds {
            writeln!(
                f,
                "{kind}: {packets} by packets; no effect: {unreached} not reached, {same} same \
                 decision, {other} another chain, {free} free port; {unread} unknown to read-back"
            )?;
        }
        for (kind, proof, change) in &self.proven {
            writeln!(f, "{kind}, {proof:?}: {change}")?;
        }
        Ok(())
    }
}

/// Returns the places of all floating addresses.
fn floating(store: &Stored) -> BTreeMap<IpAddr, Party> {
    let endpoints = store
        .values()
        .filter(|value| value["spec"]["ipNATs"].is_array());
    let all = endpoints.flat_map(|value| {
        let name = value["spec"]["interfaceName"].as_str().unwrap();
        let place = at_link(name);
        let addresses = value["spec"]["ipNATs"].as_array().unwrap().iter();
        addresses.map(move |one| (one["externalIP"].as_str().unwrap().parse().unwrap(), place))
    });
    all.collect()
}

// Promise: as felix generated_policies_decide_about_real_packets
#[test]
fn mistakes_in_computed_rules_are_found_by_packets() {
    lab("mistakes_in_computed_rules_are_found_by_packets", || {
        let mut lab = Lab::new();
        // The rules are the same in each run. In a long run, the seed selects the changes.
        let mut draw = Draw(if is_long() > 0 { lab.seed } else { 1 });
        let generated = stores(1, &mut Draw(1), 1).swap_remove(0);
        for (hosts, translation) in KINDS.into_iter().take(1 + is_long()) {
            let mut store = generated.clone();
            add_hosts(&mut store, hosts);
            add_translation(&mut store, translation);
            lab.program(&store, &fabric(&store));
            // Felix would revert a change of its table.
            lab.host.stop();
            let results = lab.change(&store, CHANGES[is_long()], &mut draw);
            println!("{results}");
            assert!(results.missed.is_empty(), "{}", results.missed.join("\n\n"));
            let (accepted, found) = (results.accepted(), results.sent.len());
            assert!(accepted >= ACCEPTED_MIN, "{accepted} changes");
            assert!(found >= FOUND_MIN, "{found} found by packets");
            lab.host.start();
        }
    });
}
