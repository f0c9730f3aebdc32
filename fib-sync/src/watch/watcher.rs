//! The watcher: events in, changes out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::import::ImportRule;
use super::mirror::{Mirror, Touched};
use super::resolve::{Resolution, resolve};
use crate::owner::Owner;
use crate::port::Event;
use crate::route::{Link, METRIC_LEAVING, Route, RouteKey, TABLE_MAIN};

/// Configuration of a [`Watcher`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatcherConfig {
    /// The own protocol: its routes are neither imported nor used to resolve next hops.
    pub own: Owner,
    /// Selects the routes to import.
    pub import: Vec<ImportRule>,
    /// The table used to resolve next hops.
    pub resolve_table: u32,
    /// Further tables of which routes can be looked up with [`Watcher::foreign_routes`].
    pub also_read: BTreeSet<u32>,
}

impl WatcherConfig {
    /// Returns the default configuration: routes of Felix imported, next hops resolved in the main
    /// table.
    pub fn new(own: Owner) -> Self {
        Self {
            own,
            import: vec![ImportRule::default()],
            resolve_table: TABLE_MAIN,
            also_read: BTreeSet::new(),
        }
    }

    /// Returns the tables that the watcher needs; the reconciler that feeds it has to dump them
    /// all.
    pub fn tables(&self) -> BTreeSet<u32> {
        self.import
            .iter()
            .map(|rule| rule.table)
            .chain([self.resolve_table])
            .chain(self.also_read.iter().copied())
            .collect()
    }
}

/// A change of the imported routes or of a tracked next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchChange {
    /// A prefix is to be advertised, or the lowest metric of its routes changed.
    Import(IpNet),
    /// A prefix is to be withdrawn: none of its routes is imported any more.
    Retract(IpNet),
    /// The resolution of a tracked next hop changed.
    NextHop(IpAddr, Resolution),
}

/// Follows foreign routes.
///
/// A change is returned once, however many events caused it, in its state at the time of the poll.
#[derive(Debug)]
pub struct Watcher {
    config: WatcherConfig,
    mirror: Mirror,
    /// Prefixes returned as imported, with their metric at that time.
    imported: BTreeMap<IpNet, u32>,
    /// Tracked next hops and their last returned resolution.
    next_hops: BTreeMap<IpAddr, Option<Resolution>>,
    dirty_prefixes: BTreeSet<IpNet>,
    dirty_next_hops: BTreeSet<IpAddr>,
    /// Every table was read once.
    started: bool,
}

impl Watcher {
    /// Returns a watcher without any knowledge of the kernel.
    pub fn new(config: WatcherConfig) -> Self {
        Self {
            mirror: Mirror::new(config.own, config.tables()),
            imported: BTreeMap::new(),
            next_hops: BTreeMap::new(),
            dirty_prefixes: BTreeSet::new(),
            dirty_next_hops: BTreeSet::new(),
            started: false,
            config,
        }
    }

    /// Replaces the import rules. Their tables must be among the tables of the initial
    /// configuration. Returns whether they are; if not, nothing changes.
    pub fn set_import(&mut self, rules: Vec<ImportRule>) -> bool {
        if !rules.iter().all(|rule| self.mirror.reads(rule.table)) {
            return false;
        }
        self.config.import = rules;
        self.doubt_everything();
        true
    }

    /// Handles an event. Drain [`poll_change`](Self::poll_change) afterwards.
    pub fn handle(&mut self, event: &Event) {
        let Touched { prefixes, all } = self.mirror.handle(event);
        if all {
            self.doubt_everything();
            return;
        }
        for prefix in prefixes {
            let covered = self.next_hops.range(prefix.network()..=prefix.broadcast());
            self.dirty_next_hops
                .extend(covered.map(|(address, _)| *address));
            self.dirty_prefixes.insert(prefix);
        }
    }

    /// Starts to report the resolution of this next hop, now and after each change.
    pub fn track(&mut self, address: IpAddr) {
        self.next_hops.entry(address).or_insert(None);
        self.dirty_next_hops.insert(address);
    }

    /// Stops reporting the resolution of this next hop.
    pub fn untrack(&mut self, address: IpAddr) {
        self.next_hops.remove(&address);
        self.dirty_next_hops.remove(&address);
    }

    /// Returns the next change. None is returned before every table was read once, so that a start
    /// does not look like a withdrawal of everything.
    pub fn poll_change(&mut self) -> Option<WatchChange> {
        self.started |= self.mirror.is_certain();
        if !self.started {
            return None;
        }
        while let Some(prefix) = self.dirty_prefixes.pop_first() {
            match self.imported_metric(prefix) {
                Some(metric) => {
                    if self.imported.insert(prefix, metric) != Some(metric) {
                        return Some(WatchChange::Import(prefix));
                    }
                }
                None => {
                    if self.imported.remove(&prefix).is_some() {
                        return Some(WatchChange::Retract(prefix));
                    }
                }
            }
        }
        while let Some(address) = self.dirty_next_hops.pop_first() {
            let now = resolve(&self.mirror, self.config.resolve_table, address);
            if let Some(reported) = self.next_hops.get_mut(&address)
                && reported.as_ref() != Some(&now)
            {
                *reported = Some(now.clone());
                return Some(WatchChange::NextHop(address, now));
            }
        }
        None
    }

    /// Returns whether every table was read completely and nothing was lost since.
    pub fn is_certain(&self) -> bool {
        self.mirror.is_certain()
    }

    /// Returns the last reported resolution of a next hop.
    pub fn resolution(&self, address: IpAddr) -> Option<&Resolution> {
        self.next_hops.get(&address).and_then(Option::as_ref)
    }

    /// Returns the tracked next hops and their last reported resolutions.
    pub fn resolutions(&self) -> impl Iterator<Item = (IpAddr, &Resolution)> {
        self.next_hops
            .iter()
            .filter_map(|(address, reported)| Some((*address, reported.as_ref()?)))
    }

    /// Returns the imported prefixes.
    pub fn imported(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.imported.keys().copied()
    }

    /// Returns the imported routes; several per prefix if they differ in metric or owner.
    pub fn imported_routes(&self) -> impl Iterator<Item = (&RouteKey, &Route)> {
        let routes = self
            .mirror
            .routes
            .iter()
            .map(|((key, _), route)| (key, route));
        routes.filter(|(key, route)| {
            let mut rules = self.config.import.iter();
            rules.any(|rule| rule.takes(&self.mirror, key, route))
        })
    }

    /// Returns the imported routes to this prefix.
    pub fn imported_routes_to(&self, prefix: IpNet) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.config.import.iter().flat_map(move |rule| {
            let routes = self.mirror.of_prefix(rule.table, prefix);
            routes.filter(move |(key, route)| rule.takes(&self.mirror, key, route))
        })
    }

    /// Returns the lowest metric of the imported routes to this prefix, which is that of the
    /// forwarding one; `None` if there is no such route.
    pub fn imported_metric(&self, prefix: IpNet) -> Option<u32> {
        let routes = self.imported_routes_to(prefix);
        routes.map(|(key, _)| key.metric).min()
    }

    /// Returns whether an import rule selects a route to this prefix that its program is about to remove.
    pub fn is_leaving(&self, prefix: IpNet) -> bool {
        self.config.import.iter().any(|rule| {
            let mut routes = self.mirror.of_prefix(rule.table, prefix);
            routes.any(|(key, route)| {
                key.metric == METRIC_LEAVING && rule.fits(&self.mirror, key, route)
            })
        })
    }

    /// Returns the routes of other programs with this key, in any table of
    /// [`WatcherConfig::tables`].
    pub fn foreign_routes(&self, key: RouteKey) -> impl Iterator<Item = &Route> {
        let routes = self.mirror.of_prefix(key.table, key.prefix);
        routes
            .filter(move |(found, _)| **found == key)
            .map(|(_, route)| route)
    }

    /// Returns a link by its index.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.mirror.links.get(&index)
    }

    /// Returns a link by its name.
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.mirror.links.values().find(|link| link.name == name)
    }

    /// Returns whether this is an address of this host.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.mirror
            .addresses
            .iter()
            .any(|own| own.address.addr() == address)
    }

    fn doubt_everything(&mut self) {
        self.dirty_next_hops.extend(self.next_hops.keys());
        self.dirty_prefixes.extend(self.imported.keys());
        self.dirty_prefixes
            .extend(self.mirror.routes.keys().map(|(key, _)| key.prefix));
    }
}
