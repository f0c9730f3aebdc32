//! The agent: one turn after the other from what is to what should be.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use calico_store::Unready;
use daemon_common::events::{Event as Reported, Text, emit};
use fib_sync::{Command, Event, Instant, Link, Notice};
use tracing::debug;

use super::agenda::Agenda;
use super::config::AgentConfig;
use super::discovery::Discovery;
use super::host::{GATEWAY_IPV4, GATEWAY_IPV6, HostCommand, HostEvent, Orders};
use super::interfaces::Interfaces;
use super::links::{Links, is_up};
use super::neighbors::Neighbors;
use super::router::Router;
use super::routes::RouteSync;
use super::rules::RuleSync;
use super::trust::{News, Trust};
use crate::calc::{Calculator, Endpoint, EndpointId, Problem};
use crate::render::{Frame, Key, RuleInputs, Ruleset, floating, render, source};

/// The agent of one host.
///
/// Feed it with [`change`](Self::change), [`handle`](Self::handle) and
/// [`handle_host`](Self::handle_host), then let it [`turn`](Self::turn) and hand every command of
/// [`poll_host_command`](Self::poll_host_command) to the host, and then every command of
/// [`poll_command`](Self::poll_command) to the kernel's routing table; again when an event or
/// [`poll_timeout`](Self::poll_timeout) has come. Nothing in it waits for anything.
#[derive(Debug)]
pub struct Agent {
    pub(super) config: AgentConfig,
    pub(super) calculator: Calculator,
    pub(super) trust: Trust,
    /// How much is looked at in the next turn.
    scope: Scope,
    agenda: Agenda,
    /// Endpoints whose state may be another than at the last [`take_untold`](Self::take_untold).
    pub(super) untold: BTreeSet<EndpointId>,
    /// Addresses that left, and whose connections are not forgotten yet. Nobody gets one before: a new
    /// holder inherits no connection, and has none of its own cut.
    pub(super) resting: BTreeSet<IpAddr>,
    pub(super) links: Links,
    pub(super) interfaces: Interfaces,
    pub(super) neighbors: Neighbors,
    pub(super) discovery: Discovery,
    pub(super) rules: RuleSync,
    pub(super) routes: RouteSync,
    pub(super) router: Router,
    orders: Orders,
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// What is on the agenda.
    Agenda,
    /// Everything.
    All,
}

impl Agent {
    /// Returns an agent that knows nothing yet.
    pub fn new(now: Instant, config: AgentConfig) -> Self {
        let calculator = Calculator::new(&*config.hostname, Some(config.settings.clone()))
            .with_control_exceptions(config.control_port_exceptions.clone())
            .with_policed_host(config.police_host_traffic);
        Self {
            trust: Trust::new(),
            scope: Scope::All,
            agenda: Agenda::default(),
            untold: BTreeSet::new(),
            resting: BTreeSet::new(),
            links: Links::default(),
            interfaces: Interfaces::default(),
            neighbors: Neighbors::default(),
            discovery: Discovery::default(),
            rules: RuleSync::new(now),
            routes: RouteSync::new(now, &config),
            router: Router::new(now),
            orders: Orders::default(),
            calculator,
            config,
        }
    }

    /// Returns the next event of the routing table for the log; ask after each
    /// [`poll_command`](Self::poll_command).
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.routes.poll_notice()
    }

    /// Takes note that the store's `key` holds `value` now, or nothing.
    pub fn change(&mut self, key: &str, value: Option<&[u8]>) {
        if let Some(problem) = self.calculator.change(key, value) {
            let reason = Text::new(problem);
            emit(Reported::DatastoreValueRejected { reason });
        }
    }

    /// Takes over what a running agent can take of another configuration: settings, exceptions from the
    /// guard, whether traffic of the host meets policies, and the patience with interfaces.
    pub fn reconfigure(&mut self, config: &AgentConfig) {
        let (settings, police) = (&config.settings, config.police_host_traffic);
        if self.config.settings.interface_prefix != settings.interface_prefix {
            self.rules.reconfigure();
        }
        let exceptions = config.control_port_exceptions.clone();
        self.calculator
            .reconfigure(settings.clone(), exceptions, police);
        self.config = AgentConfig {
            hostname: self.config.hostname.clone(),
            route_protocol: self.config.route_protocol,
            endpoint_metric: self.config.endpoint_metric,
            table: self.config.table,
            route_refresh: self.config.route_refresh,
            ..config.clone()
        };
        self.scope = Scope::All;
    }

    /// Returns the configuration that is in effect.
    pub const fn config(&self) -> &AgentConfig {
        &self.config
    }

    /// Takes the addresses at which this host finds the datastore.
    pub fn datastore_at(&mut self, at: BTreeSet<SocketAddr>) {
        self.calculator.datastore_at(at);
    }

    /// Notes that the datastore has been read in full: what it does not hold is not there.
    pub fn store_in_sync(&mut self) {
        self.scope = Scope::All;
        self.trust.take(News::InSync);
    }

    /// Notes that the datastore is away, or another one is read in its place: what it holds counts
    /// again when it was read in full.
    pub fn store_unread(&mut self) {
        // What was read in full counts, although what comes next may be a part.
        if self.trust.must_apply() {
            self.apply();
        }
        self.trust.take(News::Partial);
    }

    /// Notes that the datastore is there, and why it may not be applied.
    pub fn store_unready(&mut self, why: Unready) {
        self.store_unread();
        self.trust.refuse(why);
    }

    /// Notes that the snapshot of an earlier run has been read. The host is brought up with it, but
    /// nothing is taken away: what it does not hold may be there all the same.
    pub fn store_restored(&mut self) {
        match self.trust.take(News::Snapshot) {
            true => self.scope = Scope::All,
            false => debug!("snapshot ignored: something newer was read"),
        }
    }

    /// Takes note of a kernel event.
    pub fn handle(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Link(link) => self.link(link),
            Event::LinkGone(index) => {
                self.forget_setup(*index);
                self.neighbors.drop_interface(*index);
                self.links.remove(*index);
            }
            Event::AddressGone(gone) if gone.address.addr() == IpAddr::V6(GATEWAY_IPV6) => {
                self.forget_setup(gone.interface);
            }
            Event::AddressGone(gone) if gone.address.addr() == IpAddr::V4(GATEWAY_IPV4) => {
                self.router.doubt();
            }
            Event::Overrun => {
                // An interface may have been down and up again, bare of what it had.
                self.interfaces.doubt();
                self.neighbors.doubt();
                self.scope = Scope::All;
            }
            _ => {}
        }
        self.routes.handle(now, event);
    }

    /// Takes note of what became of a command for the host.
    pub fn handle_host(&mut self, now: Instant, command: u64, event: HostEvent) {
        if !matches!(event, HostEvent::Forgotten(_)) {
            self.orders.answered();
        }
        match event {
            HostEvent::Forgotten(addresses) => self.release(&addresses),
            HostEvent::HostConfigured(outcome) => self.router.answer(now, command, outcome),
            HostEvent::InterfaceConfigured(index, outcome) => {
                if let Some(link) = self.links.at(index) {
                    let endpoint = self.calculator.desired().interfaces.get(&link.name);
                    let id = endpoint.map(|endpoint| &endpoint.id);
                    self.interfaces.answer(now, command, link, id, outcome);
                    self.agenda.add(&link.name);
                }
            }
            HostEvent::NeighborsListed(found) => {
                let listed = self.neighbors.listed(now, command, found);
                let names = listed
                    .into_iter()
                    .filter_map(|index| self.links.name(index));
                self.agenda.extend(names);
                self.agenda.extend(self.interfaces.names());
            }
            HostEvent::NeighborPut(neighbor, outcome) => {
                let name = self.links.name(neighbor.interface).unwrap_or_default();
                let neighbors = &mut self.neighbors;
                if neighbors.answer(now, command, &neighbor, name, outcome) {
                    self.agenda.add(name);
                }
            }
            HostEvent::NeighborDeleted(neighbor, outcome) => {
                if let Err(reason) = outcome {
                    let address = neighbor.address;
                    let reason = Text::new(reason);
                    emit(Reported::InterfaceNeighborStays { address, reason });
                }
            }
            event => {
                let waited = self.rules.answer(now, command, event, &mut self.orders);
                self.agenda.extend(waited);
            }
        }
    }

    /// Orders all that is due. What fails is tried again later.
    pub fn turn(&mut self, now: Instant) {
        self.rules.check(now, &mut self.orders);
        self.recalculate();
        if !self.acts() {
            let settings = || self.calculator.settings();
            let closed = || closed(settings().interface_prefixes);
            self.rules.guard(now, closed, &mut self.orders);
            return;
        }
        self.neighbors.adopt(now, &mut self.orders);
        let due = self.agenda.take(now);
        for name in &due {
            self.withdraw(name);
        }
        if !self.keeps_rules() {
            let withheld = self.resting_sources();
            let wanted = self.calculator.desired().rules();
            self.rules.write(now, wanted, withheld, &mut self.orders);
        }
        let ipv6 = self.calculator.desired().settings.ipv6;
        self.router.configure(now, ipv6, &mut self.orders);
        for name in &due {
            match self.orders.is_full() {
                true => self.agenda.add(name),
                false => self.set_up(now, name),
            }
        }
        self.note_routes();
        if self.trust.is_in_sync() {
            self.routes.end_grace(now);
        }
    }

    /// Returns the next command for the host, and its number.
    pub fn poll_host_command(&mut self) -> Option<(u64, HostCommand)> {
        self.orders.pop()
    }

    /// Returns the next command for the kernel's routing table.
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        self.routes.poll_command(now)
    }

    /// Returns when to [`turn`](Self::turn) although nothing happened.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let always = [self.rules.timeout(), self.routes.timeout()];
        let acting = [
            self.neighbors.timeout(),
            self.agenda.next(),
            Some(self.router.timeout()),
        ];
        let acting = acting.into_iter().filter(|_| self.acts());
        always.into_iter().chain(acting).flatten().min()
    }

    /// Whether interfaces are set up: something was read, and some filter guards the workloads where it
    /// was a snapshot.
    const fn acts(&self) -> bool {
        self.trust.is_applied() && (!self.trust.is_provisional() || self.rules.guards())
    }

    /// Notes that an earlier run has seen the endpoint's interface: if it is not there now, its
    /// workload has been stopped.
    pub fn presume_seen(&mut self, id: &EndpointId) {
        if let Some(placement) = self.calculator.desired().endpoints.get(id) {
            let interface = &placement.endpoint.interface;
            if self.discovery.presume_seen(interface, id) {
                self.agenda.add(interface);
            }
        }
    }

    fn link(&mut self, link: &Link) {
        let old = self.links.name(link.index);
        let renamed = old.is_some_and(|old| old != link.name);
        if renamed || !is_up(link) {
            self.forget_setup(link.index);
        }
        if !is_up(link) {
            // The kernel drops addresses and entries of a link that goes down.
            self.neighbors.drop_interface(link.index);
        }
        self.links.put(link);
        self.agenda.add(&link.name);
    }

    /// What was done to the interface of this index is void.
    fn forget_setup(&mut self, index: u32) {
        if let Some(name) = self.links.name(index) {
            self.interfaces.forget(name, index);
            self.agenda.add(name);
        }
    }

    /// Applies what was read, and looks at everything if that is asked for.
    fn recalculate(&mut self) {
        // A store that is being read again, or for the first time since a snapshot, leaves what was
        // desired before in force.
        let is_news = self.scope == Scope::All || self.calculator.has_news();
        if self.trust.must_apply() || (self.trust.may_apply() && is_news) {
            self.apply();
        }
        if self.trust.is_applied() && self.scope == Scope::All {
            self.scope = Scope::Agenda;
            let desired = self.calculator.desired();
            self.agenda.extend(desired.interfaces.keys());
            self.agenda.extend(self.routes.interfaces());
            self.agenda.extend(self.interfaces.names());
            self.agenda.extend(self.links.names());
            self.untold.extend(desired.endpoints.keys().cloned());
        }
    }

    /// Brings what is desired up to date. The connections of addresses that are gone or have moved are
    /// to be forgotten.
    fn apply(&mut self) {
        let settled = self.calculator.settle();
        self.trust.take(News::Applied);
        self.rules.touch(settled.rules);
        self.agenda.extend(settled.interfaces);
        self.untold.extend(settled.endpoints);
        if settled.settings {
            self.scope = Scope::All;
        }
        for Problem { key, field, reason } in settled.unsupported {
            emit(Reported::DatastoreFault {
                key: Text::new(key),
                field: Text::new(field),
                reason: Text::new(reason),
            });
        }
        if !settled.left.is_empty() {
            self.resting.extend(&settled.left);
            self.orders.push(HostCommand::Forget(settled.left));
        }
    }

    /// Gives addresses whose connections are forgotten to their new holders.
    fn release(&mut self, addresses: &BTreeSet<IpAddr>) {
        for address in addresses {
            self.resting.remove(address);
            let holder = self.calculator.desired().routes.get(address);
            self.agenda.extend(holder);
        }
    }

    /// Takes away at once what is not wanted any more on an interface.
    fn withdraw(&mut self, name: &str) {
        let desired = self.calculator.desired();
        let up = self.links.up(name);
        self.routes.withdraw(name, |address, index| {
            let is_wanted = desired.routes.get(&address).is_some_and(|on| on == name);
            is_wanted && up == Some(index)
        });
        let endpoint = desired.interfaces.get(name);
        let index = self.links.named(name).map(|link| link.index);
        self.interfaces
            .keep_only(name, index.filter(|_| endpoint.is_some()));
        // What an earlier run made is not to be removed before the store has been read.
        let Some(index) = index.filter(|_| !self.trust.is_provisional()) else {
            return;
        };
        match self.orders.is_full() {
            true => self.agenda.add(name),
            false if self.neighbors.are_unlisted() => {}
            false => self.neighbors.withdraw(index, endpoint, &mut self.orders),
        }
    }

    /// Whether the rules of an earlier run stay: written again from what it knew, they might lack
    /// those of an endpoint that came last.
    pub(super) const fn keeps_rules(&self) -> bool {
        self.trust.is_provisional() && self.rules.is_inherited()
    }

    /// Returns the elements that let addresses be used which may not be yet.
    fn resting_sources(&self) -> Vec<(&'static str, Key)> {
        let desired = self.calculator.desired();
        let resting = self.resting.iter().filter_map(|address| {
            let name = desired.routes.get(address)?;
            let endpoint = desired.interfaces.get(name)?;
            let own = endpoint.addresses.contains(address);
            own.then(|| source(name, *address))
        });
        resting.collect()
    }

    /// Orders what is due on an interface, and notes when to look at it again.
    fn set_up(&mut self, now: Instant, name: &str) {
        let mut again = Vec::new();
        if let Some(endpoint) = self.calculator.desired().interfaces.get(name).cloned() {
            let (links, orders) = (&self.links, &mut self.orders);
            if let Some(index) = self.interfaces.configure(now, &endpoint, links, orders) {
                if !self.neighbors.are_unlisted() {
                    again.extend(self.neighbors.put(now, index, &endpoint, &mut self.orders));
                }
                self.announce(index, &endpoint);
            }
            self.untold.insert(endpoint.id);
        }
        if self.trust.is_in_sync() {
            let (patience, desired) = (self.config.interface_patience, self.calculator.desired());
            let discovery = &mut self.discovery;
            again.extend(discovery.look(now, name, patience, desired, &self.links));
        }
        again.extend(self.interfaces.timeout(name));
        self.agenda.set(name, again.into_iter().min());
    }

    /// Wants the routes of an endpoint whose interface and rules are in place.
    fn announce(&mut self, index: u32, endpoint: &Endpoint) {
        let name = &endpoint.interface;
        for address in endpoint.routes() {
            if self.routes.is_wanted(name, address, Some(index)) || self.resting.contains(&address)
            {
                continue;
            }
            match self.is_guarded(endpoint, address) {
                true => self.routes.want(name, index, address),
                false => self.rules.wait(name),
            }
        }
    }

    /// Whether the rules in force let the address be used on its interface.
    fn is_guarded(&self, endpoint: &Endpoint, address: IpAddr) -> bool {
        if self.keeps_rules() {
            // If they hold nothing for it, nothing passes.
            return true;
        }
        let (set, key) = match endpoint.addresses.contains(&address) {
            true => source(&endpoint.interface, address),
            false => (floating(address), Key::Address(address)),
        };
        self.rules.has(set, &key)
    }

    /// Notes the endpoints whose routes may be otherwise than before.
    fn note_routes(&mut self) {
        let desired = self.calculator.desired();
        let looked_at = self.routes.settle(|address| desired.routes.get(&address));
        let endpoints = looked_at
            .into_iter()
            .filter_map(|name| desired.interfaces.get(name));
        self.untold
            .extend(endpoints.map(|endpoint| endpoint.id.clone()));
    }
}

/// Returns the filter that drops all traffic of workloads. Tunnels to the host are not asked about: no
/// node is known yet, and the way to the store may be a tunnel.
fn closed(interface_prefixes: Vec<String>) -> Ruleset {
    render(&RuleInputs {
        frame: Frame {
            interface_prefixes,
            ..Frame::default()
        },
        ..RuleInputs::default()
    })
}
