//! The routes of endpoints, which the reconciler of `fib-sync` installs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use fib_sync::{
    Command, Event, FibStatus, FibSummary, FibView, Hop, Instant, METRIC_LEAVING, Notice, Owner,
    Reconciler, ReconcilerConfig, Route, RouteKey,
};

use ipnet::IpNet;
use kernel_events::marker;

use super::AgentConfig;
use super::neighbors::LOWEST;
use crate::calc::{Routing, Way};
use crate::limits::{FORMER_METRICS, LEAVING, REFUSAL_ATTEMPTS, ROUTE_GRACE};
use crate::render::Family;

/// The wanted routes, and their outcomes.
#[derive(Debug)]
pub(super) struct RouteSync {
    owner: Owner,
    table: u32,
    routing: Routing,
    /// Routes passed to the reconciler: interface and address to interface index.
    wanted: BTreeMap<(String, IpAddr), u32>,
    /// Prefixes with routes of the overlay that were passed to the reconciler.
    prefixes: BTreeSet<IpNet>,
    /// Addresses of which the routes may not be in the kernel as wanted.
    unsettled: BTreeSet<IpAddr>,
    /// Routes that the kernel has rejected repeatedly, and why.
    refused: BTreeMap<IpAddr, String>,
    reconciler: Reconciler,
    grace: Grace,
    /// Whether the kernel is to show that the host is programmed.
    is_marked: bool,
    /// Marked routes: the BGP client withdraws them, and then they are removed.
    leaving: BTreeMap<IpAddr, Leaving>,
    /// Whether a BGP client answers marks, and whether the dump in progress has shown it.
    is_answered: bool,
    answers_in_dump: bool,
}

/// A route that is about to be removed.
#[derive(Debug)]
struct Leaving {
    interface: String,
    index: u32,
    /// It is removed then, with or without an answer.
    until: Instant,
}

/// When own routes that are not wanted are no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grace {
    /// The datastore was not read in full yet.
    NotBegun,
    Until(Instant),
    Over,
}

impl RouteSync {
    pub(super) fn new(now: Instant, config: &AgentConfig) -> Self {
        let owner = Owner(config.route_protocol);
        let mut reconciler = ReconcilerConfig::new(owner);
        reconciler.tables = vec![config.table, marker::TABLE];
        reconciler.tables_read = Vec::new();
        let metrics = FORMER_METRICS.into_iter().chain([METRIC_LEAVING]);
        reconciler.metrics = metrics.map(|metric| metric..=metric).collect();
        // Before the datastore was read in full, no route is known to be unwanted.
        reconciler.grace = Duration::MAX;
        reconciler.period = Routing::default().refresh;
        reconciler.install = true;
        reconciler.read_foreign = false;
        // The answers of the BGP client.
        reconciler.read_whole = vec![marker::TABLE];
        Self {
            owner,
            table: config.table,
            routing: Routing::default(),
            wanted: BTreeMap::new(),
            prefixes: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            refused: BTreeMap::new(),
            reconciler: Reconciler::new(now, reconciler),
            grace: Grace::NotBegun,
            is_marked: false,
            leaving: BTreeMap::new(),
            is_answered: false,
            answers_in_dump: false,
        }
    }

    /// Shows other programs of this host that it is programmed, or that it is not. Returns whether that
    /// changes.
    pub(super) fn mark(&mut self, is_programmed: bool) -> bool {
        if self.is_marked == is_programmed {
            return false;
        }
        self.is_marked = is_programmed;
        match is_programmed {
            true => self
                .reconciler
                .want(marker::key(), marker::route(self.owner)),
            false => self.reconciler.unwant(&marker::key()),
        }
        true
    }

    /// Follows the settings. With another metric, each route of an endpoint is added with it, and the
    /// former one removed. Returns the prefixes of the overlay, if their routes are to be added again.
    pub(super) fn follow(&mut self, now: Instant, routing: &Routing) -> BTreeSet<IpNet> {
        if self.routing == *routing {
            return BTreeSet::new();
        }
        self.reconciler.set_period(now, routing.refresh);
        let metrics = Family::ALL.map(|family| routing.metric(family));
        let metrics = metrics.map(|metric| metric..=metric);
        self.reconciler.adopt_metrics(&metrics);
        let former = std::mem::replace(&mut self.routing, *routing);
        let moved = |net: IpNet| {
            let family = Family::of(net.addr());
            former.metric(family) != routing.metric(family)
        };
        let all = self.wanted.clone();
        for ((interface, address), index) in all {
            self.want(&interface, index, address);
            if moved(IpNet::from(address)) {
                self.reconciler
                    .unwant(&self.key_at(&former, address.into()));
            }
        }
        let prefixes = self.prefixes.iter().copied();
        let prefixes: BTreeSet<IpNet> = prefixes.filter(|net| moved(*net)).collect();
        for prefix in &prefixes {
            self.reconciler.unwant(&self.key_at(&former, *prefix));
        }
        prefixes
    }

    /// Handles a kernel event.
    pub(super) fn handle(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Applied(key, _) | Event::Changed { key, .. } | Event::Removed(key, _) => {
                self.unsettled.insert(key.prefix.addr());
            }
            // The state of any route may have changed.
            Event::DumpDone { .. } | Event::Overrun => {
                let wanted = self.wanted.keys().map(|(_, address)| *address);
                self.unsettled.extend(wanted);
            }
            // The kernel has removed the routes over it.
            Event::Link(link) if !link.up => self.end_leaving_over(link.index),
            Event::LinkRemoved(index) => self.end_leaving_over(*index),
            _ => {}
        }
        self.take_answer(event);
        self.reconciler.handle(now, event);
    }

    /// Follows the routes by which a BGP client answers.
    fn take_answer(&mut self, event: &Event) {
        match event {
            Event::DumpStart { table, .. } if *table == marker::TABLE => {
                self.answers_in_dump = false;
            }
            Event::DumpDone {
                table,
                complete: true,
                ..
            } if *table == marker::TABLE => self.is_answered = self.answers_in_dump,
            Event::DumpRoute(key, route) | Event::Changed { key, route, .. }
                if key.table == marker::TABLE && route.owner() != self.owner =>
            {
                if *key == marker::answerer_key() {
                    self.answers_in_dump = true;
                    self.is_answered |= matches!(event, Event::Changed { .. });
                } else if *key == marker::answer_key(key.prefix)
                    && let Some(leaving) = self.leaving.get_mut(&key.prefix.addr())
                {
                    leaving.until = Instant(0);
                }
            }
            Event::Removed(key, route)
                if *key == marker::answerer_key() && route.owner() != self.owner =>
            {
                (self.is_answered, self.answers_in_dump) = (false, false);
            }
            _ => {}
        }
    }

    /// Returns whether a BGP client of this host answers to marked routes.
    pub(super) const fn is_answered(&self) -> bool {
        self.is_answered && !self.routing.is_off
    }

    /// Returns whether a route over an interface is wanted, or marked and not yet removed.
    pub(super) fn is_used(&self, interface: &str, address: IpAddr) -> bool {
        let leaving = self.leaving.get(&address);
        leaving.is_some_and(|leaving| leaving.interface == interface)
            || self.is_wanted(interface, address, None)
    }

    fn end_leaving_over(&mut self, index: u32) {
        let over = self.leaving.values_mut();
        let over = over.filter(|leaving| leaving.index == index);
        over.for_each(|leaving| leaving.until = Instant(0));
    }

    /// Removes the marked routes that were answered, that have waited long enough, or of which the
    /// address is needed for another route of this host.
    pub(super) fn end_leaving(&mut self, now: Instant, is_needed: impl Fn(&str, IpAddr) -> bool) {
        let ended = self.leaving.iter().filter(|(address, leaving)| {
            leaving.until <= now || is_needed(&leaving.interface, **address)
        });
        let ended: Vec<IpAddr> = ended.map(|(address, _)| *address).collect();
        for address in ended {
            self.leaving.remove(&address);
            self.reconciler.unwant(&self.leaving_key(address));
        }
    }

    /// Adds the wanted route of an address over an interface.
    pub(super) fn want(&mut self, interface: &str, index: u32, address: IpAddr) {
        self.wanted.insert((interface.to_owned(), address), index);
        self.prefixes.remove(&IpNet::from(address));
        self.unsettled.insert(address);
        if self.leaving.remove(&address).is_some() {
            self.reconciler.unwant(&self.leaving_key(address));
        }
        let mut route = Route::device(self.owner, index);
        route.source = self.routing.source(Family::of(address));
        self.reconciler.want(self.key(address), route);
    }

    /// Adds a route of the overlay. An address must not be one of an endpoint.
    pub(super) fn want_prefix(&mut self, prefix: IpNet, way: Way, device: Option<u32>) {
        let route = match (way, device) {
            (Way::Tunnel(end) | Way::Ipip(end), Some(device)) => {
                Route::unicast(self.owner, vec![Hop::via(end).on(device).onlink()])
            }
            (Way::Tunnel(_) | Way::Ipip(_), None) => return self.unwant_prefix(prefix),
            (Way::Direct(node), _) => Route::unicast(self.owner, vec![Hop::via(node)]),
            (Way::Blackhole, _) => Route::blackhole(self.owner),
        };
        self.prefixes.insert(prefix);
        self.reconciler.want(self.key_of(prefix), route);
    }

    /// Removes a route of the overlay, unless an endpoint has it now.
    pub(super) fn unwant_prefix(&mut self, prefix: IpNet) {
        if self.prefixes.remove(&prefix) {
            self.reconciler.unwant(&self.key_of(prefix));
        }
    }

    /// Returns whether a route over an interface is wanted, through that index if one is given.
    pub(super) fn is_wanted(&self, interface: &str, address: IpAddr, index: Option<u32>) -> bool {
        let wanted = self.wanted.get(&(interface.to_owned(), address));
        wanted.is_some_and(|held| index.is_none_or(|index| *held == index))
    }

    /// Withdraws the routes over an interface, except those to keep, by address and index. A route that
    /// another program advertises is marked first, if the interface is `up` with its index and the
    /// address is not needed for another route.
    pub(super) fn withdraw(
        &mut self,
        now: Instant,
        (interface, up): (&str, Option<u32>),
        keeps: impl Fn(IpAddr, u32) -> bool,
        is_needed: impl Fn(&str, IpAddr) -> bool,
    ) {
        let wanted = self.wanted.range((interface.to_owned(), LOWEST)..);
        let wanted = wanted.take_while(|((on, _), _)| on == interface);
        let gone = wanted.filter(|((_, address), index)| !keeps(*address, **index));
        let gone: Vec<(IpAddr, u32)> = gone
            .map(|((_, address), index)| (*address, *index))
            .collect();
        for (address, index) in gone {
            self.wanted.remove(&(interface.to_owned(), address));
            self.refused.remove(&address);
            let is_there = self.is_installed(address) && up == Some(index);
            if self.is_answered() && is_there && !is_needed(interface, address) {
                self.leave(now, interface, index, address);
            }
            self.reconciler.unwant(&self.key(address));
        }
    }

    /// Marks a route: the reconciler adds it with the mark before it removes the one without.
    fn leave(&mut self, now: Instant, interface: &str, index: u32, address: IpAddr) {
        let leaving = Leaving {
            interface: interface.to_owned(),
            index,
            until: now + LEAVING,
        };
        self.leaving.insert(address, leaving);
        let route = Route::device(self.owner, index);
        self.reconciler.want(self.leaving_key(address), route);
    }

    /// Checks the routes that may not be in the kernel as wanted, and records which of them it
    /// permanently rejects; a rejected route stays recorded while it is retried. `interface`
    /// returns the interface of an address. Returns the interfaces of the checked routes.
    pub(super) fn settle<'d>(
        &mut self,
        interface: impl Fn(IpAddr) -> Option<&'d String>,
    ) -> BTreeSet<&'d String> {
        let mut looked_at = BTreeSet::new();
        if self.routing.is_off {
            self.refused.clear();
            let all = std::mem::take(&mut self.unsettled);
            return all.into_iter().filter_map(interface).collect();
        }
        for address in std::mem::take(&mut self.unsettled) {
            let Some(on) = interface(address).filter(|on| self.is_wanted(on, address, None)) else {
                continue;
            };
            looked_at.insert(on);
            let view = self.reconciler.lookup(&self.key(address));
            // Without the number of attempts, the reason stays the same.
            let why = match view.as_ref().map(|view| &view.status) {
                Some(FibStatus::Acked) | None => {
                    self.refused.remove(&address);
                    continue;
                }
                Some(FibStatus::Failed {
                    error, attempts, ..
                }) if *attempts >= REFUSAL_ATTEMPTS => Some(error.to_string()),
                Some(status @ FibStatus::Conflict { attempts, .. })
                    if *attempts >= REFUSAL_ATTEMPTS =>
                {
                    Some(status.to_string())
                }
                Some(_) => None,
            };
            self.refused.extend(why.map(|why| (address, why)));
            self.unsettled.insert(address);
        }
        looked_at
    }

    /// Returns why the kernel permanently rejects a route.
    pub(super) fn refused(&self, address: IpAddr) -> Option<&str> {
        self.refused.get(&address).map(String::as_str)
    }

    /// Returns the number of routes that the kernel permanently rejects, and the first one with its
    /// reason.
    pub(super) fn first_refused(&self) -> Option<(usize, IpAddr, &str)> {
        let (address, why) = self.refused.first_key_value()?;
        Some((self.refused.len(), *address, why))
    }

    /// Returns whether a route that is wanted is in the kernel, or of another program.
    pub(super) fn is_installed(&self, address: IpAddr) -> bool {
        if self.routing.is_off {
            return true;
        }
        let view = self.reconciler.lookup(&self.key(address));
        view.is_none_or(|view| view.status == FibStatus::Acked)
    }

    /// Ends the grace period: some time after the first full read of the datastore, own routes that
    /// are not wanted are deleted. The time is for interfaces that are still coming up.
    pub(super) fn end_grace(&mut self, now: Instant) {
        match self.grace {
            Grace::NotBegun => self.grace = Grace::Until(now + ROUTE_GRACE),
            Grace::Until(at) if at <= now => {
                self.grace = Grace::Over;
                self.reconciler.finish_grace();
            }
            Grace::Until(_) | Grace::Over => {}
        }
    }

    /// Returns whether the grace period is over.
    pub(super) fn is_settled(&self) -> bool {
        self.grace == Grace::Over
    }

    /// Returns the next command for the kernel.
    pub(super) fn poll_command(&mut self, now: Instant) -> Option<Command> {
        if self.routing.is_off {
            return None;
        }
        self.reconciler.poll_command(now)
    }

    /// Returns the reconciler, for events of its routes.
    pub(super) const fn reconciler(&self) -> &Reconciler {
        &self.reconciler
    }

    /// Returns the next event for the log.
    pub(super) fn poll_notice(&mut self) -> Option<Notice> {
        self.reconciler.poll_notice()
    }

    /// Returns when the next action is due without an event.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let grace = match self.grace {
            Grace::Until(at) => Some(at),
            Grace::NotBegun | Grace::Over => None,
        };
        let due = self.reconciler.poll_timeout();
        let due = due.filter(|_| !self.routing.is_off);
        let leaving = self.leaving.values().map(|leaving| leaving.until);
        due.into_iter().chain(grace).chain(leaving).min()
    }

    /// Returns whether the routing table is as wanted, or of another program.
    pub(super) fn in_sync(&self) -> bool {
        self.routing.is_off || self.reconciler.in_sync()
    }

    /// Returns the interfaces over which routes are wanted.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = &String> {
        self.wanted.keys().map(|(name, _)| name)
    }

    /// Returns every route wanted or held.
    pub(super) fn all(&self) -> impl Iterator<Item = FibView<'_>> {
        self.reconciler.routes()
    }

    /// Returns foreign routes that carry Felix's protocol.
    pub(super) fn foreign(&self) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.reconciler.foreigners()
    }

    /// Returns the routes in numbers, without the one that shows that the host is programmed.
    pub(super) fn summary(&self) -> FibSummary {
        let mut sum = self.reconciler.summary();
        if let Some(shown) = self.reconciler.lookup(&marker::key()) {
            sum.wanted -= usize::from(shown.want.is_some());
            sum.acked -= usize::from(shown.status == FibStatus::Acked);
        }
        sum
    }

    fn leaving_key(&self, address: IpAddr) -> RouteKey {
        RouteKey::new(self.table, address.into(), METRIC_LEAVING, 0)
    }

    fn key(&self, address: IpAddr) -> RouteKey {
        self.key_of(address.into())
    }

    fn key_of(&self, prefix: IpNet) -> RouteKey {
        self.key_at(&self.routing, prefix)
    }

    fn key_at(&self, routing: &Routing, prefix: IpNet) -> RouteKey {
        let metric = routing.metric(Family::of(prefix.addr()));
        RouteKey::new(self.table, prefix, metric, 0)
    }
}
