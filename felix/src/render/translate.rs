//! Address translation: the metadata service of OpenStack, and addresses outside that stand for
//! addresses of workloads (floating addresses).
//!
//! What comes to an address outside goes on to the workload's. The source of what a workload sends
//! stays, so that other hosts know the endpoint by it; save where a workload speaks to itself by
//! its address outside: it must then see the answer come from there.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::build::{RuleInputs, base, rule};
use super::openstack;
use super::ruleset::{Action, Chain, Family, Hook, Key, Rule, Set, SetKind, Value, Verdict};

/// The map from addresses outside, by family.
pub const FLOATING: [&str; 2] = ["floating-ipv4", "floating-ipv6"];
/// The map from a workload's address twice.
const TO_ITSELF: [&str; 2] = ["floating-to-itself-ipv4", "floating-to-itself-ipv6"];

/// The chains, where there is anything to translate.
pub(super) fn chains(inputs: &RuleInputs) -> BTreeMap<String, Chain> {
    let by = |names: [&'static str; 2], action: fn(Family, String) -> Action| {
        let families = used(inputs).map(move |(family, at)| action(family, names[at].into()));
        families
            .map(|action| Rule {
                action,
                ..rule(Vec::new(), Verdict::Accept)
            })
            .collect::<Vec<Rule>>()
    };
    let floating = || by(FLOATING, Action::DestinationBy);
    let mut destinations = openstack::translations(&inputs.openstack);
    destinations.extend(floating());
    [
        base("translate", Hook::TranslateDestination, destinations),
        base("translate-own", Hook::TranslateOwnDestination, floating()),
        base(
            "translate-source",
            Hook::TranslateSource,
            by(TO_ITSELF, Action::SourceBy),
        ),
    ]
    .into_iter()
    .filter(|(_, chain)| !chain.rules.is_empty())
    .collect()
}

/// The families of addresses outside, each with its place in the names above.
fn used(inputs: &RuleInputs) -> impl Iterator<Item = (Family, usize)> {
    let used = |family| {
        let mut outside = inputs.floating.keys();
        outside.any(|address| Family::of(*address) == family)
    };
    let families = Family::ALL.into_iter().zip(0..);
    families.filter(move |(family, _)| used(*family))
}

pub(super) fn sets(inputs: &RuleInputs) -> BTreeMap<String, Set> {
    let mut sets = BTreeMap::new();
    for (family, at) in used(inputs) {
        let of_family = |(outside, _): &(&IpAddr, &IpAddr)| Family::of(**outside) == family;
        let floating = || inputs.floating.iter().filter(of_family);
        let to = |address: &IpAddr| Some(Value::Address(*address));
        let elements = floating().map(|(outside, inside)| (Key::Address(*outside), to(inside)));
        let set = Set {
            kind: SetKind::AddressMap(family),
            elements: elements.collect(),
        };
        sets.insert(FLOATING[at].into(), set);
        // Of several addresses outside it is known to itself by the first.
        let itself = floating().rev();
        let itself = itself
            .map(|(outside, inside)| (Key::AddressPair(*inside, *inside), to(outside)))
            .collect();
        let set = Set {
            kind: SetKind::AddressPairMap(family),
            elements: itself,
        };
        sets.insert(TO_ITSELF[at].into(), set);
    }
    sets
}
