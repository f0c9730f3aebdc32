//! The members of sets, and the part of a set that each contributes.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;

use super::super::members::{Item, Items};
use super::super::types::NamedPort;
use super::anchors::{Anchor, Labels};
use crate::render::{NamedPorts, Selected};

/// A workload endpoint of any host, a host endpoint or a network set, in the form that rules need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its own labels.
    pub(crate) labels: Labels,
    /// Keys of the profiles it names, in order: it inherits their labels.
    pub(crate) profiles: Vec<String>,
    /// Its addresses, each as a network of one, or its networks.
    pub(crate) addresses: Vec<IpNet>,
    /// Its named ports.
    pub(crate) ports: Vec<NamedPort>,
    /// Whether this host evaluates policies for it.
    pub(crate) role: Role,
}

/// Whether this host evaluates policies for a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// It does not: only rules select the member.
    #[default]
    Selected,
    /// It is a workload endpoint of this host.
    Workload,
    /// It is a host endpoint of this host.
    Host,
}

impl Role {
    /// Returns whether it evaluates any.
    pub(super) fn is_local(self) -> bool {
        self != Self::Selected
    }
}

/// A stored member: there may be tens of thousands.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) own_labels: Arc<Labels>,
    /// Includes the labels of its profiles.
    pub(super) labels: Arc<Labels>,
    pub(super) profiles: Arc<Vec<String>>,
    pub(super) addresses: Box<[IpNet]>,
    pub(super) ports: Arc<Vec<NamedPort>>,
    pub(super) role: Role,
}

impl Entry {
    /// Returns its addresses if it belongs to another host, or to none.
    pub(super) fn located(&self) -> &[IpNet] {
        match self.role {
            Role::Selected => &self.addresses,
            Role::Workload | Role::Host => &[],
        }
    }

    pub(super) fn is_of(&self, member: &Member) -> bool {
        *self.own_labels == member.labels
            && *self.profiles == member.profiles
            && *self.addresses == *member.addresses
            && *self.ports == member.ports
            && self.role == member.role
    }
}

/// The addresses or ports of the endpoints that a selector selects.
#[derive(Clone, Debug)]
pub(super) struct Members {
    /// The selector, and the names of ports; without them, the set has addresses.
    pub(super) selected: Arc<Selected>,
    pub(super) anchor: Anchor,
    /// Number of lists in use that need it.
    pub(super) users: usize,
    pub(super) items: Items,
}

impl Members {
    /// Returns the members that an endpoint contributes.
    pub(super) fn of(&self, entry: Option<&Entry>) -> Vec<Item> {
        match entry {
            Some(entry) if self.selects(entry) => self.items_of(entry),
            _ => Vec::new(),
        }
    }

    /// Returns whether it selects an endpoint.
    pub(super) fn selects(&self, entry: &Entry) -> bool {
        let selected = self.selected.endpoints();
        selected.is_some_and(|(selector, _)| selector.matches(&entry.labels))
    }

    fn ports(&self) -> Option<&NamedPorts> {
        self.selected.endpoints()?.1
    }

    /// Adds the members that a selected endpoint contributes.
    pub(super) fn enter(&mut self, entry: &Entry) {
        if self.ports().is_some() {
            for item in self.items_of(entry) {
                self.items.add(item);
            }
            return;
        }
        for net in &entry.addresses {
            self.items.add(Item::Net(*net));
        }
    }

    /// Returns the members that a selected endpoint contributes, in order.
    pub(super) fn items_of(&self, entry: &Entry) -> Vec<Item> {
        let Some(wanted) = self.ports() else {
            return entry.addresses.iter().copied().map(Item::Net).collect();
        };
        let ports = entry
            .ports
            .iter()
            .filter(|port| port.protocol == wanted.protocol && wanted.names.contains(&port.name));
        let items = ports.flat_map(|port| {
            let addresses = entry.addresses.iter();
            addresses.map(|net| Item::Port(net.addr(), port.protocol, port.port))
        });
        // Two names may have the same port.
        items.collect::<BTreeSet<Item>>().into_iter().collect()
    }

    /// Updates the counts of members. Returns those that were added or removed.
    pub(super) fn exchange(&mut self, gone: &[Item], come: &[Item]) -> Vec<Item> {
        let mut changed = Vec::new();
        changed.extend(come.iter().filter(|item| self.items.add(**item)));
        changed.extend(gone.iter().filter(|item| self.items.remove(item)));
        changed
    }
}
