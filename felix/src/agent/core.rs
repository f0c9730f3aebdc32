//! The agent: one turn after the other from what is to what should be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use fib_sync::{
    Command, Event, Instant, Link, Owner, Reconciler, ReconcilerConfig, Route, RouteKey,
};
use tracing::{info, warn};

use super::host::Host;
use super::interface::{Entries, Links, Setup, is_up};
use super::retry::Retry;
use crate::apply::{Checked, GATEWAY_IPV4, GATEWAY_IPV6, Neighbour};
use crate::calc::{Calculator, Desired};
use crate::limits::{INTERFACE_REFRESH, ROUTE_GRACE, RULES_CHECK};
use crate::render::{Key, RuleInputs, Ruleset, render};

/// What an agent is told once.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// This host's name in the store.
    pub hostname: String,
    /// Beginnings of workload interfaces' names, if the configuration file gives any.
    pub interface_prefixes: Option<Vec<String>>,
    /// `rtm_protocol` of endpoint routes.
    pub route_protocol: u8,
    /// Metric of endpoint routes, in both families; lower than that of routes from elsewhere.
    pub endpoint_metric: u32,
    /// Routing table of endpoint routes.
    pub table: u32,
    /// How often the routing table is read although nothing suggests a difference.
    pub route_refresh: Duration,
}

impl AgentConfig {
    /// Protocol 80 and metric 256 in the main table, built-in prefixes.
    pub fn new(hostname: impl Into<String>) -> Self {
        Self {
            hostname: hostname.into(),
            interface_prefixes: None,
            route_protocol: 80,
            endpoint_metric: 256,
            table: fib_sync::TABLE_MAIN,
            route_refresh: Duration::from_secs(90),
        }
    }
}

/// The agent of one host.
///
/// Feed it with [`change`](Self::change) and [`handle`](Self::handle), then let it
/// [`turn`](Self::turn) and hand every command of [`poll_command`](Self::poll_command) to the
/// kernel; again when [`poll_timeout`](Self::poll_timeout) has come.
#[derive(Debug)]
pub struct Agent {
    pub(super) config: AgentConfig,
    pub(super) calculator: Calculator,
    pub(super) desired: Desired,
    /// The store's values changed since `desired` was made.
    stale: bool,
    /// The store was read in full at least once.
    pub(super) in_sync: bool,
    /// `desired` was made at least once.
    pub(super) active: bool,
    pub(super) links: Links,
    /// The rules in force.
    pub(super) rules: Ruleset,
    pub(super) rules_written: Retry,
    rules_check: Instant,
    /// Whether rules of some kind are known to be in force, since an earlier run or this one.
    pub(super) guarded: bool,
    pub(super) foreign_edits: u64,
    pub(super) host_configured: Retry,
    /// When the host's settings are looked at again.
    host_refresh: Instant,
    pub(super) setups: BTreeMap<String, Setup>,
    pub(super) entries: Entries,
    adopted: Retry,
    /// Routes handed to the reconciler: address to interface index.
    pub(super) routed: BTreeMap<IpAddr, u32>,
    pub(super) reconciler: Reconciler,
    /// When own routes that nobody wants are no longer kept.
    grace: Option<Instant>,
}

impl Agent {
    /// An agent that knows nothing yet.
    pub fn new(now: Instant, config: AgentConfig) -> Self {
        let reconciler = ReconcilerConfig {
            owner: Owner(config.route_protocol),
            tables: vec![config.table],
            // Until the store was read in full, nothing is known to be unwanted.
            grace: Duration::MAX,
            period: config.route_refresh,
            install: true,
            read_foreign: false,
        };
        let calculator = Calculator::new(&*config.hostname, config.interface_prefixes.clone());
        Self {
            desired: Desired::default(),
            stale: true,
            in_sync: false,
            active: false,
            links: Links::default(),
            rules: Ruleset::default(),
            rules_written: Retry::default(),
            rules_check: now + RULES_CHECK,
            guarded: false,
            foreign_edits: 0,
            host_configured: Retry::default(),
            host_refresh: now + INTERFACE_REFRESH,
            setups: BTreeMap::new(),
            entries: Entries::default(),
            adopted: Retry::default(),
            routed: BTreeMap::new(),
            reconciler: Reconciler::new(now, reconciler),
            grace: None,
            calculator,
            config,
        }
    }

    /// Takes note that the store's `key` holds `value` now, or nothing.
    pub fn change(&mut self, key: &str, value: Option<&[u8]>) {
        if let Some(problem) = self.calculator.change(key, value) {
            warn!(%problem, "value refused; the one before stays in force");
        }
        self.stale = true;
    }

    /// The store has been read in full: what it does not hold is not there.
    pub fn store_in_sync(&mut self) {
        self.stale = true;
        self.in_sync = true;
    }

    /// Takes note of a kernel event.
    pub fn handle(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Link(link) => self.link(link),
            Event::LinkGone(index) => {
                self.links.remove(*index);
                self.forget_setup(*index);
            }
            Event::AddressGone(gone) if gone.address.addr() == IpAddr::V6(GATEWAY_IPV6) => {
                self.forget_setup(gone.interface);
            }
            Event::AddressGone(gone) if gone.address.addr() == IpAddr::V4(GATEWAY_IPV4) => {
                self.host_refresh = Instant(0);
            }
            Event::Overrun => self.doubt(),
            _ => {}
        }
        self.reconciler.handle(now, event);
    }

    /// Does all that is due. What fails is tried again later.
    pub fn turn(&mut self, now: Instant, host: &mut dyn Host) {
        if self.rules_check <= now {
            self.rules_check = now + RULES_CHECK;
            self.check_rules(host);
        }
        let left = self.recalculate();
        if !self.active {
            self.guard(now, host);
            return;
        }
        self.withdraw(host);
        self.write_rules(now, host);
        if !left.is_empty() {
            host.forget(&left);
        }
        self.configure(now, host);
        self.announce(now, host);
        self.end_grace(now);
    }

    /// The next command for the kernel's routing table.
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        self.reconciler.poll_command(now)
    }

    /// When to [`turn`](Self::turn) although nothing happened.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let setups = self
            .setups
            .values()
            .map(|setup| match setup.configured.timeout() {
                Some(at) => at,
                None => setup.refresh,
            });
        let single = [
            self.rules_written.timeout(),
            self.host_configured.timeout(),
            self.adopted.timeout(),
            self.entries.timeout(),
            self.reconciler.poll_timeout(),
            self.grace,
            Some(self.rules_check),
            Some(self.host_refresh),
        ];
        single.into_iter().flatten().chain(setups).min()
    }

    fn link(&mut self, link: &Link) {
        let renamed = self
            .links
            .at(link.index)
            .is_some_and(|old| old.name != link.name);
        if renamed || !is_up(link) {
            // The kernel drops addresses and entries of a link that goes down.
            self.forget_setup(link.index);
        }
        self.links.put(link);
    }

    /// Events were lost: an interface may have been down and up again, bare of what it had.
    fn doubt(&mut self) {
        for setup in self.setups.values_mut() {
            setup.configured = Retry::Due;
        }
        self.entries.made.clear();
        self.adopted = Retry::Due;
    }

    /// Brings `desired` up to date. Returns the addresses that are gone or have moved.
    fn recalculate(&mut self) -> BTreeSet<IpAddr> {
        // A store that is not to be acted upon leaves what was desired before in force.
        if !self.stale || !self.in_sync || !self.calculator.store_ready() {
            return BTreeSet::new();
        }
        self.stale = false;
        self.active = true;
        let old = std::mem::replace(&mut self.desired, self.calculator.desired());
        let moved =
            |(address, name): &(IpAddr, String)| self.desired.routes.get(address) != Some(name);
        old.routes
            .into_iter()
            .filter(moved)
            .map(|(address, _)| address)
            .collect()
    }

    fn forget_setup(&mut self, index: u32) {
        self.setups.retain(|_, setup| setup.index != index);
        self.entries.drop_interface(index);
    }

    /// Before anything is known of endpoints: if an earlier run left no rules, nothing passes; if
    /// it did, they stay in force.
    fn guard(&mut self, now: Instant, host: &mut dyn Host) {
        if self.guarded || !self.rules_written.is_due(now) {
            return;
        }
        let inputs = RuleInputs {
            interface_prefixes: self.calculator.settings().interface_prefixes,
            ..RuleInputs::default()
        };
        let outcome = match host.rules_present() {
            Ok(true) => Ok(()),
            Ok(false) => host.write_rules(&render(&inputs)),
            Err(failed) => Err(failed),
        };
        self.guarded = outcome.is_ok();
        if let Some(reason) = self.rules_written.note(now, outcome) {
            warn!(reason, "no packet filter yet");
        }
    }

    /// Takes away at once what is not wanted any more.
    fn withdraw(&mut self, host: &mut dyn Host) {
        let routed: Vec<(IpAddr, u32)> = self.routed.iter().map(|(a, i)| (*a, *i)).collect();
        for (address, index) in routed {
            let wanted = self.desired.routes.get(&address);
            let link = wanted.and_then(|name| self.links.named(name));
            if link.is_some_and(|link| link.index == index && is_up(link)) {
                continue;
            }
            self.routed.remove(&address);
            self.reconciler.unwant(&self.route_key(address));
        }
        let unwanted: Vec<Neighbour> = self
            .entries
            .made
            .values()
            .filter(|entry| !self.wants_entry(entry))
            .copied()
            .collect();
        for entry in unwanted {
            self.entries.made.remove(&(entry.interface, entry.address));
            if let Err(reason) = host.delete_neighbour(&entry) {
                warn!(address = %entry.address, %reason, "neighbour entry not removed");
            }
        }
        let (links, desired) = (&self.links, &self.desired);
        self.setups.retain(|name, setup| {
            desired.interfaces.contains_key(name)
                && links
                    .named(name)
                    .is_some_and(|link| link.index == setup.index)
        });
    }

    fn wants_entry(&self, entry: &Neighbour) -> bool {
        let Some(link) = self.links.at(entry.interface) else {
            return false;
        };
        let wanted = self
            .desired
            .neighbours
            .get(&(link.name.clone(), entry.address));
        wanted == Some(&entry.mac)
    }

    fn write_rules(&mut self, now: Instant, host: &mut dyn Host) {
        if self.rules != self.desired.rules && self.rules_written.is_done() {
            self.rules_written = Retry::Due;
        }
        if self.rules_written.is_due(now) {
            let outcome = host.write_rules(&self.desired.rules);
            if outcome.is_ok() {
                self.rules = self.desired.rules.clone();
                self.guarded = true;
                self.rules_check = now + RULES_CHECK;
            }
            if let Some(reason) = self.rules_written.note(now, outcome) {
                warn!(reason, "packet filter not written; it is tried again");
            }
        }
    }

    fn check_rules(&mut self, host: &mut dyn Host) {
        match host.check_rules() {
            Ok(Checked::Healed) => {
                self.foreign_edits += 1;
                warn!("somebody changed the packet filter; it is as it should be again");
            }
            Ok(Checked::Intact | Checked::Nothing) => {}
            Err(reason) => warn!(%reason, "packet filter could not be looked at"),
        }
    }

    fn configure(&mut self, now: Instant, host: &mut dyn Host) {
        if self.host_refresh <= now {
            self.host_refresh = now + INTERFACE_REFRESH;
            if self.host_configured.is_done() {
                self.host_configured = Retry::Due;
            }
        }
        if self.host_configured.is_due(now) {
            let outcome = host.configure(self.desired.settings.ipv6);
            if let Some(reason) = self.host_configured.note(now, outcome) {
                warn!(reason, "this host does not forward");
            }
        }
        for (name, endpoint) in &self.desired.interfaces {
            let Some(link) = self.links.named(name).filter(|link| is_up(link)) else {
                continue;
            };
            let ipv6 = endpoint.addresses.iter().any(IpAddr::is_ipv6);
            let setup = self.setups.entry(name.clone()).or_insert_with(|| Setup {
                index: link.index,
                configured: Retry::Due,
                ipv6,
                refresh: now + INTERFACE_REFRESH,
            });
            if setup.refresh <= now || (ipv6 && !setup.ipv6) {
                setup.refresh = now + INTERFACE_REFRESH;
                setup.ipv6 = ipv6;
                if setup.configured.is_done() {
                    setup.configured = Retry::Due;
                }
            }
            if setup.configured.is_due(now) {
                let outcome = host.configure_interface(link, ipv6);
                match setup.configured.note(now, outcome) {
                    Some(reason) => warn!(interface = name, reason, "not configured"),
                    None => info!(interface = name, "configured"),
                }
            }
        }
    }

    /// Routes and neighbour entries of endpoints whose interface and rules are in place.
    fn announce(&mut self, now: Instant, host: &mut dyn Host) {
        self.adopt(now, host);
        for (address, name) in &self.desired.routes {
            let Some(setup) = self.setups.get(name).filter(|s| s.configured.is_done()) else {
                continue;
            };
            if self.routed.get(address) == Some(&setup.index) || !self.is_guarded(name, *address) {
                continue;
            }
            self.routed.insert(*address, setup.index);
            let route = Route::device(Owner(self.config.route_protocol), setup.index);
            self.reconciler.want(self.route_key(*address), route);
        }
        self.put_entries(now, host);
    }

    fn put_entries(&mut self, now: Instant, host: &mut dyn Host) {
        for ((name, address), mac) in &self.desired.neighbours {
            let Some(setup) = self.setups.get(name).filter(|s| s.configured.is_done()) else {
                continue;
            };
            let key = (setup.index, *address);
            let entry = Neighbour {
                interface: setup.index,
                address: *address,
                mac: *mac,
            };
            if self.entries.made.get(&key) == Some(&entry) {
                continue;
            }
            let mut retry = match self.entries.refused.remove(&key) {
                Some((refused, retry)) if refused == entry => retry,
                _ => Retry::Due,
            };
            if retry.is_due(now)
                && let Some(reason) = retry.note(now, host.put_neighbour(&entry))
            {
                warn!(interface = name, %address, reason, "no neighbour entry");
            }
            match retry.is_done() {
                true => self.entries.made.insert(key, entry).map(drop),
                false => self.entries.refused.insert(key, (entry, retry)).map(drop),
            };
        }
        let desired = &self.desired.neighbours;
        let links = &self.links;
        self.entries.refused.retain(|(index, address), _| {
            let link = links.at(*index);
            link.is_some_and(|link| desired.contains_key(&(link.name.clone(), *address)))
        });
    }

    /// Neighbour entries of an earlier run are taken over; the next turn removes the unwanted.
    fn adopt(&mut self, now: Instant, host: &mut dyn Host) {
        if !self.adopted.is_due(now) {
            return;
        }
        let found = host.neighbours();
        let outcome = found.map(|found| {
            let found = found
                .into_iter()
                .map(|entry| ((entry.interface, entry.address), entry));
            self.entries.made.extend(found);
        });
        if let Some(reason) = self.adopted.note(now, outcome) {
            warn!(reason, "neighbour entries cannot be read");
        }
    }

    /// Whether the rules in force let the address be used on the interface.
    fn is_guarded(&self, name: &str, address: IpAddr) -> bool {
        let key = match address {
            IpAddr::V4(v4) => Key::InterfaceIpv4(name.to_owned(), v4),
            IpAddr::V6(v6) => Key::InterfaceIpv6(name.to_owned(), v6),
        };
        self.rules
            .sets
            .values()
            .any(|set| set.elements.contains_key(&key))
    }

    pub(super) fn route_key(&self, address: IpAddr) -> RouteKey {
        RouteKey::new(
            self.config.table,
            address.into(),
            self.config.endpoint_metric,
            0,
        )
    }

    /// Some time after the first full look at the store, own routes that nobody wants go. The time
    /// is for interfaces that are still coming up.
    fn end_grace(&mut self, now: Instant) {
        let ends = *self.grace.get_or_insert(now + ROUTE_GRACE);
        if ends <= now {
            self.grace = Some(Instant(u64::MAX));
            self.reconciler.finish_grace();
        }
    }
}
