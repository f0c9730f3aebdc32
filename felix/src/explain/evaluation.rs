//! Evaluates the chains of the calculated packet filter for one packet, in the order of the kernel.

use std::net::IpAddr;

use super::packet::{Packet, Truth};
use crate::render::{Action, Hook, Key, Rule, Ruleset, Value, Verdict};

/// The base chains before the routing decision.
pub(super) const BEFORE_ROUTING: [Hook; 5] = [
    Hook::Prerouting,
    Hook::HostUntracked,
    Hook::Guard,
    Hook::HostUntranslated,
    Hook::TranslateDestination,
];

/// The base chains of packets through the host. Left out: those that only set the DSCP, and the
/// budgets.
pub(super) const FORWARDED: [Hook; 6] = [
    Hook::GuardForward,
    Hook::Forward,
    Hook::HostForward,
    Hook::ForwardTo,
    Hook::HostForwardTo,
    Hook::ForwardLast,
];

/// The base chains of packets of workloads to the host: policies of host endpoints do not apply there.
pub(super) const DELIVERED: [Hook; 3] = [Hook::GuardInput, Hook::Input, Hook::InputToHost];

/// The beginning of the names of chains of host endpoints.
const HOST_CHAINS: &str = "host-";

/// The element of an interface to which no host endpoint applies.
const EXCLUDED: Option<Value> = Some(Value::Verdict(Verdict::Return));

/// The part that a packet without a workload interface at an end lacks.
const OUTSIDE: &str = "the interface to the other end, which has a host endpoint or not";

/// The result of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Accept,
    Drop,
    Reject,
    /// It depends on this part, which the packet does not have.
    DependsOn(&'static str),
}

/// The rule that decides, and its chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision<'r> {
    pub(super) fate: Fate,
    pub(super) chain: &'r str,
    pub(super) rule: &'r Rule,
}

/// The base chains of a packet filter.
#[derive(Debug)]
pub(super) struct Bases<'r> {
    rules: &'r Ruleset,
    /// In the order of their names.
    chains: Vec<(Hook, &'r str)>,
}

impl<'r> Bases<'r> {
    pub(super) fn of(rules: &'r Ruleset) -> Self {
        let chains = rules.chains.iter();
        let chains = chains.filter_map(|(name, chain)| Some((chain.hook?, name.as_str())));
        Self {
            rules,
            chains: chains.collect(),
        }
    }

    /// Returns the decision of the base chains at a hook; `None`: none of their rules decides.
    pub(super) fn at_hook(&self, hook: Hook, packet: &mut Packet) -> Option<Decision<'r>> {
        let mut of_hook = self.chains.iter().filter(|(of, _)| *of == hook);
        of_hook.find_map(|(_, name)| evaluate(self.rules, name, packet))
    }
}

/// Returns the decision of a chain; `None`: it returns.
pub(super) fn evaluate<'r>(
    rules: &'r Ruleset,
    name: &str,
    packet: &mut Packet,
) -> Option<Decision<'r>> {
    let (chain, held) = rules.chains.get_key_value(name)?;
    for rule in &held.rules {
        let decided = |fate| Some(Decision { fate, chain, rule });
        let does_nothing = matches!(rule.action, Action::Log(_) | Action::Dscp(..));
        match packet.meets(&rule.matches, rules) {
            Truth::No => continue,
            Truth::DependsOn(_) if does_nothing => continue,
            Truth::DependsOn(part) => return decided(Fate::DependsOn(part)),
            Truth::Yes => {}
        }
        let verdict = match &rule.action {
            Action::Verdict(verdict) => verdict,
            Action::Lookup(side, map) => {
                let Some(map) = rules.sets.get(map) else {
                    continue;
                };
                let key = packet.interface(*side).map(|name| Key::interface(name));
                let is_outside = key.is_none() && chain.starts_with(HOST_CHAINS);
                // The other end is assumed not to be behind an interface of interfaceExclude.
                let mut verdicts = map.elements.values();
                let has_own = verdicts.any(|verdict| *verdict != EXCLUDED);
                if is_outside && has_own {
                    return decided(Fate::DependsOn(OUTSIDE));
                }
                match key.and_then(|key| map.elements.get(&key)?.as_ref()) {
                    Some(Value::Verdict(verdict)) => verdict,
                    _ => continue,
                }
            }
            Action::Reject | Action::ResetTcp => return decided(Fate::Reject),
            Action::DestinationTo(address, port) => {
                packet.destination = IpAddr::V4(*address);
                packet.port = Some(*port);
                packet.changes.is_translated = true;
                return decided(Fate::Accept);
            }
            Action::DestinationBy(_, map) => {
                let key = Key::Address(packet.destination);
                let found = rules.sets.get(map).and_then(|map| map.elements.get(&key));
                let Some(Some(Value::Address(address))) = found else {
                    continue;
                };
                packet.destination = *address;
                packet.changes.is_translated = true;
                return decided(Fate::Accept);
            }
            Action::AcceptMarked => {
                packet.changes.is_marked = true;
                return decided(Fate::Accept);
            }
            Action::ClearMark => {
                packet.changes.is_marked = false;
                continue;
            }
            Action::AcceptUntracked => {
                packet.changes.is_marked = true;
                packet.changes.is_untracked = true;
                return decided(Fate::Accept);
            }
            // Sources are translated after all filters.
            Action::Log(_)
            | Action::Dscp(..)
            | Action::SourceBy(..)
            | Action::Masquerade(_)
            | Action::SourceTo(..) => continue,
        };
        match verdict {
            Verdict::Accept => return decided(Fate::Accept),
            Verdict::Drop => return decided(Fate::Drop),
            Verdict::Return => return None,
            Verdict::Goto(to) => return evaluate(rules, to, packet),
            Verdict::Jump(to) => {
                if let Some(decision) = evaluate(rules, to, packet) {
                    return Some(decision);
                }
            }
        }
    }
    None
}
