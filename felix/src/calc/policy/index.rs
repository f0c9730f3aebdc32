//! Which lists of rules local endpoints use, and the addresses of the endpoints that these rules
//! ask for. Kept up with every change: what it costs grows with what the change concerns, not with
//! all there is.
//!
//! A list of rules is a policy's or a profile's. It is in use while a local endpoint is one of its
//! subjects or names it. A selector's set of addresses exists while a list in use asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::Selector;

use crate::render::{Family, Key, Set, SetId, SetKind};

/// An endpoint of any host, as far as rules can tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its own labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// Keys of the profiles it names, in order: it takes on their labels.
    pub(crate) profiles: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether it is on this host.
    pub(crate) local: bool,
}

/// What the index needs to know of a list of rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct List {
    /// The endpoints that it is for; without, those that name it.
    pub(crate) subjects: Option<Selector>,
    /// The selectors that its rules ask for.
    pub(crate) selectors: BTreeMap<SetId, Selector>,
    /// Labels that those that name it take on.
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Endpoints of all hosts, by key.
    members: BTreeMap<String, Entry>,
    /// Who names a list, whether it exists or not.
    named_by: BTreeMap<String, BTreeSet<String>>,
    lists: BTreeMap<String, List>,
    /// Lists with subjects.
    selecting: BTreeSet<String>,
    /// Keys of the lists that a local endpoint uses.
    used: BTreeMap<String, BTreeSet<String>>,
    /// Number of local endpoints that use a list; none that is zero.
    users: BTreeMap<String, usize>,
    sets: BTreeMap<SetId, Members>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    member: Member,
    /// With those of its profiles.
    labels: BTreeMap<String, String>,
}

/// The addresses of the endpoints that a selector selects.
#[derive(Clone, Debug)]
struct Members {
    selector: Selector,
    /// Lists in use that ask for it.
    users: usize,
    /// Each with the number of endpoints that have it.
    addresses: BTreeMap<IpAddr, usize>,
    rendered: [Arc<Set>; 2],
}

impl Index {
    /// Takes note of an endpoint, or that there is none. Returns whether anything is different for
    /// this host's rules.
    pub(crate) fn put_member(&mut self, key: &str, member: Option<Member>) -> bool {
        if self.members.get(key).map(|entry| &entry.member) == member.as_ref() {
            return false;
        }
        let named = |entry: &Entry| entry.member.profiles.clone();
        let old = self.members.get(key).map(named).unwrap_or_default();
        let new = member.as_ref().map(|m| m.profiles.clone());
        let new = new.unwrap_or_default();
        if old != new {
            for list in &old {
                if let Some(names) = self.named_by.get_mut(list) {
                    names.remove(key);
                    if names.is_empty() {
                        self.named_by.remove(list);
                    }
                }
            }
            for list in new {
                self.named_by
                    .entry(list)
                    .or_default()
                    .insert(key.to_owned());
            }
        }
        let entry = member.map(|member| self.entry(member));
        self.replace(key, entry)
    }

    /// Takes note of a list of rules, or that there is none. Returns as above.
    pub(crate) fn put_list(&mut self, key: &str, list: Option<List>) -> bool {
        let old = self.lists.get(key).cloned();
        if old == list {
            return false;
        }
        let mut changed = false;
        let users = self.users.get(key).copied().unwrap_or(0);
        // Sets that are still asked for are not to be made anew.
        if users > 0
            && let Some(list) = &list
        {
            self.ask(&list.selectors);
        }
        if users > 0
            && let Some(old) = &old
        {
            self.ask_no_more(&old.selectors);
        }
        changed |= users > 0;
        let selects = list.as_ref().is_some_and(|list| list.subjects.is_some());
        match selects {
            true => self.selecting.insert(key.to_owned()),
            false => self.selecting.remove(key),
        };
        let labels = |list: &Option<List>| list.as_ref().map(|list| list.labels.clone());
        let relabelled = labels(&old).unwrap_or_default() != labels(&list).unwrap_or_default();
        let subjects = |list: &Option<List>| list.as_ref().and_then(|list| list.subjects.clone());
        let resubjected = subjects(&old) != subjects(&list);
        match list {
            Some(list) => self.lists.insert(key.to_owned(), list),
            None => self.lists.remove(key),
        };
        if relabelled {
            let names: Vec<String> = self
                .named_by
                .get(key)
                .into_iter()
                .flatten()
                .cloned()
                .collect();
            for name in names {
                let entry = self.members.get(&name).map(|entry| entry.member.clone());
                let entry = entry.map(|member| self.entry(member));
                changed |= self.replace(&name, entry);
            }
        }
        if resubjected {
            let local: Vec<String> = self.used.keys().cloned().collect();
            for endpoint in local {
                changed |= self.reuse(&endpoint);
            }
        }
        changed
    }

    /// Keys of the lists that a local endpoint uses.
    pub(crate) fn used(&self, endpoint: &str) -> impl Iterator<Item = &String> {
        self.used.get(endpoint).into_iter().flatten()
    }

    /// Whether some local endpoint uses the list.
    pub(crate) fn is_used(&self, list: &str) -> bool {
        self.users.contains_key(list)
    }

    /// The sets of addresses, with their names in the kernel.
    pub(crate) fn sets(&self) -> impl Iterator<Item = (String, Arc<Set>)> {
        self.sets.iter().flat_map(|(id, members)| {
            let sets = Family::ALL.into_iter().zip(&members.rendered);
            sets.map(|(family, set)| (id.set_name(family), Arc::clone(set)))
        })
    }

    fn entry(&self, member: Member) -> Entry {
        let mut labels = member.labels.clone();
        for profile in &member.profiles {
            for (label, value) in self.lists.get(profile).iter().flat_map(|list| &list.labels) {
                let own = labels.entry(label.clone());
                own.or_insert_with(|| value.clone());
            }
        }
        Entry { member, labels }
    }

    fn replace(&mut self, key: &str, entry: Option<Entry>) -> bool {
        let mut changed = false;
        let old = self.members.get(key);
        for set in self.sets.values_mut() {
            let addresses = |entry: Option<&Entry>| match entry {
                Some(entry) if set.selector.matches(&entry.labels) => {
                    entry.member.addresses.clone()
                }
                _ => Vec::new(),
            };
            let (gone, come) = (addresses(old), addresses(entry.as_ref()));
            changed |= gone != come && set.exchange(&gone, &come);
        }
        match entry {
            Some(entry) => self.members.insert(key.to_owned(), entry),
            None => self.members.remove(key),
        };
        self.reuse(key) || changed
    }

    /// Works out anew which lists an endpoint uses.
    fn reuse(&mut self, endpoint: &str) -> bool {
        let entry = self
            .members
            .get(endpoint)
            .filter(|entry| entry.member.local);
        let mut new: BTreeSet<String> = BTreeSet::new();
        if let Some(entry) = entry {
            new.extend(entry.member.profiles.iter().cloned());
            let selects = |list: &&String| {
                let subjects = self
                    .lists
                    .get(*list)
                    .and_then(|list| list.subjects.as_ref());
                subjects.is_some_and(|subjects| subjects.matches(&entry.labels))
            };
            new.extend(self.selecting.iter().filter(selects).cloned());
        }
        let local = entry.is_some();
        let old = match local {
            true => self.used.insert(endpoint.to_owned(), new.clone()),
            false => self.used.remove(endpoint),
        };
        let old = old.unwrap_or_default();
        for list in new.difference(&old) {
            let users = self.users.entry(list.clone()).or_insert(0);
            *users += 1;
            if *users == 1 {
                self.ask_of(list, Self::ask);
            }
        }
        for list in old.difference(&new) {
            let Some(users) = self.users.get_mut(list) else {
                continue;
            };
            *users -= 1;
            if *users == 0 {
                self.users.remove(list);
                self.ask_of(list, Self::ask_no_more);
            }
        }
        old != new
    }

    fn ask_of(&mut self, list: &str, act: fn(&mut Self, &BTreeMap<SetId, Selector>)) {
        let selectors = self.lists.get(list).map(|list| list.selectors.clone());
        act(self, &selectors.unwrap_or_default());
    }

    fn ask(&mut self, selectors: &BTreeMap<SetId, Selector>) {
        for (id, selector) in selectors {
            if let Some(set) = self.sets.get_mut(id) {
                set.users += 1;
                continue;
            }
            let mut set = Members {
                selector: selector.clone(),
                users: 1,
                addresses: BTreeMap::new(),
                rendered: Family::ALL.map(|family| Arc::new(Set::of(SetKind::Address(family), []))),
            };
            let selected = self.members.values();
            let selected = selected.filter(|entry| selector.matches(&entry.labels));
            let addresses = selected.flat_map(|entry| entry.member.addresses.iter().copied());
            set.exchange(&[], &addresses.collect::<Vec<IpAddr>>());
            self.sets.insert(id.clone(), set);
        }
    }

    fn ask_no_more(&mut self, selectors: &BTreeMap<SetId, Selector>) {
        for id in selectors.keys() {
            let Some(set) = self.sets.get_mut(id) else {
                continue;
            };
            set.users -= 1;
            if set.users == 0 {
                self.sets.remove(id);
            }
        }
    }
}

impl Members {
    /// Counts addresses off and on. Returns whether others are in the set now.
    fn exchange(&mut self, gone: &[IpAddr], come: &[IpAddr]) -> bool {
        let mut changed = false;
        for address in come {
            let count = self.addresses.entry(*address).or_insert(0);
            *count += 1;
            if *count == 1 {
                let set = Arc::make_mut(self.rendered_mut(*address));
                set.elements.insert(Key::Address(*address), None);
                changed = true;
            }
        }
        for address in gone {
            let Some(count) = self.addresses.get_mut(address) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(address);
                let set = Arc::make_mut(self.rendered_mut(*address));
                set.elements.remove(&Key::Address(*address));
                changed = true;
            }
        }
        changed
    }

    const fn rendered_mut(&mut self, address: IpAddr) -> &mut Arc<Set> {
        let [v4, v6] = &mut self.rendered;
        match address {
            IpAddr::V4(_) => v4,
            IpAddr::V6(_) => v6,
        }
    }
}
