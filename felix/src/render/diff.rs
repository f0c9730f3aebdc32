//! Computes the difference of two rulesets, as steps of one transaction.

use std::collections::BTreeSet;

use super::assembly::Touched;
use super::ruleset::{
    Action, Chain, Hook, Key, Match, Rule, Ruleset, Set, SetKind, Value, Verdict,
};

use crate::work;

/// Number of elements that weigh as much as one rule.
const ELEMENTS_PER_STEP: usize = 10;

/// One step. The order of steps is valid for the kernel: an object is created before it is
/// referenced, and removed only when unreferenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Create the table, if it does not exist.
    AddTable,
    /// Remove the table with its content.
    DeleteTable,
    /// Create an empty chain.
    AddChain(String, Option<Hook>),
    /// Create an empty set or map.
    AddSet(String, SetKind),
    /// Remove all rules of a chain.
    FlushChain(String),
    /// Append a rule to a chain.
    AddRule(String, Rule),
    /// Add elements.
    AddElements(String, SetKind, Vec<(Key, Option<Value>)>),
    /// Remove elements.
    DeleteElements(String, SetKind, Vec<Key>),
    /// Remove an empty chain without references.
    DeleteChain(String),
    /// Remove a set without references.
    DeleteSet(String),
    /// Remove the tables of the boot, if they exist.
    RemoveBoot,
}

impl Change {
    /// Returns the number of elements that it adds or removes.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Self::AddElements(_, _, elements) => elements.len(),
            Self::DeleteElements(_, _, keys) => keys.len(),
            _ => 0,
        }
    }
}

/// Returns the steps that make the table hold exactly `wanted`, whatever it held before: for the
/// first write and to revert foreign changes. It is one transaction, so no packet sees a missing or
/// incomplete table.
pub fn creation(wanted: &Ruleset) -> Vec<Change> {
    let mut steps = vec![Change::AddTable, Change::DeleteTable, Change::AddTable];
    let nothing = Ruleset::default();
    let everything = Touched::between(&nothing, wanted);
    steps.extend(changes(&nothing, wanted, &everything));
    steps
}

/// Returns the steps from `held` to `wanted`, which differ only in touched parts. Common parts stay
/// unchanged, with their counters.
pub fn changes(held: &Ruleset, wanted: &Ruleset, touched: &Touched) -> Vec<Change> {
    let pairs = Pairs::of(held, wanted, touched);
    // A chain with another hook or a set with another kind cannot be changed in place.
    if pairs.reshaped() {
        return creation(wanted);
    }
    let mut steps = Vec::new();
    pairs.add_shells(&mut steps);
    pairs.delete_elements(&mut steps);
    pairs.write_rules(&mut steps);
    pairs.add_elements(&mut steps);
    pairs.delete_shells(&mut steps);
    steps
}

/// Returns whether the table is replaced as a whole, because a part cannot be changed in place.
pub(crate) fn reshapes(held: &Ruleset, wanted: &Ruleset, touched: &Touched) -> bool {
    Pairs::of(held, wanted, touched).reshaped()
}

/// Returns the part of a large difference that can be written in advance: new sets and new chains
/// that no packet reaches before the rest is written. It contains at most `limit` of them, and no
/// chain that refers to a chain that does not exist yet. New sets of ranges are always written in
/// advance. Returns `None` if one transaction is enough for the rest; existing, changed and removed objects do not count.
pub(crate) fn preparation(
    held: &Ruleset,
    wanted: &Ruleset,
    touched: &Touched,
    limit: usize,
) -> Option<Touched> {
    let sets = touched.sets.keys().filter_map(|name| {
        work::count(1);
        let set = wanted.sets.get(name).filter(|set| set.is_plain())?;
        (!held.sets.contains_key(name)).then_some((name, set))
    });
    let chains = touched.chains.iter().filter_map(|name| {
        work::count(1);
        let chain = wanted.chains.get(name)?;
        let is_new = chain.hook.is_none() && !held.chains.contains_key(name);
        is_new.then_some((name, chain))
    });
    // Not more than the limit are looked at, for each of the parts.
    let new = sets.clone().map(drop).chain(chains.clone().map(drop));
    let is_small = new.take(limit.saturating_add(1)).count() <= limit;
    let mut part = Touched::default();
    let mut left = limit;
    // The kernel publishes the ranges of new sets after the rules that look them up, so a rule would not
    // match for a moment. They are written before the rules, also if everything else fits.
    let sets =
        sets.filter(|(_, set)| !is_small || matches!(set.kind, SetKind::Nets(_) | SetKind::Ports));
    for (name, set) in sets {
        if left == 0 {
            break;
        }
        part.sets.insert(name.clone(), BTreeSet::new());
        left = left.saturating_sub(1 + set.elements.len() / ELEMENTS_PER_STEP);
    }
    for (name, chain) in chains {
        if left == 0 || is_small {
            break;
        }
        if chain.rules.iter().all(|rule| has_all(held, rule)) {
            part.chains.insert(name.clone());
            left = left.saturating_sub(1 + chain.rules.len());
        }
    }
    (!part.is_empty()).then_some(part)
}

/// Takes the next part that can be written in advance out of the differences, and
/// brings `held` into the state after it. Returns its steps, or `None` if one transaction is enough
/// for the rest.
pub fn prepare(
    held: &mut Ruleset,
    wanted: &Ruleset,
    differences: &mut Touched,
    limit: usize,
) -> Option<Vec<Change>> {
    let part = preparation(held, wanted, differences, limit)?;
    let steps = changes(held, wanted, &part);
    held.follow(wanted, &part, &Touched::default());
    differences.remove(&part);
    Some(steps)
}

/// Returns whether the ruleset has all objects that a rule refers to. Not called for rules of
/// frames, which refer to more.
fn has_all(held: &Ruleset, rule: &Rule) -> bool {
    let has_set = |one: &Match| match one {
        Match::InSet(_, _, set, _)
        | Match::PortIn(_, _, set, _)
        | Match::EndpointPortIn(_, _, set, _)
        | Match::OverLimit(_, set) => held.sets.contains_key(set),
        Match::Family(_)
        | Match::Protocol(..)
        | Match::InNet(..)
        | Match::Port(..)
        | Match::IcmpType(..)
        | Match::IcmpCode(..)
        | Match::Rate(..) => true,
        _ => false,
    };
    let has_target = match &rule.action {
        Action::Verdict(Verdict::Jump(name) | Verdict::Goto(name)) => {
            held.chains.contains_key(name)
        }
        Action::Verdict(_) | Action::Log(_) | Action::Reject => true,
        Action::AcceptMarked | Action::AcceptUntracked => true,
        _ => false,
    };
    has_target && rule.matches.iter().all(has_set)
}

/// The touched objects, in their present and wanted state.
struct Pairs<'r> {
    chains: Vec<(&'r String, Option<&'r Chain>, Option<&'r Chain>)>,
    sets: Vec<SetPair<'r>>,
}

struct SetPair<'r> {
    name: &'r String,
    /// The keys that may differ; if `None`, all of them.
    keys: Option<&'r BTreeSet<Key>>,
    old: Option<&'r Set>,
    new: Option<&'r Set>,
}

impl<'r> SetPair<'r> {
    /// Returns the elements that the other set lacks, or has with another value.
    fn beyond(
        &self,
        one: Option<&'r Set>,
        other: Option<&'r Set>,
    ) -> Vec<(&'r Key, &'r Option<Value>)> {
        let Some(one) = one else {
            return Vec::new();
        };
        let Some(other) = other else {
            return one.elements.iter().collect();
        };
        let Some(keys) = self.keys else {
            work::count(one.elements.len());
            return lacking(one, other).collect();
        };
        let differs =
            |(key, value): &(&Key, &Option<Value>)| other.elements.get(key) != Some(*value);
        work::count(keys.len());
        let touched = keys.iter();
        let touched = touched.filter_map(|key| Some((key, one.elements.get(key)?)));
        touched.filter(differs).collect()
    }
}

/// Returns the elements of a set that the other one lacks, or has with another value. Both are read once,
/// in order.
fn lacking<'r>(one: &'r Set, other: &'r Set) -> impl Iterator<Item = (&'r Key, &'r Option<Value>)> {
    let mut others = other.elements.iter().peekable();
    one.elements.iter().filter(move |element| {
        while others.next_if(|lower| lower.0 < element.0).is_some() {}
        others.peek() != Some(element)
    })
}

impl SetPair<'_> {
    fn add_elements(&self, steps: &mut Vec<Change>) {
        let new = self.beyond(self.new, self.old).into_iter();
        let come: Vec<(Key, Option<Value>)> = new
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if let (Some(new), false) = (self.new, come.is_empty()) {
            steps.push(Change::AddElements(self.name.clone(), new.kind, come));
        }
    }
}

impl<'r> Pairs<'r> {
    fn of(held: &'r Ruleset, wanted: &'r Ruleset, touched: &'r Touched) -> Self {
        let chain = |ruleset: &'r Ruleset, name| ruleset.chains.get(name).map(|chain| &**chain);
        work::count(touched.chains.len() + touched.sets.len());
        let chains = touched.chains.iter();
        let sets = touched.sets.iter();
        Self {
            chains: chains
                .map(|name| (name, chain(held, name), chain(wanted, name)))
                .collect(),
            sets: sets
                .map(|(name, keys)| SetPair {
                    name,
                    keys: (!touched.created.contains(name)).then_some(keys),
                    old: held.sets.get(name),
                    new: wanted.sets.get(name),
                })
                .collect(),
        }
    }

    fn reshaped(&self) -> bool {
        let chain = |(_, old, new): &(_, Option<&Chain>, Option<&Chain>)| {
            old.zip(*new).is_some_and(|(old, new)| old.hook != new.hook)
        };
        let set = |set: &SetPair<'_>| {
            let both = set.old.zip(set.new);
            both.is_some_and(|(old, new)| old.kind != new.kind)
        };
        self.chains.iter().any(chain) || self.sets.iter().any(set)
    }

    fn add_shells(&self, steps: &mut Vec<Change>) {
        for (name, old, new) in &self.chains {
            if let (None, Some(chain)) = (old, new) {
                steps.push(Change::AddChain((*name).clone(), chain.hook));
            }
        }
        for set in &self.sets {
            if let (None, Some(new)) = (set.old, set.new) {
                steps.push(Change::AddSet(set.name.clone(), new.kind));
                // While the set is the latest one, the kernel finds it at once.
                set.add_elements(steps);
            }
        }
    }

    fn delete_elements(&self, steps: &mut Vec<Change>) {
        // The kernel removes a set with its elements. Elements of a map may refer to a chain that is removed
        // before it.
        let kept = |set: &&SetPair<'_>| {
            let refers = set.old.is_some_and(|old| old.kind.refers_to_chains());
            set.new.is_some() || refers
        };
        for set in self.sets.iter().filter(kept) {
            let gone = set.beyond(set.old, set.new).into_iter();
            let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
            if let (Some(old), false) = (set.old, gone.is_empty()) {
                steps.push(Change::DeleteElements(set.name.clone(), old.kind, gone));
            }
        }
    }

    fn write_rules(&self, steps: &mut Vec<Change>) {
        for (name, old, new) in &self.chains {
            let Some(new) = new else {
                continue;
            };
            let old = old.map_or(&[][..], |old| &old.rules);
            if old == new.rules {
                continue;
            }
            if !old.is_empty() {
                steps.push(Change::FlushChain((*name).clone()));
            }
            let rules = new.rules.iter();
            steps.extend(rules.map(|rule| Change::AddRule((*name).clone(), rule.clone())));
        }
    }

    fn add_elements(&self, steps: &mut Vec<Change>) {
        for set in self.sets.iter().filter(|set| set.old.is_some()) {
            set.add_elements(steps);
        }
    }

    fn delete_shells(&self, steps: &mut Vec<Change>) {
        let gone = || {
            let gone = self.chains.iter();
            let gone = gone.filter(|(_, old, new)| old.is_some() && new.is_none());
            gone.map(|(name, ..)| (*name).clone())
        };
        // All are emptied before any is removed, because they may refer to each other.
        steps.extend(gone().map(Change::FlushChain));
        steps.extend(gone().map(Change::DeleteChain));
        let gone = self.sets.iter();
        let gone = gone.filter(|set| set.old.is_some() && set.new.is_none());
        steps.extend(gone.map(|set| Change::DeleteSet(set.name.clone())));
    }
}
