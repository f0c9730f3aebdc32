//! The agent's state, for reports.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calico_model::{EndpointState, EndpointStatus};
use calico_store::Unready;
use daemon_common::report::FelixFigures;
use fib_sync::{FibSummary, FibView, Instant, Notice, Reconciler, Route, RouteKey};

use super::core::Agent;
use super::links::is_up;
use super::retry::Retry;
use super::rules::Closings;
use crate::calc::{Calculator, Desired, EndpointId, Listening, Placement, Settings};
use crate::render::{PacketLog, Ruleset};

/// The status of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointView<'a> {
    /// Its id.
    pub id: &'a EndpointId,
    /// Its desired state.
    pub placement: &'a Placement,
    /// Index of its interface, if that exists.
    pub link: Option<u32>,
    /// `up` if traffic can pass as far as this host controls it; `error` if it is rejected, because
    /// of other stored values or by the kernel, or if its interface does not appear.
    pub state: EndpointState,
    /// Why it is not up.
    pub reason: Option<String>,
    /// Why the limits of its bandwidth are not in effect.
    pub unlimited: Option<String>,
}

impl EndpointView<'_> {
    /// Returns its problem: why it is not up, or else the effect of a missing profile, or a rejected limit
    /// of its bandwidth.
    pub fn problem(&self) -> Option<String> {
        let missing = || self.placement.missing.clone();
        let reason = self.reason.clone().or_else(missing);
        reason.or_else(|| self.unlimited.clone())
    }

    /// Returns the status for the datastore. Errors and missing objects have a reason: an endpoint
    /// that is merely down has no fault.
    pub fn reported(&self) -> EndpointStatus {
        let is_down = self.state == EndpointState::Down;
        EndpointStatus {
            status: self.state,
            reason: self.problem().filter(|_| !is_down),
        }
    }
}

/// A condition that an agent still waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The datastore has not been read in full.
    Store,
    /// The datastore must not be applied.
    StoreReady(Unready),
    /// The packet filter is not in effect.
    Rules(Option<String>),
    /// The host does not forward.
    Host(String),
    /// A VXLAN device or an entry of it is missing.
    Overlay(String),
    /// The routing table is not in sync.
    Routes,
    /// The routes of deleted endpoints are being withdrawn.
    Withdrawal(usize),
}

impl Agent {
    /// Returns the next event of the routing table for the log; call it after each
    /// [`poll_command`](Self::poll_command).
    pub(crate) fn poll_notice(&mut self) -> Option<Notice> {
        self.routes.poll_notice()
    }

    /// Returns the reconciler of the routes, for events of single routes.
    pub(crate) const fn reconciler(&self) -> &Reconciler {
        self.routes.reconciler()
    }

    /// Returns the stored values, for explanations.
    pub(crate) const fn calculator(&self) -> &Calculator {
        &self.calculator
    }

    /// Returns whether the settings enable the flow log.
    pub(crate) fn wants_flow_log(&self) -> bool {
        self.calculator.wants_flow_log()
    }

    /// Sets the packet log to which rules report, while the flow log is on.
    pub(crate) fn set_flows(&mut self, log: Option<PacketLog>) {
        self.calculator.set_flows(log);
    }

    /// Returns the desired state.
    pub(crate) const fn desired(&self) -> &Desired {
        self.calculator.desired()
    }

    /// Returns whether the datastore has been read in full.
    pub(crate) const fn is_store_in_sync(&self) -> bool {
        self.trust.is_in_sync()
    }

    /// Returns whether the host is being brought into the desired state: the datastore was read in
    /// full, and may be applied.
    pub(crate) const fn is_active(&self) -> bool {
        self.trust.is_applied()
    }

    /// Returns whether the time for interfaces to come up after the first full read is over: an
    /// interface that is not up now is not down because of the start.
    pub(crate) fn is_settled(&self) -> bool {
        self.routes.is_settled()
    }

    /// Returns the number of reverted foreign changes to the packet filter.
    pub const fn foreign_edits(&self) -> u64 {
        self.rules.foreign_edits()
    }

    /// Returns how often the packet filter of an earlier run was replaced by the one that drops all
    /// workload traffic, and why.
    pub(crate) const fn rules_closings(&self) -> &Closings {
        self.rules.closings()
    }

    /// Returns the number of connections that were cut.
    pub(crate) const fn connections_cut_so_far(&self) -> u64 {
        self.cutting.count()
    }

    /// Returns why connections cannot be cut.
    pub(crate) fn cutting_problem(&self) -> Option<&str> {
        self.cutting.problem()
    }

    /// Returns why the packet filter cannot be compared with the written one.
    pub(crate) fn comparison_problem(&self) -> Option<&str> {
        self.rules.comparison_problem()
    }

    /// Returns the packet filter in effect, for operators.
    pub(crate) const fn filter_in_effect(&self) -> &'static str {
        self.rules.in_effect()
    }

    /// Returns why the packet filter in effect is not the wanted one.
    pub(crate) fn rules_problem(&self) -> Option<&str> {
        self.rules.problem()
    }

    /// Returns the packet filter as this run has written it, or is writing it.
    pub(crate) const fn rules_assumed(&self) -> Option<&Ruleset> {
        self.rules.assumed()
    }

    /// Returns whether the next turn continues the work of this one: it is due after the daemon's
    /// other work. While the host writes rules, the rest of them waits for its answer.
    pub(crate) fn is_under_way(&self, host_writes: bool) -> bool {
        let prepares = self.rules.is_preparing() && !host_writes;
        prepares || self.cutting.is_evaluating() || self.is_calculating()
    }

    /// Returns whether the next turn continues to calculate the changes of the datastore.
    pub(super) fn is_calculating(&self) -> bool {
        let applies = self.trust.must_apply() || self.trust.may_apply();
        applies && self.calculator.is_advancing()
    }

    /// Returns whether the wanted packet filter is in effect.
    pub(crate) fn rules_in_sync(&self) -> bool {
        self.trust.is_applied() && self.rules.in_sync() && !self.is_calculating()
    }

    /// Returns every endpoint of this host.
    pub fn endpoints(&self) -> impl Iterator<Item = EndpointView<'_>> {
        let endpoints = self.desired().endpoints.iter();
        endpoints.map(|(id, placement)| self.view(id, placement))
    }

    /// Returns one endpoint.
    pub fn endpoint(&self, id: &EndpointId) -> Option<EndpointView<'_>> {
        let (id, placement) = self.desired().endpoints.get_key_value(id)?;
        Some(self.view(id, placement))
    }

    /// Returns the endpoints that may have been deleted or have changed their state since the last
    /// call.
    pub(crate) fn take_changed_states(&mut self) -> BTreeSet<EndpointId> {
        std::mem::take(&mut self.changed_states)
    }

    fn view<'a>(&'a self, id: &'a EndpointId, placement: &'a Placement) -> EndpointView<'a> {
        let obstacle = self.obstacle(placement);
        EndpointView {
            id,
            placement,
            link: self
                .links
                .named(&placement.endpoint.interface)
                .map(|link| link.index),
            state: obstacle.as_ref().map_or(EndpointState::Up, |one| one.state),
            reason: obstacle.map(|one| one.reason),
            unlimited: self.bandwidth.problem(&placement.endpoint.interface),
        }
    }

    /// Returns every route wanted or held.
    pub fn routes(&self) -> impl Iterator<Item = FibView<'_>> {
        self.routes.all()
    }

    /// Returns the foreign routes that carry Felix's protocol.
    pub(crate) fn foreign_routes(&self) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.routes.foreign()
    }

    /// Returns the routes in numbers.
    pub fn route_summary(&self) -> FibSummary {
        self.routes.summary()
    }

    /// Returns the name of a link.
    pub(crate) fn link_name(&self, index: u32) -> Option<&str> {
        self.links.name(index)
    }

    /// Returns the interfaces with one of the prefixes and without an endpoint, each with the time
    /// since when.
    pub fn unclaimed(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.discovery.unclaimed()
    }

    /// Returns the unmet conditions of the desired state.
    pub fn waiting_for(&self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        if let Some(why) = self.trust.unready() {
            waiting.push(Waiting::StoreReady(why));
        } else if !self.trust.is_in_sync() {
            waiting.push(Waiting::Store);
        }
        if !self.rules_in_sync() {
            waiting.push(Waiting::Rules(self.rules_problem().map(str::to_owned)));
        }
        if let Some(reason) = self.router.problem() {
            waiting.push(Waiting::Host(reason.to_owned()));
        }
        if let Some(reason) = self.overlay.problem() {
            waiting.push(Waiting::Overlay(reason));
        }
        if !self.routes.in_sync() {
            waiting.push(Waiting::Routes);
        }
        if self.departures.len() > 0 {
            waiting.push(Waiting::Withdrawal(self.departures.len()));
        }
        waiting
    }

    /// Returns the values of Calico's metrics that the agent has.
    pub(crate) fn figures(&self) -> FelixFigures {
        let mut figures = self.calculator.figures();
        figures.int_dataplane_failures = self.rules.failures() + self.route_summary().refused;
        if let Some(rules) = self.rules_assumed() {
            figures.nft_chains = rules.chains.len() as u64;
            figures.nft_rules = rules.rules() as u64;
            figures.nft_sets = rules.sets.len() as u64;
            let of = |prefix: &str| {
                let names = rules.sets.keys();
                names.filter(|name| name.starts_with(prefix)).count() as u64
            };
            figures.ipsets_calico = ["cali40", "cali60"].map(of);
        }
        figures
    }

    /// Returns what the kernel refuses of the whole host, of the overlay or of routes, each in one line.
    pub(crate) fn failures(&self) -> Vec<String> {
        let filter = self.rules_problem();
        let filter = filter.map(|reason| format!("the packet filter: {reason}"));
        let host = self.router.problem();
        let host = host.map(|reason| format!("the host to forward: {reason}"));
        let route = self.routes.first_refused().map(|(count, address, why)| {
            format!("routes that the kernel refuses: {count}, such as {address}: {why}")
        });
        let overlay = self.overlay.refused();
        let overlay = overlay.map(|reason| format!("the overlay: {reason}"));
        let all = [filter, host, overlay, route];
        all.into_iter().flatten().collect()
    }

    /// Returns the host endpoints of this host: each name, and whether it is automatic.
    pub(crate) fn host_endpoints(&self) -> impl Iterator<Item = (&str, bool)> {
        self.calculator.host_endpoints()
    }

    /// Returns the sockets of the settings in effect. Before any data of the datastore is applied, they
    /// are those of this host itself.
    pub(crate) fn listening(&self) -> Listening {
        match self.trust.is_applied() {
            true => self.desired().settings.listening.clone(),
            false => Settings::new(&self.config.settings).listening,
        }
    }

    /// Returns what prevents an endpoint from being up.
    fn obstacle(&self, placement: &Placement) -> Option<Obstacle> {
        if let Some(reason) = &placement.denied {
            return Some(Obstacle::refused(true, reason.clone()));
        }
        let endpoint = &placement.endpoint;
        let name = &endpoint.interface;
        let Some(link) = self.links.named(name) else {
            return Some(match self.discovery.is_overdue(name) {
                true => {
                    let seconds = self.config.interface_patience.as_secs();
                    let reason = format!("interface {name} has not appeared within {seconds} s");
                    Obstacle::refused(true, reason)
                }
                false => Obstacle::down(format!("interface {name} does not exist")),
            });
        };
        if !is_up(link) {
            let what = if link.up { "has no carrier" } else { "is down" };
            return Some(Obstacle::down(format!("interface {name} {what}")));
        }
        let configured = self.interfaces.configured(name);
        if let Some((retry, reason)) = configured.and_then(|retry| Some((retry, retry.reason()?))) {
            let reason = format!("interface {name} is not configured: {reason}");
            return Some(Obstacle::refused(retry.is_lasting(), reason));
        }
        if !configured.is_some_and(Retry::is_done) {
            let reason = format!("interface {name} is not configured yet");
            return Some(Obstacle::down(reason));
        }
        let all = || endpoint.addresses.iter();
        let missing = all().filter_map(|address| self.route_obstacle(name, *address));
        let unknown = all().filter_map(|address| self.neighbor_obstacle(link.index, *address));
        // An error is more specific than a missing object.
        let (mut errors, mut waits) = missing
            .chain(unknown)
            .partition::<Vec<_>, _>(Obstacle::is_error);
        errors.append(&mut waits);
        errors.into_iter().next()
    }

    fn route_obstacle(&self, interface: &str, address: IpAddr) -> Option<Obstacle> {
        if !self.routes.is_wanted(interface, address, None) {
            if self.resting.contains(&address) {
                let reason = format!("the connections that {address} had are being forgotten");
                return Some(Obstacle::down(reason));
            }
            let reason = self.rules_problem().unwrap_or("not written yet");
            let reason = format!("no route to {address}: packet filter {reason}");
            return Some(Obstacle::refused(self.rules.is_refused(), reason));
        }
        if let Some(why) = self.routes.refused(address) {
            let reason = format!("route to {address} is refused: {why}");
            return Some(Obstacle::refused(true, reason));
        }
        let is_there = self.routes.is_installed(address);
        (!is_there).then(|| Obstacle::down(format!("route to {address} is pending")))
    }

    fn neighbor_obstacle(&self, interface: u32, address: IpAddr) -> Option<Obstacle> {
        let put = self.neighbors.state(interface, address)?;
        if let Some(reason) = put.reason() {
            let reason = format!("neighbor entry of {address} is refused: {reason}");
            return Some(Obstacle::refused(put.is_lasting(), reason));
        }
        let is_there = put.is_done();
        (!is_there).then(|| Obstacle::down(format!("neighbor entry of {address} is pending")))
    }
}

/// The condition that prevents an endpoint from being up.
struct Obstacle {
    state: EndpointState,
    reason: String,
}

impl Obstacle {
    fn down(reason: String) -> Self {
        let state = EndpointState::Down;
        Self { state, reason }
    }

    fn refused(lasting: bool, reason: String) -> Self {
        match lasting {
            true => Self {
                state: EndpointState::Error,
                reason,
            },
            false => Self::down(reason),
        }
    }

    fn is_error(&self) -> bool {
        self.state == EndpointState::Error
    }
}
