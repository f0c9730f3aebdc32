//! Rules that no packet can match, because a set that they require is empty. The kernel gets neither
//! them nor the empty sets that nothing else uses: without IPv6 addresses, a rule with a selector is one
//! rule of the kernel instead of two, and each of its transactions checks fewer rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ruleset::{Chain, Is, Match, Rule, Ruleset, Set, SetKind};
use crate::work;

/// The sets of members, and the chains of parts that depend on them.
#[derive(Clone, Debug, Default)]
pub(super) struct Dormant {
    /// All sets of members, also those that the kernel does not have.
    sets: BTreeMap<String, SetKind>,
    users: BTreeMap<String, Users>,
    /// Chains with their dormant rules.
    chains: BTreeMap<String, Arc<Chain>>,
    /// Sets and chains to look at again.
    due_sets: BTreeSet<String>,
    due_chains: BTreeSet<String>,
}

/// Names of the chains that have a condition on a set.
#[derive(Clone, Debug, Default)]
struct Users {
    /// A packet must be in the set.
    inside: BTreeSet<String>,
    /// A packet must not be in the set.
    outside: BTreeSet<String>,
}

impl Dormant {
    /// Returns a chain with its dormant rules, if it depends on sets of members.
    pub(super) fn chain(&self, name: &str) -> Option<&Arc<Chain>> {
        self.chains.get(name)
    }

    /// Records a chain of a part, or its removal.
    pub(super) fn put_chain(&mut self, name: &str, chain: Option<&Arc<Chain>>) {
        if let Some(old) = self.chains.remove(name) {
            for (set, is) in conditions(&old) {
                self.drop_user(set, is, name);
            }
        }
        self.due_chains.remove(name);
        let Some(chain) = chain else { return };
        for (set, is) in conditions(chain) {
            let users = self.users.entry(set.to_owned()).or_default();
            users.of(is).insert(name.to_owned());
            if is == Is::Not {
                self.due_sets.insert(set.to_owned());
            }
            self.due_chains.insert(name.to_owned());
        }
        if self.due_chains.contains(name) {
            self.chains.insert(name.to_owned(), Arc::clone(chain));
        }
    }

    fn drop_user(&mut self, set: &str, is: Is, chain: &str) {
        let Some(users) = self.users.get_mut(set) else {
            return;
        };
        users.of(is).remove(chain);
        if users.outside.is_empty() {
            self.due_sets.insert(set.to_owned());
            if users.inside.is_empty() {
                self.users.remove(set);
            }
        }
    }

    /// Records a set of members, or its removal.
    pub(super) fn put_set(&mut self, name: &str, kind: Option<SetKind>) {
        match kind {
            Some(kind) => self.sets.insert(name.to_owned(), kind),
            None => self.sets.remove(name),
        };
        self.due_sets.insert(name.to_owned());
    }

    /// Records that a set has its first element, or has lost its last.
    pub(super) fn filled(&mut self, name: &str) {
        if self.sets.contains_key(name) {
            self.due_sets.insert(name.to_owned());
        }
    }

    /// Adds and removes empty sets and dormant rules. Afterwards the ruleset depends only on the parts
    /// and the members, not on their history. Returns the names of changed sets and of changed chains.
    pub(super) fn settle(&mut self, ruleset: &mut Ruleset) -> [Vec<String>; 2] {
        let [mut sets, mut chains] = [vec![], vec![]];
        for name in std::mem::take(&mut self.due_sets) {
            let users = self.users.get(&name);
            if let Some(&kind) = self.sets.get(&name) {
                let is_needed = users.is_some_and(|users| !users.outside.is_empty());
                let held = ruleset.sets.get(&name);
                match held.map(|set| set.elements.is_empty()) {
                    Some(true) if !is_needed => drop(ruleset.sets.remove(&name)),
                    None if is_needed => {
                        ruleset.sets.insert(name.clone(), Set::of(kind, []));
                    }
                    _ => {}
                }
                sets.push(name.clone());
            }
            let inside = users.iter().flat_map(|users| &users.inside);
            self.due_chains.extend(inside.cloned());
        }
        for name in std::mem::take(&mut self.due_chains) {
            let Some(chain) = self.chains.get(&name) else {
                continue;
            };
            work::count(chain.rules.len());
            let awake = |rule: &&Rule| !self.is_dormant(rule, ruleset);
            let awake: Vec<&Rule> = chain.rules.iter().filter(awake).collect();
            let held = ruleset.chains.get(&name);
            if held.is_some_and(|held| held.rules.iter().eq(awake.iter().copied())) {
                continue;
            }
            let chain = match awake.len() == chain.rules.len() {
                true => Arc::clone(chain),
                false => Arc::new(Chain {
                    hook: chain.hook,
                    rules: awake.into_iter().cloned().collect(),
                }),
            };
            ruleset.chains.insert(name.clone(), chain);
            chains.push(name);
        }
        [sets, chains]
    }

    fn is_dormant(&self, rule: &Rule, ruleset: &Ruleset) -> bool {
        let mut conditions = rule.matches.iter().filter_map(condition);
        conditions.any(|(name, is)| {
            let is_empty = || {
                let held = ruleset.sets.get(name);
                held.is_none_or(|set| set.elements.is_empty())
            };
            is == Is::Yes && self.sets.contains_key(name) && is_empty()
        })
    }
}

impl Users {
    const fn of(&mut self, is: Is) -> &mut BTreeSet<String> {
        match is {
            Is::Yes => &mut self.inside,
            Is::Not => &mut self.outside,
        }
    }
}

/// Returns the conditions of a chain on sets that may become empty.
fn conditions(chain: &Chain) -> impl Iterator<Item = (&str, Is)> {
    let matches = chain.rules.iter().flat_map(|rule| &rule.matches);
    matches.filter_map(condition)
}

fn condition(one: &Match) -> Option<(&str, Is)> {
    match one {
        Match::InSet(_, _, name, is) | Match::EndpointPortIn(_, _, name, is) => Some((name, *is)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::render::{Action, Assembly, End, Family, Key, Part, Verdict};

    const SETS: [&str; 3] = ["one", "two", "three"];

    /// Returns a chain with one rule for each condition, and a last rule without.
    fn chain(conditions: &[(usize, bool)]) -> Arc<Chain> {
        let rule = |matches| Rule {
            matches,
            counter: true,
            action: Action::Verdict(Verdict::Accept),
            report: None,
            comment: None,
        };
        let inside = |&(set, is): &(usize, bool)| {
            let is = if is { Is::Yes } else { Is::Not };
            let name = SETS[set].to_owned();
            rule(vec![Match::InSet(End::Source, Family::V4, name, is)])
        };
        let rules = conditions.iter().map(inside).chain([rule(vec![])]);
        Arc::new(Chain {
            hook: None,
            rules: rules.collect(),
        })
    }

    fn part(chain: &Arc<Chain>) -> Part {
        let chains = BTreeMap::from([("policy".to_owned(), Arc::clone(chain))]);
        Part {
            chains,
            ..Part::default()
        }
    }

    fn key(last: u8) -> Key {
        Key::Address(IpAddr::from([10, 0, 0, last]))
    }

    /// The ruleset for the final state, computed without history.
    fn expected(conditions: &[(usize, bool)], members: &[BTreeSet<u8>; 3]) -> Assembly {
        let is_needed = |set: usize| conditions.contains(&(set, false));
        let keeps = |&&(set, is): &&(usize, bool)| !is || !members[set].is_empty();
        let kept: Vec<(usize, bool)> = conditions.iter().filter(keeps).copied().collect();
        let mut expected = Assembly::default();
        for (set, name) in SETS.into_iter().enumerate() {
            if !members[set].is_empty() || is_needed(set) {
                expected.put_set(name, SetKind::Address(Family::V4));
            }
            for last in &members[set] {
                expected.put_element(name, &key(*last), Some(None));
            }
        }
        expected.add(&part(&chain(&kept)));
        expected.close();
        expected
    }

    proptest! {
        #[test]
        fn kernel_has_rules_and_sets_that_can_match(
            chains in prop::collection::vec(prop::collection::vec((0..3_usize, any::<bool>()), 0..4), 1..5),
            changes in prop::collection::vec((0..3_usize, 0..3_u8, any::<bool>(), any::<bool>()), 0..30),
        ) {
            let mut assembly = Assembly::default();
            let mut members: [BTreeSet<u8>; 3] = Default::default();
            for name in SETS {
                assembly.replace_members(name, SetKind::Address(Family::V4), [].into_iter());
            }
            let mut held: Option<Part> = None;
            let mut current: &[(usize, bool)] = &[];
            for (at, (set, last, is_in, closes)) in changes.into_iter().enumerate() {
                if let Some(old) = held.take_if(|_| at % 3 == 0) {
                    assembly.remove(&old);
                }
                if held.is_none() {
                    current = &chains[at / 3 % chains.len()];
                    let new = part(&chain(current));
                    assembly.add(&new);
                    held = Some(new);
                }
                // As `calc::members` does: a set that the ruleset lacks is filled again.
                if !assembly.ruleset().sets.contains_key(SETS[set]) {
                    let kind = SetKind::Address(Family::V4);
                    assembly.replace_members(SETS[set], kind, [].into_iter());
                    for last in &members[set] {
                        assembly.put_element(SETS[set], &key(*last), Some(None));
                    }
                }
                match is_in {
                    true => members[set].insert(last),
                    false => members[set].remove(&last),
                };
                assembly.put_element(SETS[set], &key(last), is_in.then_some(None));
                if closes {
                    assembly.close();
                }
            }
            assembly.close();
            if held.is_some() {
                let expected = expected(current, &members);
                prop_assert_eq!(assembly.ruleset(), expected.ruleset());
            }
        }
    }
}
