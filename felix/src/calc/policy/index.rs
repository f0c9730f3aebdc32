//! Which lists of rules local endpoints use, and the addresses of the endpoints that these rules
//! ask for. Kept up with every change: what it costs grows with what the change concerns, not with
//! all there is.
//!
//! A list of rules is a policy's or a profile's. It is in use while a local endpoint is one of its
//! subjects or names it. A selector's set of addresses exists while a list in use asks for it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::Selector;

use super::pool::Pool;
use crate::render::SetId;

type Labels = BTreeMap<String, String>;

/// An endpoint of any host, as far as rules can tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its own labels.
    pub(crate) labels: Labels,
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
    members: BTreeMap<Arc<str>, Entry>,
    /// Who names a list, whether it exists or not.
    named_by: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// What endpoints have in common, as those of one deployment do, is held once.
    labels: Pool<Labels>,
    profiles: Pool<Vec<String>>,
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

/// A member, as it is kept: there may be tens of thousands.
#[derive(Clone, Debug)]
struct Entry {
    own_labels: Arc<Labels>,
    /// With those of its profiles.
    labels: Arc<Labels>,
    profiles: Arc<Vec<String>>,
    addresses: Box<[IpAddr]>,
    local: bool,
}

impl Entry {
    fn is_of(&self, member: &Member) -> bool {
        *self.own_labels == member.labels
            && *self.profiles == member.profiles
            && *self.addresses == *member.addresses
            && self.local == member.local
    }
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
            for list in new.into_iter().flatten() {
                let names = self.named_by.entry(list.clone()).or_default();
                names.insert(name.clone());
            }
        }
        drop(old); // A pool counts who holds what.
        let entry = member.map(|member| self.entry(member));
        self.replace(name, entry);
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
                let entry = self.members.get(&name).cloned();
                let entry = entry.map(|entry| Entry {
                    labels: self.inherited(&entry.own_labels, &entry.profiles),
                    ..entry
                });
                self.replace(name, entry);
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

    fn entry(&mut self, member: Member) -> Entry {
        let own_labels = self.labels.share(member.labels);
        let profiles = self.profiles.share(member.profiles);
        Entry {
            labels: self.inherited(&own_labels, &profiles),
            own_labels,
            profiles,
            addresses: member.addresses.into(),
            local: member.local,
        }
    }

    /// Labels with those that profiles add.
    fn inherited(&mut self, own: &Arc<Labels>, profiles: &[String]) -> Arc<Labels> {
        let lists = profiles
            .iter()
            .filter_map(|profile| self.lists.get(profile));
        let lists: Vec<&List> = lists.filter(|list| !list.labels.is_empty()).collect();
        if lists.is_empty() {
            return own.clone();
        }
        let mut labels = Labels::clone(own);
        for (label, value) in lists.iter().flat_map(|list| &list.labels) {
            let own = labels.entry(label.clone());
            own.or_insert_with(|| value.clone());
        }
        self.labels.share(labels)
    }

    fn replace(&mut self, key: Arc<str>, entry: Option<Entry>) {
        let old = self.members.get(&key);
        for (id, set) in &mut self.sets {
            let (gone, come) = (set.of(old), set.of(entry.as_ref()));
            if gone == come {
                continue;
            }
            let (gone, come) = (gone.to_vec(), come.to_vec());
            let changed = set.exchange(&gone, &come);
            if !changed.is_empty() {
                self.touched
                    .sets
                    .entry(id.clone())
                    .or_default()
                    .extend(changed);
            }
        }
        let old = match entry {
            Some(entry) => self.members.insert(key.clone(), entry),
            None => self.members.remove(&key),
        };
        if let Some(old) = old {
            self.profiles.give_back(old.profiles);
            self.labels.give_back(old.own_labels);
            self.labels.give_back(old.labels);
        }
        self.reuse(&key);
    }

    /// Works out anew which lists an endpoint uses.
    fn reuse(&mut self, endpoint: &str) {
        let entry = self.members.get(endpoint).filter(|entry| entry.local);
        let mut new: BTreeSet<String> = BTreeSet::new();
        if let Some(entry) = entry {
            new.extend(entry.profiles.iter().cloned());
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
            let addresses = selected.flat_map(|entry| entry.addresses.iter().copied());
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
    /// What an endpoint puts there.
    fn of<'e>(&self, entry: Option<&'e Entry>) -> &'e [IpAddr] {
        match entry {
            Some(entry) if self.selector.matches(&entry.labels) => &entry.addresses,
            _ => &[],
        }
    }

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
fn drop_pair<T: Ord + Borrow<str>>(
    pairs: &mut BTreeMap<String, BTreeSet<T>>,
    key: &str,
    one: &str,
) -> bool {
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
