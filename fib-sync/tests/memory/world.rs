//! A kernel with two uplinks, and a daemon attached to it that can crash and restart.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use fib_sync::memory::{Attachment, Kernel};
use fib_sync::nexthop::NexthopCommand;
use fib_sync::watch::{WatchChange, Watcher, WatcherConfig};
use fib_sync::{
    Command, Event, FibStatus, Hop, Instant, NexthopObjects, Notice, Owner, Reconciler,
    ReconcilerConfig, Route, RouteKey,
};

pub(crate) const US: Owner = Owner(119);
pub(crate) const FELIX: Owner = Owner(80);
pub(crate) const STATIC: Owner = Owner(4);

/// Interfaces of the world, in order of creation.
pub(crate) const UP0: u32 = 2;
pub(crate) const UP1: u32 = 3;
pub(crate) const CALI: u32 = 4;

const ADDRESSES: &[(u32, &str)] = &[
    (UP0, "10.0.0.11/24"),
    (UP0, "fd00::11/64"),
    (UP1, "10.1.0.11/24"),
    (UP1, "fd01::11/64"),
];

pub(crate) struct World {
    pub(crate) kernel: Kernel,
    pub(crate) attachment: Attachment,
    pub(crate) reconciler: Reconciler,
    pub(crate) watcher: Watcher,
    pub(crate) now: Instant,
    pub(crate) wanted: BTreeMap<RouteKey, Route>,
    /// Commands submitted and events seen since the start.
    pub(crate) commands: Vec<Command>,
    pub(crate) changes: Vec<WatchChange>,
    /// The kernel lost a notification without an overrun, which no real one does: an own route may
    /// have been replaced by a foreign one unnoticed.
    pub(crate) silent_loss: bool,
    /// The treatment of nexthop objects.
    pub(crate) nexthop_objects: NexthopObjects,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, NexthopObjects::Ignore)
    }

    /// Returns a world with this treatment of nexthop objects.
    pub(crate) fn with(seed: u64, nexthop_objects: NexthopObjects) -> Self {
        let mut kernel = Kernel::new(seed);
        for name in ["up0", "up1", "cali1"] {
            kernel.add_link(name);
        }
        let mut world = Self {
            attachment: kernel.attach(),
            kernel,
            reconciler: Reconciler::new(Instant(0), config(nexthop_objects)),
            watcher: Watcher::new(WatcherConfig::new(US)),
            now: Instant(0),
            wanted: BTreeMap::new(),
            commands: Vec::new(),
            changes: Vec::new(),
            silent_loss: false,
            nexthop_objects,
        };
        world.repair_links();
        world
    }

    /// Sets all links up and restores all addresses.
    pub(crate) fn repair_links(&mut self) {
        for index in [UP0, UP1, CALI] {
            self.kernel.set_link_up(index, true);
            self.kernel.set_carrier(index, true);
        }
        for (index, address) in ADDRESSES {
            self.kernel.add_address(*index, address.parse().unwrap());
        }
    }

    pub(crate) fn want(&mut self, key: RouteKey, route: Route) {
        self.wanted.insert(key, route.clone());
        self.reconciler.want(key, route);
    }

    pub(crate) fn unwant(&mut self, key: &RouteKey) {
        self.wanted.remove(key);
        self.reconciler.unwant(key);
    }

    /// Stops the daemon and starts it again, without any wanted routes.
    pub(crate) fn crash(&mut self) {
        self.kernel.detach(self.attachment);
        self.attachment = self.kernel.attach();
        self.reconciler = Reconciler::new(self.now, config(self.nexthop_objects));
        self.watcher = Watcher::new(WatcherConfig::new(US));
        self.wanted.clear();
    }

    /// Handles everything that happens without time passing, up to so many events.
    pub(crate) fn pump(&mut self, mut events: usize) {
        loop {
            while let Some(command) = self.reconciler.poll_command(self.now) {
                self.commands.push(command.clone());
                self.kernel.submit(self.attachment, command);
            }
            if events == 0 {
                return;
            }
            events -= 1;
            let foreign = self.foreign();
            let Some(event) = self.kernel.poll(self.attachment) else {
                return;
            };
            let touched = self.foreign() != foreign;
            assert!(
                !touched || self.silent_loss,
                "a foreign route was touched: {event:?}"
            );
            self.take(&event);
        }
    }

    fn take(&mut self, event: &Event) {
        self.reconciler.handle(self.now, event);
        self.watcher.handle(event);
        while let Some(change) = self.watcher.poll_change() {
            self.changes.push(change);
        }
    }

    /// Restarts the daemon with another configuration.
    pub(crate) fn configure(&mut self, change: impl FnOnce(&mut ReconcilerConfig)) {
        let mut config = config(self.nexthop_objects);
        change(&mut config);
        self.reconciler = Reconciler::new(self.now, config);
    }

    /// Returns the notices so far.
    pub(crate) fn notices(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.reconciler.poll_notice()).collect()
    }

    /// Advances the time by this much and handles everything that becomes due.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.pump(usize::MAX);
            match self.reconciler.poll_timeout() {
                Some(at) if at <= end => {
                    assert!(at > self.now, "a timer in the past would spin: {at:?}");
                    self.now = at;
                }
                _ => break,
            }
        }
        self.now = end;
        self.pump(usize::MAX);
    }

    /// Returns the foreign routes.
    pub(crate) fn foreign(&self) -> BTreeMap<RouteKey, Route> {
        let foreign = self
            .kernel
            .routes()
            .filter(|(_, route)| route.owner() != US);
        foreign.map(|(key, route)| (*key, route.clone())).collect()
    }

    /// Returns the own routes.
    pub(crate) fn ours(&self) -> BTreeMap<RouteKey, Route> {
        let ours = self
            .kernel
            .routes()
            .filter(|(_, route)| route.owner() == US);
        ours.map(|(key, route)| (*key, route.clone())).collect()
    }

    pub(crate) fn status(&self, key: &RouteKey) -> Option<FibStatus> {
        self.reconciler.lookup(key).map(|view| view.status)
    }

    /// Returns the number of writes submitted so far.
    pub(crate) fn writes(&self) -> usize {
        self.commands
            .iter()
            .filter(|command| {
                let nexthops = Command::Nexthop(NexthopCommand::Dump);
                !matches!(command, Command::Dump { .. }) && **command != nexthops
            })
            .count()
    }
}

pub(crate) fn config(nexthop_objects: NexthopObjects) -> ReconcilerConfig {
    let mut config = ReconcilerConfig::new(US);
    config.nexthop_objects = nexthop_objects;
    config
}

pub(crate) fn key(prefix: &str) -> RouteKey {
    RouteKey::new(254, prefix.parse().unwrap(), 1024, 0)
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn via(owner: Owner, gateways: &[&str]) -> Route {
    Route::unicast(
        owner,
        gateways.iter().map(|text| Hop::via(ip(text))).collect(),
    )
}
