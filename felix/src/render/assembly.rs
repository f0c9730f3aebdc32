//! The ruleset as a sum of the frame, which every host has, and the parts of its endpoints. Adding
//! or removing a part costs as much as its size, not as the total size.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fib_sync::Tunnel;
use ipnet::IpNet;

use super::build::{Frame, SPOOFED, base_chains, base_sets};
use super::dormant::Dormant;
use super::encapsulation;
use super::flows;
use super::guard::{self, Control};
use super::openstack;
use super::outgoing::{self, Pools};
use super::qos::DSCP;
use super::ruleset::{Chain, Key, Ruleset, Set, SetKind, Value};
use super::service_loops;
use super::translate::FLOATING;
use crate::work;

/// The part of one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Chains by name. Parts may share them.
    pub chains: BTreeMap<String, Arc<Chain>>,
    /// Sets by name. Parts may share them.
    pub sets: BTreeMap<String, Arc<Set>>,
    /// Elements of sets of this part, of other parts, or of the frame. No two parts have the same
    /// element.
    pub elements: Vec<(&'static str, Key, Option<Value>)>,
}

/// Names and keys of what may differ: two rulesets need to be compared only there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Chains.
    pub chains: BTreeSet<String>,
    /// Sets, each with the keys of elements. An added or removed set stands for all of its
    /// elements.
    pub sets: BTreeMap<String, BTreeSet<Key>>,
    /// Sets that were created: all of their elements may differ, and none has a key above.
    pub created: BTreeSet<String>,
}

impl Touched {
    /// Returns everything in either ruleset.
    pub fn between(one: &Ruleset, other: &Ruleset) -> Self {
        let mut touched = Self::default();
        for ruleset in [one, other] {
            touched.chains.extend(ruleset.chains.keys().cloned());
            for (name, set) in &ruleset.sets {
                let keys = touched.sets.entry(name.clone()).or_default();
                keys.extend(set.elements.keys().cloned());
            }
        }
        touched
    }

    /// Removes whole chains and sets.
    pub(crate) fn remove(&mut self, part: &Self) {
        for name in &part.chains {
            self.chains.remove(name);
        }
        for name in part.sets.keys() {
            self.sets.remove(name);
            self.created.remove(name);
        }
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.sets.is_empty()
    }

    /// Returns whether it contains an element.
    pub(crate) fn has_element(&self, set: &str, key: &Key) -> bool {
        let has_key = self.sets.get(set).is_some_and(|keys| keys.contains(key));
        has_key || self.created.contains(set)
    }

    /// Removes elements, and returns them.
    pub(crate) fn withhold(&mut self, elements: Vec<(&'static str, Key)>) -> Self {
        let mut taken = Self::default();
        for (set, key) in elements {
            let keys = self.sets.get_mut(set);
            if keys.is_some_and(|keys| keys.remove(&key)) {
                taken.set(set).insert(key);
            }
        }
        taken
    }

    /// Returns whether it contains anything besides sets that `taken` was removed from.
    pub(crate) fn is_more_than(&self, taken: &Self) -> bool {
        let more = |(name, keys): (&String, &BTreeSet<Key>)| {
            !keys.is_empty() || !taken.sets.contains_key(name) || self.created.contains(name)
        };
        !self.chains.is_empty() || self.sets.iter().any(more)
    }

    /// Adds the content of another value.
    pub(crate) fn merge(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        self.chains.extend(other.chains);
        for (name, keys) in other.sets {
            self.sets.entry(name).or_default().extend(keys);
        }
        for name in other.created {
            self.create(&name);
        }
    }

    /// Adds all elements of a set.
    fn create(&mut self, name: &str) {
        self.set(name).clear();
        self.created.insert(name.to_owned());
    }

    /// Adds an element.
    fn element(&mut self, set: &str, key: &Key) {
        if self.created.contains(set) {
            return;
        }
        match self.sets.get_mut(set) {
            Some(keys) => drop(keys.insert(key.clone())),
            None => drop(self.set(set).insert(key.clone())),
        }
    }

    fn chain(&mut self, name: &str) {
        self.chains.insert(name.to_owned());
    }

    fn set(&mut self, name: &str) -> &mut BTreeSet<Key> {
        self.sets.entry(name.to_owned()).or_default()
    }
}

/// A ruleset, combined from its parts.
#[derive(Clone, Debug)]
pub struct Assembly {
    frame: Frame,
    /// The tunnel devices of the host, by name.
    tunnels: BTreeMap<String, Tunnel>,
    ruleset: Ruleset,
    /// Number of parts with a chain or a set; zero counts are removed.
    chains: BTreeMap<String, usize>,
    sets: BTreeMap<String, usize>,
    /// Names of the frame's chains, and their inputs.
    base: BTreeSet<String>,
    made_from: Option<(Frame, Used)>,
    dormant: Dormant,
    touched: Touched,
}

/// Parts of the frame that exist only while an endpoint needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) openstack: bool,
    /// Endpoints with further source addresses.
    pub(super) spoofed: bool,
    /// Endpoints with a DSCP.
    pub(super) dscp: bool,
    /// Floating addresses, by family.
    pub(super) floating: [bool; 2],
    /// Pools with `natOutgoing`, by family.
    pub(super) outgoing: [bool; 2],
    /// Ranges of services, by family.
    pub(super) service_ranges: [bool; 2],
}

impl Default for Assembly {
    fn default() -> Self {
        let ruleset = Ruleset {
            sets: base_sets(),
            ..Ruleset::default()
        };
        Self {
            touched: Touched::between(&ruleset, &Ruleset::default()),
            frame: Frame::default(),
            tunnels: BTreeMap::new(),
            ruleset,
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
            base: BTreeSet::new(),
            made_from: None,
            dormant: Dormant::default(),
        }
    }
}

/// Two values are equal if their rulesets are, whatever their parts.
impl PartialEq for Assembly {
    fn eq(&self, other: &Self) -> bool {
        self.ruleset == other.ruleset
    }
}

impl Assembly {
    /// Returns the ruleset as of the last [`close`](Self::close).
    pub const fn ruleset(&self) -> &Ruleset {
        &self.ruleset
    }

    /// Sets another frame.
    pub(crate) fn set_frame(&mut self, frame: Frame) {
        let rates = |frame: &Frame| flows::rates(frame.records_per_second);
        let former = rates(&self.frame);
        self.frame = frame;
        self.put_tunnels();
        let wanted = rates(&self.frame);
        if former == wanted {
            return;
        }
        if let Some(name) = former {
            self.remove_set(&name);
        }
        if let Some(name) = wanted {
            self.put_set(&name, SetKind::Rates);
        }
    }

    /// Sets the tunnel devices of the host, by name.
    pub(crate) fn set_tunnels(&mut self, tunnels: BTreeMap<String, Tunnel>) {
        self.tunnels = tunnels;
        self.put_tunnels();
    }

    fn put_tunnels(&mut self) {
        let own = encapsulation::of_fabric(self.frame.encapsulation, &self.tunnels);
        self.put_keys(encapsulation::OF_FABRIC, &own);
    }

    /// Sets other pools. Elements in both stay unchanged.
    pub(crate) fn set_pools(&mut self, pools: &Pools) {
        for (name, family, ranges) in outgoing::sets(pools) {
            // Without anything to translate, no rule uses the set.
            if ranges.is_empty() && outgoing::FROM.contains(&name) {
                self.remove_set(name);
                continue;
            }
            self.put_set(name, SetKind::Nets(family));
            self.put_keys(name, &ranges);
        }
    }

    /// Sets the ranges of services.
    pub(crate) fn set_service_ranges(&mut self, ranges: &[IpNet]) {
        for (name, family, keys) in service_loops::sets(ranges) {
            if keys.is_empty() {
                self.remove_set(name);
                continue;
            }
            self.put_set(name, SetKind::Nets(family));
            self.put_keys(name, &keys);
        }
    }

    /// Sets the addresses and ports of the fabric itself.
    pub(crate) fn set_control(&mut self, control: &Control) {
        for (name, keys) in guard::sets(control) {
            self.put_keys(name, &keys);
        }
    }

    /// Sets the keys of a set. Common keys stay unchanged.
    fn put_keys(&mut self, name: &str, keys: &BTreeSet<Key>) {
        let held = self.ruleset.sets.get(name).map(Set::keys);
        let held: BTreeSet<Key> = held.into_iter().flatten().cloned().collect();
        work::count(held.len() + keys.len());
        for key in held.difference(keys) {
            self.put_element(name, key, None);
        }
        for key in keys.difference(&held) {
            self.put_element(name, key, Some(None));
        }
    }

    /// Adds a part.
    pub fn add(&mut self, part: &Part) {
        work::count(part.chains.len() + part.sets.len());
        for (name, chain) in &part.chains {
            *self.chains.entry(name.clone()).or_default() += 1;
            let whole = self.dormant.chain(name);
            let held = whole.or_else(|| self.ruleset.chains.get(name));
            if !held.is_some_and(|held| Arc::ptr_eq(held, chain)) {
                self.ruleset.chains.insert(name.clone(), Arc::clone(chain));
                self.dormant.put_chain(name, Some(chain));
                self.touched.chain(name);
            }
        }
        for (name, set) in &part.sets {
            let count = self.sets.entry(name.clone()).or_default();
            *count += 1;
            if *count == 1 {
                self.ruleset.sets.insert(name.clone(), Set::clone(set));
                self.touched.create(name);
            }
        }
        for (name, key, value) in &part.elements {
            self.put_element(name, key, Some(value.clone()));
        }
    }

    /// Removes a part that was added.
    pub fn remove(&mut self, part: &Part) {
        work::count(part.chains.len() + part.sets.len());
        for (name, key, _) in &part.elements {
            self.put_element(name, key, None);
        }
        for name in part.chains.keys() {
            if count_off(&mut self.chains, name) {
                self.ruleset.chains.remove(name);
                self.dormant.put_chain(name, None);
                self.touched.chain(name);
            }
        }
        for name in part.sets.keys() {
            if count_off(&mut self.sets, name) {
                self.remove_set(name);
            }
        }
    }

    /// Puts a set of members in the place of a former one of this name, if there is one. The kernel gets
    /// it only while it is not empty or a rule requires that packets are outside.
    pub(crate) fn replace_members(
        &mut self,
        name: &str,
        kind: SetKind,
        keys: impl Iterator<Item = Key>,
    ) {
        self.remove_set(name);
        let set = Set::of(kind, keys);
        work::count(set.elements.len());
        self.ruleset.sets.insert(name.to_owned(), set);
        self.touched.create(name);
        self.dormant.put_set(name, Some(kind));
    }

    /// Removes such a set.
    pub(crate) fn remove_members(&mut self, name: &str) {
        self.remove_set(name);
        self.dormant.put_set(name, None);
    }

    /// Creates a set that belongs to no part, if it does not exist.
    pub(crate) fn put_set(&mut self, name: &str, kind: SetKind) {
        if !self.ruleset.sets.contains_key(name) {
            self.ruleset.sets.insert(name.into(), Set::of(kind, []));
            self.touched.create(name);
        }
    }

    /// Removes such a set.
    pub(crate) fn remove_set(&mut self, name: &str) {
        if self.ruleset.sets.remove(name).is_some() {
            // Before this is written, another set may replace it.
            self.touched.create(name);
        }
    }

    /// Puts an element with its value into an existing set, or removes it.
    pub(crate) fn put_element(&mut self, set: &str, key: &Key, value: Option<Option<Value>>) {
        work::count(1);
        let Some(elements) = self.ruleset.sets.get_mut(set).map(|set| &mut set.elements) else {
            return;
        };
        let was_empty = elements.is_empty();
        match value {
            Some(value) => elements.insert(key.clone(), value).map(drop),
            None => elements.remove(key).map(drop),
        };
        if was_empty != elements.is_empty() {
            self.dormant.filled(set);
        }
        self.touched.element(set, key);
    }

    /// Updates the frame for the parts. Must be called after all parts were added and removed.
    pub fn close(&mut self) {
        let [sets, chains] = self.dormant.settle(&mut self.ruleset);
        for name in sets {
            self.touched.set(&name);
        }
        self.touched.chains.extend(chains);
        let used = Used {
            openstack: self.sets.contains_key(openstack::INTERFACES),
            spoofed: self.sets.contains_key(SPOOFED),
            dscp: self.sets.contains_key(DSCP),
            floating: FLOATING.map(|name| self.sets.contains_key(name)),
            outgoing: outgoing::FROM.map(|name| self.ruleset.sets.contains_key(name)),
            service_ranges: service_loops::RANGES.map(|name| self.ruleset.sets.contains_key(name)),
        };
        let from = (self.frame.clone(), used);
        if self.made_from.as_ref() == Some(&from) {
            return;
        }
        let new = base_chains(&self.frame, used);
        for name in std::mem::take(&mut self.base) {
            if !new.contains_key(&name) {
                self.ruleset.chains.remove(&name);
                self.touched.chain(&name);
            }
        }
        for (name, chain) in new {
            self.base.insert(name.clone());
            if self
                .ruleset
                .chains
                .get(&name)
                .is_none_or(|old| **old != chain)
            {
                self.touched.chain(&name);
                self.ruleset.chains.insert(name, Arc::new(chain));
            }
        }
        self.made_from = Some(from);
    }

    /// Returns what may differ since the last call.
    pub(crate) fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }
}

/// Returns whether the count reached zero.
fn count_off(counts: &mut BTreeMap<String, usize>, name: &str) -> bool {
    let Some(count) = counts.get_mut(name) else {
        return false;
    };
    *count -= 1;
    let last = *count == 0;
    if last {
        counts.remove(name);
    }
    last
}
