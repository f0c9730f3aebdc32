//! The agent: one turn after the other from what is to what should be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use datastore::Unready;
use fib_sync::{Command, Event, Instant, Link, Owner, Reconciler, ReconcilerConfig};
use model::FelixConfigurationSpec;
use tracing::warn;

use super::discovery::Discovery;
use super::host::Host;
use super::interface::{Entries, Links, Setup, is_up};
use super::retry::Retry;
use crate::apply::{GATEWAY_IPV4, GATEWAY_IPV6};
use crate::calc::{Calculator, Desired};
use crate::limits::{INTERFACE_PATIENCE, INTERFACE_REFRESH, RULES_CHECK};
use crate::render::Ruleset;

/// The end of the grace period, once it is over.
pub(super) const GRACE_OVER: Instant = Instant(u64::MAX);

/// What an agent is told once.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// This host's name in the store.
    pub hostname: String,
    /// What this host itself says of settings; it goes before what is stored.
    pub settings: FelixConfigurationSpec,
    /// `rtm_protocol` of endpoint routes.
    pub route_protocol: u8,
    /// Metric of endpoint routes, in both families; lower than that of routes from elsewhere.
    pub endpoint_metric: u32,
    /// Routing table of endpoint routes.
    pub table: u32,
    /// How often the routing table is read although nothing suggests a difference.
    pub route_refresh: Duration,
    /// How long an endpoint's interface may take to come before the endpoint is an error.
    pub interface_patience: Duration,
}

impl AgentConfig {
    /// Protocol 80 and metric 256 in the main table, the store's settings.
    pub fn new(hostname: impl Into<String>) -> Self {
        Self {
            hostname: hostname.into(),
            settings: FelixConfigurationSpec::default(),
            route_protocol: 80,
            endpoint_metric: 256,
            table: fib_sync::TABLE_MAIN,
            route_refresh: Duration::from_secs(90),
            interface_patience: INTERFACE_PATIENCE,
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
    /// What an earlier run knew of the store was read.
    restored: bool,
    /// What the store has told since it was last read in full may be half of what it holds.
    in_part: bool,
    /// Why the store is not to be acted upon, if it is not.
    pub(super) unready: Option<Unready>,
    /// `desired` was made at least once.
    pub(super) active: bool,
    pub(super) links: Links,
    /// The rules in force.
    pub(super) rules: Ruleset,
    pub(super) rules_written: Retry,
    pub(super) rules_check: Instant,
    /// Whether rules of some kind are known to be in force, since an earlier run or this one.
    pub(super) guarded: bool,
    /// Those of an earlier run were found.
    pub(super) inherited: bool,
    pub(super) foreign_edits: u64,
    pub(super) host_configured: Retry,
    /// When the host's settings are looked at again.
    pub(super) host_refresh: Instant,
    pub(super) setups: BTreeMap<String, Setup>,
    pub(super) entries: Entries,
    pub(super) discovery: Discovery,
    pub(super) adopted: Retry,
    /// Routes handed to the reconciler: address to interface index.
    pub(super) routed: BTreeMap<IpAddr, u32>,
    /// Those of them that the kernel refuses time and again, and why.
    pub(super) refused_routes: BTreeMap<IpAddr, String>,
    pub(super) reconciler: Reconciler,
    /// When own routes that nobody wants are no longer kept.
    pub(super) grace: Option<Instant>,
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
        let calculator = Calculator::new(&*config.hostname, Some(config.settings.clone()));
        Self {
            desired: Desired::default(),
            stale: true,
            in_sync: false,
            restored: false,
            in_part: false,
            unready: None,
            active: false,
            links: Links::default(),
            rules: Ruleset::default(),
            rules_written: Retry::default(),
            rules_check: now + RULES_CHECK,
            guarded: false,
            inherited: false,
            foreign_edits: 0,
            host_configured: Retry::default(),
            host_refresh: now + INTERFACE_REFRESH,
            setups: BTreeMap::new(),
            entries: Entries::default(),
            discovery: Discovery::default(),
            adopted: Retry::default(),
            routed: BTreeMap::new(),
            refused_routes: BTreeMap::new(),
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
        self.stale |= self.calculator.take_changed();
    }

    /// The store has been read in full: what it does not hold is not there.
    pub fn store_in_sync(&mut self) {
        self.stale = true;
        self.in_sync = true;
        (self.in_part, self.unready) = (false, None);
    }

    /// The store is away, or another one is read in its place: what it tells counts again when it
    /// was read in full.
    pub const fn store_unread(&mut self) {
        self.in_part = true;
    }

    /// The store is there, and is not to be acted upon.
    pub const fn store_unready(&mut self, why: Unready) {
        (self.in_part, self.unready) = (true, Some(why));
    }

    /// What an earlier run knew of the store has been told. The host is brought up with it, but
    /// nothing is taken away: what it does not hold may be there all the same.
    pub fn store_restored(&mut self) {
        self.stale = true;
        self.restored = true;
    }

    /// Whether all that is known of the store is what an earlier run knew.
    pub(super) const fn is_provisional(&self) -> bool {
        self.restored && !self.in_sync
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
        if !self.active || (self.is_provisional() && !self.guarded) {
            self.guard(now, host);
            return;
        }
        if self.in_sync {
            self.discover(now);
        }
        self.withdraw(host);
        self.write_rules(now, host);
        if !left.is_empty() {
            host.forget(&left);
        }
        self.configure(now, host);
        self.announce(now, host);
        self.note_refused_routes();
        if self.in_sync {
            self.end_grace(now);
        }
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
            self.discovery.timeout(),
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
        // A store that is being read again, or for the first time since a snapshot, leaves what was
        // desired before in force.
        let known = self.in_sync || self.restored;
        let in_part = self.active && (self.in_part || !self.in_sync);
        if !self.stale || !known || in_part {
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
}
