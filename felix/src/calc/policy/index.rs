//! Finds the lists of rules that local endpoints use, and the addresses of the endpoints that these
//! rules select. Every change updates it; the cost grows with the size of the change, not with the
//! total size.
//!
//! A list of rules is that of a policy or of a profile. It is in use while a local endpoint is one
//! of its subjects or names it. A selector's set of addresses exists while a list in use needs it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use calico_model::{DEFAULT_ALLOW_PROFILE, Selector, ServiceName};
use ipnet::IpNet;

use super::super::members::{Changed, Items, Networks};
use super::super::types::NamedPort;
use super::anchors::{Anchor, Anchors, Labels};
use super::counts::{Counts, WORKLOADS};
use super::located::Located;
use super::member::{Entry, Member, Members, Role};
use super::pool::Pool;
use super::services::{News, Services};
use crate::render::{Selected, SetId};
use crate::work;

/// The data of a list of rules that the index needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct List {
    /// The endpoints that it applies to; if `None`, those that name it.
    pub(crate) subjects: Option<Selector>,
    /// Of these, it applies to host endpoints only.
    pub(crate) is_of_hosts: bool,
    /// The sets of endpoints and services in its rules.
    pub(crate) selected: BTreeMap<SetId, Arc<Selected>>,
    /// Labels inherited by the endpoints that name it.
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Endpoints of all hosts, by key.
    pub(super) members: BTreeMap<Arc<str>, Entry>,
    pub(super) counts: Counts,
    /// Members of other hosts by their addresses, while they are needed.
    pub(super) located: Option<Located>,
    /// The endpoints that name a list, whether it exists or not.
    pub(super) named_by: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// Labels shared by endpoints, such as those of one deployment, stored once.
    pub(super) labels: Pool<Labels>,
    profiles: Pool<Vec<String>>,
    ports: Pool<Vec<NamedPort>>,
    pub(super) lists: BTreeMap<Arc<str>, Kept>,
    /// The subjects of lists.
    subjects: Anchors<Arc<str>>,
    /// Keys of the lists that a local endpoint uses.
    used: BTreeMap<Arc<str>, Keys>,
    /// The inverse mapping; lists without endpoints are left out.
    users: BTreeMap<Arc<str>, Keys>,
    sets: BTreeMap<SetId, Members>,
    /// The sets of services.
    services: Services,
    /// The selectors of sets.
    asked: Anchors<SetId>,
    pub(super) due: Due,
    touched: Touched,
    pub(super) checks: u64,
}

type Keys = BTreeSet<Arc<str>>;

/// The sets of a list.
type Sets = BTreeMap<SetId, Arc<Selected>>;

/// A list with the place of its subjects.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) list: List,
    anchor: Option<Anchor>,
}

/// Changes that are not processed yet. They are processed together, because lists and endpoints
/// arrive in any order, and each change alone would be compared with all of the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Due {
    /// Lists with changed labels, each with the last endpoint that inherits the new ones.
    pub(super) relabeled: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// Present or former local endpoints.
    members: Keys,
    /// Lists with changed subjects.
    lists: Keys,
    /// Sets without their addresses.
    sets: BTreeSet<SetId>,
}

/// The parts of the index that may have changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    /// Keys of local endpoints that use other lists now, or changed lists.
    pub(crate) endpoints: BTreeSet<String>,
    /// Sets, with the added or removed members.
    pub(crate) sets: BTreeMap<SetId, Changed>,
}

impl Touched {
    pub(crate) fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.sets.is_empty()
    }
}

impl Index {
    /// Returns the number of endpoints of all hosts.
    pub(crate) fn members_len(&self) -> usize {
        self.members.len()
    }

    /// Records an endpoint, or its deletion.
    pub(crate) fn put_member(&mut self, key: &str, member: Option<Member>) {
        let old = self.members.get_key_value(key);
        let same = match (old, &member) {
            (Some((_, entry)), Some(member)) => entry.is_of(member),
            (old, new) => old.is_none() && new.is_none(),
        };
        if same {
            return;
        }
        let name = old.map_or_else(|| Arc::from(key), |(name, _)| name.clone());
        let old = old.map(|(_, entry)| entry.profiles.clone());
        let new = member.as_ref().map(|member| &member.profiles);
        if old.as_deref() != new {
            for list in old.iter().flat_map(|lists| lists.iter()) {
                drop_pair(&mut self.named_by, list, key);
            }
            // The built-in profile has no labels that could change.
            let new = new.into_iter().flatten();
            for list in new.filter(|list| list.rsplit('/').next() != Some(DEFAULT_ALLOW_PROFILE)) {
                let names = self.named_by.entry(list.clone()).or_default();
                names.insert(name.clone());
            }
        }
        drop(old); // The pool counts the holders of a value.
        let entry = member.map(|member| self.entry(member));
        self.replace(name, entry);
    }

    /// Returns the key and the addresses of a workload endpoint of another host.
    pub(crate) fn remote_endpoint(&self, key: &str) -> Option<(&Arc<str>, &[IpNet])> {
        let (key, entry) = self.members.get_key_value(key)?;
        (entry.role == Role::Selected).then_some((key, &*entry.addresses))
    }

    /// Returns the addresses of all workload endpoints of other hosts, by key.
    pub(crate) fn remote_endpoints(&self) -> impl Iterator<Item = (&Arc<str>, &[IpNet])> {
        let members = self.members.iter();
        let remote =
            members.filter(|(key, entry)| entry.role == Role::Selected && key.contains(WORKLOADS));
        remote.map(|(key, entry)| (key, &*entry.addresses))
    }

    /// Records a list of rules, or its deletion.
    pub(crate) fn put_list(&mut self, key: &str, list: Option<List>) {
        let kept = self.lists.get(key).cloned();
        let (old, anchor) = kept.map_or((None, None), |kept| (Some(kept.list), kept.anchor));
        if old == list {
            return;
        }
        let name: Arc<str> = match self.lists.get_key_value(key) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(key),
        };
        if self.users.contains_key(key) {
            // Sets that are still needed are not created again.
            self.ask(list.as_ref().map(|list| &list.selected));
            self.ask_no_more(old.as_ref().map(|list| &list.selected));
        }
        let labels = |list: &Option<List>| list.as_ref().map(|list| list.labels.clone());
        if labels(&old).unwrap_or_default() != labels(&list).unwrap_or_default() {
            self.due.relabeled.insert(Arc::clone(&name), None);
        }
        let subjects = |list: &Option<List>| {
            let list = list.as_ref()?;
            Some((list.subjects.clone()?, list.is_of_hosts))
        };
        let resubjected = subjects(&old) != subjects(&list);
        let anchor = match resubjected {
            true => self.resubject(&name, anchor, list.as_ref()),
            false => anchor,
        };
        match list {
            Some(list) => self.lists.insert(name, Kept { list, anchor }),
            None => self.lists.remove(key),
        };
    }

    /// Replaces the subjects of a list.
    fn resubject(
        &mut self,
        name: &Arc<str>,
        old: Option<Anchor>,
        list: Option<&List>,
    ) -> Option<Anchor> {
        if let Some(old) = old {
            self.subjects.remove(name, &old);
        }
        self.due.lists.insert(Arc::clone(name));
        let subjects = list?.subjects.as_ref()?;
        Some(self.subjects.insert(name, subjects))
    }

    /// Marks the endpoints of a list, because its rules have changed.
    pub(crate) fn touch_users(&mut self, list: &str) {
        let users = self.users.get(list).into_iter().flatten();
        self.touched
            .endpoints
            .extend(users.map(|user| user.to_string()));
    }

    /// Returns the keys of the lists that a local endpoint uses.
    pub(crate) fn used(&self, endpoint: &str) -> impl Iterator<Item = &str> {
        let used = self.used.get(endpoint).into_iter().flatten();
        used.map(|key| &**key)
    }

    /// Returns the numbers of members.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of lists that any local endpoint uses, without those with this prefix of their
    /// keys.
    pub(crate) fn lists_in_use_except(&self, prefix: &str) -> usize {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let others = self.users.range::<str, _>(from);
        let others = others.take_while(|(key, _)| key.starts_with(prefix));
        self.users.len() - others.count()
    }

    /// Returns the number of selectors of which the members are known.
    pub(crate) fn selectors_in_use(&self) -> usize {
        self.sets.len()
    }

    /// Returns the endpoints of other hosts whose keys have a prefix, each with its addresses.
    pub(crate) fn remote(&self, prefix: String) -> impl Iterator<Item = (&str, &[IpNet])> {
        let from = (Bound::Included(&*prefix), Bound::Unbounded);
        let members = self.members.range::<str, _>(from);
        let of_prefix = members.take_while(move |(key, _)| key.starts_with(&prefix));
        let remote = of_prefix.filter(|(_, entry)| entry.role == Role::Selected);
        remote.map(|(key, entry)| (&**key, &*entry.addresses))
    }

    /// Returns how often a selector was evaluated on labels.
    #[cfg(test)]
    pub(crate) const fn checks(&self) -> u64 {
        self.checks
    }

    /// Returns the members of a set; `None` if no list in use needs it.
    pub(crate) fn items(&self, set: &SetId) -> Option<&Items> {
        let of_selector = self.sets.get(set).map(|set| &set.items);
        of_selector.or_else(|| self.services.items(set))
    }

    /// Records a part of a service's endpoints. Returns whether the service has become known or
    /// unknown.
    pub(crate) fn put_slice(&mut self, service: &ServiceName, name: &str, slice: News) -> bool {
        self.services.put(service, name, slice)
    }

    /// Processes all changes since the last call. Returns the parts that may have changed.
    pub(crate) fn take_touched(&mut self) -> Touched {
        self.inherit(u64::MAX);
        let lists = std::mem::take(&mut self.due.lists);
        let members = std::mem::take(&mut self.due.members);
        self.reuse_lists(&lists, &members);
        for endpoint in members {
            self.reuse(&endpoint);
        }
        self.fill();
        self.touched.sets.extend(self.services.take_touched());
        std::mem::take(&mut self.touched)
    }

    /// Returns whether anything may have changed.
    pub(crate) fn is_touched(&self) -> bool {
        let due = &self.due;
        let recomputed = due.members.is_empty() && due.lists.is_empty() && due.sets.is_empty();
        !recomputed || self.inherits() || !self.touched.is_empty() || self.services.is_touched()
    }

    fn entry(&mut self, member: Member) -> Entry {
        let own_labels = self.labels.share(member.labels);
        let profiles = self.profiles.share(member.profiles);
        let ports = self.ports.share(member.ports);
        Entry {
            labels: self.inherited(&own_labels, &profiles),
            own_labels,
            profiles,
            addresses: member.addresses.into(),
            ports,
            role: member.role,
        }
    }

    pub(super) fn replace(&mut self, key: Arc<str>, entry: Option<Entry>) {
        self.exchange_addresses(&key, entry.as_ref());
        self.relocate(&key, entry.as_ref());
        let mut local = entry.as_ref().is_some_and(|entry| entry.role.is_local());
        let is_there = entry.is_some();
        let old = match entry {
            Some(entry) => self.members.insert(key.clone(), entry),
            None => self.members.remove(&key),
        };
        if is_there != old.is_some()
            && let Some(count) = self.counts.of(&key)
        {
            *count = if is_there { *count + 1 } else { *count - 1 };
        }
        if let Some(old) = old {
            local |= old.role.is_local();
            self.profiles.give_back(old.profiles);
            self.ports.give_back(old.ports);
            self.labels.give_back(old.own_labels);
            self.labels.give_back(old.labels);
        }
        if local {
            self.due.members.insert(key);
        }
    }

    /// Replaces the members that an endpoint contributes to the sets by those of `entry`.
    fn exchange_addresses(&mut self, key: &str, entry: Option<&Entry>) {
        // In the first read of the datastore, no set is known.
        if self.sets.is_empty() {
            return;
        }
        let old = self.members.get(key);
        let mut ids = Vec::new();
        let both = [old, entry].into_iter().flatten();
        for labels in both.map(|entry| &entry.labels) {
            ids.extend(self.asked.candidates(labels));
        }
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            // Sets that are due are filled later with the addresses at that time.
            let set = self
                .sets
                .get_mut(id)
                .filter(|_| !self.due.sets.contains(id));
            let Some(set) = set else {
                continue;
            };
            self.checks += 2;
            work::count(2);
            let (gone, come) = (set.of(old), set.of(entry));
            if gone == come {
                continue;
            }
            let changed = set.exchange(&gone, &come);
            if !changed.is_empty() {
                self.touched
                    .sets
                    .entry(id.clone())
                    .or_default()
                    .extend(changed);
            }
        }
    }

    /// Computes which of these lists each local endpoint uses, except for `others`.
    fn reuse_lists(&mut self, lists: &Keys, others: &Keys) {
        if lists.is_empty() {
            return;
        }
        let mut changed = Anchors::default();
        for key in lists {
            let kept = self.lists.get(key);
            if let Some(subjects) = kept.and_then(|kept| kept.list.subjects.as_ref()) {
                changed.insert(key, subjects);
            }
        }
        let local: Vec<Arc<str>> = self.used.keys().cloned().collect();
        work::count(lists.len() + local.len());
        for endpoint in local {
            if others.contains(&endpoint) {
                continue;
            }
            let (Some(entry), Some(used)) = (self.members.get(&endpoint), self.used.get(&endpoint))
            else {
                continue;
            };
            let (mut new, checks) = selecting(&self.lists, &changed, entry);
            self.checks += checks;
            let named = entry.profiles.iter();
            let named = named.filter_map(|name| Some(Arc::clone(lists.get(name.as_str())?)));
            new.extend(named);
            let old: Keys = match used.len() < lists.len() {
                true => used
                    .iter()
                    .filter(|key| lists.contains(*key))
                    .cloned()
                    .collect(),
                false => lists
                    .iter()
                    .filter(|key| used.contains(*key))
                    .cloned()
                    .collect(),
            };
            self.exchange_uses(&endpoint, &old, &new);
        }
    }

    /// Computes the lists that an endpoint uses.
    fn reuse(&mut self, endpoint: &Arc<str>) {
        let entry = self
            .members
            .get(endpoint)
            .filter(|entry| entry.role.is_local());
        let mut new = Keys::new();
        if let Some(entry) = entry {
            let (selecting, checks) = selecting(&self.lists, &self.subjects, entry);
            new = selecting;
            self.checks += checks;
            for profile in entry.profiles.iter().map(String::as_str) {
                let kept = self.lists.get_key_value(profile).map(|(key, _)| key);
                let in_use = || self.users.get_key_value(profile).map(|(key, _)| key);
                let name = kept.or_else(in_use).cloned();
                new.insert(name.unwrap_or_else(|| Arc::from(profile)));
            }
            self.used.entry(Arc::clone(endpoint)).or_default();
        }
        let is_local = entry.is_some();
        let old = self.used.get(endpoint).cloned().unwrap_or_default();
        self.exchange_uses(endpoint, &old, &new);
        if !is_local {
            self.used.remove(endpoint);
        }
    }

    /// Replaces the `old` lists of an endpoint by the `new` ones.
    fn exchange_uses(&mut self, endpoint: &Arc<str>, old: &Keys, new: &Keys) {
        if old == new {
            return;
        }
        self.touched.endpoints.insert(endpoint.to_string());
        let used = self.used.entry(Arc::clone(endpoint)).or_default();
        for key in new {
            used.insert(Arc::clone(key));
        }
        for key in old.difference(new) {
            used.remove(key);
        }
        for list in new.difference(old) {
            let users = self.users.entry(Arc::clone(list)).or_default();
            users.insert(Arc::clone(endpoint));
            if users.len() == 1 {
                self.ask_of(list, Self::ask);
            }
        }
        for list in old.difference(new) {
            if drop_pair(&mut self.users, list, endpoint) {
                self.ask_of(list, Self::ask_no_more);
            }
        }
    }

    fn ask_of(&mut self, list: &str, act: fn(&mut Self, Option<&Sets>)) {
        let kept = self.lists.get(list);
        let selected = kept.map(|kept| kept.list.selected.clone());
        act(self, selected.as_ref());
    }

    fn ask(&mut self, selected: Option<&Sets>) {
        for (id, selected) in selected.into_iter().flatten() {
            let (selector, ports) = match &**selected {
                Selected::Service(service, has_ports) => {
                    self.services.ask(id, service, *has_ports);
                    continue;
                }
                Selected::Addresses(selector) => (selector, None),
                Selected::Ports(selector, ports) => (selector, Some(ports)),
            };
            if let Some(set) = self.sets.get_mut(id) {
                set.users += 1;
                continue;
            }
            let set = Members {
                selected: Arc::clone(selected),
                anchor: self.asked.insert(id, selector),
                users: 1,
                items: match ports {
                    None => Items::Nets(Networks::default()),
                    Some(_) => Items::Ports(BTreeMap::new()),
                },
            };
            self.sets.insert(id.clone(), set);
            self.due.sets.insert(id.clone());
        }
    }

    /// Fills the new sets with one iteration over the endpoints for all of them, in which equal
    /// labels are evaluated once.
    fn fill(&mut self) {
        // Outside the map, a set is found by its place instead of its name.
        let mut due: Vec<(SetId, Members)> = Vec::new();
        let mut asked = Anchors::default();
        for id in std::mem::take(&mut self.due.sets) {
            self.touched.sets.entry(id.clone()).or_default().renew();
            if let Some((id, set)) = self.sets.remove_entry(&id) {
                if let Some((selector, _)) = set.selected.endpoints() {
                    asked.insert(&due.len(), selector);
                }
                due.push((id, set));
            }
        }
        if due.is_empty() {
            return;
        }
        let mut known: HashMap<*const Labels, Vec<usize>> = HashMap::new();
        work::count(self.members.len());
        for entry in self.members.values() {
            let places = known.entry(Arc::as_ptr(&entry.labels)).or_insert_with(|| {
                let candidates = asked.candidates(&entry.labels);
                self.checks += candidates.len() as u64;
                let candidates = candidates.into_iter().copied();
                let selects = |at: &usize| {
                    let set = due.get(*at).map(|(_, set)| set);
                    set.is_some_and(|set| set.selects(entry))
                };
                candidates.filter(selects).collect()
            });
            for at in places {
                if let Some((_, set)) = due.get_mut(*at) {
                    work::count(1);
                    set.enter(entry);
                }
            }
        }
        self.sets.extend(due);
    }

    fn ask_no_more(&mut self, selected: Option<&Sets>) {
        for id in selected.into_iter().flat_map(BTreeMap::keys) {
            let Some(set) = self.sets.get_mut(id) else {
                self.services.ask_no_more(id);
                continue;
            };
            set.users -= 1;
            if set.users == 0
                && let Some(gone) = self.sets.remove(id)
            {
                self.asked.remove(id, &gone.anchor);
                self.due.sets.remove(id);
                self.touched.sets.entry(id.clone()).or_default();
            }
        }
    }
}

/// Returns the lists that apply to an endpoint by its labels, and the number of evaluated ones.
fn selecting(
    lists: &BTreeMap<Arc<str>, Kept>,
    subjects: &Anchors<Arc<str>>,
    entry: &Entry,
) -> (Keys, u64) {
    let candidates = subjects.candidates(&entry.labels);
    let checks = candidates.len() as u64;
    let selects = |key: &&Arc<str>| {
        let list = lists.get(*key).map(|kept| &kept.list);
        let list = list.filter(|list| !list.is_of_hosts || entry.role == Role::Host);
        let subjects = list.and_then(|list| list.subjects.as_ref());
        subjects.is_some_and(|subjects| subjects.matches(&entry.labels))
    };
    let selecting = candidates.into_iter().filter(selects).cloned().collect();
    (selecting, checks)
}

/// Removes an item from the set of a key, and the set with its last item; returns whether it
/// existed.
fn drop_pair<K: Ord + Borrow<str>>(pairs: &mut BTreeMap<K, Keys>, key: &str, one: &str) -> bool {
    let Some(set) = pairs.get_mut(key) else {
        return false;
    };
    let was = set.remove(one);
    let last = was && set.is_empty();
    if last {
        pairs.remove(key);
    }
    last
}
