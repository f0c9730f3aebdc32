//! The node itself.

use std::collections::{BTreeMap, BTreeSet};

use bgp_io::bgp_proto::{Attributes, Family, Net, Origin};
use bgp_io::bgp_speaker::{Event as SessionEvent, ReaderId};
use bgp_io::rib::{Budget, Change, InterfaceName, PeerId, Progress, Reach, Track};
use bgp_io::{Input, Io, Speaker};
use calico_bgp::{Duties, IPIP_INTERFACE};
use fib_sync::watch::{Resolution, WatchChange, Watcher, WatcherConfig};
use fib_sync::{
    Command, Event, FibStatus, Instant, Notice, Reconciler, ReconcilerConfig, Route, RouteKey,
};
use ipnet::IpNet;

use super::duties::Own;
use super::learned::{Learned, Paths};
use super::settle::Settle;
use crate::KernelConfig;
use crate::limits::{METRICS_OF_LOCAL_PREF, TURN_LOCALS_MAX, TURN_PREFIXES_MAX};

/// The families whose routes a kernel forwards by.
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

    /// The speaker, to look at.
    fn speaker(&self) -> &Speaker;
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
}

/// One host between its kernel and its BGP speaker.
///
/// In any order, as things happen: hand it the kernel's events ([`kernel`](Self::kernel)), the
/// speaker's ([`session`](Self::session), [`track`](Self::track)), and let it read the speaker's
/// tables ([`read`](Self::read)). After each, hand what [`poll_input`](Self::poll_input) gives to
/// the speaker and what [`poll_command`](Self::poll_command) gives to the kernel, until there is
/// no more.
#[derive(Debug)]
pub struct Node {
    config: KernelConfig,
    /// Families of ours that the speaker has tables for.
    families: Vec<Family>,
    reader: ReaderId,
    watcher: Watcher,
    reconciler: Reconciler,
    learned: Learned,
    /// Prefixes whose route in the kernel has another metric than most, and that metric.
    elsewhere: BTreeMap<IpNet, u32>,
    /// Prefixes announced as our own.
    announced: BTreeSet<IpNet>,
    /// Those, and such as were until lately and have learned routes: what stands behind a route
    /// of our own the log does not tell of, until it tells what came after.
    looked_behind: BTreeSet<IpNet>,
    /// The last of them that was looked up.
    looked_up: Option<IpNet>,
    settle: Settle,
    /// What a store says of us beside our sessions.
    own: Own,
    /// Prefixes of that to announce or to withdraw.
    untold: BTreeMap<IpNet, bool>,
}

impl Node {
    /// A node that knows nothing yet. `reader` is one of the speaker's, for this node alone.
    pub fn new(now: Instant, config: KernelConfig, speaker: &mut Speaker) -> Self {
        let mut reconciler = ReconcilerConfig::new(config.owner);
        reconciler.tables = vec![config.table];
        reconciler.tables_read = config.tables();
        reconciler
            .tables_read
            .retain(|table| *table != config.table);
        reconciler.metrics = config.metrics();
        reconciler.grace = config.grace;
        reconciler.period = config.reconcile;
        reconciler.install = config.install;
        let watcher = WatcherConfig {
            own: config.owner,
            import: config.import.clone(),
            resolve_table: config.table,
        };
        let families = speaker.config().families;
        Self {
            families: FORWARDED
                .into_iter()
                .filter(|f| families.contains(*f))
                .collect(),
            reader: speaker.add_reader(),
            watcher: Watcher::new(watcher),
            reconciler: Reconciler::new(now, reconciler),
            learned: Learned::default(),
            elsewhere: BTreeMap::new(),
            announced: BTreeSet::new(),
            looked_behind: BTreeSet::new(),
            looked_up: None,
            settle: Settle::default(),
            own: Own::default(),
            untold: BTreeMap::new(),
            config,
        }
    }

    /// Takes note of what the kernel tells.
    pub fn kernel(&mut self, now: Instant, event: &Event) {
        self.watcher.handle(event);
        self.reconciler.handle(now, event);
        if matches!(event, Event::Link(link) if link.name == IPIP_INTERFACE) {
            for prefix in self.own.tunnelled().clone() {
                self.install(prefix);
            }
        }
    }

    /// Takes over what a store says of us beside our sessions.
    pub fn take_duties(&mut self, duties: &Duties) {
        let changed = self.own.take(duties);
        for prefix in changed.announce {
            self.announced.insert(prefix);
            self.looked_behind.insert(prefix);
            self.untold.insert(prefix, true);
        }
        for prefix in changed.withdraw {
            // The kernel may have a route of others to it, which is announced all the same.
            if self.watcher.imported_routes_to(prefix).next().is_none() {
                self.retract(prefix);
                self.untold.insert(prefix, false);
            }
        }
        if changed.degrees {
            // LOCAL_PREF sets metrics from now on, and did in a former run.
            self.reconciler.adopt_metrics(&METRICS_OF_LOCAL_PREF);
            let imported = self.watcher.imported();
            self.untold.extend(imported.map(|prefix| (prefix, true)));
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

    /// How many destinations need a tunnel that cannot be had at the moment, and why.
    pub fn without_tunnel(&self) -> Option<(usize, &'static str)> {
        let why = match self.watcher.link_named(IPIP_INTERFACE) {
            Some(link) if link.up => return None,
            Some(_) => "is down",
            None => "is not there: the kernel makes it with its module ipip",
        };
        let count = self.own.tunnelled().len();
        (count > 0).then_some((count, why))
    }

    /// Takes note of what happens to a session.
    pub fn session(&mut self, event: &SessionEvent) {
        self.settle.hear(event);
    }

    /// Follows a next hop for the speaker's tables, or no longer.
    pub fn track(&mut self, track: Track) {
        match track {
            Track::Watch(address) => self.watcher.track(address),
            Track::Unwatch(address) => self.watcher.untrack(address),
        }
    }

    /// What the speaker is to be told next: a route of our own, or how a next hop is reached.
    pub fn poll_input(&mut self) -> Option<Input<'static>> {
        while let Some((prefix, announce)) = self.untold.pop_first() {
            let attributes = announce.then(|| self.own_attributes(prefix));
            if let Some(input) = self.local(prefix, attributes) {
                return Some(input);
            }
        }
        while let Some(change) = self.watcher.poll_change() {
            match change {
                WatchChange::Import(prefix) => {
                    self.announced.insert(prefix);
                    self.looked_behind.insert(prefix);
                    self.install(prefix);
                    if let Some(input) = self.local(prefix, Some(self.own_attributes(prefix))) {
                        return Some(input);
                    }
                }
                WatchChange::Retract(prefix) if self.own.announces(&prefix) => {}
                WatchChange::Retract(prefix) => {
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

    /// Whether the kernel's routes have been read whole, so that with
    /// [`poll_input`](Self::poll_input) silent all of our own are told.
    pub fn has_told_own(&self) -> bool {
        self.watcher.is_certain()
    }

    /// Reads what changed in the speaker's tables, a bite of it.
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
        let (all, any) = self.look_behind(tables.speaker());
        if !all {
            progress = Progress::More;
        }
        self.settle.observe(
            now,
            tables.speaker(),
            changed || any || progress != Progress::Done,
        );
        progress
    }

    /// What the kernel is to be asked next.
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        if self.settle.expire(now) {
            self.reconciler.finish_grace();
        }
        self.reconciler.poll_command(now)
    }

    /// The next event for the log; ask after each [`poll_command`](Self::poll_command).
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.reconciler.poll_notice()
    }

    /// When to call [`poll_command`](Self::poll_command) although nothing happened.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.settle.deadline(), self.reconciler.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Deletes every route of ours; commands follow.
    pub fn flush(&mut self) {
        let keys: Vec<RouteKey> = self.reconciler.routes().map(|view| view.key).collect();
        for key in keys {
            self.reconciler.unwant(&key);
        }
        self.reconciler.finish_grace();
    }

    /// Whether no route of ours is in the kernel, as far as can be told.
    pub fn is_flushed(&self) -> bool {
        self.reconciler
            .routes()
            .all(|view| !matches!(view.status, FibStatus::Sent | FibStatus::Stray))
    }

    /// Takes over what may change while it runs: the import rules, and what becomes of routes at
    /// exit. Returns false if the rules need a table that is not read; the old ones stay then.
    pub fn reload(&mut self, new: &KernelConfig) -> bool {
        self.config.on_exit = new.on_exit;
        let taken = self.watcher.set_import(new.import.clone());
        if taken {
            self.config.import.clone_from(&new.import);
        }
        taken
    }

    /// The configuration in force.
    pub fn config(&self) -> &KernelConfig {
        &self.config
    }

    /// Wanted routes and how far they are.
    pub fn reconciler(&self) -> &Reconciler {
        &self.reconciler
    }

    /// Routes of others, links, next hops.
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

    /// The interface of the kernel's route to a prefix of our own.
    fn interface_to(&self, prefix: IpNet) -> Option<InterfaceName> {
        let mut routes = self.watcher.imported_routes_to(prefix);
        let hop = routes.find_map(|(_, route)| route.next_hops.first()?.interface)?;
        self.watcher.link(hop)?.name.parse().ok()
    }

    fn read_family(&mut self, family: Family, tables: &mut impl Tables) -> (Progress, bool) {
        let ipv6 = family == Family::IPV6_UNICAST;
        let mut changes: Vec<(IpNet, Paths)> = Vec::new();
        let budget = Budget(TURN_PREFIXES_MAX);
        let progress = tables.read(self.reader, family, budget, &mut |change| {
            if let Some(prefix) = prefix_of(change.net) {
                changes.push((prefix, paths_of(&change)));
            }
        });
        if progress == Progress::Lost {
            self.learned.doubt(ipv6);
        }
        let mut any = false;
        for (prefix, paths) in changes {
            // Behind a route of our own others may stand, which the log does not tell of.
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

    /// A prefix is no longer our own. The log tells what comes after, if anything does: what was
    /// only learned behind ours, and goes before the log has told of it, has to be looked for.
    fn retract(&mut self, prefix: IpNet) {
        self.announced.remove(&prefix);
        if self.learned.get(&prefix).is_none() {
            self.looked_behind.remove(&prefix);
        }
    }

    /// Learned routes to prefixes that are also our own: they never are the best ones, but are
    /// kept in the kernel behind the workload's, so that nothing is lost when the workload moves.
    /// Returns whether all were looked at, and whether any changed.
    fn look_behind(&mut self, speaker: &Speaker) -> (bool, bool) {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = self.looked_up.map_or(Unbounded, Excluded);
        let looked_behind = &self.looked_behind;
        let after = looked_behind.range((start, Unbounded));
        let around = after.chain(looked_behind).take(looked_behind.len());
        let bite: Vec<IpNet> = around.take(TURN_LOCALS_MAX).copied().collect();
        let all = bite.len() == looked_behind.len();
        let last = looked_behind.last().copied();
        let mut any = false;
        for prefix in bite {
            self.looked_up = Some(prefix);
            let paths = behind(speaker, prefix);
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

    /// Wants in the kernel what is learned, as its next hops are reached now. A route that takes
    /// another metric is there with it before the one that it had goes.
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

    /// The kernel's route to a prefix, if it is to have one of ours, and its metric if that is not
    /// the one that most have.
    fn route_to(&mut self, prefix: IpNet) -> Option<(Option<u32>, Route)> {
        let owner = self.config.owner;
        if let Some(route) = self.own.route(&prefix, owner) {
            return Some((None, route));
        }
        let none = Paths::default();
        let paths = self.learned.get(&prefix).unwrap_or(&none);
        let hops = self.own.hops(&self.watcher, prefix, &paths.next_hops);
        let workload = || self.watcher.imported_metric(prefix);
        let metric = self.own.metric(&prefix, paths.local_pref, workload);
        (!hops.is_empty()).then(|| (metric, Route::unicast(owner, hops)))
    }

    /// A workload's route is ours from the beginning: ORIGIN IGP, no AS path; the next hop is put
    /// in by the speaker, for each neighbour its own (RFC 4271 §5.1.3).
    fn own_attributes(&self, prefix: IpNet) -> Attributes {
        let metric = self.watcher.imported_metric(prefix);
        Attributes {
            origin: Origin::Igp,
            local_pref: metric.and_then(|metric| self.own.degree(metric)),
            ..Attributes::default()
        }
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

/// The paths in use; none if the route is gone or our own.
fn paths_of(change: &Change<'_>) -> Paths {
    let mut all = Paths::default();
    for path in change.route.iter().flat_map(|route| route.paths()) {
        if path.peer != PeerId::LOCAL {
            all.add(&path.attributes);
        }
    }
    all
}

/// The paths that would be in use if the prefix were not our own.
fn behind(speaker: &Speaker, prefix: IpNet) -> Paths {
    let (family, net) = net_of(prefix);
    let mut all = Paths::default();
    let view = speaker.rib().lookup(family, net);
    let paths = view.iter().flat_map(|view| &view.paths);
    for path in paths.filter(|path| path.fallback) {
        if let Some(attributes) = &path.accepted {
            all.add(attributes);
        }
    }
    all
}
