//! Interfaces that endpoints want, and what was done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use fib_sync::{Instant, Link};

use super::retry::Retry;
use crate::apply::Neighbour;

/// No address comes before it.
pub(super) const LOWEST: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The kernel's links, by index and by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    by_index: BTreeMap<u32, Link>,
    by_name: BTreeMap<String, u32>,
}

impl Links {
    pub(super) fn put(&mut self, link: &Link) {
        self.remove(link.index);
        self.by_name.insert(link.name.clone(), link.index);
        self.by_index.insert(link.index, link.clone());
    }

    pub(super) fn remove(&mut self, index: u32) {
        if let Some(old) = self.by_index.remove(&index)
            && self.by_name.get(&old.name) == Some(&index)
        {
            self.by_name.remove(&old.name);
        }
    }

    pub(super) fn named(&self, name: &str) -> Option<&Link> {
        self.by_name
            .get(name)
            .and_then(|index| self.by_index.get(index))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub(super) fn at(&self, index: u32) -> Option<&Link> {
        self.by_index.get(&index)
    }
}

/// Whether traffic can pass a link: administratively up, and with carrier.
pub(super) const fn is_up(link: &Link) -> bool {
    link.up && link.running
}

/// What was done to an interface, as long as it has this index and stays up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The link's index.
    pub(super) index: u32,
    /// Settings and addresses.
    pub(super) configured: Retry,
    /// It was never configured yet.
    pub(super) fresh: bool,
    /// Whether it was set up for IPv6.
    pub(super) ipv6: bool,
    /// When the settings are looked at again.
    pub(super) refresh: Instant,
}

impl Setup {
    /// When it is tried or looked at again.
    pub(super) fn timeout(&self) -> Instant {
        self.configured.timeout().unwrap_or(self.refresh)
    }
}

/// When interfaces are to be looked at although nothing happens to them.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    at: BTreeMap<String, Instant>,
    order: BTreeSet<(Instant, String)>,
}

impl Agenda {
    /// Sets the time of one; without, it has none any more.
    pub(super) fn set(&mut self, name: &str, at: Option<Instant>) {
        if self.at.get(name).copied() == at {
            return;
        }
        if let Some(old) = self.at.remove(name) {
            self.order.remove(&(old, name.to_owned()));
        }
        if let Some(at) = at {
            self.at.insert(name.to_owned(), at);
            self.order.insert((at, name.to_owned()));
        }
    }

    /// Takes those whose time has come.
    pub(super) fn take(&mut self, now: Instant, due: &mut BTreeSet<String>) {
        while self.next().is_some_and(|at| at <= now)
            && let Some((_, name)) = self.order.pop_first()
        {
            self.at.remove(&name);
            due.insert(name);
        }
    }

    /// The next time.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }
}

/// Permanent neighbour entries: wanted, and made.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    /// Entries that the kernel holds, as far as we know.
    pub(super) made: BTreeMap<(u32, IpAddr), Neighbour>,
    /// Entries that were refused.
    pub(super) refused: BTreeMap<(u32, IpAddr), (Neighbour, Retry)>,
}

impl Entries {
    /// An interface is gone or down, and its entries with it.
    pub(super) fn drop_interface(&mut self, index: u32) {
        for (address, _) in self.made_on(index) {
            self.made.remove(&(index, address));
        }
        for address in self.refused_on(index) {
            self.refused.remove(&(index, address));
        }
    }

    /// Those that were made on an interface.
    pub(super) fn made_on(&self, index: u32) -> Vec<(IpAddr, Neighbour)> {
        let made = self.made.range((index, LOWEST)..);
        let made = made.take_while(|((interface, _), _)| *interface == index);
        made.map(|((_, address), entry)| (*address, *entry))
            .collect()
    }

    /// Those that were refused on an interface.
    pub(super) fn refused_on(&self, index: u32) -> Vec<IpAddr> {
        let refused = self.refused.range((index, LOWEST)..);
        let refused = refused.take_while(|((interface, _), _)| *interface == index);
        refused.map(|((_, address), _)| *address).collect()
    }
}
