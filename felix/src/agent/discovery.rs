//! Endpoints without their interface, and interfaces without an endpoint.

use std::collections::BTreeMap;
use std::time::Duration;

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use super::links::Links;
use crate::calc::{Desired, EndpointId};
use crate::limits::UNCLAIMED_NOTICE;

/// Missing interfaces and endpoints, by interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Discovery {
    /// Interfaces of endpoints.
    arrivals: BTreeMap<String, Arrival>,
    /// Workload interfaces without an endpoint. All their traffic is dropped.
    unclaimed: BTreeMap<String, Unclaimed>,
}

#[derive(Clone, Debug)]
struct Arrival {
    endpoint: EndpointId,
    state: Coming,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coming {
    Awaited { since: Instant },
    Overdue { since: Instant },
    Came,
}

#[derive(Clone, Copy, Debug)]
struct Unclaimed {
    since: Instant,
    reported: bool,
}

impl Discovery {
    /// Returns whether the interface has not appeared within its time.
    pub(super) fn is_overdue(&self, interface: &str) -> bool {
        let arrival = self.arrivals.get(interface);
        arrival.is_some_and(|arrival| matches!(arrival.state, Coming::Overdue { .. }))
    }

    /// Records that an earlier run has seen the interface of this endpoint: if it does not exist
    /// now, its workload has been stopped. Returns whether the endpoint's interface is awaited.
    pub(super) fn presume_seen(&mut self, interface: &str, id: &EndpointId) -> bool {
        let arrival = self.arrivals.get_mut(interface);
        let Some(arrival) = arrival.filter(|arrival| arrival.endpoint == *id) else {
            return false;
        };
        arrival.state = Coming::Came;
        true
    }

    /// Returns the interfaces with one of the prefixes and without an endpoint, each with the time
    /// since when.
    pub(super) fn unclaimed(&self) -> impl Iterator<Item = (&str, Instant)> {
        let unclaimed = self.unclaimed.iter();
        unclaimed.map(|(name, one)| (name.as_str(), one.since))
    }

    /// Compares an interface's name with endpoints and links. Returns the time of the next
    /// comparison.
    pub(super) fn look(
        &mut self,
        now: Instant,
        name: &str,
        patience: Duration,
        desired: &Desired,
        links: &Links,
    ) -> Option<Instant> {
        let is_there = links.named(name).is_some();
        let coming = self.await_interface(now, name, patience, desired, is_there);
        coming.or_else(|| self.find_unclaimed(now, name, desired, is_there))
    }

    fn await_interface(
        &mut self,
        now: Instant,
        name: &str,
        patience: Duration,
        desired: &Desired,
        is_there: bool,
    ) -> Option<Instant> {
        let Some(endpoint) = desired.interfaces.get(name) else {
            self.arrivals.remove(name);
            return None;
        };
        let awaited = || Arrival {
            endpoint: endpoint.id.clone(),
            state: Coming::Awaited { since: now },
        };
        let arrivals = &mut self.arrivals;
        let arrival = arrivals.entry(name.to_owned()).or_insert_with(awaited);
        if arrival.endpoint != endpoint.id {
            *arrival = awaited();
        }
        match arrival.state {
            Coming::Came => {}
            _ if is_there => arrival.state = Coming::Came,
            Coming::Awaited { since } if since + patience <= now => {
                arrival.state = Coming::Overdue { since };
            }
            // An overdue interface gets more time if the limit was raised.
            Coming::Awaited { since } | Coming::Overdue { since } if now < since + patience => {
                arrival.state = Coming::Awaited { since };
                return Some(since + patience);
            }
            Coming::Awaited { .. } | Coming::Overdue { .. } => {}
        }
        None
    }

    fn find_unclaimed(
        &mut self,
        now: Instant,
        name: &str,
        desired: &Desired,
        is_there: bool,
    ) -> Option<Instant> {
        let is_unclaimed = is_there
            && desired.settings.is_workload_interface(name)
            && !desired.interfaces.contains_key(name);
        let all = &mut self.unclaimed;
        if !is_unclaimed {
            all.remove(name);
            return None;
        }
        let new = Unclaimed {
            since: now,
            reported: false,
        };
        let one = all.entry(name.to_owned()).or_insert(new);
        let at = one.since + UNCLAIMED_NOTICE;
        if one.reported || now < at {
            return (!one.reported).then_some(at);
        }
        one.reported = true;
        let interface = Text::new(name);
        emit(Event::InterfaceUnclaimed { interface });
        None
    }
}
