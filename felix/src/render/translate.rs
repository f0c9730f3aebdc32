//! Address translation: the metadata service of OpenStack, floating addresses, and source
//! translation for destinations outside all pools.
//!
//! A packet to a floating address is sent to the workload's own address. The source of a packet
//! from a workload into a pool stays unchanged, because other hosts identify the endpoint by it.
//! The exception is a workload that connects to its own floating address: it must see the reply
//! come from there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::assembly::{Part, Used};
use super::build::{base, rule};
use super::openstack::{self, OpenStack};
use super::outgoing::{self, Outgoing};
use super::ruleset::{Action, Chain, Family, Hook, Key, Rule, Set, SetKind, Value, Verdict};

/// The map from floating addresses, by family.
pub(super) const FLOATING: [&str; 2] = ["floating-ipv4", "floating-ipv6"];
/// The map from pairs of the same workload address.
const TO_ITSELF: [&str; 2] = ["floating-to-itself-ipv4", "floating-to-itself-ipv6"];

/// Returns the chains, if there is anything to translate.
pub(super) fn chains(
    openstack: OpenStack,
    outgoing: &Outgoing,
    used: Used,
) -> BTreeMap<String, Chain> {
    let by = |names: [&'static str; 2], action: fn(Family, String) -> Action| {
        let families = Family::ALL.into_iter().zip(names).zip(used.floating);
        let used = families.filter(|(_, used)| *used);
        used.map(|((family, name), _)| Rule {
            action: action(family, name.into()),
            ..rule(Vec::new(), Verdict::Accept)
        })
        .collect::<Vec<Rule>>()
    };
    let mut destinations = openstack::translations(openstack);
    destinations.extend(by(FLOATING, Action::DestinationBy));
    let own = by(FLOATING, Action::DestinationBy);
    let mut source = by(TO_ITSELF, Action::SourceBy);
    source.extend(outgoing::rules(outgoing, used.outgoing));
    [
        base("translate", Hook::TranslateDestination, destinations),
        base("translate-own", Hook::TranslateOwnDestination, own),
        base("translate-source", Hook::TranslateSource, source),
    ]
    .into_iter()
    .filter(|(_, chain)| !chain.rules.is_empty())
    .collect()
}

/// Adds the part of an endpoint with floating addresses.
pub(super) fn endpoint(floating: &[(IpAddr, IpAddr)], part: &mut Part) {
    let mut itself: BTreeMap<IpAddr, IpAddr> = BTreeMap::new();
    for (outside, inside) in floating {
        let family = Family::of(*outside);
        let name = by_family(FLOATING, *outside);
        for (name, kind) in [
            (name, SetKind::AddressMap(family)),
            (
                by_family(TO_ITSELF, *outside),
                SetKind::AddressPairMap(family),
            ),
        ] {
            part.sets.insert(name.into(), Arc::new(Set::of(kind, [])));
        }
        let value = Some(Value::Address(*inside));
        part.elements.push((name, Key::Address(*outside), value));
        // Of several floating addresses, the first is used for its connections to itself.
        let first = itself.entry(*inside).or_insert(*outside);
        *first = (*first).min(*outside);
    }
    part.elements
        .extend(itself.into_iter().map(|(inside, outside)| {
            let key = Key::AddressPair(Box::new((inside, inside)));
            (
                by_family(TO_ITSELF, inside),
                key,
                Some(Value::Address(outside)),
            )
        }));
}

/// Returns the map of a floating address.
pub fn floating(outside: IpAddr) -> &'static str {
    by_family(FLOATING, outside)
}

const fn by_family(names: [&'static str; 2], address: IpAddr) -> &'static str {
    let [v4, v6] = names;
    match address {
        IpAddr::V4(_) => v4,
        IpAddr::V6(_) => v6,
    }
}
