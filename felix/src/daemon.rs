//! The program: one task that owns the agent, and all its inputs.

use std::fmt;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;

use calico_store::{Change, EtcdStore, Follower, Status, Store, Update, follow_ready};
use daemon_common::control::{BindError, Control, Request};
use daemon_common::daemon::{
    LogError, Signal, Signals, chance, configure_level, init_logging, notify_ready, notify_stopping,
};
use daemon_common::events::{Event as Emitted, Text, emit, watches_changed};
use daemon_common::service_manager::ServiceManager;
use fib_sync::claim::{Claim, Taken};
use fib_sync::netlink::{NetlinkConfig, NetlinkFib, OpenError};
use fib_sync::{Event, Fib, Instant, OpError, Owner};
use futures_util::FutureExt;
use kernel_events::marker;

use crate::agent::Agent;
use crate::apply::{HostError, LinuxHost};
use crate::bgp_files::BgpFiles;
use crate::clock::{Clock, unix_ms, unix_s};
use crate::config::{Config, LOG_LEVEL};
use crate::datastore_address::{DatastoreAddresses, Found};
use crate::endpoint_files::EndpointFiles;
use crate::events::{self, Events};
use crate::flows::FlowLog;
use crate::health::Health;
use crate::limits::{DATASTORE_MEMBERS_WAIT, EVENTS_PER_TURN, UPDATE_OCTETS_PER_STEP, UPDATES_GAP};
use crate::report::{self, DAEMON};
use crate::rotation::{Input, Plan, Rotation};
use crate::status::{Outcome, Reporter};
use crate::store::{self, StoreCounts};

mod answers;

/// Why the daemon ends.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The log level is invalid.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The host is unusable.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The routing table cannot be opened.
    #[error(transparent)]
    Fib(#[from] OpenError),
    /// Another program writes routes of the same protocol.
    #[error("{0}; set route_protocol, or stop the other program")]
    Taken(#[from] Taken),
    /// The connection to the routing table is broken.
    #[error("the connection to the kernel's routing table broke: {0}")]
    FibClosed(OpError),
    /// The control socket or the metrics endpoint cannot be opened.
    #[error(transparent)]
    Control(#[from] BindError),
    /// The datastore's options are invalid.
    #[error("datastore: {0}")]
    Store(#[from] calico_store::Error),
    /// Signal handlers cannot be installed.
    #[error("signal handlers: {0}")]
    Signals(#[source] std::io::Error),
}

/// Runs the daemon with its configured datastore until a signal ends it. Its kernel objects stay.
///
/// # Errors
///
/// A requirement is missing; each error is one line.
pub async fn run(config: Config) -> Result<(), DaemonError> {
    init_logging(&config.first_log_level(), config.log_format)?;
    if !config.ignored_variables.is_empty() {
        let variables = Text::new(config.ignored_variables.join(", "));
        emit(Emitted::ConfigVariablesIgnored { variables });
    }
    let signals = Signals::new().map_err(DaemonError::Signals)?;
    let store = EtcdStore::connect(&config.datastore).await?;
    let mut daemon = Daemon::open(config, Arc::new(store))?;
    daemon.signals = Some(signals);
    daemon.service_manager = ServiceManager::from_environment();
    notify_ready();
    let done = daemon.serve(pending()).await;
    daemon.events.finish(daemon.clock.now());
    notify_stopping();
    emit(Emitted::DaemonStopping {});
    done
}

/// The daemon, opened.
pub struct Daemon {
    agent: Agent,
    /// The configuration in effect.
    config: Config,
    config_error: Option<String>,
    host: LinuxHost,
    fib: NetlinkFib,
    /// The claim on the protocol of its routes.
    _claim: Claim,
    control: Control,
    signals: Option<Signals>,
    /// The service manager that watches the loop; none unless it is set.
    service_manager: ServiceManager,
    store: Arc<dyn Store>,
    follower: Follower,
    /// The addresses of the datastore.
    addresses: DatastoreAddresses,
    /// The members of the datastore are known.
    has_members: bool,
    /// Until when the first content of the datastore waits for them: the packet filter closes them
    /// from its first transaction on.
    members_wait: Option<Instant>,
    bgp_files: BgpFiles,
    /// Received changes of the datastore that are still to be applied, a part at a time.
    waiting: std::vec::IntoIter<Update>,
    /// When the datastore's next changes are applied.
    updates_at: Instant,
    /// The status of the picture of the datastore.
    store_status: Status,
    /// The age of the applied snapshot, while the datastore is unreachable.
    snapshot_age_s: Option<u64>,
    reporter: Reporter,
    events: Events,
    files: EndpointFiles,
    /// The level of the log that the settings set last.
    log_level: Option<String>,
    health: Health,
    flows: FlowLog,
    counts: StoreCounts,
    clock: Clock,
    rotation: Rotation,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon")
            .field("hostname", &self.config.agent.hostname)
            .finish_non_exhaustive()
    }
}

/// The event that woke the daemon.
enum Wake {
    Kernel(Event),
    Store(Vec<Update>),
    DatastoreAt(Found),
    More,
    Reported(Outcome),
    Request(Request),
    Signal(Signal),
    Time,
    Stop,
}

type Errand = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Daemon {
    /// Opens the host, the control socket and a mirror of the datastore. Must be called inside a
    /// tokio runtime; everything acts in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// A requirement is missing; each error is one line.
    pub fn open(config: Config, store: Arc<dyn Store>) -> Result<Self, DaemonError> {
        let claim = Claim::take(Owner(config.agent.route_protocol), DAEMON)?;
        let mut host = LinuxHost::open(config.agent.route_protocol)?;
        if config.own_tables {
            host.own_tables();
        }
        let fib = NetlinkFib::open(NetlinkConfig::new(vec![config.agent.table, marker::TABLE]))?;
        kernel_events::opened(Some(&claim), Owner(config.agent.route_protocol), &fib);
        kernel_events::offer();
        let mut control = Control::bind(&config.control)?;
        if let Some(metrics) = config.metrics {
            control.bind_metrics(metrics.listen)?;
        }
        let clock = Clock::start();
        let hostname = config.agent.hostname.as_str();
        let chance = chance();
        let snapshot = config.datastore_snapshot.as_ref();
        emit(Emitted::DaemonStarted {
            version: Text::new(env!("CARGO_PKG_VERSION")),
            hostname: Some(Text::new(hostname)),
        });
        Ok(Self {
            agent: Agent::new(clock.now(), config.agent.clone()),
            config_error: None,
            host,
            fib,
            _claim: claim,
            control,
            signals: None,
            service_manager: ServiceManager::default(),
            follower: follow_ready(Arc::clone(&store), store::ranges(), chance, snapshot),
            addresses: DatastoreAddresses::of(&config.datastore.endpoints, Arc::clone(&store)),
            has_members: false,
            members_wait: None,
            bgp_files: BgpFiles::new(clock.now(), config.bgp_files.clone()),
            store,
            waiting: Vec::new().into_iter(),
            updates_at: clock.now(),
            store_status: Status::Syncing,
            snapshot_age_s: None,
            events: Events::new(),
            reporter: Reporter::new(clock.now(), hostname, chance),
            files: EndpointFiles::default(),
            log_level: None,
            health: Health::new(),
            flows: FlowLog::new(clock.now()),
            counts: StoreCounts::new(),
            clock,
            rotation: Rotation::default(),
            config,
        })
    }

    /// Runs until `stop` completes, or a signal arrives.
    ///
    /// # Errors
    ///
    /// The connection to the kernel is broken.
    pub async fn serve(&mut self, stop: impl Future<Output = ()>) -> Result<(), DaemonError> {
        let mut stop = pin!(stop);
        let mut errand: Option<Errand> = None;
        loop {
            // Changes that arrived together are applied together.
            if self.waiting.len() == 0 {
                self.turn(&mut errand);
            }
            self.health.turned(&self.agent);
            let (agent, follower) = (&self.agent, &self.follower);
            let state = || report::summary(agent, follower.revision().map(|revision| revision.0));
            self.service_manager.turned(state);
            match self.wake(&mut stop, &mut errand).await {
                Wake::Kernel(event) => self.kernel(event)?,
                Wake::DatastoreAt(found) => {
                    self.has_members = found.complete;
                    self.agent.datastore_at(found.addresses);
                }
                Wake::Store(updates) => {
                    if self.agent.is_store_in_sync() {
                        self.updates_at = self.clock.now() + UPDATES_GAP;
                    }
                    let is_whole = updates.iter().any(store::is_in_sync);
                    self.waiting = updates.into_iter();
                    if is_whole && !self.has_members {
                        self.addresses.ask();
                        self.members_wait = Some(self.clock.now() + DATASTORE_MEMBERS_WAIT);
                    } else {
                        self.updates();
                    }
                }
                Wake::More => self.updates(),
                Wake::Reported(outcome) => {
                    errand = None;
                    self.reporter.done(self.clock.now(), outcome);
                    for id in self.reporter.take_known() {
                        self.agent.presume_seen(&id);
                    }
                }
                Wake::Request(request) => self.answer(request),
                Wake::Signal(Signal::Reload) => self.reload(),
                Wake::Signal(Signal::Terminate | Signal::Interrupt) | Wake::Stop => {
                    self.host.settle().await;
                    let now = self.clock.now();
                    let held = self.agent.end(now, || self.host.poll_event());
                    self.host.finish(now, held);
                    return Ok(());
                }
                Wake::Time => {}
            }
        }
    }

    /// Performs all work that is due.
    fn turn(&mut self, errand: &mut Option<Errand>) {
        let now = self.clock.now();
        if let Some(ports) = self.bgp_files.look(now) {
            self.agent.bgp_files(ports);
        }
        if self.host.follow() {
            self.agent.rules_changed(now);
        }
        let wanted = self.agent.wants_flow_log();
        let wanted = wanted.then_some(self.config.packet_log);
        let log = self.flows.follow(now, unix_ms(), wanted);
        self.agent.set_flows(log);
        self.agent_turns(now);
        let clock = self.clock;
        self.flows
            .turn(|| clock.now(), unix_ms(), self.agent.calculator());
        self.host.go_on(now);
        let transactions = self.host.transactions();
        self.events.at_revision(self.revision());
        self.events.rules(now, &self.agent, transactions);
        self.events.look(now);
        self.follow_log();
        let settings = self.agent.listening();
        let is_scraped = self.config.metrics.is_some();
        self.health
            .follow(now, &settings, is_scraped, &self.control);
        // A snapshot is not reported: the datastore has newer data.
        if self.agent.is_active() && self.agent.is_store_in_sync() {
            self.publish_states(now);
        }
        if errand.is_none()
            && let Some(job) = self.reporter.poll(now, unix_s())
        {
            *errand = Some(Box::pin(store::run(Arc::clone(&self.store), job)));
        }
    }

    /// Lets the agent and its host exchange commands and answers until neither has any; between two
    /// transactions that prepare rules, other work is done.
    fn agent_turns(&mut self, now: Instant) {
        let mut answered = true;
        while answered {
            while let Some((number, event)) = self.host.poll_event() {
                self.agent.handle_host(now, number, event);
            }
            self.agent.turn(now);
            answered = false;
            while let Some((number, command)) = self.agent.poll_host_command() {
                self.host.submit(number, command);
                answered = true;
            }
            // Traffic is denied before a route leads to it.
            while let Some(command) = self.agent.poll_command(now) {
                self.fib.submit(command);
                self.emit_notices();
            }
            self.emit_notices();
            answered &= !self.is_under_way();
        }
    }

    /// Returns whether the next turn continues the work of this one without an event.
    fn is_under_way(&self) -> bool {
        self.agent.is_under_way(self.host.is_writing())
    }

    fn emit_notices(&mut self) {
        while let Some(notice) = self.agent.poll_notice() {
            kernel_events::notice(&notice);
        }
    }

    /// Publishes the states of the endpoints.
    fn publish_states(&mut self, now: Instant) {
        self.reporter.settings(now, &self.agent.desired().settings);
        let changed = self.agent.take_changed_states();
        let views = || changed.iter().map(|id| (id, self.agent.endpoint(id)));
        for (id, view) in views() {
            self.events.endpoint(now, id, view.as_ref());
        }
        let prefix = self.agent.desired().settings.endpoint_files.as_deref();
        self.files.follow(prefix);
        self.files.update(now, views(), self.agent.is_settled());
        let states = views().map(|(id, view)| (id, view.map(|view| view.reported())));
        self.reporter.endpoints(states);
    }

    async fn wake(
        &mut self,
        stop: &mut Pin<&mut impl Future<Output = ()>>,
        errand: &mut Option<Errand>,
    ) -> Wake {
        let now = self.clock.now();
        let waits = |until: &Instant| now < *until && !self.has_members;
        self.members_wait = self.members_wait.filter(waits);
        let deadlines = [
            self.agent.poll_timeout(),
            self.reporter.poll_timeout(),
            self.host.poll_timeout(),
            self.events.poll_timeout(),
            Some(self.bgp_files.poll_timeout()),
            self.health.poll_timeout(),
            self.flows.poll_timeout(),
            self.files.poll_timeout(),
        ];
        let deadline = deadlines.into_iter().flatten().min();
        let (has_changes, is_under_way) = (self.waiting.len() > 0, self.is_under_way());
        let plan = Plan::of(has_changes, is_under_way, self.members_wait, deadline);
        let work = plan.has_work.then_some(Wake::More);
        let updates_at = plan.accepts_changes.then_some(self.updates_at);
        let updates = next_updates(&mut self.follower, self.clock, updates_at);
        let mut stop = pin!(stop.as_mut().map(|()| Wake::Stop));
        let mut signal = pin!(next_signal(self.signals.as_mut()).map(Wake::Signal));
        let mut kernel = pin!(self.fib.event().map(Wake::Kernel));
        let mut request = pin!(self.control.next().map(Wake::Request));
        let mut addresses = pin!(self.addresses.changed().map(Wake::DatastoreAt));
        let mut updates = pin!(updates.map(Wake::Store));
        let mut outcome = pin!(run_errand(errand).map(Wake::Reported));
        let mut host = pin!(self.host.has_work().map(|()| Wake::Time));
        let mut time = pin!(self.clock.reach(plan.deadline).map(|()| Wake::Time));
        let mut flows = pin!(self.flows.has_work(self.clock).map(|()| Wake::Time));
        let mut watches = pin!(watches_changed().map(|()| Wake::Time));
        let mut ping = pin!(self.service_manager.due().map(|()| Wake::Time));
        let inputs: &mut [Input<'_, Wake>] = &mut [
            ping.as_mut(),
            stop.as_mut(),
            signal.as_mut(),
            kernel.as_mut(),
            request.as_mut(),
            addresses.as_mut(),
            updates.as_mut(),
            outcome.as_mut(),
            host.as_mut(),
            watches.as_mut(),
            flows.as_mut(),
            time.as_mut(),
        ];
        self.rotation.next(work, inputs).await
    }

    /// Handles the event and those queued behind it, so that a burst costs one turn.
    fn kernel(&mut self, first: Event) -> Result<(), DaemonError> {
        let now = self.clock.now();
        let mut event = Some(first);
        let mut left = EVENTS_PER_TURN;
        while let Some(taken) = event {
            if let Event::Closed(error) = taken {
                return Err(DaemonError::FibClosed(error));
            }
            self.events.kernel(now, self.agent.reconciler(), &taken);
            self.agent.handle(now, &taken);
            left -= 1;
            event = match left {
                0 => None,
                _ => self.fib.event().now_or_never(),
            };
        }
        Ok(())
    }

    /// Applies a part of the received changes.
    fn updates(&mut self) {
        let mut left = UPDATE_OCTETS_PER_STEP;
        while left > 0
            && let Some(update) = self.waiting.next()
        {
            left = left.saturating_sub(store::octets(&update));
            self.counts.update(&update);
            match update {
                Update::Change(Change::Put(item)) => {
                    let key = String::from_utf8_lossy(&item.key);
                    self.agent.change(&key, Some(&item.value));
                }
                Update::Change(Change::Delete(key)) => {
                    self.agent.change(&String::from_utf8_lossy(&key), None);
                }
                Update::Status(status) => self.turn_to(status),
            }
        }
    }

    fn turn_to(&mut self, status: Status) {
        if std::mem::replace(&mut self.store_status, status) != status {
            events::datastore(status, self.revision());
            self.counts.status(status);
        }
        match status {
            Status::Syncing => self.agent.store_unread(),
            Status::Snapshot { age_s } => {
                self.snapshot_age_s = Some(age_s);
                self.agent.store_restored();
            }
            Status::InSync => {
                self.snapshot_age_s = None;
                self.agent.store_in_sync();
            }
            Status::Unready(why) => self.agent.store_unready(why),
            Status::Lost => self.agent.store_unread(),
        }
    }

    /// Sets the level of the log to that of the settings, unless the file has a level.
    fn follow_log(&mut self) {
        if self.config.log.is_some() || !self.agent.is_active() {
            return;
        }
        let level = self.agent.desired().settings.log_level.as_deref();
        let level = level.unwrap_or(LOG_LEVEL);
        if self.log_level.as_deref() != Some(level) {
            self.log_level = Some(level.to_owned());
            configure_level(level);
        }
    }

    /// Returns the known revision of the datastore.
    fn revision(&self) -> Option<u64> {
        self.follower.revision()?.0.try_into().ok()
    }

    /// Reads the file again and applies it. If it has a fault, the configuration in effect stays
    /// unchanged, and the report is written to the log and into the status.
    fn reload(&mut self) {
        self.config_error = None;
        match Config::read(&self.config.path) {
            Ok(config) => self.take_over(&config),
            Err(report) => {
                let report = report.to_string();
                events::config_rejected(&report);
                self.config_error = Some(report);
            }
        }
    }

    fn take_over(&mut self, new: &Config) {
        let applied = self.config.applied_keys(new);
        let fixed = self.config.restart_keys(new);
        self.agent.reconfigure(&new.agent);
        self.bgp_files
            .reconfigure(self.clock.now(), new.bgp_files.clone());
        self.config.bgp_files.clone_from(&new.bgp_files);
        self.config.packet_log = new.packet_log;
        // A key that requires a restart keeps its value, and is named again by the next reload.
        self.config.agent = self.agent.config().clone();
        emit(Emitted::ConfigKeysApplied {
            keys: Text::new(applied.join(", ")),
        });
        if !fixed.is_empty() {
            let keys = fixed.join(", ");
            events::restart_required(&keys);
            self.config_error = Some(format!("{keys} changed: requires a restart"));
        }
    }
}

async fn next_signal(signals: Option<&mut Signals>) -> Signal {
    match signals {
        Some(signals) => signals.next().await,
        None => pending().await,
    }
}

/// Waits for the next updates, not before `at`; `None`: never. Until then they stay in the follower,
/// where a newer value replaces an older one.
async fn next_updates(follower: &mut Follower, clock: Clock, at: Option<Instant>) -> Vec<Update> {
    clock.reach(at).await;
    follower.next().await
}

async fn run_errand(errand: &mut Option<Errand>) -> Outcome {
    match errand {
        Some(errand) => errand.await,
        None => pending().await,
    }
}
