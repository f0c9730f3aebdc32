//! Endpoints whose interface does not come, and interfaces that no endpoint claims.

use std::collections::BTreeMap;

use fib_sync::Instant;
use tracing::warn;

use super::core::Agent;
use crate::calc::EndpointId;
use crate::limits::UNCLAIMED_NOTICE;

/// What is waited for, on either side, by interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Discovery {
    /// Interfaces that endpoints have.
    arrivals: BTreeMap<String, Arrival>,
    /// Interfaces of ours that no endpoint has. Nothing passes them.
    unclaimed: BTreeMap<String, Unclaimed>,
}

#[derive(Clone, Debug)]
struct Arrival {
    endpoint: EndpointId,
    state: Coming,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coming {
    Awaited { until: Instant },
    Overdue,
    Came,
}

#[derive(Clone, Copy, Debug)]
struct Unclaimed {
    since: Instant,
    told: bool,
}

impl Discovery {
    /// Whether the interface has not come in the time that it had.
    pub(super) fn is_overdue(&self, interface: &str) -> bool {
        let arrival = self.arrivals.get(interface);
        arrival.is_some_and(|arrival| arrival.state == Coming::Overdue)
    }
}

impl Agent {
    /// An earlier run has seen the endpoint's interface: if it is not there now, its workload has
    /// been stopped.
    pub fn presume_seen(&mut self, id: &EndpointId) {
        let Some(placement) = self.calculator.desired().endpoints.get(id) else {
            return;
        };
        let interface = &placement.endpoint.interface;
        let arrival = self.discovery.arrivals.get_mut(interface);
        if let Some(arrival) = arrival.filter(|arrival| arrival.endpoint == *id) {
            arrival.state = Coming::Came;
            self.due.insert(interface.clone());
        }
    }

    /// Interfaces with one of the prefixes that are no endpoint's, each with the time since when.
    pub fn unclaimed(&self) -> impl Iterator<Item = (&str, Instant)> {
        let unclaimed = self.discovery.unclaimed.iter();
        unclaimed.map(|(name, one)| (name.as_str(), one.since))
    }

    /// Looks who is missing whom. Returns when to look again.
    pub(super) fn discover(&mut self, now: Instant, name: &str) -> Option<Instant> {
        let coming = self.await_interface(now, name);
        coming.or_else(|| self.find_unclaimed(now, name))
    }

    fn await_interface(&mut self, now: Instant, name: &str) -> Option<Instant> {
        let arrivals = &mut self.discovery.arrivals;
        let Some(endpoint) = self.calculator.desired().interfaces.get(name) else {
            arrivals.remove(name);
            return None;
        };
        let until = now + self.config.interface_patience;
        let awaited = || Arrival {
            endpoint: endpoint.id.clone(),
            state: Coming::Awaited { until },
        };
        let arrival = arrivals.entry(name.to_owned()).or_insert_with(awaited);
        if arrival.endpoint != endpoint.id {
            *arrival = awaited();
        }
        match arrival.state {
            Coming::Came => {}
            _ if self.links.named(name).is_some() => arrival.state = Coming::Came,
            Coming::Awaited { until } if until <= now => {
                arrival.state = Coming::Overdue;
                warn!(endpoint = %endpoint.id, interface = name, "the interface has not come");
            }
            Coming::Awaited { until } => return Some(until),
            Coming::Overdue => {}
        }
        None
    }

    fn find_unclaimed(&mut self, now: Instant, name: &str) -> Option<Instant> {
        let desired = self.calculator.desired();
        let is_unclaimed = self.links.named(name).is_some()
            && desired.settings.is_workload_interface(name)
            && !desired.interfaces.contains_key(name);
        let all = &mut self.discovery.unclaimed;
        if !is_unclaimed {
            all.remove(name);
            return None;
        }
        let new = Unclaimed {
            since: now,
            told: false,
        };
        let one = all.entry(name.to_owned()).or_insert(new);
        let at = one.since + UNCLAIMED_NOTICE;
        if one.told || now < at {
            return (!one.told).then_some(at);
        }
        one.told = true;
        warn!(
            interface = name,
            "no endpoint claims the interface; nothing passes it"
        );
        None
    }
}
