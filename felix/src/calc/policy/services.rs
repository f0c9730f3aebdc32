//! The endpoints of Kubernetes services, and the sets of the services in rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_model::ServiceName;
use ipnet::IpNet;

use super::super::members::{Changed, Item, Items, Networks};
use crate::render::SetId;
use crate::work;

/// A part of a service's endpoints, in the form that rules need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The addresses.
    pub(crate) addresses: Vec<IpAddr>,
    /// The ports of each of them, with their protocols.
    pub(crate) ports: Vec<(u8, u16)>,
}

/// A change of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A valid value.
    Valid(Slice),
    /// A value that cannot be read.
    Invalid,
    /// It was deleted.
    Deleted,
}

impl Slice {
    /// Returns the members that it contributes to a set.
    fn items(&self, has_ports: bool) -> BTreeSet<Item> {
        let addresses = self.addresses.iter();
        if !has_ports {
            return addresses.map(|at| Item::Net(IpNet::from(*at))).collect();
        }
        let ports = self.ports.iter();
        addresses
            .flat_map(|at| {
                let ports = ports.clone();
                ports.map(|(protocol, port)| Item::Port(*at, *protocol, *port))
            })
            .collect()
    }
}

/// The slices of all services, and the sets in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Services {
    /// By service, and by the name of the slice; `None` for one that no valid value is known of. No
    /// service is without a slice.
    slices: BTreeMap<ServiceName, BTreeMap<String, Option<Slice>>>,
    sets: BTreeMap<SetId, Members>,
    /// The sets of each service.
    asked: BTreeMap<ServiceName, BTreeSet<SetId>>,
    touched: BTreeMap<SetId, Changed>,
}

/// The members of a set of a service.
#[derive(Clone, Debug)]
struct Members {
    service: ServiceName,
    has_ports: bool,
    /// Number of lists in use that need it.
    users: usize,
    items: Items,
}

impl Members {
    /// Updates the counts of members. Returns those that were added or removed.
    fn exchange(&mut self, gone: Option<&Slice>, come: Option<&Slice>) -> Vec<Item> {
        let items = |slice: Option<&Slice>| match slice {
            Some(slice) => slice.items(self.has_ports),
            None => BTreeSet::new(),
        };
        let (gone, come) = (items(gone), items(come));
        work::count(gone.len() + come.len());
        let mut changed = Vec::new();
        for item in come.difference(&gone) {
            changed.extend(self.items.add(*item).then_some(*item));
        }
        for item in gone.difference(&come) {
            changed.extend(self.items.remove(item).then_some(*item));
        }
        changed
    }
}

impl Services {
    /// Records a slice. Returns whether the service has become known, or unknown: all endpoints of a
    /// known service are known.
    pub(super) fn put(&mut self, service: &ServiceName, name: &str, slice: News) -> bool {
        let all_known = |slices: &BTreeMap<String, Option<Slice>>| {
            !slices.is_empty() && slices.values().all(Option::is_some)
        };
        let held = self.slices.get(service);
        let was_known = held.is_some_and(all_known);
        let old = held.and_then(|slices| slices.get(name)).cloned();
        let new = match slice {
            News::Valid(slice) => Some(Some(slice)),
            // The last valid value stays.
            News::Invalid => Some(old.clone().flatten()),
            News::Deleted => None,
        };
        if old == new {
            return false;
        }
        let members = |slice: &Option<Option<Slice>>| slice.clone().flatten();
        let (gone, come) = (members(&old), members(&new));
        for id in self.asked.get(service).into_iter().flatten() {
            if let Some(set) = self.sets.get_mut(id) {
                let changed = set.exchange(gone.as_ref(), come.as_ref());
                if !changed.is_empty() {
                    self.touched.entry(id.clone()).or_default().extend(changed);
                }
            }
        }
        let slices = self.slices.entry(service.clone()).or_default();
        match new {
            Some(slice) => slices.insert(name.to_owned(), slice),
            None => slices.remove(name),
        };
        let is_known = all_known(slices);
        if slices.is_empty() {
            self.slices.remove(service);
        }
        is_known != was_known
    }

    /// Adds a user of a set.
    pub(super) fn ask(&mut self, id: &SetId, service: &ServiceName, has_ports: bool) {
        if let Some(set) = self.sets.get_mut(id) {
            set.users += 1;
            return;
        }
        let mut set = Members {
            service: service.clone(),
            has_ports,
            users: 1,
            items: match has_ports {
                true => Items::Ports(BTreeMap::new()),
                false => Items::Nets(Networks::default()),
            },
        };
        // The set itself is new, also without members.
        self.touched.entry(id.clone()).or_default().renew();
        let slices = self.slices.get(service).into_iter().flatten();
        for slice in slices.filter_map(|(_, slice)| slice.as_ref()) {
            set.exchange(None, Some(slice));
        }
        self.sets.insert(id.clone(), set);
        let asked = self.asked.entry(service.clone()).or_default();
        asked.insert(id.clone());
    }

    /// Removes a user of a set, and the set with its last user.
    pub(super) fn ask_no_more(&mut self, id: &SetId) {
        let Some(set) = self.sets.get_mut(id) else {
            return;
        };
        set.users -= 1;
        if set.users > 0 {
            return;
        }
        let Some(gone) = self.sets.remove(id) else {
            return;
        };
        if let Some(asked) = self.asked.get_mut(&gone.service) {
            asked.remove(id);
            if asked.is_empty() {
                self.asked.remove(&gone.service);
            }
        }
        self.touched.entry(id.clone()).or_default();
    }

    /// Returns the members of a set; `None` if no list in use needs it.
    pub(super) fn items(&self, id: &SetId) -> Option<&Items> {
        self.sets.get(id).map(|set| &set.items)
    }

    /// Returns the sets, with the added or removed members, since the last call.
    pub(super) fn take_touched(&mut self) -> BTreeMap<SetId, Changed> {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }
}
