//! The kernel's nexthop objects as they are reported, to find the next hops of a route that names
//! only an object.

use std::collections::BTreeMap;

use super::{NexthopContent, NexthopEvent};
use crate::limits::NEXTHOPS_READ_MAX;
use crate::route::{Hop, Route};

/// All objects of the kernel, whatever their owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The objects, with the round of the dump that saw each.
    all: BTreeMap<u32, (u32, NexthopContent)>,
    round: u32,
}

impl Table {
    /// Records an event.
    pub(crate) fn handle(&mut self, event: &NexthopEvent) {
        match event {
            NexthopEvent::Row(one) | NexthopEvent::Changed(one) => {
                if self.all.len() < NEXTHOPS_READ_MAX || self.all.contains_key(&one.id) {
                    self.all.insert(one.id, (self.round, one.content.clone()));
                }
            }
            NexthopEvent::Removed(id) => drop(self.all.remove(id)),
            NexthopEvent::DumpDone { complete: true, .. } => {
                let round = self.round;
                self.all.retain(|_, (seen, _)| *seen == round);
                self.round = round.wrapping_add(1);
            }
            NexthopEvent::DumpDone { .. } | NexthopEvent::Applied(..) => {}
        }
    }

    /// Completes the next hops of a route that names an object without them, as the kernel reports it
    /// with `net.ipv4.nexthop_compat_mode=0`.
    pub(crate) fn complete(&self, route: &mut Route) {
        let Some(id) = route.nexthop.filter(|_| route.next_hops.is_empty()) else {
            return;
        };
        let one = |id: u32| match self.all.get(&id) {
            Some((_, NexthopContent::Hop(hop))) => Some(*hop),
            _ => None,
        };
        route.next_hops = match self.all.get(&id) {
            Some((_, NexthopContent::Group(members))) => {
                let hops = members.iter().filter_map(|member| {
                    one(member.id).map(|hop: Hop| hop.weighted(member.weight))
                });
                hops.collect()
            }
            _ => one(id).into_iter().collect(),
        };
        route.next_hops.sort_unstable();
    }
}
