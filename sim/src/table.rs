//! The nftables table of a simulated kernel: transactions change it as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cambric_felix::render::{
    Action, Change, Hook, Key, Match, Rule, SetKind, Value, Verdict, local_name,
};

/// Felix's tables of the families `inet` and `arp`. The names of the latter begin with `arp/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) chains: BTreeMap<String, Arc<Chain>>,
    pub(crate) sets: BTreeMap<String, Arc<Set>>,
}

/// A chain: its hook, if packets reach it without a jump, and its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) hook: Option<Hook>,
    pub(crate) rules: Vec<Rule>,
}

/// A set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) kind: SetKind,
    pub(crate) elements: BTreeMap<Key, Option<Value>>,
}

/// Returns the table after a transaction, or the reason why the kernel rejects it.
pub(crate) fn transact(table: Option<&Table>, steps: &[Change]) -> Result<Option<Table>, String> {
    let mut table = table.cloned();
    let mut touched = false;
    for step in steps {
        match (step, &mut table) {
            (Change::RemoveBoot, _) => {}
            (Change::AddTable, Some(_)) => touched = true,
            (Change::AddTable, none) => {
                touched = true;
                *none = Some(Table::default());
            }
            (Change::DeleteTable, present @ Some(_)) => *present = None,
            (_, None) => return Err(format!("no table: {step:?}")),
            (step, Some(table)) => {
                touched = true;
                table
                    .step(step)
                    .map_err(|reason| format!("{reason}: {step:?}"))?;
            }
        }
    }
    if let (true, Some(table)) = (touched, &table) {
        table.check()?;
    }
    Ok(table)
}

impl Table {
    fn step(&mut self, step: &Change) -> Result<(), &'static str> {
        match step {
            Change::AddTable | Change::DeleteTable | Change::RemoveBoot => Ok(()),
            Change::AddChain(name, hook) => {
                let chain = Chain {
                    hook: *hook,
                    rules: Vec::new(),
                };
                vacant(self.chains.insert(name.clone(), Arc::new(chain)))
            }
            Change::AddSet(name, kind) => {
                let set = Set {
                    kind: *kind,
                    elements: BTreeMap::new(),
                };
                vacant(self.sets.insert(name.clone(), Arc::new(set)))
            }
            Change::FlushChain(name) => {
                let chain = self.chains.get_mut(name).ok_or(MISSING)?;
                Arc::make_mut(chain).rules.clear();
                Ok(())
            }
            Change::AddRule(name, rule) => {
                let chain = self.chains.get_mut(name).ok_or(MISSING)?;
                Arc::make_mut(chain).rules.push(rule.clone());
                match self.has_all(rule) {
                    true => Ok(()),
                    false => Err("a missing object is named"),
                }
            }
            Change::AddElements(name, kind, elements) => {
                let set = self.set(name, *kind)?;
                for (key, value) in elements {
                    // The kernel accepts an element that is there with the same value.
                    let former = set.elements.insert(key.clone(), value.clone());
                    if former.is_some_and(|former| former != *value) {
                        return Err("the element exists");
                    }
                }
                Ok(())
            }
            Change::DeleteElements(name, kind, keys) => {
                let set = self.set(name, *kind)?;
                for key in keys {
                    set.elements.remove(key).ok_or("the element is missing")?;
                }
                Ok(())
            }
            Change::DeleteChain(name) => {
                let chain = self.chains.remove(name).ok_or(MISSING)?;
                match chain.rules.is_empty() {
                    true => Ok(()),
                    false => Err("the chain has rules"),
                }
            }
            Change::DeleteSet(name) => self.sets.remove(name).map(drop).ok_or(MISSING),
        }
    }

    fn set(&mut self, name: &str, kind: SetKind) -> Result<&mut Set, &'static str> {
        let set = self.sets.get_mut(name).ok_or(MISSING)?;
        match set.kind == kind {
            true => Ok(Arc::make_mut(set)),
            false => Err("the set has another type"),
        }
    }

    /// Checks that every named object exists, and that no ranges of a set overlap.
    fn check(&self) -> Result<(), String> {
        for (name, chain) in &self.chains {
            if !chain.rules.iter().all(|rule| self.has_all(rule)) {
                return Err(format!("a rule of chain {name} names a missing object"));
            }
        }
        for (name, set) in &self.sets {
            let verdicts = set.elements.values().flatten();
            let mut targets = verdicts.filter_map(|value| match value {
                Value::Verdict(verdict) => target(verdict),
                Value::Address(_) => None,
            });
            if !targets.all(|chain| self.chains.contains_key(chain)) {
                return Err(format!("an element of {name} names a missing chain"));
            }
            if set.overlaps() {
                return Err(format!("ranges of {name} overlap"));
            }
        }
        Ok(())
    }

    fn has_all(&self, rule: &Rule) -> bool {
        let (mut sets, mut chains) = (BTreeSet::new(), BTreeSet::new());
        rule.matches.iter().for_each(|one| sets.extend(set_of(one)));
        match &rule.action {
            Action::Verdict(verdict) => chains.extend(target(verdict)),
            Action::Lookup(_, map) | Action::DestinationBy(_, map) | Action::SourceBy(_, map) => {
                sets.insert(map.as_str());
            }
            _ => {}
        }
        let mut sets = sets.into_iter();
        sets.all(|set| self.sets.contains_key(set))
            && chains.iter().all(|chain| self.chains.contains_key(*chain))
    }

    /// Returns whether the table filters the packets of workloads.
    pub(crate) fn has_hooks(&self) -> bool {
        let mut chains = self.chains.iter();
        let is_forward = |(name, chain): (&String, &Arc<Chain>)| {
            local_name(name) == name && chain.hook == Some(Hook::Forward)
        };
        chains.any(is_forward)
    }
}

impl Set {
    fn overlaps(&self) -> bool {
        let mut ports: Vec<(u16, u16)> = Vec::new();
        let mut nets = Vec::new();
        for key in self.elements.keys() {
            match key {
                Key::Ports(first, last) => ports.push((*first, *last)),
                Key::Net(net) => nets.push((net.network(), net.broadcast())),
                _ => {}
            }
        }
        ports.sort_unstable();
        nets.sort_unstable();
        let nets = nets.windows(2);
        ports
            .windows(2)
            .any(|two| matches!(two, [one, other] if one.1 >= other.0))
            || nets
                .into_iter()
                .any(|two| matches!(two, [one, other] if one.1 >= other.0))
    }
}

const MISSING: &str = "the object is missing";

fn vacant<T>(former: Option<T>) -> Result<(), &'static str> {
    match former {
        None => Ok(()),
        Some(_) => Err("the object exists"),
    }
}

fn target(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Jump(chain) | Verdict::Goto(chain) => Some(chain),
        Verdict::Accept | Verdict::Drop | Verdict::Return => None,
    }
}

fn set_of(one: &Match) -> Option<&str> {
    match one {
        Match::InterfaceIn(_, set)
        | Match::SourceIpv4In(set)
        | Match::SourceIpv6In(set)
        | Match::ArpSenderIn(set)
        | Match::NextHopIn(_, set)
        | Match::InterfaceNextHopIn(_, set)
        | Match::OverLimit(_, set)
        | Match::Mark(set)
        | Match::Remember(_, _, set)
        | Match::Icmpv6TypeIn(set)
        | Match::TupleSourceIn(_, _, set)
        | Match::InputKindIn(set)
        | Match::InSet(_, _, set, _)
        | Match::PortIn(_, _, set, _)
        | Match::ServiceIn(_, set)
        | Match::EndpointPortIn(_, _, set, _) => Some(set),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: Verdict) -> Rule {
        Rule {
            matches: Vec::new(),
            counter: false,
            report: None,
            action: Action::Verdict(action),
            comment: None,
        }
    }

    fn chain(name: &str) -> Change {
        Change::AddChain(name.to_owned(), None)
    }

    #[test]
    fn rejected_transaction_changes_nothing_and_has_a_reason() {
        let to = |name: &str| Change::AddRule("a".to_owned(), rule(Verdict::Jump(name.to_owned())));
        let begin = [Change::AddTable, chain("a"), chain("b"), to("b")];
        let table = transact(None, &begin).expect("it is carried out");
        let ports = |first, last| {
            let kind = SetKind::Ports;
            let elements = vec![(Key::Ports(first, last), None)];
            Change::AddElements("s".to_owned(), kind, elements)
        };
        let set = || Change::AddSet("s".to_owned(), SetKind::Ports);
        for (steps, reason) in [
            (vec![chain("a")], "exists"),
            (vec![to("c")], "a missing object"),
            (
                vec![Change::DeleteChain("b".to_owned())],
                "a missing object",
            ),
            (vec![Change::DeleteChain("a".to_owned())], "has rules"),
            (vec![set(), ports(1, 5), ports(5, 9)], "overlap"),
            (vec![ports(1, 5)], "missing"),
        ] {
            let rejected = transact(table.as_ref(), &steps).expect_err("it is rejected");
            assert!(rejected.contains(reason), "{rejected}");
        }
        let steps = [set(), ports(1, 5), ports(6, 9), ports(6, 9)];
        let after = transact(table.as_ref(), &steps).expect("it is carried out");
        assert_ne!(after, table);
        let replaced = [Change::AddTable, Change::DeleteTable, Change::AddTable];
        let empty = transact(after.as_ref(), &replaced).expect("it is carried out");
        assert_eq!(empty, Some(Table::default()));
    }
}
