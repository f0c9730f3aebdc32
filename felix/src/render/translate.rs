//! Address translation: the metadata service of OpenStack, addresses outside that stand for
//! addresses of workloads (floating addresses), and the host that stands for workloads towards what
//! is in no pool.
//!
//! What comes to an address outside goes on to the workload's. The source of what a workload sends
//! into a pool stays, so that other hosts know the endpoint by it; save where a workload speaks to
//! itself by its address outside: it must then see the answer come from there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::assembly::{Part, Used};
use super::build::{base, rule};
use super::openstack::{self, OpenStack};
use super::outgoing::{self, Outgoing};
use super::ruleset::{Action, Chain, Family, Hook, Key, Rule, Set, SetKind, Value, Verdict};

/// The map from addresses outside, by family.
pub(super) const FLOATING: [&str; 2] = ["floating-ipv4", "floating-ipv6"];
/// The map from a workload's address twice.
const TO_ITSELF: [&str; 2] = ["floating-to-itself-ipv4", "floating-to-itself-ipv6"];

/// The chains, where there is anything to translate.
pub(super) fn chains(
    openstack: OpenStack,
    outgoing: Outgoing,
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

/// What an endpoint with addresses outside adds.
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
        // Of several addresses outside it is known to itself by the first.
        let first = itself.entry(*inside).or_insert(*outside);
        *first = (*first).min(*outside);
    }
    part.elements
        .extend(itself.into_iter().map(|(inside, outside)| {
            let key = Key::AddressPair(inside, inside);
            (
                by_family(TO_ITSELF, inside),
                key,
                Some(Value::Address(outside)),
            )
        }));
}

/// The map that an address outside is written in.
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
