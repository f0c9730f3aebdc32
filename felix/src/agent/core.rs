//! The agent: one turn after the other from what is to what should be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use datastore::Unready;
use fib_sync::{Command, Event, Instant, Link, Notice, Owner, Reconciler, ReconcilerConfig};
use ipnet::IpNet;
use model::FelixConfigurationSpec;
use tracing::{info, warn};

use super::discovery::Discovery;
use super::host::Host;
use super::interface::{Agenda, Entries, Links, Setup, is_up};
use super::retry::Retry;
use crate::apply::{GATEWAY_IPV4, GATEWAY_IPV6};
use crate::calc::{Calculator, EndpointId, Problem};
use crate::limits::{FORMER_METRICS, INTERFACE_PATIENCE, INTERFACE_REFRESH, RULES_CHECK};
use crate::render::Touched;

/// The end of the grace period, once it is over.
pub(super) const GRACE_OVER: Instant = Instant(u64::MAX);

/// What an agent is told once.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// This host's name in the store.
    pub hostname: String,
    /// What this host itself says of settings; it goes before what is stored.
    pub settings: FelixConfigurationSpec,
    /// Sources that may reach control ports of the fabric.
    pub control_port_exceptions: Vec<IpNet>,
    /// Traffic of the host to its own workloads meets their policies.
    pub police_host_traffic: bool,
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
            control_port_exceptions: Vec::new(),
            police_host_traffic: false,
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
    /// All has to be looked at, whatever the store has told.
    stale: bool,
    /// The store was read in full at least once.
    pub(super) in_sync: bool,
    /// What an earlier run knew of the store was read.
    restored: bool,
    /// What the store has told since it was last read in full may be half of what it holds.
    in_part: bool,
    /// Why the store is not to be acted upon, if it is not.
    pub(super) unready: Option<Unready>,
    /// What the store has told was settled at least once.
    pub(super) active: bool,
    pub(super) links: Links,
    /// Interfaces to look at in the next turn, by name.
    pub(super) due: BTreeSet<String>,
    /// When others are to be looked at although nothing happens.
    pub(super) agenda: Agenda,
    /// Endpoints that may fare otherwise than was told.
    pub(super) untold: BTreeSet<EndpointId>,
    /// What of the wanted rules may not be in force.
    pub(super) unwritten: Touched,
    /// Addresses that left, and whose connections are not forgotten yet. Who has one next gets it
    /// when they are: nobody inherits a connection, or has one of its own cut.
    pub(super) resting: BTreeSet<IpAddr>,
    /// Interfaces with routes that wait for rules to be in force.
    pub(super) unguarded: BTreeSet<String>,
    pub(super) rules_written: Retry,
    /// A part of the wanted rules was prepared, and more is to be.
    pub(super) preparing: bool,
    /// How often that was done since the rules were written last.
    pub(super) preparations: u32,
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
    /// Routes handed to the reconciler: interface and address to interface index.
    pub(super) routed: BTreeMap<(String, IpAddr), u32>,
    /// Addresses whose routes may not be in the kernel as wanted.
    pub(super) unsettled: BTreeSet<IpAddr>,
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
            tables_read: Vec::new(),
            metrics: own_metrics(config.endpoint_metric),
            // Until the store was read in full, nothing is known to be unwanted.
            grace: Duration::MAX,
            period: config.route_refresh,
            install: true,
            read_foreign: false,
        };
        let calculator = Calculator::new(&*config.hostname, Some(config.settings.clone()))
            .with_control_exceptions(config.control_port_exceptions.clone())
            .with_policed_host(config.police_host_traffic);
        Self {
            stale: true,
            in_sync: false,
            restored: false,
            in_part: false,
            unready: None,
            active: false,
            links: Links::default(),
            due: BTreeSet::new(),
            agenda: Agenda::default(),
            untold: BTreeSet::new(),
            unwritten: Touched::default(),
            resting: BTreeSet::new(),
            unguarded: BTreeSet::new(),
            rules_written: Retry::default(),
            preparing: false,
            preparations: 0,
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
            unsettled: BTreeSet::new(),
            refused_routes: BTreeMap::new(),
            reconciler: Reconciler::new(now, reconciler),
            grace: None,
            calculator,
            config,
        }
    }

    /// The next event of the routing table for the log; ask after each
    /// [`poll_command`](Self::poll_command).
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.reconciler.poll_notice()
    }

    /// Takes note that the store's `key` holds `value` now, or nothing.
    pub fn change(&mut self, key: &str, value: Option<&[u8]>) {
        if let Some(problem) = self.calculator.change(key, value) {
            warn!(%problem, "value refused; the one before stays in force");
        }
    }

    /// Takes the addresses at which this host finds the datastore.
    pub fn datastore_at(&mut self, at: BTreeSet<SocketAddr>) {
        self.calculator.datastore_at(at);
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
                self.forget_setup(*index);
                self.entries.drop_interface(*index);
                self.links.remove(*index);
            }
            Event::AddressGone(gone) if gone.address.addr() == IpAddr::V6(GATEWAY_IPV6) => {
                self.forget_setup(gone.interface);
            }
            Event::AddressGone(gone) if gone.address.addr() == IpAddr::V4(GATEWAY_IPV4) => {
                self.host_refresh = Instant(0);
            }
            Event::Applied(key, _) | Event::Changed { key, .. } | Event::Gone(key, _) => {
                self.unsettled.insert(key.prefix.addr());
            }
            Event::DumpDone { .. } => self.doubt_routes(),
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
        self.release(host);
        let left = self.recalculate();
        if !self.active || (self.is_provisional() && !self.guarded) {
            self.guard(now, host);
            return;
        }
        if !left.is_empty() {
            host.forget(&left);
            self.resting.extend(left);
        }
        self.adopt(now, host);
        let mut due = std::mem::take(&mut self.due);
        self.agenda.take(now, &mut due);
        for name in &due {
            self.withdraw(name, host);
        }
        if self.write_rules(now, host) {
            due.append(&mut self.unguarded);
        }
        self.configure(now, host);
        for name in &due {
            self.set_up(now, name, host);
        }
        self.note_routes();
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
        let single = [
            self.rules_written.timeout(),
            self.host_configured.timeout(),
            self.adopted.timeout(),
            self.agenda.next(),
            self.reconciler.poll_timeout(),
            self.grace,
            Some(self.rules_check),
            Some(self.host_refresh),
        ];
        single.into_iter().flatten().min()
    }

    fn link(&mut self, link: &Link) {
        let renamed = self
            .links
            .at(link.index)
            .is_some_and(|old| old.name != link.name);
        if renamed || !is_up(link) {
            self.forget_setup(link.index);
        }
        if !is_up(link) {
            // The kernel drops addresses and entries of a link that goes down.
            self.entries.drop_interface(link.index);
        }
        self.links.put(link);
        self.due.insert(link.name.clone());
    }

    /// Events were lost: an interface may have been down and up again, bare of what it had.
    fn doubt(&mut self) {
        for setup in self.setups.values_mut() {
            setup.configured = Retry::Due;
        }
        self.entries.made.clear();
        self.adopted = Retry::Due;
        self.stale = true;
        self.doubt_routes();
    }

    /// Any route may be otherwise than it was thought to be.
    fn doubt_routes(&mut self) {
        let routed = self.routed.keys().map(|(_, address)| *address);
        self.unsettled.extend(routed);
    }

    /// Brings what is desired up to date. Returns the addresses that are gone or have moved.
    fn recalculate(&mut self) -> BTreeSet<IpAddr> {
        // A store that is being read again, or for the first time since a snapshot, leaves what was
        // desired before in force.
        let known = self.in_sync || self.restored;
        let in_part = self.active && (self.in_part || !self.in_sync);
        let left = if known && !in_part && (self.stale || self.calculator.has_news()) {
            self.active = true;
            let settled = self.calculator.settle();
            self.unwritten.merge(settled.rules);
            self.due.extend(settled.interfaces);
            self.untold.extend(settled.endpoints);
            self.stale |= settled.settings;
            for Problem { key, field, reason } in settled.unsupported {
                info!(key, field, reason, "unsupported field ignored");
            }
            settled.left
        } else {
            BTreeSet::new()
        };
        if self.active && std::mem::take(&mut self.stale) {
            let desired = self.calculator.desired();
            let wanted = desired.interfaces.keys();
            let routed = self.routed.keys().map(|(name, _)| name);
            self.due.extend(wanted.chain(routed).cloned());
            self.due.extend(self.setups.keys().cloned());
            self.due.extend(self.links.names().map(str::to_owned));
            self.untold.extend(desired.endpoints.keys().cloned());
        }
        left
    }

    /// What was done to the interface of this index is void.
    fn forget_setup(&mut self, index: u32) {
        if let Some(link) = self.links.at(index) {
            let name = link.name.clone();
            let is_of = |setup: &Setup| setup.index == index;
            if self.setups.get(&name).is_some_and(is_of) {
                self.setups.remove(&name);
            }
            self.due.insert(name);
        }
    }
}

/// The metrics at which a route of Felix's protocol is Felix's: its own, and those of earlier runs.
fn own_metrics(endpoint_metric: u32) -> Vec<RangeInclusive<u32>> {
    let mut metrics = FORMER_METRICS.to_vec();
    metrics.push(endpoint_metric);
    metrics.sort_unstable();
    metrics.dedup();
    metrics.into_iter().map(|metric| metric..=metric).collect()
}
