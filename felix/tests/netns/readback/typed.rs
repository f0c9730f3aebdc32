//! Mechanical changes of the ruleset that Felix computes, before it is written into the kernel: the mistakes
//! that code which makes rules can have.

use std::sync::Arc;

use cambric_felix::apply::Rules;
use cambric_felix::calc::Calculator;
use cambric_felix::render::{
    Action, Chain, ConnectionStates, Family, Is, Key, Match, Ruleset, Touched, TupleDirection,
    Value, Verdict, changes, creation,
};
use ipnet::IpNet;

use super::mutants::{Tally, is_outside};
use super::{Stored, common, fabric, listing};
use crate::world::try_run;

/// A changed ruleset.
pub(crate) struct Mutant {
    pub(crate) kind: &'static str,
    /// The chain and the place of the changed rule in it.
    pub(crate) rule: Option<(String, usize)>,
    pub(crate) change: String,
    pub(crate) ruleset: Ruleset,
}

/// Returns the ruleset that Felix computes from a datastore.
pub(crate) fn computed(stored: &Stored) -> Ruleset {
    let mut calculator = Calculator::new(common::NODE, None);
    for (key, value) in stored {
        let octets = value.to_string().into_bytes();
        assert!(calculator.change(key, Some(&octets)).is_none(), "{key}");
    }
    calculator.recompute();
    calculator.desired().rules().clone()
}

/// Writes changed rulesets into the kernel, at most about this number, and compares each with the policies.
pub(super) fn change(stored: &Stored, count: usize, tally: &mut Tally) {
    let fabric = fabric(stored);
    let own = computed(stored);
    let mut rules = Rules::open().unwrap();
    rules.write(&creation(&own)).unwrap();
    let original = listing();
    let report = rule_audit::audit(&fabric, &original);
    assert!(report.is_equal(), "{report:#?}");
    let mut held = own.clone();
    let mutants = mutants(&own);
    // The changes of one rule are neighbors, so a step selects rules of all chains.
    let step = mutants.len().div_ceil(count);
    for mutant in mutants.into_iter().step_by(step) {
        let steps = changes(
            &held,
            &mutant.ruleset,
            &Touched::between(&held, &mutant.ruleset),
        );
        if rules.write(&steps).is_err() {
            // The kernel rejects it, so Felix would report it.
            tally.reject(mutant.kind);
            continue;
        }
        held = mutant.ruleset;
        // The kernel has published all sets when another transaction is done.
        try_run("nft --check add table inet published");
        let change = (mutant.kind, mutant.change);
        tally.compare(
            &fabric,
            [&original, &listing()],
            change,
            mutant.rule.as_ref(),
        );
    }
}

/// Returns all changed rulesets, those of one rule one after the other.
pub(crate) fn mutants(own: &Ruleset) -> Vec<Mutant> {
    let is_chain = |name: &str| !is_outside(name) && !name.starts_with("arp/");
    mutants_of(own, is_chain, super::mutants::is_compared)
}

/// Returns the same for some chains and sets.
pub(crate) fn mutants_of(
    own: &Ruleset,
    is_chain: impl Fn(&str) -> bool,
    is_set: impl Fn(&str) -> bool,
) -> Vec<Mutant> {
    let mut all = Vec::new();
    for (name, chain) in own.chains.iter().filter(|(name, _)| is_chain(name)) {
        for at in 0..chain.rules.len() {
            for (kind, changed) in changed_chains(chain, at, own) {
                let (old, new) = (&chain.rules[at], changed.rules.get(at));
                let change = format!("{name}[{at}] {old:?}\n=> {new:?}");
                let mut ruleset = own.clone();
                ruleset.chains.insert(name.clone(), Arc::new(changed));
                all.push(Mutant {
                    kind,
                    rule: Some((name.clone(), at)),
                    change,
                    ruleset,
                });
            }
        }
    }
    for (name, set) in own.sets.iter().filter(|(name, _)| is_set(name)) {
        for (key, value) in set.elements.iter().take(3) {
            for (kind, replaced) in changed_elements(key, value.as_ref()) {
                let mut ruleset = own.clone();
                let elements = &mut ruleset.sets.get_mut(name).unwrap().elements;
                elements.remove(key);
                elements.extend(replaced.clone());
                all.push(Mutant {
                    kind,
                    rule: None,
                    change: format!("{name} {key:?}\n=> {replaced:?}"),
                    ruleset,
                });
            }
        }
    }
    all
}

type Element = (Key, Option<Value>);

/// Returns what may take the place of an element.
fn changed_elements(key: &Key, value: Option<&Value>) -> Vec<(&'static str, Option<Element>)> {
    let mut all = vec![("element", None)];
    match key {
        Key::Ports(first, last) if *last < u16::MAX => {
            all.push(("port", Some((Key::Ports(*first, last + 1), value.cloned()))));
        }
        Key::Net(net) => {
            let shorter = net.prefix_len().checked_sub(1);
            let wider = shorter.and_then(|length| IpNet::new(net.addr(), length).ok());
            all.extend(wider.map(|net| ("net", Some((Key::Net(net.trunc()), value.cloned())))));
        }
        _ => {}
    }
    if let Some(Value::Verdict(_)) = value {
        let accepts = Some(Value::Verdict(Verdict::Accept));
        all.push(("verdict", Some((key.clone(), accepts))));
    }
    all
}

/// Returns the changed forms of a chain at one of its rules.
fn changed_chains(chain: &Chain, at: usize, own: &Ruleset) -> Vec<(&'static str, Chain)> {
    let mut all = Vec::new();
    let mut with = |kind, change: &dyn Fn(&mut Chain)| {
        let mut changed = chain.clone();
        change(&mut changed);
        if changed != *chain {
            all.push((kind, changed));
        }
    };
    let rule = &chain.rules[at];
    with("removal", &|chain| drop(chain.rules.remove(at)));
    if at + 1 < chain.rules.len() {
        with("order", &|chain| chain.rules.swap(at, at + 1));
    }
    if let Some(action) = changed_action(&rule.action) {
        with("verdict", &|chain| chain.rules[at].action = action.clone());
    }
    for place in 0..rule.matches.len() {
        with("condition", &|chain| {
            drop(chain.rules[at].matches.remove(place))
        });
        for (kind, changed) in changed_matches(&rule.matches[place], own) {
            with(kind, &|chain| {
                chain.rules[at].matches[place] = changed.clone()
            });
        }
    }
    all
}

fn changed_action(action: &Action) -> Option<Action> {
    Some(match action {
        Action::Verdict(Verdict::Accept) | Action::AcceptMarked => Action::Verdict(Verdict::Drop),
        Action::Verdict(Verdict::Drop | Verdict::Return | Verdict::Jump(_))
        | Action::Reject
        | Action::ResetTcp => Action::Verdict(Verdict::Accept),
        Action::Verdict(Verdict::Goto(chain)) => Action::Verdict(Verdict::Jump(chain.clone())),
        Action::Lookup(..) => Action::Verdict(Verdict::Return),
        Action::AcceptUntracked => Action::AcceptMarked,
        Action::ClearMark => Action::Verdict(Verdict::Return),
        Action::DestinationTo(address, port) => Action::DestinationTo(*address, port + 1),
        Action::DestinationBy(..) | Action::SourceBy(..) => Action::Verdict(Verdict::Accept),
        Action::Masquerade(Some(_)) | Action::SourceTo(..) => Action::Masquerade(None),
        Action::Masquerade(None) => Action::Verdict(Verdict::Accept),
        _ => return None,
    })
}

const fn not(is: Is) -> Is {
    match is {
        Is::Yes => Is::Not,
        Is::Not => Is::Yes,
    }
}

/// Returns the changed forms of a condition.
fn changed_matches(one: &Match, own: &Ruleset) -> Vec<(&'static str, Match)> {
    use cambric_felix::render::End::{Destination, Source};
    use cambric_felix::render::Side::{Input, Output};
    let end = |end| if end == Source { Destination } else { Source };
    let side = |side| if side == Input { Output } else { Input };
    let other = |name: &String| {
        let kind = own.sets.get(name).map(|set| set.kind)?;
        let mut sets = own.sets.iter();
        let found = sets.find(|(other, set)| *other != name && set.kind == kind);
        found.map(|(name, _)| name.clone())
    };
    let mut all: Vec<(&'static str, Match)> = Vec::new();
    let mut swapped = |set: &String, with: &dyn Fn(String) -> Match| {
        all.extend(other(set).map(|other| ("set", with(other))));
    };
    match one {
        Match::InSet(of, family, set, is) => {
            swapped(set, &|set| Match::InSet(*of, *family, set, *is));
            all.push(("side", Match::InSet(end(*of), *family, set.clone(), *is)));
            all.push((
                "negation",
                Match::InSet(*of, *family, set.clone(), not(*is)),
            ));
        }
        Match::PortIn(of, protocol, set, is) => {
            swapped(set, &|set| Match::PortIn(*of, *protocol, set, *is));
            all.push(("side", Match::PortIn(end(*of), *protocol, set.clone(), *is)));
            all.push((
                "negation",
                Match::PortIn(*of, *protocol, set.clone(), not(*is)),
            ));
            let protocol = if *protocol == 6 { 17 } else { 6 };
            all.push(("protocol", Match::PortIn(*of, protocol, set.clone(), *is)));
        }
        Match::EndpointPortIn(of, family, set, is) => {
            swapped(set, &|set| Match::EndpointPortIn(*of, *family, set, *is));
            let changed = Match::EndpointPortIn(end(*of), *family, set.clone(), *is);
            all.push(("side", changed));
            let changed = Match::EndpointPortIn(*of, *family, set.clone(), not(*is));
            all.push(("negation", changed));
        }
        Match::Port(of, protocol, port, is) => {
            all.push(("side", Match::Port(end(*of), *protocol, *port, *is)));
            all.push(("negation", Match::Port(*of, *protocol, *port, not(*is))));
            all.push((
                "port",
                Match::Port(*of, *protocol, port.wrapping_add(1), *is),
            ));
            let protocol = if *protocol == 6 { 17 } else { 6 };
            all.push(("protocol", Match::Port(*of, protocol, *port, *is)));
        }
        Match::InNet(of, net, is) => {
            all.push(("side", Match::InNet(end(*of), *net, *is)));
            all.push(("negation", Match::InNet(*of, *net, not(*is))));
        }
        Match::Protocol(number, is) => {
            all.push(("negation", Match::Protocol(*number, not(*is))));
            all.push(("protocol", Match::Protocol(number.wrapping_add(1), *is)));
        }
        Match::IcmpType(family, number, is) => {
            all.push(("negation", Match::IcmpType(*family, *number, not(*is))));
            all.push((
                "port",
                Match::IcmpType(*family, number.wrapping_add(1), *is),
            ));
            all.push(("family", Match::IcmpType(turned(*family), *number, *is)));
        }
        Match::IcmpCode(family, number, is) => {
            all.push(("negation", Match::IcmpCode(*family, *number, not(*is))));
            all.push((
                "port",
                Match::IcmpCode(*family, number.wrapping_add(1), *is),
            ));
        }
        Match::Family(family) => all.push(("family", Match::Family(turned(*family)))),
        Match::Connection(states) => {
            use ConnectionStates::{Established, EstablishedOrRelated, Invalid, New};
            let changed = match states {
                EstablishedOrRelated => Established,
                Invalid => New,
                _ => Invalid,
            };
            all.push(("state", Match::Connection(changed)));
        }
        Match::Interface(of, name) => {
            all.push(("side", Match::Interface(side(*of), name.clone())));
            all.push(("interface", Match::Interface(*of, format!("{name}0"))));
        }
        Match::InterfacePrefix(of, name) => {
            all.push(("side", Match::InterfacePrefix(side(*of), name.clone())));
            all.push(("interface", Match::InterfacePrefix(*of, format!("{name}0"))));
        }
        Match::ServiceIn(family, set) => swapped(set, &|set| Match::ServiceIn(*family, set)),
        Match::TupleSourceIn(direction, family, set) => {
            let turned = match direction {
                TupleDirection::Original => TupleDirection::Reply,
                TupleDirection::Reply => TupleDirection::Original,
            };
            let changed = Match::TupleSourceIn(turned, *family, set.clone());
            all.push(("side", changed));
        }
        Match::InterfaceIn(_, set) => swapped(set, &|set| Match::InterfaceIn(Output, set)),
        _ => {}
    }
    all
}

const fn turned(family: Family) -> Family {
    match family {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    }
}
