//! Endpoints whose interface does not come, and interfaces that no endpoint claims.

use std::collections::BTreeMap;

use fib_sync::Instant;
use tracing::warn;

use super::core::Agent;
use super::interface::Links;
use crate::calc::EndpointId;
use crate::limits::UNCLAIMED_NOTICE;

/// What is waited for, on either side.
#[derive(Clone, Debug, Default)]
pub(super) struct Discovery {
    arrivals: BTreeMap<EndpointId, Arrival>,
    /// Interfaces of ours, by name. Nothing passes them.
    unclaimed: BTreeMap<String, Unclaimed>,
}

#[derive(Clone, Debug)]
struct Arrival {
    interface: String,
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

impl Arrival {
    fn awaited(interface: &str, links: &Links, until: Instant) -> Self {
        Self {
            interface: interface.to_owned(),
            state: match links.named(interface) {
                Some(_) => Coming::Came,
                None => Coming::Awaited { until },
            },
        }
    }
}

impl Discovery {
    /// Whether the endpoint's interface has not come in the time that it had.
    pub(super) fn is_overdue(&self, id: &EndpointId) -> bool {
        let arrival = self.arrivals.get(id);
        arrival.is_some_and(|arrival| arrival.state == Coming::Overdue)
    }

    /// When there is something to tell although nothing happened.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let overdue = self
            .arrivals
            .values()
            .filter_map(|arrival| match arrival.state {
                Coming::Awaited { until } => Some(until),
                Coming::Overdue | Coming::Came => None,
            });
        let untold = self.unclaimed.values().filter(|one| !one.told);
        overdue
            .chain(untold.map(|one| one.since + UNCLAIMED_NOTICE))
            .min()
    }
}

impl Agent {
    /// An earlier run has seen the endpoint's interface: if it is not there now, its workload has
    /// been stopped.
    pub fn presume_seen(&mut self, id: &EndpointId) {
        if let Some(arrival) = self.discovery.arrivals.get_mut(id) {
            arrival.state = Coming::Came;
        }
    }

    /// Interfaces with one of the prefixes that are no endpoint's, each with the time since when.
    pub fn unclaimed(&self) -> impl Iterator<Item = (&str, Instant)> {
        let unclaimed = self.discovery.unclaimed.iter();
        unclaimed.map(|(name, one)| (name.as_str(), one.since))
    }

    /// Looks who is missing whom.
    pub(super) fn discover(&mut self, now: Instant) {
        self.await_interfaces(now);
        self.find_unclaimed(now);
    }

    fn await_interfaces(&mut self, now: Instant) {
        let (desired, links) = (&self.desired.endpoints, &self.links);
        let arrivals = &mut self.discovery.arrivals;
        let patience = self.config.interface_patience;
        arrivals.retain(|id, arrival| {
            let placement = desired.get(id);
            placement.is_some_and(|placement| placement.endpoint.interface == arrival.interface)
        });
        for (id, placement) in desired {
            let interface = &placement.endpoint.interface;
            if interface.is_empty() {
                // Its value cannot be read.
                continue;
            }
            let Some(arrival) = arrivals.get_mut(id) else {
                let arrival = Arrival::awaited(interface, links, now + patience);
                arrivals.insert(id.clone(), arrival);
                continue;
            };
            match arrival.state {
                Coming::Came => {}
                _ if links.named(interface).is_some() => arrival.state = Coming::Came,
                Coming::Awaited { until } if until <= now => {
                    arrival.state = Coming::Overdue;
                    warn!(endpoint = %id, interface, "the interface has not come");
                }
                Coming::Awaited { .. } | Coming::Overdue => {}
            }
        }
    }

    fn find_unclaimed(&mut self, now: Instant) {
        let desired = &self.desired;
        let links = &self.links;
        let is_unclaimed = |name: &str| {
            desired.settings.is_workload_interface(name) && !desired.interfaces.contains_key(name)
        };
        let unclaimed = &mut self.discovery.unclaimed;
        unclaimed.retain(|name, _| links.named(name).is_some() && is_unclaimed(name));
        for name in links.names().filter(|name| is_unclaimed(name)) {
            if !unclaimed.contains_key(name) {
                let (since, told) = (now, false);
                unclaimed.insert(name.to_owned(), Unclaimed { since, told });
            }
        }
        for (interface, one) in unclaimed {
            if !one.told && one.since + UNCLAIMED_NOTICE <= now {
                one.told = true;
                warn!(
                    interface,
                    "no endpoint claims the interface; nothing passes it"
                );
            }
        }
    }
}
