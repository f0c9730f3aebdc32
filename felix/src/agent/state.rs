//! What an agent can tell of itself.

use std::net::IpAddr;

use fib_sync::{FibStatus, FibSummary, FibView};
use model::EndpointState;

use super::core::{Agent, GRACE_OVER};
use super::interface::is_up;
use crate::calc::{Desired, EndpointId, Placement};

/// How one endpoint fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointView<'a> {
    /// Its id.
    pub id: &'a EndpointId,
    /// What the store says of it.
    pub placement: &'a Placement,
    /// `up` if traffic can pass as far as this host has a say; `error` if it cannot ever, as things
    /// are in the store.
    pub state: EndpointState,
    /// Why it is not up.
    pub reason: Option<String>,
}

impl EndpointView<'_> {
    /// The state to report into the store: as in Calico, an error is of host endpoints only.
    pub const fn reported(&self) -> EndpointState {
        match self.state {
            EndpointState::Up => EndpointState::Up,
            EndpointState::Down | EndpointState::Error => EndpointState::Down,
        }
    }
}

/// What an agent still waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The store has not been read in full.
    Store,
    /// The store is not to be acted upon (`datastoreReady` is false, or its ClusterInformation is gone).
    StoreNotReady,
    /// The packet filter is not in force.
    Rules(Option<String>),
    /// The host does not forward.
    Host(String),
    /// The routing table is not in step.
    Routes,
}

impl Agent {
    /// What should be.
    pub const fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Whether the store has been read in full.
    pub const fn is_store_in_sync(&self) -> bool {
        self.in_sync
    }

    /// Whether the host is being brought into the state that the store asks for: the store was
    /// read in full, and may be acted upon.
    pub const fn is_active(&self) -> bool {
        self.active
    }

    /// Whether the time is over that interfaces were given to come up since the store was first
    /// read in full: what is not up now was not left so by the start.
    pub fn is_settled(&self) -> bool {
        self.grace == Some(GRACE_OVER)
    }

    /// How often a foreign change to the packet filter was undone.
    pub const fn foreign_edits(&self) -> u64 {
        self.foreign_edits
    }

    /// Why the packet filter in force is not the wanted one.
    pub fn rules_problem(&self) -> Option<&str> {
        self.rules_written.reason()
    }

    /// Whether the wanted packet filter is in force.
    pub fn rules_in_sync(&self) -> bool {
        self.active && self.rules == self.desired.rules
    }

    /// Every endpoint of this host.
    pub fn endpoints(&self) -> impl Iterator<Item = EndpointView<'_>> {
        self.desired.endpoints.iter().map(|(id, placement)| {
            let reason = self.obstacle(placement);
            EndpointView {
                id,
                placement,
                state: match (&reason, &placement.denied) {
                    (None, _) => EndpointState::Up,
                    (Some(_), None) => EndpointState::Down,
                    (Some(_), Some(_)) => EndpointState::Error,
                },
                reason,
            }
        })
    }

    /// Every route wanted or held.
    pub fn routes(&self) -> impl Iterator<Item = FibView<'_>> {
        self.reconciler.routes()
    }

    /// The routes in numbers.
    pub fn route_summary(&self) -> FibSummary {
        self.reconciler.summary()
    }

    /// The name of a link.
    pub fn link_name(&self, index: u32) -> Option<&str> {
        self.links.at(index).map(|link| link.name.as_str())
    }

    /// What is still missing before all is as it should be.
    pub fn waiting_for(&self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        if !self.in_sync {
            waiting.push(Waiting::Store);
        } else if !self.calculator.store_ready() {
            waiting.push(Waiting::StoreNotReady);
        }
        if !self.rules_in_sync() {
            waiting.push(Waiting::Rules(self.rules_problem().map(str::to_owned)));
        }
        if let Some(reason) = self.host_configured.reason() {
            waiting.push(Waiting::Host(reason.to_owned()));
        }
        if !self.reconciler.in_sync() {
            waiting.push(Waiting::Routes);
        }
        waiting
    }

    fn obstacle(&self, placement: &Placement) -> Option<String> {
        if let Some(reason) = &placement.denied {
            return Some(reason.clone());
        }
        let endpoint = &placement.endpoint;
        let name = &endpoint.interface;
        let Some(link) = self.links.named(name) else {
            return Some(format!("interface {name} does not exist"));
        };
        if !is_up(link) {
            let what = if link.up { "has no carrier" } else { "is down" };
            return Some(format!("interface {name} {what}"));
        }
        let setup = self.setups.get(name);
        if let Some(reason) = setup.and_then(|setup| setup.configured.reason()) {
            return Some(format!("interface {name} is not configured: {reason}"));
        }
        if !setup.is_some_and(|setup| setup.configured.is_done()) {
            return Some(format!("interface {name} is not configured yet"));
        }
        endpoint
            .addresses
            .iter()
            .find_map(|address| self.route_obstacle(*address))
    }

    fn route_obstacle(&self, address: IpAddr) -> Option<String> {
        if !self.routed.contains_key(&address) {
            let reason = self.rules_problem().unwrap_or("not written yet");
            return Some(format!("no route to {address}: packet filter {reason}"));
        }
        let view = self.reconciler.lookup(&self.route_key(address))?;
        match view.status {
            FibStatus::Acked => None,
            FibStatus::Wanted | FibStatus::Sent => {
                Some(format!("route to {address} is on its way"))
            }
            status => Some(format!("route to {address}: {status}")),
        }
    }
}
