//! Nexthop objects of the simulated kernel, and the routes that use them.

use std::collections::BTreeSet;

use super::attachment::Attachment;
use super::kernel::Kernel;
use crate::error::OpError;
use crate::nexthop::{Member, Nexthop, NexthopCommand, NexthopContent, NexthopEvent};
use crate::port::Event;
use crate::route::{Hop, Route, RouteKey};

impl Kernel {
    /// Makes this a kernel with or without nexthop objects; it has them at first.
    pub fn set_nexthops_supported(&mut self, supported: bool) {
        self.nexthops_supported = supported;
    }

    /// Sets `net.ipv4.nexthop_compat_mode`: whether routes over an object are reported with its next
    /// hops. It is on at first.
    pub fn set_nexthop_compat_mode(&mut self, on: bool) {
        self.nexthop_compat = on;
    }

    /// Returns the nexthop objects, in the order of their numbers.
    pub fn nexthops(&self) -> impl Iterator<Item = &Nexthop> {
        self.nexthops.values()
    }

    /// Creates a nexthop object as another program would.
    ///
    /// # Errors
    ///
    /// As the real kernel: the number is taken, a member does not exist, the link has no carrier.
    pub fn add_nexthop(&mut self, nexthop: Nexthop) -> Result<(), OpError> {
        self.create_nexthop(None, nexthop)
    }

    /// Deletes a nexthop object as another program would. Returns whether it existed.
    pub fn delete_nexthop(&mut self, id: u32) -> bool {
        let is_there = self.nexthops.contains_key(&id);
        if is_there {
            self.notify(None, &Event::Nexthop(NexthopEvent::Removed(id)));
            self.remove_nexthop(id, true);
        }
        is_there
    }

    /// Carries out a request of a program.
    pub(super) fn nexthop_command(&mut self, by: Attachment, command: NexthopCommand) {
        let (id, result) = match command {
            NexthopCommand::Dump => return self.dump_nexthops(by),
            NexthopCommand::Create(nexthop) => {
                let id = nexthop.id;
                let allowed = self.allow_nexthop();
                (
                    id,
                    allowed.and_then(|()| self.create_nexthop(Some(by), nexthop)),
                )
            }
            NexthopCommand::Delete(id) => {
                (id, self.allow_nexthop().and_then(|()| self.give_up(by, id)))
            }
        };
        let result = match self.loses_answer() {
            true => Err(OpError::new(libc::ENOBUFS)),
            false => result,
        };
        self.answer(by, Event::Nexthop(NexthopEvent::Applied(id, result)));
    }

    fn give_up(&mut self, by: Attachment, id: u32) -> Result<(), OpError> {
        if !self.nexthops.contains_key(&id) {
            return Err(OpError::new(libc::ENOENT));
        }
        self.notify(Some(by), &Event::Nexthop(NexthopEvent::Removed(id)));
        self.remove_nexthop(id, false);
        Ok(())
    }

    fn dump_nexthops(&mut self, to: Attachment) {
        let supported = self.nexthops_supported;
        let complete = !self.cuts_dump();
        let rows: Vec<Nexthop> = match complete {
            true => self.nexthops.values().cloned().collect(),
            false => Vec::new(),
        };
        for row in rows {
            self.answer(to, Event::Nexthop(NexthopEvent::Row(row)));
        }
        let done = NexthopEvent::DumpDone {
            complete,
            supported,
        };
        self.answer(to, Event::Nexthop(done));
    }

    fn create_nexthop(&mut self, by: Option<Attachment>, new: Nexthop) -> Result<(), OpError> {
        let refused = |errno| Err(OpError::new(errno));
        if !self.nexthops_supported {
            return refused(libc::EOPNOTSUPP);
        }
        if self.nexthops.contains_key(&new.id) {
            return refused(libc::EEXIST);
        }
        match &new.content {
            NexthopContent::Hop(hop) => {
                let stored = self.resolve_hop(hop)?;
                let index = stored.interface.unwrap_or_default();
                if hop.interface.is_none() || !self.links.get(&index).is_some_and(|l| l.running) {
                    return refused(libc::ENETDOWN);
                }
            }
            NexthopContent::Group(members) => {
                let ids: BTreeSet<u32> = members.iter().map(|member| member.id).collect();
                let is_hop = |id: &u32| {
                    let member = self.nexthops.get(id);
                    member.is_some_and(|one| matches!(one.content, NexthopContent::Hop(_)))
                };
                if members.is_empty() || ids.len() != members.len() || !ids.iter().all(is_hop) {
                    return refused(libc::EINVAL);
                }
            }
            NexthopContent::Blackhole | NexthopContent::Other => {}
        }
        self.nexthops.insert(new.id, new.clone());
        self.notify(by, &Event::Nexthop(NexthopEvent::Changed(new)));
        Ok(())
    }

    /// Removes an object from the table and from its groups, and the routes that use it: IPv4 routes
    /// without a notification.
    fn remove_nexthop(&mut self, id: u32, is_reported: bool) {
        let Some(gone) = self.nexthops.remove(&id) else {
            return;
        };
        let over = self
            .routes
            .iter()
            .filter(|(_, route)| route.nexthop == Some(id));
        let keys: Vec<RouteKey> = over.map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(route) = self.routes.remove(&key)
                && key.is_ipv6()
            {
                self.notify(None, &Event::Removed(key, route));
            }
        }
        if !matches!(gone.content, NexthopContent::Hop(_)) {
            return;
        }
        let mut groups = Vec::new();
        for (group, one) in &mut self.nexthops {
            if let NexthopContent::Group(members) = &mut one.content {
                let before = members.len();
                members.retain(|member| member.id != id);
                if members.len() != before {
                    groups.push((*group, members.is_empty()));
                }
            }
        }
        for (group, is_empty) in groups {
            if is_empty {
                self.remove_nexthop(group, is_reported);
                continue;
            }
            self.follow(group);
            if let Some(one) = self.nexthops.get(&group).cloned().filter(|_| is_reported) {
                self.notify(None, &Event::Nexthop(NexthopEvent::Changed(one)));
            }
        }
    }

    /// Gives the routes over a group its present next hops.
    fn follow(&mut self, group: u32) {
        let hops = self.hops_of(group).unwrap_or_default();
        for route in self.routes.values_mut() {
            if route.nexthop == Some(group) {
                route.next_hops.clone_from(&hops);
            }
        }
    }

    /// Returns the next hops of an object.
    fn hops_of(&self, id: u32) -> Option<Vec<Hop>> {
        let hop = |id: u32| match self.nexthops.get(&id)?.content {
            NexthopContent::Hop(hop) => Some(hop.weighted(1)),
            _ => None,
        };
        let mut hops: Vec<Hop> = match &self.nexthops.get(&id)?.content {
            NexthopContent::Group(members) => {
                let weighted = |member: &Member| Some(hop(member.id)?.weighted(member.weight));
                members.iter().map(weighted).collect::<Option<_>>()?
            }
            _ => vec![hop(id)?],
        };
        hops.sort_unstable();
        if let [hop] = hops.as_mut_slice() {
            hop.weight = 1;
        }
        Some(hops)
    }

    /// Returns a route over an object as the kernel stores it.
    pub(super) fn over_nexthop(
        &self,
        key: &RouteKey,
        id: u32,
        route: Route,
    ) -> Result<Route, OpError> {
        let invalid = || OpError::new(libc::EINVAL);
        let next_hops = self.hops_of(id).ok_or_else(invalid)?;
        let is_other = |hop: &Hop| hop.gateway.is_some_and(|gateway| gateway.is_ipv4());
        if key.is_ipv6() && next_hops.iter().any(is_other) {
            return Err(invalid());
        }
        Ok(Route { next_hops, ..route })
    }

    /// Deletes the objects of a link that is down or has no carrier, without a notification.
    pub(super) fn drop_nexthops_over(&mut self, index: u32) {
        let over = self.nexthops.iter().filter(|(_, one)| {
            matches!(one.content, NexthopContent::Hop(hop) if hop.interface == Some(index))
        });
        let over: Vec<u32> = over.map(|(id, _)| *id).collect();
        for id in over {
            self.remove_nexthop(id, false);
        }
    }

    /// Returns a route as it is reported.
    pub(super) fn reported(&self, route: &Route) -> Route {
        let mut route = route.clone();
        if route.nexthop.is_some() && !self.nexthop_compat {
            route.next_hops.clear();
        }
        route
    }
}
