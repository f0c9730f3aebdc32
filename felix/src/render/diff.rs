//! The difference of two rulesets, as steps of one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ruleset::{Chain, Hook, Key, Rule, Ruleset, Set, SetKind, Value};

/// One step. Steps are in an order that the kernel takes: nothing is named before it is there or
/// removed while something names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes the table, if it is not there.
    AddTable,
    /// Removes the table with all that is in it.
    DeleteTable,
    /// Makes an empty chain.
    AddChain(String, Option<Hook>),
    /// Makes an empty set or map.
    AddSet(String, SetKind),
    /// Removes all rules of a chain.
    FlushChain(String),
    /// Appends a rule to a chain.
    AddRule(String, Rule),
    /// Adds elements.
    AddElements(String, SetKind, Vec<(Key, Option<Value>)>),
    /// Removes elements.
    DeleteElements(String, SetKind, Vec<Key>),
    /// Removes an empty chain that nothing jumps to.
    DeleteChain(String),
    /// Removes a set that no rule names.
    DeleteSet(String),
}

/// Makes the table hold exactly `wanted`, whatever it held before: for the first write and to
/// heal what others changed. In one transaction no packet sees a table that is absent or half
/// made.
pub fn creation(wanted: &Ruleset) -> Vec<Change> {
    let mut steps = vec![Change::AddTable, Change::DeleteTable, Change::AddTable];
    steps.extend(changes(&Ruleset::default(), wanted));
    steps
}

/// Turns a table that holds `held` into one that holds `wanted`. What both have in common is left
/// alone, with its counters.
pub fn changes(held: &Ruleset, wanted: &Ruleset) -> Vec<Change> {
    // A chain whose hook or a set whose kind differs cannot be changed in place.
    if reshaped(held, wanted) {
        return creation(wanted);
    }
    let mut steps = Vec::new();
    add_shells(held, wanted, &mut steps);
    delete_elements(held, wanted, &mut steps);
    write_rules(held, wanted, &mut steps);
    add_elements(held, wanted, &mut steps);
    delete_shells(held, wanted, &mut steps);
    steps
}

fn reshaped(held: &Ruleset, wanted: &Ruleset) -> bool {
    let chain = |(name, chain): (&String, &Arc<Chain>)| {
        held.chains
            .get(name)
            .is_some_and(|old| old.hook != chain.hook)
    };
    let set = |(name, set): (&String, &Arc<Set>)| {
        held.sets.get(name).is_some_and(|old| old.kind != set.kind)
    };
    wanted.chains.iter().any(chain) || wanted.sets.iter().any(set)
}

fn add_shells(held: &Ruleset, wanted: &Ruleset, steps: &mut Vec<Change>) {
    for (name, chain) in absent(&wanted.chains, &held.chains) {
        steps.push(Change::AddChain(name.clone(), chain.hook));
    }
    for (name, set) in absent(&wanted.sets, &held.sets) {
        steps.push(Change::AddSet(name.clone(), set.kind));
    }
}

fn delete_elements(held: &Ruleset, wanted: &Ruleset, steps: &mut Vec<Change>) {
    for (name, old) in &held.sets {
        let kept = wanted.sets.get(name);
        if kept.is_some_and(|kept| Arc::ptr_eq(kept, old)) {
            continue;
        }
        let kept = kept.map(|set| &set.elements);
        let gone: Vec<Key> = old
            .elements
            .iter()
            .filter(|(key, value)| kept.and_then(|kept| kept.get(key)) != Some(value))
            .map(|(key, _)| key.clone())
            .collect();
        if !gone.is_empty() {
            steps.push(Change::DeleteElements(name.clone(), old.kind, gone));
        }
    }
}

fn write_rules(held: &Ruleset, wanted: &Ruleset, steps: &mut Vec<Change>) {
    for (name, chain) in &wanted.chains {
        let old = held.chains.get(name);
        if old.is_some_and(|old| Arc::ptr_eq(old, chain)) {
            continue;
        }
        let old = old.map_or(&[][..], |old| &old.rules);
        if old == chain.rules {
            continue;
        }
        if !old.is_empty() {
            steps.push(Change::FlushChain(name.clone()));
        }
        let rules = chain.rules.iter();
        steps.extend(rules.map(|rule| Change::AddRule(name.clone(), rule.clone())));
    }
}

fn add_elements(held: &Ruleset, wanted: &Ruleset, steps: &mut Vec<Change>) {
    for (name, set) in &wanted.sets {
        let old = held.sets.get(name);
        if old.is_some_and(|old| Arc::ptr_eq(old, set)) {
            continue;
        }
        let old = old.map(|old| &old.elements);
        let new: Vec<(Key, Option<Value>)> = set
            .elements
            .iter()
            .filter(|(key, value)| old.and_then(|old| old.get(key)) != Some(value))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !new.is_empty() {
            steps.push(Change::AddElements(name.clone(), set.kind, new));
        }
    }
}

fn delete_shells(held: &Ruleset, wanted: &Ruleset, steps: &mut Vec<Change>) {
    let gone: Vec<&String> = absent(&held.chains, &wanted.chains)
        .map(|(name, _)| name)
        .collect();
    // All are emptied before any is removed: they may name each other.
    steps.extend(gone.iter().map(|name| Change::FlushChain((*name).clone())));
    steps.extend(gone.iter().map(|name| Change::DeleteChain((*name).clone())));
    for (name, _) in absent(&held.sets, &wanted.sets) {
        steps.push(Change::DeleteSet(name.clone()));
    }
}

fn absent<'m, V>(
    from: &'m BTreeMap<String, V>,
    other: &'m BTreeMap<String, V>,
) -> impl Iterator<Item = (&'m String, &'m V)> {
    from.iter().filter(|(name, _)| !other.contains_key(*name))
}
