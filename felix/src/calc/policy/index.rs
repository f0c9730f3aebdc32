//! Which lists of rules local endpoints use, and the addresses of the endpoints that these rules
//! ask for. Kept up with every change: what it costs grows with what the change concerns, not with
//! all there is.
//!
//! A list of rules is a policy's or a profile's. It is in use while a local endpoint is one of its
//! subjects or names it. A selector's set of addresses exists while a list in use asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::Selector;

use crate::render::SetId;

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
    /// The same the other way round; no list without endpoint.
    users: BTreeMap<String, BTreeSet<String>>,
    sets: BTreeMap<SetId, Members>,
    touched: Touched,
}

/// What of the index may be different.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    /// Keys of local endpoints that use other lists now, or lists that are others.
    pub(crate) endpoints: BTreeSet<String>,
    /// Sets, with the addresses that came or went.
    pub(crate) sets: BTreeMap<SetId, BTreeSet<IpAddr>>,
}

impl Touched {
    pub(crate) fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.sets.is_empty()
    }
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
}

impl Index {
    /// Takes note of an endpoint, or that there is none.
    pub(crate) fn put_member(&mut self, key: &str, member: Option<Member>) {
        let old = self.members.get(key).map(|entry| &entry.member);
        if old == member.as_ref() {
            return;
        }
        let names = |member: Option<&Member>| member.map(|member| member.profiles.clone());
        let (old, new) = (names(old), names(member.as_ref()));
        if old != new {
            for list in old.into_iter().flatten() {
                drop_pair(&mut self.named_by, &list, key);
            }
            for list in new.into_iter().flatten() {
                let names = self.named_by.entry(list).or_default();
                names.insert(key.to_owned());
            }
        }
        let entry = member.map(|member| self.entry(member));
        self.replace(key, entry);
    }

    /// Takes note of a list of rules, or that there is none.
    pub(crate) fn put_list(&mut self, key: &str, list: Option<List>) {
        let old = self.lists.get(key).cloned();
        if old == list {
            return;
        }
        if self.users.contains_key(key) {
            // Sets that are still asked for are not to be made anew.
            self.ask(list.as_ref().map(|list| &list.selectors));
            self.ask_no_more(old.as_ref().map(|list| &list.selectors));
        }
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
            let names = self.named_by.get(key).cloned().unwrap_or_default();
            for name in names {
                let entry = self.members.get(&name).map(|entry| entry.member.clone());
                let entry = entry.map(|member| self.entry(member));
                self.replace(&name, entry);
            }
        }
        if resubjected {
            let local: Vec<String> = self.used.keys().cloned().collect();
            for endpoint in local {
                self.reuse(&endpoint);
            }
        }
    }

    /// The rules of a list are others: what its endpoints use is different.
    pub(crate) fn touch_users(&mut self, list: &str) {
        let users = self.users.get(list).into_iter().flatten();
        self.touched.endpoints.extend(users.cloned());
    }

    /// Keys of the lists that a local endpoint uses.
    pub(crate) fn used(&self, endpoint: &str) -> impl Iterator<Item = &String> {
        self.used.get(endpoint).into_iter().flatten()
    }

    /// The addresses of a set, each with the number of endpoints that have it; `None` if nobody
    /// asks for the set.
    pub(crate) fn addresses(&self, set: &SetId) -> Option<&BTreeMap<IpAddr, usize>> {
        self.sets.get(set).map(|set| &set.addresses)
    }

    /// What may be different since the last call.
    pub(crate) fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// Whether anything may be.
    pub(crate) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
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

    fn replace(&mut self, key: &str, entry: Option<Entry>) {
        let old = self.members.get(key);
        for (id, set) in &mut self.sets {
            let addresses = |entry: Option<&Entry>| match entry {
                Some(entry) if set.selector.matches(&entry.labels) => {
                    entry.member.addresses.clone()
                }
                _ => Vec::new(),
            };
            let (gone, come) = (addresses(old), addresses(entry.as_ref()));
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
        match entry {
            Some(entry) => self.members.insert(key.to_owned(), entry),
            None => self.members.remove(key),
        };
        self.reuse(key);
    }

    /// Works out anew which lists an endpoint uses.
    fn reuse(&mut self, endpoint: &str) {
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
        if old != new {
            self.touched.endpoints.insert(endpoint.to_owned());
        }
        for list in new.difference(&old) {
            let users = self.users.entry(list.clone()).or_default();
            users.insert(endpoint.to_owned());
            if users.len() == 1 {
                self.ask_of(list, Self::ask);
            }
        }
        for list in old.difference(&new) {
            if drop_pair(&mut self.users, list, endpoint) {
                self.ask_of(list, Self::ask_no_more);
            }
        }
    }

    fn ask_of(&mut self, list: &str, act: fn(&mut Self, Option<&BTreeMap<SetId, Selector>>)) {
        let selectors = self.lists.get(list).map(|list| list.selectors.clone());
        act(self, selectors.as_ref());
    }

    fn ask(&mut self, selectors: Option<&BTreeMap<SetId, Selector>>) {
        for (id, selector) in selectors.into_iter().flatten() {
            if let Some(set) = self.sets.get_mut(id) {
                set.users += 1;
                continue;
            }
            let mut set = Members {
                selector: selector.clone(),
                users: 1,
                addresses: BTreeMap::new(),
            };
            let selected = self.members.values();
            let selected = selected.filter(|entry| selector.matches(&entry.labels));
            let addresses = selected.flat_map(|entry| entry.member.addresses.iter().copied());
            let come = set.exchange(&[], &addresses.collect::<Vec<IpAddr>>());
            self.touched
                .sets
                .entry(id.clone())
                .or_default()
                .extend(come);
            self.sets.insert(id.clone(), set);
        }
    }

    fn ask_no_more(&mut self, selectors: Option<&BTreeMap<SetId, Selector>>) {
        for id in selectors.into_iter().flat_map(BTreeMap::keys) {
            let Some(set) = self.sets.get_mut(id) else {
                continue;
            };
            set.users -= 1;
            if set.users == 0
                && let Some(gone) = self.sets.remove(id)
            {
                self.touched
                    .sets
                    .entry(id.clone())
                    .or_default()
                    .extend(gone.addresses.into_keys());
            }
        }
    }
}

impl Members {
    /// Counts addresses off and on. Returns those that came or went.
    fn exchange(&mut self, gone: &[IpAddr], come: &[IpAddr]) -> Vec<IpAddr> {
        let mut changed = Vec::new();
        for address in come {
            let count = self.addresses.entry(*address).or_insert(0);
            *count += 1;
            if *count == 1 {
                changed.push(*address);
            }
        }
        for address in gone {
            let Some(count) = self.addresses.get_mut(address) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(address);
                changed.push(*address);
            }
        }
        changed
    }
}

/// Takes one out of the set of a key, and the set with the last of it; returns whether it did that.
fn drop_pair(pairs: &mut BTreeMap<String, BTreeSet<String>>, key: &str, one: &str) -> bool {
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
