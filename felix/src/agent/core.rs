//! The agent: turns that bring the host from its present to its desired state.

mod departures;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use calico_store::Unready;
use daemon_common::events::{Event as Reported, Text, emit};
use fib_sync::{Command, Event, Instant, Link};
use tracing::debug;

use self::departures::Departures;
use super::agenda::Agenda;
use super::bandwidth::Limits;
use super::config::AgentConfig;
use super::cutting::Cutting;
use super::discovery::Discovery;
use super::host::{Forwarding, GATEWAY_IPV4, GATEWAY_IPV6, HostCommand, Orders};
use super::interfaces::Interfaces;
use super::links::{Links, is_up};
use super::neighbors::Neighbors;
use super::offload::OffloadSync;
use super::overlay::{Around, OverlaySync};
use super::router::Router;
use super::routes::RouteSync;
use super::rules::{RuleSync, closed};
use super::trust::{News, Trust};
use crate::calc::{Bandwidth, BgpPorts, Calculator, Endpoint, EndpointId, Problem};
use crate::limits::INHERITANCE_TURNS_MAX;
use crate::render::{Key, TO_HOST, floating, guards_ipip, source};

/// The agent of one host.
///
/// Feed it with [`change`](Self::change), [`handle`](Self::handle) and
/// [`handle_host`](Self::handle_host), then let it [`turn`](Self::turn) and hand every command of
/// [`poll_host_command`](Self::poll_host_command) to the host, and then every command of
/// [`poll_command`](Self::poll_command) to the kernel's routing table; again after an event and at
/// the time of [`poll_timeout`](Self::poll_timeout). No method blocks.
#[derive(Debug)]
pub struct Agent {
    pub(super) config: AgentConfig,
    pub(super) calculator: Calculator,
    pub(super) trust: Trust,
    /// Turns in a row after which endpoints are still to inherit labels.
    unfinished_turns: u32,
    /// The scope of the next turn.
    scope: Scope,
    pub(super) agenda: Agenda,
    /// Endpoints of which the state may have changed since the last
    /// [`take_changed_states`](Self::take_changed_states).
    pub(super) changed_states: BTreeSet<EndpointId>,
    /// Released addresses with connections that are not yet deleted. No endpoint gets such an
    /// address before, so that a new holder inherits no connection and loses none of its own.
    pub(super) resting: BTreeSet<IpAddr>,
    /// Deleted endpoints of which the routes are being withdrawn.
    pub(super) departures: Departures,
    pub(super) links: Links,
    pub(super) interfaces: Interfaces,
    pub(super) bandwidth: Limits,
    pub(super) neighbors: Neighbors,
    pub(super) discovery: Discovery,
    pub(super) rules: RuleSync,
    pub(super) routes: RouteSync,
    pub(super) router: Router,
    pub(super) overlay: OverlaySync,
    pub(super) cutting: Cutting,
    pub(super) offload: OffloadSync,
    pub(super) orders: Orders,
    /// The kernel has once had all rules and routes of a datastore that was read in full.
    was_programmed: bool,
}

/// The scope of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The interfaces on the agenda.
    Agenda,
    /// Everything.
    All,
}

impl Agent {
    /// Returns an agent without any knowledge.
    pub fn new(now: Instant, config: AgentConfig) -> Self {
        let mut calculator = Calculator::new(&*config.hostname, Some(config.settings.clone()))
            .with_control_exceptions(config.control_port_exceptions.clone())
            .with_policed_host(config.police_host_traffic);
        calculator.set_budgets(config.budgets);
        calculator.scraped_at(config.metrics);
        calculator.set_cut_mark(config.cut_mark);
        Self {
            trust: Trust::new(),
            unfinished_turns: 0,
            scope: Scope::All,
            agenda: Agenda::default(),
            changed_states: BTreeSet::new(),
            resting: BTreeSet::new(),
            departures: Departures::default(),
            links: Links::default(),
            interfaces: Interfaces::default(),
            bandwidth: Limits::default(),
            neighbors: Neighbors::default(),
            discovery: Discovery::default(),
            rules: RuleSync::new(now),
            routes: RouteSync::new(now, &config),
            router: Router::new(now),
            overlay: OverlaySync::default(),
            cutting: Cutting::default(),
            offload: OffloadSync::default(),
            orders: Orders::default(),
            was_programmed: false,
            calculator,
            config,
        }
    }

    /// Records that the datastore's `key` has this `value` now, or was deleted.
    pub fn change(&mut self, key: &str, value: Option<&[u8]>) {
        if value.is_none() && self.hold(key) {
            return;
        }
        if let Some(problem) = self.calculator.change(key, value) {
            let reason = Text::new(problem);
            emit(Reported::DatastoreValueRejected { reason });
        }
        self.release_for(key);
    }

    /// Applies the changes of another configuration that need no restart: settings, exceptions from
    /// the guard, whether policies apply to traffic of the host or to established connections, budgets,
    /// and the wait for interfaces.
    pub(crate) fn reconfigure(&mut self, config: &AgentConfig) {
        let (settings, police) = (&config.settings, config.police_host_traffic);
        if self.config.settings.interface_prefix != settings.interface_prefix {
            self.rules.reconfigure();
        }
        let exceptions = config.control_port_exceptions.clone();
        self.calculator
            .reconfigure(settings.clone(), exceptions, police);
        self.calculator.set_budgets(config.budgets);
        self.calculator.set_cut_mark(config.cut_mark);
        self.config = AgentConfig {
            hostname: self.config.hostname.clone(),
            route_protocol: self.config.route_protocol,
            table: self.config.table,
            metrics: self.config.metrics,
            ..config.clone()
        };
        self.scope = Scope::All;
    }

    /// Returns the configuration that is in effect.
    pub const fn config(&self) -> &AgentConfig {
        &self.config
    }

    /// Sets the addresses of the datastore, as this host resolves them.
    pub(crate) fn datastore_at(&mut self, at: BTreeSet<SocketAddr>) {
        self.calculator.datastore_at(at);
    }

    /// Sets the ports in the files of this host's BGP daemons.
    pub(crate) fn bgp_files(&mut self, files: BgpPorts) {
        self.calculator.bgp_files(files);
    }

    /// Records that the datastore has been read in full: a missing key does not exist.
    pub fn store_in_sync(&mut self) {
        self.scope = Scope::All;
        self.trust.take(News::InSync);
    }

    /// Records that the datastore is unreachable, or is replaced by another one: its content counts
    /// again after a full read.
    pub fn store_unread(&mut self) {
        // A full read counts, although the next changes may be partial.
        if self.trust.must_apply() {
            self.apply();
        }
        self.trust.take(News::Partial);
    }

    /// Records that the datastore is reachable, and why it may not be applied.
    pub fn store_unready(&mut self, why: Unready) {
        self.store_unread();
        self.trust.refuse(why);
    }

    /// Records that the snapshot of an earlier run has been read. The host is brought into its
    /// state, but nothing is removed: an object that the snapshot lacks may still exist.
    pub fn store_restored(&mut self) {
        match self.trust.take(News::Snapshot) {
            true => self.scope = Scope::All,
            false => debug!("snapshot ignored: something newer was read"),
        }
    }

    /// Handles a kernel event.
    pub fn handle(&mut self, now: Instant, event: &Event) {
        let addressed = match event {
            Event::Address(at) => self.links.put_address(at),
            Event::AddressRemoved(at) => self.links.remove_address(at),
            _ => None,
        };
        let addressed = addressed.map(str::to_owned);
        self.note_interface(addressed.as_deref());
        match event {
            Event::Link(link) => self.link(link),
            Event::LinkRemoved(index) => {
                self.forget_setup(*index);
                self.neighbors.drop_interface(*index);
                let name = self.links.name(*index).map(str::to_owned);
                self.overlay.link(name.as_deref().unwrap_or_default());
                let shaped = name.as_deref();
                let shaped = shaped.and_then(|name| self.bandwidth.device_removed(name));
                self.agenda.extend(shaped);
                self.links.remove(*index);
                self.links.remove_addresses(*index);
                self.note_interface(name.as_deref());
                self.calculator.tunnels(self.links.tunnels());
            }
            Event::AddressRemoved(gone) if gone.address.addr() == IpAddr::V6(GATEWAY_IPV6) => {
                self.forget_setup(gone.interface);
            }
            Event::AddressRemoved(gone) if gone.address.addr() == IpAddr::V4(GATEWAY_IPV4) => {
                self.router.doubt();
            }
            Event::Overrun => {
                // An interface may have been down and up again, and have lost its settings.
                self.interfaces.doubt();
                self.neighbors.doubt();
                self.overlay.doubt();
                self.scope = Scope::All;
            }
            _ => {}
        }
        self.routes.handle(now, event);
    }

    /// Checks the packet filter soon, because another program has changed it.
    pub fn rules_changed(&mut self, now: Instant) {
        self.rules.hurry(now);
    }

    /// Issues all commands that are due. A failed command is repeated later.
    pub fn turn(&mut self, now: Instant) {
        self.rules.check(now, &mut self.orders);
        self.end_departures(now);
        self.recalculate();
        if !self.acts() {
            let settings = || self.calculator.settings();
            let closed = || closed(settings().interface_prefixes);
            self.rules.guard(now, closed, &mut self.orders);
            return;
        }
        self.neighbors.adopt(now, &mut self.orders);
        self.bandwidth.begin_turn();
        let due = self.agenda.take(now);
        let due: Vec<(String, Vec<Instant>)> = due
            .into_iter()
            .map(|name| {
                let again = self.withdraw(now, &name);
                (name, again)
            })
            .collect();
        let ipip = &self.calculator.desired().overlay.ipip;
        let (links, is_in_sync) = (&self.links, self.trust.is_in_sync());
        let overlay = &mut self.overlay.ipip;
        overlay.leave(now, ipip, links, is_in_sync, &mut self.orders);
        if !self.keeps_rules() {
            let withheld = self.resting_sources();
            let wanted = self.calculator.desired().rules();
            self.rules.write(now, wanted, withheld, &mut self.orders);
        }
        let settings = &self.calculator.desired().settings;
        let (routing, refresh) = (settings.routing, settings.interface_refresh);
        self.rules.check_every(now, settings.rules_check);
        let wanted = Forwarding {
            enabled: routing.forwards,
            ipv6: settings.ipv6,
        };
        self.router
            .configure(now, wanted, refresh, &mut self.orders);
        self.overlay.add_again(self.routes.follow(now, &routing));
        self.turn_overlay(now);
        self.turn_cutting(now);
        self.turn_offload(now);
        for (name, again) in due {
            match self.orders.is_full() {
                true => self.agenda.add(name),
                false => self.set_up(now, &name, again),
            }
        }
        self.note_routes();
        if self.trust.is_in_sync() {
            self.routes.end_grace(now);
        }
    }

    /// Brings the overlay towards its desired state. A device exists only while the packet
    /// filter accepts its packets from nodes only.
    fn turn_overlay(&mut self, now: Instant) {
        let rules = self.rules.held();
        let around = Around {
            desired: self.calculator.desired(),
            links: &self.links,
            is_guarded: rules.is_some_and(|rules| rules.chains.contains_key(TO_HOST)),
            ipip_is_guarded: rules.is_some_and(guards_ipip),
            is_in_sync: self.trust.is_in_sync(),
        };
        self.overlay
            .turn(now, &around, &mut self.routes, &mut self.orders);
    }

    /// Returns the next command for the host, and its number.
    pub fn poll_host_command(&mut self) -> Option<(u64, HostCommand)> {
        self.orders.pop()
    }

    /// Returns the next command for the kernel's routing table.
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        let command = self.routes.poll_command(now);
        if command.is_some() {
            return command;
        }
        // Once everything was in the kernel, only failures count: a change on its way to it is none.
        let is_programmed = match self.was_programmed {
            true => self.failures().is_empty(),
            false => self.waiting_for().is_empty(),
        };
        self.was_programmed |= is_programmed;
        match self.routes.mark(is_programmed) {
            true => self.routes.poll_command(now),
            false => None,
        }
    }

    /// Returns the time of the next [`turn`](Self::turn) if no event arrives earlier.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let going_on = self.is_calculating().then_some(Instant(0));
        let always = [going_on, self.rules.timeout(), self.routes.timeout()];
        let acting = [
            self.neighbors.timeout(),
            self.agenda.next(),
            self.overlay.timeout(),
            self.cutting_timeout(),
            self.offload_timeout(),
            self.router
                .timeout(self.calculator.desired().settings.interface_refresh),
        ];
        let acting = acting.into_iter().filter(|_| self.acts());
        always.into_iter().chain(acting).flatten().min()
    }

    /// Returns whether interfaces are set up: data was applied, and, if it was a snapshot, a packet
    /// filter is in effect.
    const fn acts(&self) -> bool {
        self.trust.is_applied() && (!self.trust.is_provisional() || self.rules.guards())
    }

    /// Records that an earlier run has seen the endpoint's interface: if it does not exist now, its
    /// workload has been stopped.
    pub(crate) fn presume_seen(&mut self, id: &EndpointId) {
        if let Some(placement) = self.calculator.desired().endpoints.get(id) {
            let interface = &placement.endpoint.interface;
            if self.discovery.presume_seen(interface, id) {
                self.agenda.add(interface);
            }
        }
    }

    fn link(&mut self, link: &Link) {
        let former = self.links.name(link.index);
        let former = former.filter(|old| *old != link.name).map(str::to_owned);
        if former.is_some() || !is_up(link) {
            self.forget_setup(link.index);
        }
        if !is_up(link) {
            // The kernel removes the addresses and neighbor entries of a link that goes down.
            self.neighbors.drop_interface(link.index);
        }
        self.links.put(link);
        self.note_interface(former.as_deref());
        self.note_interface(Some(&link.name));
        self.calculator.tunnels(self.links.tunnels());
        self.overlay.link(&link.name);
        self.agenda.add(&link.name);
    }

    /// Passes on the addresses of an interface, or that it does not exist.
    fn note_interface(&mut self, name: Option<&str>) {
        if let Some(name) = name {
            self.calculator
                .host_interface(name, self.links.addresses(name));
        }
    }

    /// Forgets the settings of the interface with this index.
    fn forget_setup(&mut self, index: u32) {
        if let Some(name) = self.links.name(index) {
            self.interfaces.forget(name, index);
            self.agenda.add(name);
        }
    }

    /// Applies the data read, and processes everything if requested.
    fn recalculate(&mut self) {
        // During a new read of the datastore, and before the first one after a snapshot, the
        // previous desired state stays in effect, with additions of this host itself.
        let is_news = self.scope == Scope::All || self.calculator.has_news();
        if self.trust.must_apply() || (self.trust.may_apply() && is_news) {
            // The rest follows in the next turns, after the daemon's other work.
            let is_late = self.unfinished_turns >= INHERITANCE_TURNS_MAX;
            if !is_late && !self.calculator.advance() {
                self.unfinished_turns += 1;
                return;
            }
            self.apply();
        } else if self.trust.is_applied()
            && let Some(touched) = self.calculator.recompute_local()
        {
            self.rules.touch(touched);
        }
        if self.trust.is_applied() && self.scope == Scope::All {
            self.scope = Scope::Agenda;
            let desired = self.calculator.desired();
            self.agenda.extend(desired.interfaces.keys());
            self.agenda.extend(self.routes.interfaces());
            self.agenda.extend(self.interfaces.names());
            self.agenda.extend(self.links.names());
            self.changed_states
                .extend(desired.endpoints.keys().cloned());
        }
    }

    /// Updates the desired state. Connections of addresses that were removed or moved are scheduled
    /// for deletion.
    fn apply(&mut self) {
        let recomputed = self.calculator.recompute();
        self.unfinished_turns = 0;
        self.trust.take(News::Applied);
        self.rules.touch(recomputed.rules);
        self.overlay.touch(recomputed.overlay);
        self.overlay.released(&recomputed.left);
        self.agenda.extend(recomputed.interfaces);
        self.changed_states.extend(recomputed.endpoints);
        if recomputed.settings {
            self.scope = Scope::All;
        }
        for Problem { key, field, reason } in recomputed.unsupported {
            emit(Reported::DatastoreFault {
                key: Text::new(key),
                field: Text::new(field),
                reason: Text::new(reason),
            });
        }
        if !recomputed.left.is_empty() {
            self.resting.extend(&recomputed.left);
            self.orders.push(HostCommand::Forget(recomputed.left));
        }
    }

    /// Removes immediately what is no longer wanted on an interface. Returns the times of the next attempts.
    fn withdraw(&mut self, now: Instant, name: &str) -> Vec<Instant> {
        let mut again = Vec::new();
        let desired = self.calculator.desired();
        let up = self.links.up(name);
        let endpoint = desired.interfaces.get(name);
        let stays = endpoint.is_none_or(|endpoint| !self.departures.has(&endpoint.id));
        let keeps = |address: IpAddr, index| {
            let is_wanted = desired.routes.get(&address).is_some_and(|on| on == name);
            is_wanted && stays && up == Some(index)
        };
        let is_needed = |on: &str, address| desired.needs(on, address);
        self.routes.withdraw(now, (name, up), keeps, is_needed);
        let index = self.links.named(name).map(|link| link.index);
        self.interfaces
            .keep_only(name, index.filter(|_| endpoint.is_some()));
        let (limits, orders) = (&mut self.bandwidth, &mut self.orders);
        match index {
            None => again.extend(limits.remove(now, name, orders)),
            Some(index) if endpoint.is_none() && !self.trust.is_provisional() => {
                let is_workload = desired.settings.is_workload_interface(name);
                if is_workload || limits.has(name) {
                    again.extend(limits.put(now, name, index, Bandwidth::default(), orders));
                }
            }
            Some(_) => {}
        }
        // Objects of an earlier run are not removed before the datastore has been read.
        let Some(index) = index.filter(|_| !self.trust.is_provisional()) else {
            return again;
        };
        match self.orders.is_full() {
            true => self.agenda.add(name),
            false if self.neighbors.are_unlisted() => {}
            false => {
                let (neighbors, orders) = (&mut self.neighbors, &mut self.orders);
                again.extend(neighbors.withdraw(now, index, endpoint, orders));
            }
        }
        again
    }

    /// Returns whether the rules of an earlier run stay: rules from its snapshot might lack those
    /// of the latest endpoint.
    pub(super) const fn keeps_rules(&self) -> bool {
        self.trust.is_provisional() && self.rules.is_inherited()
    }

    /// Returns the elements that would permit addresses that may not be used yet.
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

    /// Issues the commands that are due for an interface, and schedules its next processing: also at the
    /// times `again`.
    fn set_up(&mut self, now: Instant, name: &str, mut again: Vec<Instant>) {
        let refresh = self.calculator.desired().settings.interface_refresh;
        if let Some(endpoint) = self.calculator.desired().interfaces.get(name).cloned() {
            let (links, orders) = (&self.links, &mut self.orders);
            let interfaces = &mut self.interfaces;
            if let Some(index) = interfaces.configure(now, &endpoint, refresh, links, orders) {
                if !self.neighbors.are_unlisted() {
                    again.extend(self.neighbors.put(now, index, &endpoint, &mut self.orders));
                }
                let (limits, orders) = (endpoint.bandwidth, &mut self.orders);
                again.extend(self.bandwidth.put(now, name, index, limits, orders));
                self.announce(index, &endpoint);
            }
            if !self.departures.has(&endpoint.id) {
                self.changed_states.insert(endpoint.id);
            }
        }
        if self.trust.is_in_sync() {
            let (patience, desired) = (self.config.interface_patience, self.calculator.desired());
            let discovery = &mut self.discovery;
            again.extend(discovery.look(now, name, patience, desired, &self.links));
        }
        again.extend(self.interfaces.timeout(name, refresh));
        self.agenda.set(name, again.into_iter().min());
    }

    /// Adds the routes of an endpoint if its interface and rules are in place.
    fn announce(&mut self, index: u32, endpoint: &Endpoint) {
        let name = &endpoint.interface;
        if self.departures.has(&endpoint.id) {
            return;
        }
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

    /// Returns whether the rules in effect permit the address on its interface.
    fn is_guarded(&self, endpoint: &Endpoint, address: IpAddr) -> bool {
        if self.keeps_rules() {
            // Without any element for it, all its traffic is dropped.
            return true;
        }
        let (set, key) = match endpoint.addresses.contains(&address) {
            true => source(&endpoint.interface, address),
            false => (floating(address), Key::Address(address)),
        };
        self.rules.has(set, &key)
    }

    /// Records the endpoints of which the routes may have changed.
    fn note_routes(&mut self) {
        let desired = self.calculator.desired();
        let looked_at = self.routes.settle(|address| desired.routes.get(&address));
        let endpoints = looked_at
            .into_iter()
            .filter_map(|name| desired.interfaces.get(name));
        self.changed_states
            .extend(endpoints.map(|endpoint| endpoint.id.clone()));
    }
}
