//! The endpoints of Kubernetes services, and the sets of the services in rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_model::ServiceName;
use ipnet::IpNet;

use super::super::members::{Item, Items, Networks};
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
    /// By service, and by the name of the slice. No service is without a slice.
    slices: BTreeMap<ServiceName, BTreeMap<String, Slice>>,
    sets: BTreeMap<SetId, Members>,
    /// The sets of each service.
    asked: BTreeMap<ServiceName, BTreeSet<SetId>>,
    touched: BTreeMap<SetId, BTreeSet<Item>>,
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
    /// Records a slice, or its deletion. Returns whether the service has appeared or disappeared.
    pub(super) fn put(&mut self, service: &ServiceName, name: &str, slice: Option<Slice>) -> bool {
        let held = self.slices.get(service);
        let was_known = held.is_some();
        let old = held.and_then(|slices| slices.get(name)).cloned();
        if old == slice {
            return false;
        }
        for id in self.asked.get(service).into_iter().flatten() {
            if let Some(set) = self.sets.get_mut(id) {
                let changed = set.exchange(old.as_ref(), slice.as_ref());
                if !changed.is_empty() {
                    self.touched.entry(id.clone()).or_default().extend(changed);
                }
            }
        }
        let slices = self.slices.entry(service.clone()).or_default();
        match slice {
            Some(slice) => slices.insert(name.to_owned(), slice),
            None => slices.remove(name),
        };
        let is_known = !slices.is_empty();
        if !is_known {
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
        let touched = self.touched.entry(id.clone()).or_default();
        let slices = self.slices.get(service).into_iter().flatten();
        for (_, slice) in slices {
            touched.extend(set.exchange(None, Some(slice)));
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
        let touched = self.touched.entry(id.clone()).or_default();
        touched.extend(gone.items.into_items());
    }

    /// Returns the members of a set; `None` if no list in use needs it.
    pub(super) fn items(&self, id: &SetId) -> Option<&Items> {
        self.sets.get(id).map(|set| &set.items)
    }

    /// Returns the sets, with the added or removed members, since the last call.
    pub(super) fn take_touched(&mut self) -> BTreeMap<SetId, BTreeSet<Item>> {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }
}
