//! Endpoints that were deleted from the datastore, and of which the routes are being withdrawn.
//!
//! The packets on their way to an endpoint arrive until the other hosts have lost its route. So its part
//! of the packet filter stays until its marked routes are removed, at most [`LEAVING`].
//!
//! [`LEAVING`]: crate::limits::LEAVING

use std::collections::BTreeMap;
use std::net::IpAddr;

use fib_sync::Instant;

use super::Agent;
use crate::calc::{Endpoint, EndpointId};

/// The deleted endpoints that the calculator still has, by key.
#[derive(Debug, Default)]
pub(in crate::agent) struct Departures(BTreeMap<String, EndpointId>);

impl Departures {
    /// Returns whether an endpoint is one of them.
    pub(in crate::agent) fn has(&self, id: &EndpointId) -> bool {
        self.0.values().any(|one| one == id)
    }

    /// Returns their number.
    pub(in crate::agent) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Agent {
    /// Holds the deletion of an endpoint back while its routes are being withdrawn. Returns whether it does.
    pub(in crate::agent) fn hold(&mut self, key: &str) -> bool {
        if !self.routes.is_answered() || !self.trust.is_in_sync() {
            return false;
        }
        let Some(endpoint) = self.routed(key) else {
            return false;
        };
        let (id, name) = (endpoint.id.clone(), endpoint.interface.clone());
        self.departures.0.insert(key.to_owned(), id);
        self.agenda.add(name);
        true
    }

    /// Ends the departures that a value which was just read ends: of its own key, and of endpoints that
    /// have something which its endpoint needs.
    pub(in crate::agent) fn release_for(&mut self, key: &str) {
        if self.departures.0.is_empty() {
            return;
        }
        let Some(new) = self.calculator.local_endpoint(key) else {
            self.departures.0.remove(key);
            return;
        };
        if self.departures.0.remove(key).is_some() {
            self.agenda.add(new.interface.clone());
        }
        let needed: Vec<IpAddr> = new.routes().collect();
        let shares = |held: &Endpoint| {
            let mut routes = held.routes();
            held.interface == new.interface || routes.any(|address| needed.contains(&address))
        };
        let held = self.departures.0.keys();
        let ended = held.filter(|key| self.calculator.local_endpoint(key).is_none_or(shares));
        let ended: Vec<String> = ended.cloned().collect();
        self.delete(ended);
    }

    /// Removes the marked routes that need not stay, and then their endpoints.
    pub(in crate::agent) fn end_departures(&mut self, now: Instant) {
        let desired = self.calculator.desired();
        self.routes
            .end_leaving(now, |on, address| desired.needs(on, address));
        let held = self.departures.0.keys();
        let ended = held.filter(|key| self.routed(key).is_none());
        let ended: Vec<String> = ended.cloned().collect();
        self.delete(ended);
    }

    fn delete(&mut self, keys: Vec<String>) {
        for key in keys {
            self.departures.0.remove(&key);
            self.calculator.change(&key, None);
        }
    }

    /// Returns the endpoint of a key, with what it has, if the kernel has routes of it.
    fn routed(&self, key: &str) -> Option<&Endpoint> {
        let endpoint = self.calculator.local_endpoint(key)?;
        let held = self
            .calculator
            .desired()
            .interfaces
            .get(&endpoint.interface)?;
        let mut routes = held.routes();
        let is_used = |address| self.routes.is_used(&held.interface, address);
        (held.id == endpoint.id && routes.any(is_used)).then_some(held)
    }
}
