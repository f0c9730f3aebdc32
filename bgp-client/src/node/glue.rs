//! The node itself.

mod departures;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bgp_io::bgp_proto::{Attributes, Family, Net, Origin};
use bgp_io::bgp_speaker::{Event as SessionEvent, PathConsequence, ReaderId};
use bgp_io::rib::{Budget, Change, InterfaceName, PeerId, Progress, Reach, Track};
use bgp_io::{Input, Io, Speaker};
use calico_bgp::{Duties, IPIP_INTERFACE};
use fib_sync::watch::{Resolution, WatchChange, Watcher, WatcherConfig};
use fib_sync::{
    Command, Event, FibStatus, Instant, Notice, Reconciler, ReconcilerConfig, Route, RouteKey,
};
use ipnet::IpNet;

use self::departures::Departures;
use super::convergence::Convergence;
use super::duties::Own;
use super::learned::{Learned, Paths};
use crate::limits::{FAILED_HOLD, METRICS_OF_LOCAL_PREF, TURN_LOCALS_MAX, TURN_PREFIXES_MAX};
use crate::{KernelConfig, MultipathWeights, NexthopUse};

/// The families that a kernel forwards.
const FORWARDED: [Family; 2] = [Family::IPV4_UNICAST, Family::IPV6_UNICAST];

/// The tables of a speaker, driven by Tokio or not.
pub trait Tables {
    /// See [`Speaker::read`].
    fn read(
        &mut self,
        reader: ReaderId,
        family: Family,
        budget: Budget,
        each: &mut dyn FnMut(Change<'_>),
    ) -> Progress;

    /// Returns the speaker for reading.
    fn speaker(&self) -> &Speaker;

    /// Returns whether all routes were sent to the neighbors.
    fn all_sent(&self) -> bool;
}

impl Tables for Io {
    fn read(
        &mut self,
        reader: ReaderId,
        family: Family,
        budget: Budget,
        each: &mut dyn FnMut(Change<'_>),
    ) -> Progress {
        Self::read(self, reader, family, budget, each)
    }

    fn speaker(&self) -> &Speaker {
        Self::speaker(self)
    }

    fn all_sent(&self) -> bool {
        Self::all_sent(self)
    }
}

impl Tables for Speaker {
    fn read(
        &mut self,
        reader: ReaderId,
        family: Family,
        budget: Budget,
        each: &mut dyn FnMut(Change<'_>),
    ) -> Progress {
        Self::read(self, reader, family, budget, each)
    }

    fn speaker(&self) -> &Speaker {
        self
    }

    fn all_sent(&self) -> bool {
        Self::all_sent(self)
    }
}

/// One host between its kernel and its BGP speaker.
///
/// Pass events in the order in which they happen: those of the kernel ([`kernel`](Self::kernel))
/// and of the speaker ([`session`](Self::session), [`track`](Self::track)), and let the node read
/// the speaker's tables ([`read`](Self::read)). After each call, pass the results of
/// [`poll_input`](Self::poll_input) to the speaker and those of
/// [`poll_command`](Self::poll_command) to the kernel, until there are no more.
#[derive(Debug)]
pub struct Node {
    pub(super) config: KernelConfig,
    /// The families of this node that the speaker has tables for.
    families: Vec<Family>,
    reader: ReaderId,
    pub(super) watcher: Watcher,
    pub(super) reconciler: Reconciler,
    /// Prefixes of which Felix removes the routes after an answer.
    pub(super) departures: Departures,
    learned: Learned,
    /// Prefixes with a kernel route of another than the default metric, with that metric.
    elsewhere: BTreeMap<IpNet, u32>,
    /// Prefixes that this node originates.
    announced: BTreeSet<IpNet>,
    /// Originated prefixes, and recently withdrawn ones with learned routes: the speaker's log
    /// omits changes of learned routes to an originated prefix, until it has reported a later
    /// change.
    looked_behind: BTreeSet<IpNet>,
    /// The last of them that was looked up.
    looked_up: Option<IpNet>,
    convergence: Convergence,
    /// The duties from the datastore.
    own: Own,
    /// Prefixes of the duties that are to be announced (true) or withdrawn (false).
    unannounced: BTreeMap<IpNet, bool>,
    /// All wanted routes were in the kernel once.
    pub(super) was_installed: bool,
    /// When to check that again.
    pub(super) installed_look_at: Instant,
    /// The end of [`FAILED_HOLD`], if gateways have failed.
    failed_until: Instant,
    /// Whether the last read of the speaker's tables was complete.
    is_read: bool,
}

impl Node {
    /// Makes a node without state. It uses one reader of the speaker exclusively.
    pub fn new(now: Instant, config: KernelConfig, speaker: &mut Speaker) -> Self {
        let mut reconciler = ReconcilerConfig::new(config.owner);
        reconciler.tables = config.tables_written();
        reconciler.tables_read = config.tables();
        let written = &reconciler.tables;
        reconciler
            .tables_read
            .retain(|table| !written.contains(table));
        reconciler.metrics = config.metrics();
        reconciler.grace = config.grace;
        reconciler.period = config.reconcile;
        reconciler.install = config.install;
        reconciler.nexthop_objects = config.nexthop_objects.into();
        let mut watcher = WatcherConfig::new(config.owner);
        watcher.import.clone_from(&config.import);
        watcher.resolve_table = config.table;
        watcher.also_read = config.tables().into_iter().collect();
        let families = speaker.config().families;
        let mut node = Self {
            families: FORWARDED
                .into_iter()
                .filter(|f| families.contains(*f))
                .collect(),
            reader: speaker.add_reader(),
            watcher: Watcher::new(watcher),
            reconciler: Reconciler::new(now, reconciler),
            departures: Departures::default(),
            learned: Learned::default(),
            elsewhere: BTreeMap::new(),
            announced: BTreeSet::new(),
            looked_behind: BTreeSet::new(),
            looked_up: None,
            convergence: Convergence::default(),
            own: Own::default(),
            unannounced: BTreeMap::new(),
            was_installed: false,
            installed_look_at: now,
            failed_until: now,
            is_read: false,
            config,
        };
        node.show_answerer();
        node
    }

    /// Applies a kernel event.
    pub fn kernel(&mut self, now: Instant, event: &Event) {
        self.watcher.handle(event);
        self.reconciler.handle(now, event);
        if matches!(event, Event::Link(link) if link.name == IPIP_INTERFACE) {
            for prefix in self.own.tunneled().clone() {
                self.install(prefix);
            }
        }
    }

    /// Replaces the duties from the datastore.
    pub fn take_duties(&mut self, duties: &Duties) {
        let changed = self.own.take(duties);
        for prefix in changed.announce {
            self.announced.insert(prefix);
            self.looked_behind.insert(prefix);
            self.unannounced.insert(prefix, true);
        }
        for prefix in changed.withdraw {
            // The kernel may have a foreign route to it, which is announced nevertheless.
            if self.watcher.imported_routes_to(prefix).next().is_none() {
                self.retract(prefix);
                self.unannounced.insert(prefix, false);
            }
        }
        if changed.degrees {
            // LOCAL_PREF sets metrics from now on, and did so in a former run.
            self.reconciler.adopt_metrics(&METRICS_OF_LOCAL_PREF);
            let imported = self.watcher.imported();
            self.unannounced
                .extend(imported.map(|prefix| (prefix, true)));
        }
        let all = if changed.all {
            self.learned.prefixes()
        } else {
            Vec::new()
        };
        for prefix in changed.install.into_iter().chain(all) {
            self.install(prefix);
        }
    }

    /// Returns how many destinations need a tunnel that is unavailable at the moment, and why.
    pub fn without_tunnel(&self) -> Option<(usize, &'static str)> {
        let why = match self.watcher.link_named(IPIP_INTERFACE) {
            Some(link) if link.up => return None,
            Some(_) => "is down",
            None => "is not there: the kernel makes it with its module ipip",
        };
        let count = self.own.tunneled().len();
        (count > 0).then_some((count, why))
    }

    /// Applies a session event.
    pub fn session(&mut self, now: Instant, speaker: &Speaker, event: &SessionEvent) {
        if let SessionEvent::PathFailed {
            peer, consequence, ..
        } = event
            && let Some(config) = speaker.peer_config(*peer)
        {
            self.path_failed(now, config.remote, *consequence);
        }
        self.convergence.record(event);
    }

    /// Applies the failure of the path to a neighbor. Where routes use nexthop objects, its address leaves
    /// all kernel routes at once, before the speaker has removed the paths. A neighbor that may only
    /// restart keeps its routes.
    fn path_failed(&mut self, now: Instant, gateway: IpAddr, consequence: PathConsequence) {
        match consequence {
            PathConsequence::FormerRemoved => self.reconciler.lose_gateway(gateway),
            PathConsequence::SessionClosed
            | PathConsequence::SessionClosedNextHopFailed
            | PathConsequence::NextHopFailed
            | PathConsequence::StaleRemoved => {}
            _ => return,
        }
        if self.config.nexthop_objects == NexthopUse::Auto {
            self.reconciler.fail_gateway(gateway);
            self.failed_until = now + FAILED_HOLD;
        }
    }

    /// Starts or stops tracking a next hop of the speaker's tables.
    pub fn track(&mut self, track: Track) {
        match track {
            Track::Watch(address) => self.watcher.track(address),
            Track::Unwatch(address) => self.watcher.untrack(address),
        }
    }

    /// Returns the next input of the speaker: an originated route, or the reachability of a next
    /// hop.
    pub fn poll_input(&mut self) -> Option<Input<'static>> {
        while let Some((prefix, announce)) = self.unannounced.pop_first() {
            let attributes = announce.then(|| self.own_attributes(prefix));
            if let Some(input) = self.local(prefix, attributes) {
                return Some(input);
            }
        }
        while let Some(change) = self.watcher.poll_change() {
            match change {
                WatchChange::Import(prefix) => {
                    self.stay(prefix);
                    self.announced.insert(prefix);
                    self.looked_behind.insert(prefix);
                    self.install(prefix);
                    if let Some(input) = self.local(prefix, Some(self.own_attributes(prefix))) {
                        return Some(input);
                    }
                }
                WatchChange::Retract(prefix) if self.own.announces(&prefix) => {}
                WatchChange::Retract(prefix) => {
                    self.depart(prefix);
                    self.retract(prefix);
                    self.install(prefix);
                    if let Some(input) = self.local(prefix, None) {
                        return Some(input);
                    }
                }
                WatchChange::NextHop(next_hop, resolution) => {
                    for prefix in self.learned.over(next_hop) {
                        self.install(prefix);
                    }
                    let reach = match resolution {
                        Resolution::Reachable { cost, .. } => Reach::Cost(cost),
                        Resolution::Unreachable(_) => Reach::Unreachable,
                    };
                    return Some(Input::Resolved { next_hop, reach });
                }
            }
        }
        None
    }

    /// Returns whether the kernel's routes have been read completely, so that all originated routes
    /// are passed on once [`poll_input`](Self::poll_input) returns `None`.
    pub fn has_announced_own(&self) -> bool {
        self.watcher.is_certain()
    }

    /// Reads changes of the speaker's tables, limited to one turn.
    pub fn read(&mut self, now: Instant, tables: &mut impl Tables) -> Progress {
        let mut progress = Progress::Done;
        let mut changed = false;
        for family in self.families.clone() {
            let (read, any) = self.read_family(family, tables);
            changed |= any;
            if read != Progress::Done {
                progress = Progress::More;
            }
        }
        self.answer(now, tables);
        let (all, any) = self.look_behind(tables.speaker());
        if !all {
            progress = Progress::More;
        }
        self.is_read = progress == Progress::Done;
        self.convergence.observe(
            now,
            tables.speaker(),
            changed || any || progress != Progress::Done,
        );
        progress
    }

    /// Returns the next command for the kernel.
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        if self.convergence.expire(now) {
            self.reconciler.finish_grace();
        }
        if self.is_read && now >= self.failed_until {
            self.reconciler.restore_gateways();
        }
        let command = self.reconciler.poll_command(now);
        if command.is_none() {
            self.note_installed(now);
        }
        command
    }

    /// Returns the next event for the log; call it after each [`poll_command`](Self::poll_command).
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.reconciler.poll_notice()
    }

    /// Returns when to call [`poll_command`](Self::poll_command) without an event.
    pub fn poll_timeout(&self) -> Option<Instant> {
        // If the tables are still being read then, the end of the read continues.
        let has_failed = self.is_read && self.reconciler.has_failed_gateways();
        let all = [
            self.convergence.deadline(),
            self.reconciler.poll_timeout(),
            self.departures.timeout(),
            has_failed.then_some(self.failed_until),
        ];
        all.into_iter().flatten().min()
    }

    /// Deletes all routes of this daemon; commands follow.
    pub fn flush(&mut self) {
        let keys: Vec<RouteKey> = self.reconciler.routes().map(|view| view.key).collect();
        for key in keys {
            self.reconciler.unwant(&key);
        }
        self.reconciler.finish_grace();
    }

    /// Returns whether the kernel has no route of this daemon, as far as known.
    pub fn is_flushed(&self) -> bool {
        self.reconciler
            .routes()
            .all(|view| !matches!(view.status, FibStatus::Sent | FibStatus::Stray))
    }

    /// Applies the settings that may change at run time: the import rules, and the treatment of
    /// routes at exit. Returns false if the rules need a table that is not read; the old ones then
    /// stay in effect.
    pub fn reload(&mut self, new: &KernelConfig) -> bool {
        self.config.on_exit = new.on_exit;
        let taken = self.watcher.set_import(new.import.clone());
        if taken {
            self.config.import.clone_from(&new.import);
        }
        taken
    }

    /// Returns the configuration in effect.
    pub fn config(&self) -> &KernelConfig {
        &self.config
    }

    /// Returns the wanted routes and their state.
    pub fn reconciler(&self) -> &Reconciler {
        &self.reconciler
    }

    /// Returns foreign routes, links and next hops.
    pub fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn local(&self, prefix: IpNet, attributes: Option<Attributes>) -> Option<Input<'static>> {
        let (family, net) = net_of(prefix);
        let input = Input::Local {
            family,
            net,
            attributes,
            interface: self.interface_to(prefix),
        };
        self.families.contains(&family).then_some(input)
    }

    /// Returns the interface of the kernel's route to an originated prefix.
    fn interface_to(&self, prefix: IpNet) -> Option<InterfaceName> {
        let mut routes = self.watcher.imported_routes_to(prefix);
        let hop = routes.find_map(|(_, route)| route.next_hops.first()?.interface)?;
        self.watcher.link(hop)?.name.parse().ok()
    }

    fn read_family(&mut self, family: Family, tables: &mut impl Tables) -> (Progress, bool) {
        let ipv6 = family == Family::IPV6_UNICAST;
        let is_weighted = self.config.multipath_weights == MultipathWeights::LinkBandwidth;
        let mut changes: Vec<(IpNet, Paths)> = Vec::new();
        let budget = Budget(TURN_PREFIXES_MAX);
        let progress = tables.read(self.reader, family, budget, &mut |change| {
            if let Some(prefix) = prefix_of(change.net) {
                changes.push((prefix, paths_of(&change, is_weighted)));
            }
        });
        if progress == Progress::Lost {
            self.learned.doubt(ipv6);
        }
        let mut any = false;
        for (prefix, paths) in changes {
            // The speaker's log omits learned routes to a prefix that is also originated.
            if !self.announced.contains(&prefix) {
                self.looked_behind.remove(&prefix);
                any |= self.learn(prefix, paths);
            }
        }
        if progress == Progress::Done {
            for prefix in self.learned.take_unconfirmed(ipv6) {
                if !self.announced.contains(&prefix) {
                    any |= self.learn(prefix, Paths::default());
                }
            }
        }
        (progress, any)
    }

    /// Withdraws an originated prefix. The log reports the learned routes that follow, if there are
    /// any. Learned routes that disappear before the log has reported them must be looked up.
    fn retract(&mut self, prefix: IpNet) {
        self.announced.remove(&prefix);
        if self.learned.get(&prefix).is_none() {
            self.looked_behind.remove(&prefix);
        }
    }

    /// Looks up learned routes to prefixes that are also originated: they are never the best ones,
    /// but are kept in the kernel with a worse metric than the workload's route, so that traffic
    /// continues when the workload moves. Returns whether all were looked up, and whether any
    /// changed.
    fn look_behind(&mut self, speaker: &Speaker) -> (bool, bool) {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = self.looked_up.map_or(Unbounded, Excluded);
        let looked_behind = &self.looked_behind;
        let after = looked_behind.range((start, Unbounded));
        let around = after.chain(looked_behind).take(looked_behind.len());
        let part: Vec<IpNet> = around.take(TURN_LOCALS_MAX).copied().collect();
        let all = part.len() == looked_behind.len();
        let last = looked_behind.last().copied();
        let is_weighted = self.config.multipath_weights == MultipathWeights::LinkBandwidth;
        let mut any = false;
        for prefix in part {
            self.looked_up = Some(prefix);
            let paths = behind(speaker, prefix, is_weighted);
            if paths.next_hops.is_empty() && !self.announced.contains(&prefix) {
                self.looked_behind.remove(&prefix);
            }
            any |= self.learn(prefix, paths);
        }
        (all || self.looked_up == last, any)
    }

    fn learn(&mut self, prefix: IpNet, paths: Paths) -> bool {
        let changed = self.learned.set(prefix, paths);
        if changed {
            self.install(prefix);
        }
        changed
    }

    /// Requests the kernel route for the learned paths, with their next hops as currently resolved.
    /// A route whose metric changes is added with the new metric before the old one is deleted.
    fn install(&mut self, prefix: IpNet) {
        let (metric, route) = match self.route_to(prefix) {
            Some((metric, route)) => (metric.unwrap_or(self.config.metric), Some(route)),
            None => (self.config.metric, None),
        };
        let key = |metric| RouteKey::new(self.config.table, prefix, metric, 0);
        let before = match metric == self.config.metric {
            true => self.elsewhere.remove(&prefix),
            false => self.elsewhere.insert(prefix, metric),
        };
        let (key, before) = (key(metric), key(before.unwrap_or(self.config.metric)));
        match route {
            Some(route) => self.reconciler.want(key, route),
            None => self.reconciler.unwant(&key),
        }
        if before != key {
            self.reconciler.unwant(&before);
        }
    }

    /// Returns the wanted kernel route to a prefix, with its metric if it is not the default one.
    fn route_to(&mut self, prefix: IpNet) -> Option<(Option<u32>, Route)> {
        let owner = self.config.owner;
        if let Some(route) = self.own.route(&prefix, owner) {
            return Some((None, route));
        }
        let none = Paths::default();
        let paths = self.learned.get(&prefix).unwrap_or(&none);
        let hops = self.own.hops(&self.watcher, prefix, paths);
        let workload = || self.watcher.imported_metric(prefix);
        let metric = self.own.metric(&prefix, paths.local_pref, workload);
        (!hops.is_empty()).then(|| (metric, Route::unicast(owner, hops)))
    }

    /// Returns the attributes of an originated route: ORIGIN IGP, empty AS_PATH, and those of a service; the
    /// speaker sets the next hop for each neighbor (RFC 4271 §5.1.3).
    fn own_attributes(&self, prefix: IpNet) -> Attributes {
        let metric = self.watcher.imported_metric(prefix);
        let mut attributes = Attributes {
            origin: Origin::Igp,
            local_pref: metric.and_then(|metric| self.own.degree(metric)),
            ..Attributes::default()
        };
        self.own.add_attributes(&prefix, &mut attributes);
        attributes
    }
}

pub(super) fn net_of(prefix: IpNet) -> (Family, Net<'static>) {
    match prefix {
        IpNet::V4(prefix) => (Family::IPV4_UNICAST, Net::V4(prefix.into())),
        IpNet::V6(prefix) => (Family::IPV6_UNICAST, Net::V6(prefix.into())),
    }
}

fn prefix_of(net: Net<'_>) -> Option<IpNet> {
    match net {
        Net::V4(prefix) => Some(IpNet::V4(prefix.into())),
        Net::V6(prefix) => Some(IpNet::V6(prefix.into())),
        Net::Opaque(_) => None,
    }
}

/// Returns the paths in use; empty if the route was removed or is originated here.
fn paths_of(change: &Change<'_>, is_weighted: bool) -> Paths {
    let mut all = Paths::default();
    for path in change.route.iter().flat_map(|route| route.paths()) {
        if path.peer != PeerId::LOCAL {
            all.add(&path.attributes, is_weighted);
        }
    }
    all
}

/// Returns the paths that would be used if the prefix were not originated here.
fn behind(speaker: &Speaker, prefix: IpNet, is_weighted: bool) -> Paths {
    let (family, net) = net_of(prefix);
    let mut all = Paths::default();
    let view = speaker.rib().lookup(family, net);
    let paths = view.iter().flat_map(|view| &view.paths);
    for path in paths.filter(|path| path.fallback) {
        if let Some(attributes) = &path.accepted {
            all.add(attributes, is_weighted);
        }
    }
    all
}
