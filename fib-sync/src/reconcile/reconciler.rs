//! The reconciler itself: wanted routes and events in, commands out.

use core::net::IpAddr;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::counters::Counters;
use super::delta::{Beside, Cause, Entry, Flight, Found, Metrics, Op, Step};
use super::dirty::Dirty;
use super::grace::Grace;
use super::nexthops::{NexthopObjects, Nexthops};
use super::notice::{DeleteCause, Foreigners, Notice, Notices};
use crate::limits::{IN_FLIGHT_MAX, LOST_GATEWAYS_MAX};
use crate::nexthop::NexthopCommand;
use crate::owner::Owner;
use crate::port::{Command, Event};
use crate::route::{Route, RouteKey, TABLE_MAIN};
use instant::Instant;

/// Configuration of a [`Reconciler`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReconcilerConfig {
    /// The `rtm_protocol` under which its routes are installed; routes of other protocols are never
    /// changed.
    pub owner: Owner,
    /// The tables it installs into. Each is read at the start, after an overrun and every `period`.
    pub tables: Vec<u32>,
    /// Further tables that are read at the same times, for a [`crate::watch::Watcher`]. A route of
    /// `owner` there is foreign.
    pub tables_read: Vec<u32>,
    /// Metrics at which routes of `owner` that were not written by this reconciler are adopted:
    /// replaced, or deleted as strays. At any other metric such a route is foreign. Empty: all.
    pub metrics: Vec<RangeInclusive<u32>>,
    /// How long after the start own routes that are not wanted are kept.
    pub grace: Duration,
    /// Interval at which the tables are read without any sign of a difference; zero: never.
    pub period: Duration,
    /// False: compare and report, but write nothing (dry run).
    pub install: bool,
    /// Whether dumps read the routes of all owners, so that conflicts are reported before a write
    /// and a [`crate::watch::Watcher`] can follow the same events; otherwise they do so only after
    /// a conflict.
    pub read_foreign: bool,
    /// Small tables of which dumps read the routes of all owners in any case.
    pub read_whole: Vec<u32>,
    /// The treatment of nexthop objects.
    pub nexthop_objects: NexthopObjects,
}

impl ReconcilerConfig {
    /// Returns the default configuration: the main table, a grace period of 30 s, a check every 60
    /// s, foreign routes read.
    pub fn new(owner: Owner) -> Self {
        Self {
            owner,
            tables: vec![TABLE_MAIN],
            tables_read: Vec::new(),
            metrics: Vec::new(),
            grace: Duration::from_secs(30),
            period: Duration::from_secs(60),
            install: true,
            read_foreign: true,
            read_whole: Vec::new(),
            nexthop_objects: NexthopObjects::Ignore,
        }
    }
}

/// Keeps the kernel's routes of one owner equal to a wanted set.
///
/// Call [`want`](Self::want) and [`unwant`](Self::unwant) as wanted routes change and
/// [`handle`](Self::handle) with every event; after either, hand each command of
/// [`poll_command`](Self::poll_command) to the [`crate::Fib`] until there is none, and call it
/// again at the time of [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Reconciler {
    pub(super) config: ReconcilerConfig,
    pub(super) entries: BTreeMap<RouteKey, Entry>,
    /// The metrics at which there have been entries.
    pub(super) metrics: Metrics,
    /// Keys to process in the next `poll_command`.
    pub(super) dirty: Dirty,
    /// Keys with a fault, by the time of their next attempt.
    pub(super) retries: BTreeSet<(Instant, RouteKey)>,
    pub(super) grace: Grace,
    /// Gateways that failed during the grace period.
    pub(super) lost: BTreeSet<IpAddr>,
    pub(super) in_flight: usize,
    pub(super) dumps: Dumps,
    pub(super) counters: Counters,
    pub(super) notices: Notices,
    /// Foreign routes that carry the own protocol.
    pub(super) foreigners: Foreigners,
    pub(super) nexthops: Nexthops,
    /// Commands that are submitted before all others.
    pub(super) outbox: VecDeque<Command>,
    /// Nexthop objects with a deletion that is to be answered before anything else is submitted.
    pub(super) urgent: BTreeSet<u32>,
    /// Gateways over which no route is written.
    pub(super) failed: BTreeSet<IpAddr>,
    /// The routes of some of them are to be processed.
    pub(super) has_new_failed: bool,
}

/// State of dumps: whether one is needed, allowed or in progress.
#[derive(Debug, Default)]
pub(super) struct Dumps {
    /// The believed state is invalid until a dump completes.
    pub(super) void: bool,
    /// A dump was requested.
    pub(super) needed: bool,
    /// The next dump reads foreign routes even if the configuration disables it.
    pub(super) name_foreign: bool,
    /// The earliest time of the next dump.
    pub(super) not_before: Instant,
    /// Forced dumps in a row, each shortly after the previous one.
    pub(super) in_a_row: u32,
    /// When the periodic dump is due.
    pub(super) periodic: Option<Instant>,
    /// Number of the current or last round over all tables.
    pub(super) round: u32,
    /// The round in progress.
    pub(super) current: Option<Round>,
}

/// One pass over all tables.
#[derive(Debug)]
pub(super) struct Round {
    /// Tables whose dump was not submitted yet, last first.
    pub(super) left: Vec<u32>,
    /// The filter of this round.
    pub(super) owner: Option<Owner>,
    /// The dump of a table is in progress.
    pub(super) waiting: bool,
    /// Keys of which the own (true) or foreign (false) route changed during the round: the event is
    /// authoritative, not the row.
    pub(super) touched: BTreeSet<(RouteKey, bool)>,
    /// The round failed, or an event made its result unusable.
    pub(super) spoilt: bool,
}

impl Reconciler {
    /// Returns a reconciler without any knowledge of the kernel: its first command is a dump.
    pub fn new(now: Instant, config: ReconcilerConfig) -> Self {
        Self {
            grace: Grace::new(now, config.grace),
            lost: BTreeSet::new(),
            entries: BTreeMap::new(),
            metrics: Metrics::default(),
            dirty: Dirty::default(),
            retries: BTreeSet::new(),
            in_flight: 0,
            dumps: Dumps {
                void: true,
                needed: true,
                not_before: now,
                ..Dumps::default()
            },
            counters: Counters::default(),
            notices: Notices::default(),
            foreigners: Foreigners::default(),
            nexthops: Nexthops::new(config.nexthop_objects, config.owner),
            outbox: VecDeque::new(),
            urgent: BTreeSet::new(),
            failed: BTreeSet::new(),
            has_new_failed: false,
            config,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ReconcilerConfig {
        &self.config
    }

    /// Sets the wanted route at `key` to `route`, whatever was wanted there before. Both are
    /// brought into canonical form and the route's protocol is set to the own one.
    pub fn want(&mut self, key: RouteKey, route: Route) {
        let mut route = Route {
            protocol: self.config.owner.0,
            ..route.canonical()
        };
        self.nexthops.mark(&mut route);
        self.wish(key.canonical(), Some(route));
    }

    /// Removes the wanted route at `key`; the own route there is deleted.
    pub fn unwant(&mut self, key: &RouteKey) {
        self.wish(key.canonical(), None);
    }

    /// Adopts routes of the owner at these metrics from now on, in addition to the metrics already
    /// adopted. The tables are read again if this changes anything.
    pub fn adopt_metrics(&mut self, metrics: &[RangeInclusive<u32>]) {
        if self.config.metrics.is_empty() {
            return; // All are adopted already.
        }
        let known = &self.config.metrics;
        let new: Vec<_> = metrics
            .iter()
            .filter(|range| !known.contains(range))
            .cloned()
            .collect();
        if !new.is_empty() {
            self.config.metrics.extend(new);
            self.dumps.needed = true;
        }
    }

    /// Sets the interval at which the tables are read without any sign of a difference; zero: never.
    pub fn set_period(&mut self, now: Instant, period: Duration) {
        if self.config.period != period {
            self.config.period = period;
            self.dumps.periodic = (!period.is_zero()).then(|| now + period);
        }
    }

    /// Returns whether a route of the owner at this key belongs to this program: in a table that it
    /// writes, at a metric that it writes, or at a key that is or was wanted.
    pub(super) fn owns(&self, key: &RouteKey) -> bool {
        if !self.config.tables.contains(&key.table) {
            return false;
        }
        let metrics = &self.config.metrics;
        metrics.is_empty()
            || metrics.iter().any(|range| range.contains(&key.metric))
            || self.entries.contains_key(key)
    }

    /// Returns the next event for the log; call it after each [`poll_command`](Self::poll_command).
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.poll()
    }

    /// Ends the grace period: every wanted route is known now.
    pub fn finish_grace(&mut self) {
        if self.grace.finish() {
            self.end_of_grace();
        }
    }

    /// Ends the grace period of the routes that have only this gateway, or only gateways that have failed:
    /// those that are not wanted are deleted, also if they are read later. Other routes are kept.
    ///
    /// After the grace period it has no effect, nor beyond [`LOST_GATEWAYS_MAX`].
    pub fn lose_gateway(&mut self, gateway: IpAddr) {
        if self.grace.is_over() || self.lost.len() >= LOST_GATEWAYS_MAX {
            return;
        }
        if self.lost.insert(gateway.to_canonical()) {
            self.process_strays();
        }
    }

    /// Handles an event. Drain [`poll_command`](Self::poll_command) afterwards.
    pub fn handle(&mut self, now: Instant, event: &Event) {
        match event {
            Event::DumpStart { .. } | Event::Closed(_) | Event::Address(_) => {}
            Event::DumpRoute(key, route) => self.row(*key, route),
            Event::DumpDone {
                table, complete, ..
            } => self.dump_done(now, *table, *complete),
            Event::Changed {
                key,
                route,
                replaced,
            } => self.changed(*key, route, *replaced),
            Event::Removed(key, route) => self.gone(now, *key, route),
            Event::Applied(key, result) => self.applied(now, *key, result),
            Event::Nexthop(event) => self.nexthop(now, event),
            Event::Link(link) if link.up => {
                if !link.running && self.nexthops.is_read() {
                    // The kernel deletes the objects of a link without carrier.
                    self.link_lost(now, link.index);
                }
                self.forgive();
            }
            Event::Link(link) => self.link_lost(now, link.index),
            Event::LinkRemoved(index) => self.link_lost(now, *index),
            Event::AddressRemoved(_) => self.settle_and_dump(now),
            Event::Overrun => self.overrun(now),
        }
        if matches!(event, Event::Address(_)) {
            self.forgive();
        }
    }

    /// Returns the next command for the kernel, if one is due now.
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        self.pass_time(now);
        if let Some(command) = self.outbox.pop_front() {
            self.in_flight += 1;
            return Some(command);
        }
        if !self.urgent.is_empty() {
            return None;
        }
        self.process_failed();
        if let Some(round) = &mut self.dumps.current {
            if round.waiting {
                return None;
            }
            let table = round.left.pop()?;
            round.waiting = true;
            let owner = round.owner;
            return Some(self.dump(table, owner));
        }
        if self.dumps.needed && now >= self.dumps.not_before {
            // Writes and a dump never overlap: a row would not show whether it was read before or
            // after a write.
            return if self.in_flight == 0 {
                self.start_round()
            } else {
                None
            };
        }
        if !self.config.install {
            self.dirty.clear();
        }
        if self.dumps.void {
            return None;
        }
        while self.in_flight < IN_FLIGHT_MAX {
            let key = self.dirty.pop()?;
            if let Some(command) = self.advance(now, key) {
                return Some(command);
            }
        }
        None
    }

    /// Returns the time to call [`poll_command`](Self::poll_command) if no event arrives earlier.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.dumps.current.is_some() {
            return None;
        }
        let dump = self.dumps.needed.then_some(self.dumps.not_before);
        let dump = dump.filter(|_| self.in_flight == 0);
        let retry = self
            .retries
            .first()
            .map(|(at, _)| *at)
            .filter(|_| self.config.install);
        let notice = self.notices.deadline();
        [
            dump,
            self.dumps.periodic,
            retry,
            self.grace.deadline(),
            notice,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns the number of keys with a wanted route or a known one.
    pub fn keys_len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the kernel is believed to hold exactly the wanted routes, with nothing left
    /// to do.
    pub fn in_sync(&self) -> bool {
        !self.dumps.void
            && !self.dumps.needed
            && self.dumps.current.is_none()
            && self.in_flight == 0
            && self.outbox.is_empty()
            && self.entries.values().all(Entry::is_settled)
    }

    /// Returns whether the kernel has answered every command.
    pub fn is_answered(&self) -> bool {
        self.in_flight == 0 && self.outbox.is_empty()
    }

    fn wish(&mut self, key: RouteKey, want: Option<Route>) {
        if want.is_none() && !self.entries.contains_key(&key) {
            return;
        }
        let void = self.dumps.void;
        self.metrics.note(key.metric);
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            found: if void { Found::Unknown } else { Found::Absent },
            ..Entry::default()
        });
        if entry.want == want {
            return;
        }
        entry.released = want.is_none();
        entry.wish(&key, want, &self.nexthops);
        let forget = entry.is_settled() && entry.want.is_none();
        let comes = entry.is_coming();
        if entry.fault.is_some() {
            self.clear_fault(&key);
        }
        if forget {
            self.entries.remove(&key);
        } else {
            self.dirty.insert(key);
        }
        if !comes {
            self.free_beside(&key);
        }
    }

    /// Returns the entries of this prefix at other metrics. None is looked up as long as all routes
    /// have the same metric.
    fn beside(&self, key: &RouteKey) -> impl Iterator<Item = (&RouteKey, &Entry)> {
        let (key, tos) = (*key, key.tos);
        let first = RouteKey {
            metric: 0,
            tos: 0,
            ..key
        };
        let last = RouteKey {
            metric: u32::MAX,
            tos: u8::MAX,
            ..key
        };
        let several = self.metrics == Metrics::Several;
        let all = several.then(|| self.entries.range(first..=last));
        let all = all.into_iter().flatten();
        all.filter(move |(other, _)| other.tos == tos && other.metric != key.metric)
    }

    /// Returns whether the routes that replace this one are in the kernel.
    fn place_of(&self, key: &RouteKey) -> Beside {
        let mut found = Beside::Nothing;
        for (_, entry) in self.beside(key) {
            if entry.is_coming() {
                return Beside::Coming;
            }
            if entry.is_there() {
                found = Beside::There;
            }
        }
        found
    }

    /// Wakes the routes of the prefix at other metrics. They waited until the wanted route at this
    /// key is in the kernel or is not coming, and may now be deleted.
    pub(super) fn free_beside(&mut self, key: &RouteKey) {
        let unwanted = self.beside(key).filter(|(_, entry)| entry.want.is_none());
        let unwanted: Vec<RouteKey> = unwanted.map(|(key, _)| *key).collect();
        for key in unwanted {
            self.dirty.insert(key);
        }
    }

    fn pass_time(&mut self, now: Instant) {
        self.notices.pass_time(now);
        if self.grace.expire(now) {
            self.end_of_grace();
        }
        if self.dumps.periodic.is_some_and(|at| now >= at) {
            self.dumps.periodic = None;
            self.dumps.needed = true;
        }
        while let Some((_, key)) = self.retries.first().copied().filter(|(at, _)| now >= *at) {
            self.retries.pop_first();
            self.dirty.insert(key);
        }
    }

    fn end_of_grace(&mut self) {
        self.lost.clear();
        self.process_strays();
    }

    fn process_strays(&mut self) {
        let strays = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.want.is_none());
        strays.for_each(|(key, _)| self.dirty.insert(*key));
    }

    /// Returns whether all next hops of a route are gateways that have failed.
    fn is_lost(&self, route: &Route) -> bool {
        let lost = |gateway: IpAddr| self.lost.contains(&gateway.to_canonical());
        let mut hops = route.next_hops.iter();
        !self.lost.is_empty()
            && !route.next_hops.is_empty()
            && hops.all(|hop| hop.gateway.is_some_and(lost))
    }

    /// Performs the next step for one key.
    fn advance(&mut self, now: Instant, key: RouteKey) -> Option<Command> {
        let entry = self.entries.get(&key)?;
        let is_held = self.is_held(entry);
        let is_over = |route| self.has_only_failed(route);
        if is_held && !entry.present().is_some_and(is_over) {
            return None;
        }
        let is_lost = entry.present().is_some_and(|route| self.is_lost(route));
        let grace = !self.grace.is_over() && !is_lost;
        let unwanted = entry.want.is_none();
        let beside = match unwanted {
            true => self.place_of(&key),
            false => Beside::Nothing,
        };
        let nexthops = &mut self.nexthops;
        let entry = self.entries.get_mut(&key)?;
        let due = entry
            .fault
            .as_ref()
            .is_some_and(|fault| now >= fault.retry_at);
        let step = match is_held {
            true if entry.flight.is_some() || (entry.fault.is_some() && !due) => Step::Rest,
            true => Step::Write(Op::Delete),
            false => entry.step(due, grace, beside),
        };
        match step {
            Step::Rest => None,
            Step::Forget => {
                self.clear_fault(&key);
                self.dirty.remove(&key);
                self.entries.remove(&key);
                None
            }
            Step::Conflict => {
                self.set_fault(now, key, Cause::Conflict);
                None
            }
            Step::Write(op) => {
                let mut before = Vec::new();
                let nexthop = match (op, &entry.want) {
                    // A try that a foreign route will refuse needs no object. If it succeeds, the route
                    // is written again.
                    (Op::Put(_), Some(_)) if entry.foreign.is_some() => None,
                    (Op::Put(_), Some(want)) if want.nexthop.is_some() => {
                        nexthops.obtain(&want.next_hops, &mut before)
                    }
                    _ => None,
                };
                let command = entry.command(key, op, self.config.owner, nexthop)?;
                let cause = (op == Op::Delete).then(|| match is_held {
                    true => DeleteCause::GatewayFailed,
                    false => entry.delete_cause(),
                });
                if let Some(cause) = cause {
                    let route = entry.present().cloned();
                    self.notices.deleting(now, key, route, cause);
                }
                entry.flight = Some(Box::new(Flight {
                    op,
                    sent: None,
                    disturbed: false,
                    cause,
                    nexthop,
                }));
                self.counters.count(op);
                // The route follows the objects that it needs.
                self.outbox.extend(before.into_iter().map(Command::Nexthop));
                self.outbox.push_back(command);
                self.in_flight += 1;
                self.outbox.pop_front()
            }
        }
    }

    /// Starts reading all tables.
    fn start_round(&mut self) -> Option<Command> {
        let all = self.config.read_foreign || self.dumps.name_foreign;
        self.dumps.needed = false;
        self.dumps.name_foreign = false;
        self.dumps.round = self.dumps.round.wrapping_add(1);
        self.foreigners.recount();
        let mut left = self.config.tables.clone();
        left.extend(&self.config.tables_read);
        left.reverse();
        let owner = if all { None } else { Some(self.config.owner) };
        let first = match self.nexthops.is_read() {
            true => Command::Nexthop(NexthopCommand::Dump),
            false => self.dump(left.pop()?, owner),
        };
        self.nexthops.begin(self.dumps.round);
        self.dumps.current = Some(Round {
            left,
            owner,
            waiting: true,
            touched: BTreeSet::new(),
            spoilt: false,
        });
        self.counters.dumps += 1;
        Some(first)
    }

    /// Returns the dump of a table in a round that reads the routes of this owner, or of all.
    fn dump(&self, table: u32, owner: Option<Owner>) -> Command {
        let owner = owner.filter(|_| !self.config.read_whole.contains(&table));
        Command::Dump { table, owner }
    }
}
