//! The watcher: events in, changes out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::import::ImportRule;
use super::mirror::{Mirror, Touched};
use super::resolve::{Resolution, resolve};
use crate::owner::Owner;
use crate::port::Event;
use crate::route::{Link, Route, RouteKey, TABLE_MAIN};

/// What a [`Watcher`] looks for.
#[derive(Clone, Debug)]
pub struct WatcherConfig {
    /// Our own protocol: its routes are neither taken in nor used to reach next hops.
    pub own: Owner,
    /// Which routes are taken in.
    pub import: Vec<ImportRule>,
    /// The table whose routes lead to next hops.
    pub resolve_table: u32,
}

impl WatcherConfig {
    /// Felix's routes taken in, next hops looked up in the main table.
    pub fn new(own: Owner) -> Self {
        Self {
            own,
            import: vec![ImportRule::default()],
            resolve_table: TABLE_MAIN,
        }
    }

    /// The tables it must be told of; the reconciler beside it has to dump them all.
    pub fn tables(&self) -> BTreeSet<u32> {
        self.import
            .iter()
            .map(|rule| rule.table)
            .chain([self.resolve_table])
            .collect()
    }
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchChange {
    /// A prefix is to be announced, or the least metric of its routes is another one.
    Import(IpNet),
    /// A prefix is to be withdrawn: no route of it is taken in any more.
    Retract(IpNet),
    /// A tracked next hop is reached like this now.
    NextHop(IpAddr, Resolution),
}

/// Follows the routes of others.
///
/// A change is told once, however many events led to it, and as it stands when it is polled.
#[derive(Debug)]
pub struct Watcher {
    config: WatcherConfig,
    mirror: Mirror,
    /// Prefixes told as imported, with the metric that was theirs.
    imported: BTreeMap<IpNet, u32>,
    /// Tracked next hops and what was told of them.
    next_hops: BTreeMap<IpAddr, Option<Resolution>>,
    dirty_prefixes: BTreeSet<IpNet>,
    dirty_next_hops: BTreeSet<IpAddr>,
    /// Every table was read once.
    started: bool,
}

impl Watcher {
    /// A watcher that knows nothing yet.
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

    /// Takes other import rules; their tables must be ones it was made with. Returns whether they
    /// are; if not, nothing changes.
    pub fn set_import(&mut self, rules: Vec<ImportRule>) -> bool {
        if !rules.iter().all(|rule| self.mirror.reads(rule.table)) {
            return false;
        }
        self.config.import = rules;
        self.doubt_everything();
        true
    }

    /// Takes note of an event. Drain [`poll_change`](Self::poll_change) afterwards.
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

    /// Wants to know how this next hop is reached, now and whenever that changes.
    pub fn track(&mut self, address: IpAddr) {
        self.next_hops.entry(address).or_insert(None);
        self.dirty_next_hops.insert(address);
    }

    /// Wants to know no more.
    pub fn untrack(&mut self, address: IpAddr) {
        self.next_hops.remove(&address);
        self.dirty_next_hops.remove(&address);
    }

    /// The next change. None is told before every table was read once, so that a start does not
    /// look like a withdrawal of everything.
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
            if let Some(told) = self.next_hops.get_mut(&address)
                && told.as_ref() != Some(&now)
            {
                *told = Some(now.clone());
                return Some(WatchChange::NextHop(address, now));
            }
        }
        None
    }

    /// Whether every table was read completely and nothing was lost since.
    pub fn is_certain(&self) -> bool {
        self.mirror.is_certain()
    }

    /// How a next hop is reached, as last told.
    pub fn resolution(&self, address: IpAddr) -> Option<&Resolution> {
        self.next_hops.get(&address).and_then(Option::as_ref)
    }

    /// Tracked next hops and how they are reached, as last told.
    pub fn resolutions(&self) -> impl Iterator<Item = (IpAddr, &Resolution)> {
        self.next_hops
            .iter()
            .filter_map(|(address, told)| Some((*address, told.as_ref()?)))
    }

    /// The prefixes taken in.
    pub fn imported(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.imported.keys().copied()
    }

    /// The routes that are taken in; several of one prefix if they differ in metric or owner.
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

    /// Those of them that lead to this prefix.
    pub fn imported_routes_to(&self, prefix: IpNet) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.config.import.iter().flat_map(move |rule| {
            let routes = self.mirror.of_prefix(rule.table, prefix);
            routes.filter(move |(key, route)| rule.takes(&self.mirror, key, route))
        })
    }

    /// The least metric of them, which is that of the one that forwards; `None` if there is none.
    pub fn imported_metric(&self, prefix: IpNet) -> Option<u32> {
        let routes = self.imported_routes_to(prefix);
        routes.map(|(key, _)| key.metric).min()
    }

    /// A link by its index.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.mirror.links.get(&index)
    }

    /// A link by its name.
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.mirror.links.values().find(|link| link.name == name)
    }

    /// Whether this is an address of this host.
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
