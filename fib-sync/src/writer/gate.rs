//! The comparison of a write with the routes that its sender may alter.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::error::OpError;
use crate::limits::NEXTHOP_ID_BITS;
use crate::nexthop::{Nexthop, NexthopCommand, NexthopContent, NexthopEvent};
use crate::owner::Owner;
use crate::port::{Command, Event, PutMode};
use crate::route::{RouteKey, RouteKind};

/// The routes that may be altered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// Their protocol.
    pub owner: Owner,
    /// Their table.
    pub table: u32,
    /// Their metrics.
    pub metrics: Vec<RangeInclusive<u32>>,
    /// Another table and a metric. Routes there that drop packets may be created and deleted, but not
    /// replaced: they are signs for other programs.
    pub signs: Option<(u32, u32)>,
}

impl Bounds {
    /// Returns the bounds: routes of this owner, in this table, with one of these metrics.
    #[must_use]
    pub const fn new(owner: Owner, table: u32, metrics: Vec<RangeInclusive<u32>>) -> Self {
        Self {
            owner,
            table,
            metrics,
            signs: None,
        }
    }

    /// Returns the same bounds, with signs in this table, at this metric.
    #[must_use]
    pub const fn with_signs(mut self, table: u32, metric: u32) -> Self {
        self.signs = Some((table, metric));
        self
    }

    /// Returns whether a write makes or removes a sign.
    fn is_sign(&self, command: &Command) -> bool {
        let is_at = |key: &RouteKey| self.signs == Some((key.table, key.metric));
        match command {
            Command::Put(key, route, PutMode::Create) => {
                is_at(key) && route.kind == RouteKind::Blackhole
            }
            Command::Delete(key, _) => is_at(key),
            Command::Put(..) | Command::Nexthop(_) | Command::Dump { .. } => false,
        }
    }

    /// Returns whether a key is one of these routes.
    #[must_use]
    pub fn covers(&self, key: &RouteKey) -> bool {
        key.table == self.table && self.metrics.iter().any(|some| some.contains(&key.metric))
    }

    fn check(&self, command: &Command) -> Result<(), &'static str> {
        let (key, owner) = match command {
            Command::Put(key, route, _) => (key, route.owner()),
            Command::Delete(key, owner) => (key, *owner),
            Command::Nexthop(command) => return self.check_nexthop(command),
            Command::Dump { .. } => return Err("it is no write"),
        };
        if owner != self.owner {
            return Err("another protocol than the configured one");
        }
        if self.is_sign(command) {
            return Ok(());
        }
        if key.table != self.table {
            return Err("another table than the configured one");
        }
        if !self.covers(key) {
            return Err("another metric than the configured ones");
        }
        match command {
            Command::Put(_, route, _) if !is_installed(route.kind) => {
                Err("a type of route that the program does not install")
            }
            Command::Put(_, route, _) if route.nexthop.is_some_and(|id| !self.has_id(id)) => {
                Err("a nexthop object of another program")
            }
            _ => Ok(()),
        }
    }

    fn check_nexthop(&self, command: &NexthopCommand) -> Result<(), &'static str> {
        let (id, members) = match command {
            NexthopCommand::Dump => return Err("it is no write"),
            NexthopCommand::Delete(id) => (*id, [].as_slice()),
            NexthopCommand::Create(one) if one.owner != self.owner => {
                return Err("another protocol than the configured one");
            }
            NexthopCommand::Create(one) => match &one.content {
                NexthopContent::Hop(_) => (one.id, [].as_slice()),
                NexthopContent::Group(members) => (one.id, members.as_slice()),
                NexthopContent::Blackhole | NexthopContent::Other => {
                    return Err("a type of nexthop object that the program does not create");
                }
            },
        };
        let mut ids = members.iter().map(|member| member.id).chain([id]);
        match ids.all(|id| self.has_id(id)) {
            true => Ok(()),
            false => Err("a nexthop object of another program"),
        }
    }

    /// Returns whether the number of a nexthop object is one of the owner's.
    fn has_id(&self, id: u32) -> bool {
        id >> NEXTHOP_ID_BITS == u32::from(self.owner.0)
    }
}

const fn is_installed(kind: RouteKind) -> bool {
    !matches!(kind, RouteKind::Local | RouteKind::Other(_))
}

/// Decides which writes are requested from the kernel.
///
/// The kernel cannot compare before it replaces: a replace of a key alters the route of another
/// program if that has it. So a gate has the keys of its own routes, and refuses to replace others. It
/// learns them from [`seen`](Self::seen) and from the outcomes of its own writes, and forgets a key as
/// soon as another program changes it.
#[derive(Clone, Debug)]
pub struct Gate {
    bounds: Bounds,
    ipv4: BTreeSet<Ipv4Key>,
    ipv6: BTreeSet<Ipv6Key>,
    /// Own nexthop objects.
    nexthops: BTreeSet<u32>,
    /// Keys may be missing.
    is_doubtful: bool,
}

/// A key of the table: destination, metric, length and type of service.
type Ipv4Key = (u32, u32, u8, u8);
type Ipv6Key = ([u8; 16], u32, u8);

impl Gate {
    /// Returns a gate that has no keys yet.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ipv4: BTreeSet::new(),
            ipv6: BTreeSet::new(),
            nexthops: BTreeSet::new(),
            is_doubtful: true,
        }
    }

    /// Returns the routes that may be altered.
    #[must_use]
    pub const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Changes the routes that may be altered.
    pub fn renew(&mut self, bounds: Bounds) {
        if self.bounds != bounds {
            *self = Self::new(bounds);
        }
    }

    /// Returns whether the own routes must be read ([`seen`](Self::seen)) before this write can be
    /// decided.
    #[must_use]
    pub fn needs_reading(&self, command: &Command) -> bool {
        let is_unknown = match command {
            Command::Put(key, _, PutMode::Replace) => !self.has(key),
            Command::Nexthop(NexthopCommand::Delete(id)) => !self.nexthops.contains(id),
            _ => false,
        };
        self.is_doubtful && is_unknown && self.bounds.check(command).is_ok()
    }

    /// Begins a reading of the own routes.
    pub const fn reading(&mut self) {
        self.is_doubtful = false;
    }

    /// Records that keys may be missing: messages of the kernel were lost.
    pub fn lost(&mut self) {
        self.ipv4.clear();
        self.ipv6.clear();
        self.nexthops.clear();
        self.is_doubtful = true;
    }

    /// Records an own route that was read.
    pub fn seen(&mut self, key: &RouteKey, owner: Owner) {
        if owner == self.bounds.owner && self.bounds.covers(key) {
            self.insert(key);
        }
    }

    /// Records a nexthop object that was read, or that another program created or changed.
    pub fn seen_nexthop(&mut self, nexthop: &Nexthop) {
        match nexthop.owner == self.bounds.owner && self.bounds.has_id(nexthop.id) {
            true => self.nexthops.insert(nexthop.id),
            false => self.nexthops.remove(&nexthop.id),
        };
    }

    /// Decides a write that is requested from the kernel next.
    ///
    /// # Errors
    ///
    /// The write is not one of the bounds, or would replace a route that is not known as an own one.
    pub fn admit(&mut self, command: &Command) -> Result<(), OpError> {
        let refused = |why: &str| {
            Err(OpError {
                errno: libc::EPERM,
                text: Some(format!("refused by the process that writes routes: {why}").into()),
            })
        };
        if let Err(why) = self.bounds.check(command) {
            return refused(why);
        }
        match command {
            Command::Put(key, _, PutMode::Replace) if !self.has(key) => {
                refused("the route to be replaced is not known as an own one")
            }
            Command::Delete(key, _) if key.table == self.bounds.table => {
                // From now on the key is free for others.
                self.remove(key);
                Ok(())
            }
            Command::Nexthop(NexthopCommand::Delete(id)) => match self.nexthops.remove(id) {
                true => Ok(()),
                false => refused("the nexthop object to be deleted is not known as an own one"),
            },
            _ => Ok(()),
        }
    }

    /// Records the outcome of an admitted write.
    pub fn applied(&mut self, command: &Command, result: &Result<(), OpError>) {
        match command {
            Command::Put(key, _, mode) => self.settled(key, Some(*mode), result),
            Command::Delete(key, _) => self.settled(key, None, result),
            Command::Nexthop(command) => self.settled_nexthop(command, result),
            Command::Dump { .. } => {}
        }
    }

    /// Records the outcome of an admitted write of a nexthop object.
    pub(crate) fn settled_nexthop(
        &mut self,
        command: &NexthopCommand,
        result: &Result<(), OpError>,
    ) {
        match (command, result) {
            (NexthopCommand::Create(one), Ok(())) => drop(self.nexthops.insert(one.id)),
            (NexthopCommand::Delete(_), Err(error)) if !error.is_absent() => {
                self.is_doubtful = true;
            }
            _ => {}
        }
    }

    /// Records the outcome of an admitted write by its key and mode; without a mode, of a delete.
    pub(crate) fn settled(
        &mut self,
        key: &RouteKey,
        mode: Option<PutMode>,
        result: &Result<(), OpError>,
    ) {
        // The keys are those of one table, without signs.
        if key.table != self.bounds.table {
            return;
        }
        match (mode, result) {
            (Some(PutMode::Create), Ok(())) => self.insert(key),
            (Some(PutMode::Replace), Err(error)) if error.is_absent() => {
                self.remove(key);
            }
            (None, Err(error)) if !error.is_absent() => self.is_doubtful = true,
            _ => {}
        }
    }

    /// Records a change by another program.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Changed { key, route, .. } if route.owner() == self.bounds.owner => {
                self.seen(key, route.owner());
            }
            // A removal of some next hops leaves the others.
            Event::Changed { key, .. } | Event::Removed(key, _) => {
                self.is_doubtful |= key.table == self.bounds.table && self.remove(key);
            }
            Event::Nexthop(NexthopEvent::Changed(nexthop)) => self.seen_nexthop(nexthop),
            Event::Nexthop(NexthopEvent::Removed(id)) => drop(self.nexthops.remove(id)),
            Event::Overrun => self.lost(),
            _ => {}
        }
    }

    fn has(&self, key: &RouteKey) -> bool {
        match compact(key) {
            Compact::Ipv4(key) => self.ipv4.contains(&key),
            Compact::Ipv6(key) => self.ipv6.contains(&key),
        }
    }

    fn insert(&mut self, key: &RouteKey) {
        match compact(key) {
            Compact::Ipv4(key) => self.ipv4.insert(key),
            Compact::Ipv6(key) => self.ipv6.insert(key),
        };
    }

    fn remove(&mut self, key: &RouteKey) -> bool {
        match compact(key) {
            Compact::Ipv4(key) => self.ipv4.remove(&key),
            Compact::Ipv6(key) => self.ipv6.remove(&key),
        }
    }
}

enum Compact {
    Ipv4(Ipv4Key),
    Ipv6(Ipv6Key),
}

fn compact(key: &RouteKey) -> Compact {
    let length = key.prefix.prefix_len();
    match key.prefix.addr() {
        IpAddr::V4(address) => Compact::Ipv4((address.to_bits(), key.metric, length, key.tos)),
        IpAddr::V6(address) => Compact::Ipv6((address.octets(), key.metric, length)),
    }
}
