//! Permanent neighbor entries: wanted, written, rejected, and to be removed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use super::host::{Failed, HostCommand, Neighbor, Orders};
use super::retry::Retry;
use crate::calc::Endpoint;

/// The lowest address.
pub(super) const LOWEST: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The entries of all workload interfaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighbors {
    /// By index of the interface.
    entries: BTreeMap<(u32, IpAddr), Entry>,
    /// Entries to remove, until the kernel has done so. None of them is in `entries`.
    removals: BTreeMap<(u32, IpAddr), Removal>,
    /// Whether the entries of an earlier run were listed.
    adopted: Retry,
}

/// An entry that the kernel has or is to get.
#[derive(Clone, Debug)]
struct Entry {
    neighbor: Neighbor,
    put: Retry,
}

/// An entry that the kernel is to lose.
#[derive(Clone, Debug)]
struct Removal {
    neighbor: Neighbor,
    removed: Retry,
}

impl Neighbors {
    /// Requests a list of an earlier run's entries, if it is due.
    pub(super) fn adopt(&mut self, now: Instant, orders: &mut Orders) {
        if self.adopted.is_due(now) {
            self.adopted.order(orders.push(HostCommand::ListNeighbors));
        }
    }

    /// Handles the list. Returns the interfaces with entries, also with those that are to be removed.
    pub(super) fn listed(
        &mut self,
        now: Instant,
        command: u64,
        found: Result<Vec<Neighbor>, Failed>,
    ) -> Vec<u32> {
        if !self.adopted.awaits(command) {
            return Vec::new();
        }
        let mut interfaces = Vec::new();
        let outcome = found.map(|found| {
            // The list contains every entry that was written before it was made.
            self.entries.retain(|_, entry| !entry.put.is_done());
            self.removals.clear();
            for neighbor in found {
                let key = (neighbor.interface, neighbor.address);
                interfaces.push(neighbor.interface);
                let mut put = Retry::default();
                put.note::<Failed>(now, Ok(()));
                self.entries.insert(key, Entry { neighbor, put });
            }
        });
        if let Some(reason) = self.adopted.note(now, outcome) {
            let reason = Text::new(reason);
            emit(Event::KernelNeighborsFailed { reason });
        }
        // No removal was repeated while the list was pending.
        interfaces.extend(self.removals.keys().map(|(interface, _)| *interface));
        interfaces
    }

    /// Returns whether a list is pending: until it arrives no entry is written or deleted.
    pub(super) const fn are_unlisted(&self) -> bool {
        self.adopted.is_under_way()
    }

    /// Returns the time of the next list.
    pub(super) const fn timeout(&self) -> Option<Instant> {
        self.adopted.timeout()
    }

    /// Issues commands for the entries of an endpoint. Returns the next retry time of rejected
    /// ones.
    pub(super) fn put(
        &mut self,
        now: Instant,
        index: u32,
        endpoint: &Endpoint,
        orders: &mut Orders,
    ) -> Option<Instant> {
        let mac = endpoint.mac?;
        let mut again = None;
        for address in &endpoint.addresses {
            let neighbor = Neighbor {
                interface: index,
                address: *address,
                mac,
            };
            let new = || Entry {
                neighbor,
                put: Retry::default(),
            };
            // The write replaces an entry that could not be removed.
            self.removals.remove(&(index, *address));
            let entry = self.entries.entry((index, *address)).or_insert_with(new);
            if entry.neighbor != neighbor {
                *entry = new();
            }
            if entry.put.is_due(now) {
                entry
                    .put
                    .order(orders.push(HostCommand::PutNeighbor(neighbor)));
            }
            again = again.into_iter().chain(entry.put.timeout()).min();
        }
        again
    }

    /// Handles the answer to a write, if it is the awaited one. Returns whether it was.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        command: u64,
        neighbor: &Neighbor,
        interface: &str,
        outcome: Result<(), Failed>,
    ) -> bool {
        let (index, address) = (neighbor.interface, neighbor.address);
        let entry = self.entries.get_mut(&(index, address));
        let Some(entry) = entry.filter(|entry| entry.put.awaits(command)) else {
            return false;
        };
        if let Some(reason) = entry.put.note(now, outcome) {
            emit(Event::InterfaceNeighborFailed {
                interface: Text::new(interface),
                address,
                reason: Text::new(reason),
            });
        }
        true
    }

    /// Handles the answer to a removal, if it is the awaited one. Returns whether it was.
    pub(super) fn removed(
        &mut self,
        now: Instant,
        command: u64,
        neighbor: &Neighbor,
        outcome: Result<(), Failed>,
    ) -> bool {
        let key = (neighbor.interface, neighbor.address);
        let removal = self.removals.get_mut(&key);
        let Some(removal) = removal.filter(|one| one.removed.awaits(command)) else {
            return false;
        };
        if let Some(reason) = removal.removed.note(now, outcome) {
            emit(Event::InterfaceNeighborStays {
                address: neighbor.address,
                reason: Text::new(reason),
            });
        }
        if removal.removed.is_done() {
            self.removals.remove(&key);
        }
        true
    }

    /// Issues commands to remove the entries of an interface, except those of the endpoint. Returns the
    /// next retry time of rejected ones.
    pub(super) fn withdraw(
        &mut self,
        now: Instant,
        index: u32,
        endpoint: Option<&Endpoint>,
        orders: &mut Orders,
    ) -> Option<Instant> {
        let is_wanted = |neighbor: &Neighbor| {
            endpoint.is_some_and(|endpoint| endpoint.mac_of(neighbor.address) == Some(neighbor.mac))
        };
        let on = self.on(index);
        for neighbor in on.into_iter().filter(|neighbor| !is_wanted(neighbor)) {
            let key = (index, neighbor.address);
            self.entries.remove(&key);
            // A rejected entry may have replaced one, so it is removed, too.
            let removed = Retry::default();
            self.removals.insert(key, Removal { neighbor, removed });
        }
        let mut again = None;
        for removal in on_interface(&mut self.removals, index) {
            if removal.removed.is_due(now) {
                let command = HostCommand::DeleteNeighbor(removal.neighbor);
                removal.removed.order(orders.push(command));
            }
            again = again.into_iter().chain(removal.removed.timeout()).min();
        }
        again
    }

    /// Forgets the entries of an interface that was removed or is down.
    pub(super) fn drop_interface(&mut self, index: u32) {
        for neighbor in self.on(index) {
            self.entries.remove(&(index, neighbor.address));
        }
        self.removals
            .retain(|(interface, _), _| *interface != index);
        // The pending list may have been made before.
        if self.adopted.is_under_way() {
            self.adopted.doubt();
        }
    }

    /// Schedules a new list, because events were lost.
    pub(super) const fn doubt(&mut self) {
        self.adopted.doubt();
    }

    /// Returns the progress of an entry, if a command was issued for it.
    pub(super) fn state(&self, index: u32, address: IpAddr) -> Option<&Retry> {
        self.entries.get(&(index, address)).map(|entry| &entry.put)
    }

    fn on(&self, index: u32) -> Vec<Neighbor> {
        let entries = self.entries.range((index, LOWEST)..);
        let entries = entries.take_while(|((interface, _), _)| *interface == index);
        entries.map(|(_, entry)| entry.neighbor).collect()
    }
}

/// Returns the removals of an interface.
fn on_interface(
    removals: &mut BTreeMap<(u32, IpAddr), Removal>,
    index: u32,
) -> impl Iterator<Item = &mut Removal> {
    let from = removals.range_mut((index, LOWEST)..);
    let on = from.take_while(move |((interface, _), _)| *interface == index);
    on.map(|(_, removal)| removal)
}
