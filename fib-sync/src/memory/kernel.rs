//! Routes of the simulated kernel, and the operations on them.

use core::task::Waker;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::attachment::{Attachment, Dump, Pending, Queues};
use super::faults::{Chance, Faults};
use crate::error::OpError;
use crate::nexthop::Nexthop;
use crate::owner::Owner;
use crate::port::{Command, Event, PutMode};
use crate::route::{Hop, InterfaceAddress, Link, Route, RouteKey, RouteKind, Scope};

/// Rows a dump reads at a time.
const ROWS_AT_ONCE: usize = 4;

/// Error numbers with which a real kernel occasionally refuses routes.
const REFUSALS: &[i32] = &[libc::ENOMEM, libc::EINVAL, libc::ENETUNREACH, libc::EBUSY];

/// The routing part of a host's kernel.
#[derive(Debug)]
pub struct Kernel {
    pub(super) links: BTreeMap<u32, Link>,
    pub(super) addresses: BTreeSet<InterfaceAddress>,
    pub(super) routes: BTreeMap<RouteKey, Route>,
    pub(super) nexthops: BTreeMap<u32, Nexthop>,
    pub(super) nexthops_supported: bool,
    pub(super) nexthop_compat: bool,
    pub(super) next_index: u32,
    attached: BTreeMap<Attachment, Queues>,
    next_attachment: u32,
    faults: Faults,
    refused: Vec<(IpNet, i32)>,
    chance: Chance,
    /// The kernel's own time: counts changes and answers.
    stamp: u64,
}

impl Kernel {
    /// Returns a host with only its loopback interface (index 1), up. `seed` decides its faults.
    pub fn new(seed: u64) -> Self {
        let lo = Link {
            index: 1,
            name: String::from("lo"),
            up: true,
            running: true,
            tunnel: None,
        };
        Self {
            links: BTreeMap::from([(1, lo)]),
            addresses: BTreeSet::new(),
            routes: BTreeMap::new(),
            nexthops: BTreeMap::new(),
            nexthops_supported: true,
            nexthop_compat: true,
            next_index: 2,
            attached: BTreeMap::new(),
            next_attachment: 1,
            faults: Faults::default(),
            refused: Vec::new(),
            chance: Chance::new(seed),
            stamp: 0,
        }
    }

    /// Sets the faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Refuses every write to prefixes inside `prefix` with this error number; `None` ends that.
    pub fn refuse(&mut self, prefix: IpNet, errno: Option<i32>) {
        self.refused.retain(|(refused, _)| *refused != prefix);
        self.refused.extend(errno.map(|errno| (prefix, errno)));
    }

    /// Connects a program.
    pub fn attach(&mut self) -> Attachment {
        let attachment = Attachment(self.next_attachment);
        self.next_attachment += 1;
        self.attached.insert(attachment, Queues::default());
        self.notify_links(attachment);
        attachment
    }

    /// Disconnects a program and discards the commands that were not carried out; routes stay.
    pub fn detach(&mut self, attachment: Attachment) {
        self.attached.remove(&attachment);
    }

    /// Accepts a command, see [`crate::Fib::submit`].
    pub fn submit(&mut self, attachment: Attachment, command: Command) {
        if let Some(queues) = self.attached.get_mut(&attachment) {
            queues.submit(command);
        }
    }

    /// Returns whether [`poll`](Self::poll) would yield an event.
    pub fn is_ready(&self, attachment: Attachment) -> bool {
        self.attached.get(&attachment).is_some_and(Queues::is_ready)
    }

    /// Carries out commands as needed and yields the next event for this program.
    pub fn poll(&mut self, attachment: Attachment) -> Option<Event> {
        loop {
            let eager = self.chance.coin();
            let queues = self.attached.get_mut(&attachment)?;
            let note = queues.notifications.front().map(|(stamp, _)| *stamp);
            let answer = queues.answers.front().map(|(stamp, _)| *stamp);
            let queue = match (note, answer) {
                (Some(note), Some(answer)) if eager || note < answer => &mut queues.notifications,
                (_, Some(_)) => &mut queues.answers,
                (Some(_), None) if eager || queues.commands.is_empty() => &mut queues.notifications,
                (_, None) if queues.dump.is_some() => {
                    self.read_rows(attachment);
                    continue;
                }
                (_, None) if !queues.commands.is_empty() => {
                    self.carry_out(attachment);
                    continue;
                }
                (Some(_), None) => &mut queues.notifications,
                (None, None) => return None,
            };
            let event = queue.pop_front().map(|(_, event)| event);
            if event == Some(Event::Overrun) {
                self.notify_links(attachment);
            }
            return event;
        }
    }

    /// Wakes this task once there is an event.
    pub(super) fn wake_later(&mut self, attachment: Attachment, waker: &Waker) {
        if let Some(queues) = self.attached.get_mut(&attachment) {
            queues.waker = Some(waker.clone());
        }
    }

    /// Discards the notifications queued for this program and reports an overrun to it.
    pub fn overrun(&mut self, attachment: Attachment) {
        self.stamp += 1;
        if let Some(queues) = self.attached.get_mut(&attachment) {
            queues.overrun(self.stamp);
        }
    }

    /// Returns all routes, in key order.
    pub fn routes(&self) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.routes.iter()
    }

    /// Returns the route of this key.
    pub fn route(&self, key: &RouteKey) -> Option<&Route> {
        self.routes.get(&key.canonical())
    }

    /// Returns the route for a packet to `address` in `table`: longest prefix, lowest metric.
    pub fn route_to(&self, table: u32, address: IpAddr) -> Option<(&RouteKey, &Route)> {
        let meets = |key: &RouteKey| key.table == table && key.prefix.contains(&address);
        let routes = self.routes.iter().filter(|(key, _)| meets(key));
        routes.min_by_key(|(key, _)| (core::cmp::Reverse(key.prefix.prefix_len()), key.metric))
    }

    /// Adds a route as another program would (for example `ip route`).
    ///
    /// # Errors
    ///
    /// As the real kernel: the key is taken, the next hop cannot be reached, the link is down.
    pub fn add_route(&mut self, key: RouteKey, route: Route) -> Result<(), OpError> {
        self.put(None, key, route, PutMode::Create)
    }

    /// Adds or replaces a route as another program would, whatever its owner.
    ///
    /// # Errors
    ///
    /// As the real kernel: the next hop cannot be reached, the link is down.
    pub fn replace_route(&mut self, key: RouteKey, route: Route) -> Result<(), OpError> {
        let key = key.canonical();
        let there = self.routes.contains_key(&key);
        self.put(
            None,
            key,
            route,
            if there {
                PutMode::Replace
            } else {
                PutMode::Create
            },
        )
    }

    /// Deletes a route as another program would, whatever its owner. Returns whether it existed.
    pub fn delete_route(&mut self, key: &RouteKey) -> bool {
        self.remove(None, &key.canonical())
    }

    fn put(
        &mut self,
        by: Option<Attachment>,
        key: RouteKey,
        route: Route,
        mode: PutMode,
    ) -> Result<(), OpError> {
        let key = key.canonical();
        match (mode, self.routes.contains_key(&key)) {
            (PutMode::Create, true) => return Err(OpError::new(libc::EEXIST)),
            (PutMode::Replace, false) => return Err(OpError::new(libc::ENOENT)),
            _ => {}
        }
        let route = self.as_stored(&key, route)?;
        let replaced = self.routes.insert(key, route.clone()).is_some();
        let route = self.reported(&route);
        self.notify(
            by,
            &Event::Changed {
                key,
                route,
                replaced,
            },
        );
        Ok(())
    }

    fn remove(&mut self, by: Option<Attachment>, key: &RouteKey) -> bool {
        let Some(route) = self.routes.remove(key) else {
            return false;
        };
        let route = self.reported(&route);
        self.notify(by, &Event::Removed(*key, route));
        true
    }

    /// Returns a route as the kernel stores it: interfaces chosen, unsupported fields left out.
    fn as_stored(&self, key: &RouteKey, route: Route) -> Result<Route, OpError> {
        let mut route = route.canonical();
        if let (true, Some(id)) = (route.kind.forwards(), route.nexthop) {
            route = self.over_nexthop(key, id, route)?;
        } else if route.kind.forwards() {
            if route.next_hops.is_empty() {
                return Err(OpError::new(libc::EINVAL));
            }
            for hop in &mut route.next_hops {
                *hop = self.resolve_hop(hop)?;
            }
            if let [hop] = route.next_hops.as_mut_slice() {
                hop.weight = 1;
            }
        }
        if key.is_ipv6() {
            route.scope = Scope::Universe;
        }
        Ok(route)
    }

    pub(super) fn resolve_hop(&self, hop: &Hop) -> Result<Hop, OpError> {
        let on_link = |gateway: IpAddr, index: u32| {
            let covers =
                |a: &&InterfaceAddress| a.interface == index && a.address.contains(&gateway);
            matches!(gateway, IpAddr::V6(v6) if v6.is_unicast_link_local())
                || self.addresses.iter().any(|a| covers(&a))
        };
        let index = match (hop.interface, hop.gateway) {
            (Some(index), _) => index,
            (None, Some(gateway)) => {
                let found = self.addresses.iter().find(|a| a.address.contains(&gateway));
                found
                    .map(|a| a.interface)
                    .ok_or_else(|| OpError::new(libc::ENETUNREACH))?
            }
            (None, None) => return Err(OpError::new(libc::ENODEV)),
        };
        let link = self
            .links
            .get(&index)
            .ok_or_else(|| OpError::new(libc::ENODEV))?;
        if !link.up {
            return Err(OpError::new(libc::ENETDOWN));
        }
        match hop.gateway {
            Some(gateway) if !hop.onlink && !on_link(gateway, index) => {
                Err(OpError::new(libc::ENETUNREACH))
            }
            _ => Ok(hop.on(index)),
        }
    }

    /// Sends a notification to every program but the one that submitted the command.
    pub(super) fn notify(&mut self, by: Option<Attachment>, event: &Event) {
        self.stamp += 1;
        for (attachment, queues) in &mut self.attached {
            if Some(*attachment) == by {
                continue;
            }
            if let Some(key) = event.changed_key() {
                queues.overtake(Some(key));
            }
            if self.chance.strikes(self.faults.overrun) {
                queues.overrun(self.stamp);
            } else if !self.chance.strikes(self.faults.lose_notification) {
                queues.notify(self.stamp, event.clone());
            }
        }
    }

    fn notify_links(&mut self, attachment: Attachment) {
        self.stamp += 1;
        let Some(queues) = self.attached.get_mut(&attachment) else {
            return;
        };
        for link in self.links.values() {
            queues.notify(self.stamp, Event::Link(link.clone()));
        }
        for address in &self.addresses {
            queues.notify(self.stamp, Event::Address(*address));
        }
    }

    pub(super) fn answer(&mut self, attachment: Attachment, event: Event) {
        self.stamp += 1;
        if let Some(queues) = self.attached.get_mut(&attachment) {
            queues.answers.push_back((self.stamp, event));
        }
    }

    /// Carries out the program's next command.
    fn carry_out(&mut self, attachment: Attachment) {
        let Some(queues) = self.attached.get_mut(&attachment) else {
            return;
        };
        let Some(Pending { command, overtaken }) = queues.commands.pop_front() else {
            return;
        };
        match command {
            Command::Dump { table, owner } => {
                let cut = self.chance.strikes(self.faults.cut_dump);
                queues.dump = Some(Dump {
                    table,
                    owner,
                    after: None,
                    cut,
                });
                self.answer(attachment, Event::DumpStart { table, owner });
            }
            Command::Nexthop(command) => self.nexthop_command(attachment, command),
            Command::Put(key, _, PutMode::Replace) if overtaken => {
                let result = Err(OpError::new(libc::ECANCELED));
                self.answer(attachment, Event::Applied(key, result));
            }
            Command::Put(key, route, mode) => {
                let result = self.allow(&key);
                let result = result.and_then(|()| self.put(Some(attachment), key, route, mode));
                self.answer_write(attachment, key, result);
            }
            Command::Delete(key, owner) => {
                let result = self
                    .allow(&key)
                    .and_then(|()| self.delete(attachment, key, owner));
                self.answer_write(attachment, key, result);
            }
        }
    }

    fn delete(&mut self, by: Attachment, key: RouteKey, owner: Owner) -> Result<(), OpError> {
        let key = key.canonical();
        match self.routes.get(&key) {
            Some(route) if route.owner() == owner => {
                self.remove(Some(by), &key);
                Ok(())
            }
            _ => Err(OpError::new(libc::ESRCH)),
        }
    }

    /// Refuses a write of a nexthop object by chance.
    pub(super) fn allow_nexthop(&mut self) -> Result<(), OpError> {
        match self.chance.strikes(self.faults.refuse) {
            true => Err(OpError::new(libc::ENOMEM)),
            false => Ok(()),
        }
    }

    /// Returns whether an answer is lost.
    pub(super) fn loses_answer(&mut self) -> bool {
        self.chance.strikes(self.faults.lose_answer)
    }

    /// Returns whether a dump is cut.
    pub(super) fn cuts_dump(&mut self) -> bool {
        self.chance.strikes(self.faults.cut_dump)
    }

    fn allow(&mut self, key: &RouteKey) -> Result<(), OpError> {
        if let Some((_, errno)) = self
            .refused
            .iter()
            .find(|(net, _)| net.contains(&key.prefix))
        {
            return Err(OpError::new(*errno));
        }
        if self.chance.strikes(self.faults.refuse) {
            let which = self.chance.next() as usize % REFUSALS.len();
            return Err(OpError::new(
                REFUSALS.get(which).copied().unwrap_or(libc::EINVAL),
            ));
        }
        Ok(())
    }

    fn answer_write(&mut self, to: Attachment, key: RouteKey, mut result: Result<(), OpError>) {
        if self.chance.strikes(self.faults.lose_answer) {
            result = Err(OpError::new(libc::ENOBUFS));
        }
        self.answer(to, Event::Applied(key, result));
    }

    /// Reads the next rows of the dump in progress.
    fn read_rows(&mut self, attachment: Attachment) {
        let Some(queues) = self.attached.get_mut(&attachment) else {
            return;
        };
        let Some(Dump {
            table,
            owner,
            after,
            cut,
        }) = queues.dump.take()
        else {
            return;
        };
        let next = after.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
        let rows = self.routes.range((next, core::ops::Bound::Unbounded));
        let wanted = rows.filter(|(key, route)| {
            key.table == table && owner.is_none_or(|owner| route.owner() == owner)
        });
        let rows: Vec<(RouteKey, Route)> = wanted
            .take(ROWS_AT_ONCE)
            .map(|(key, route)| (*key, self.reported(route)))
            .collect();
        let after = rows.last().map(|(key, _)| *key);
        let cut_now = cut && self.chance.coin();
        for (key, route) in rows {
            self.answer(attachment, Event::DumpRoute(key, route));
        }
        if after.is_none() || cut_now {
            let complete = !cut;
            self.answer(
                attachment,
                Event::DumpDone {
                    table,
                    owner,
                    complete,
                },
            );
        } else if let Some(queues) = self.attached.get_mut(&attachment) {
            queues.dump = Some(Dump {
                table,
                owner,
                after,
                cut,
            });
        }
    }
}

impl RouteKind {
    /// Returns whether the simulated kernel drops packets that match such a route.
    pub fn drops(self) -> bool {
        matches!(self, Self::Blackhole | Self::Unreachable | Self::Prohibit)
    }
}
