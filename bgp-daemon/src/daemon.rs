//! The daemon's state, and its loop.

use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bgp_config::Intent;
use bgp_io::bgp_speaker::SpeakerConfig;
use bgp_io::{Bind, Event, Io, IoConfig, IoError, Speaker, StopMode};
use daemon_common::daemon::notify_ready;
use daemon_common::report::{Fact, Readiness, Status};
use daemon_common::service_manager::ServiceManager;
use tokio::task::yield_now;

use crate::config::StartKeys;
use crate::node_drain::NodeDrain;
use crate::node_drain::file::DrainFile;
use crate::ready::{self, EndOfRibs};
use crate::{
    Config, Driver, DriverError, Order, Privileges, Program, Round, Settings, report, startup,
};

/// A speaker with its sockets, its configuration, and the drivers around it.
#[derive(Debug)]
pub(crate) struct Daemon<P: Program, D> {
    /// The speaker with its sockets.
    pub(crate) io: Io,
    /// All drivers.
    pub(crate) drivers: D,
    /// The applied file.
    pub(crate) config: Config<P::Settings>,
    /// The addresses on which connections are accepted.
    pub(crate) listen: Vec<SocketAddr>,
    /// The longest delay of route selection after a restart, as it was last configured.
    pub(crate) restart_wait: Duration,
    /// Remarks on the speaker's configuration.
    pub(crate) remarks: Vec<String>,
    /// The keys that only a start reads, with the values that are in effect.
    pub(crate) start_keys: StartKeys,
    /// Why the last reload was rejected, or applied in part only.
    pub(crate) config_error: Option<String>,
    /// Why the speaker rejected the last configuration, if it did.
    pub(crate) refused: Option<String>,
    /// The service manager that watches the loop; none unless it is set.
    pub(crate) service_manager: ServiceManager,
    /// The privileges of this process.
    pub(crate) privileges: Privileges,
    /// The End-of-RIB markers of the neighbors, for readiness.
    pub(crate) end_of_ribs: EndOfRibs,
    /// The drain of this node.
    pub(crate) drain: NodeDrain,
    /// The request to drain of the control socket.
    pub(crate) drain_file: DrainFile,
    /// The configuration without the drain, while the node is drained.
    pub(crate) undrained: Option<SpeakerConfig>,
    started: Instant,
    /// When the applied configuration was read.
    pub(crate) configured: Instant,
    /// Turns of the loop since the start.
    turns: u64,
}

impl<P: Program, D: Driver<P::Settings>> Daemon<P, D> {
    /// Listens and starts all sessions of `intent`. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// An address cannot be listened on.
    pub(crate) fn new(
        config: Config<P::Settings>,
        intent: Intent,
        speaker: Speaker,
        drivers: D,
        privileges: Privileges,
        (drain, drain_file): (NodeDrain, DrainFile),
    ) -> Result<Self, IoError> {
        let parent = privileges.parent().cloned();
        let binder = parent.map(|parent| Arc::new(parent) as Arc<dyn Bind>);
        let io = IoConfig::new(intent.listen.clone()).with_binder(binder);
        let undrained = drain.effective(&intent.speaker).map(|_| intent.speaker);
        Ok(Self {
            io: Io::new(speaker, io)?,
            end_of_ribs: EndOfRibs::new(P::Settings::REFLECTS),
            drain,
            drain_file,
            undrained,
            drivers,
            start_keys: config.start_keys(),
            config,
            listen: intent.listen,
            restart_wait: intent.restart_wait,
            remarks: intent.notes,
            config_error: None,
            refused: None,
            service_manager: ServiceManager::default(),
            privileges,
            started: Instant::now(),
            configured: Instant::now(),
            turns: 0,
        })
    }

    /// Runs rounds until a driver stops the daemon; the service manager is notified after the first
    /// round.
    ///
    /// # Errors
    ///
    /// A driver cannot continue.
    pub(crate) async fn serve(&mut self) -> Result<StopMode, DriverError> {
        let mut next = self.round()?;
        notify_ready();
        self.turned();
        loop {
            match next {
                Next::Stop(mode) => return Ok(mode),
                Next::Wait { more } => {
                    let events = self.wait(more).await;
                    self.observe(&events);
                }
            }
            next = self.round()?;
            self.turned();
        }
    }

    /// Reports a complete turn of the loop to the service manager.
    fn turned(&mut self) {
        self.turns += 1;
        let (io, drivers) = (&self.io, &self.drivers);
        let state = || report::state(io.speaker(), drivers.revision());
        self.service_manager.turned(state);
    }

    /// Gives every driver its turn, and carries out their orders.
    fn round(&mut self) -> Result<Next, DriverError> {
        self.look_at_drain();
        let mut round = Round::new(&mut self.io);
        self.drivers.turn(&mut round)?;
        let (orders, more) = round.end();
        for order in orders {
            if let Some(mode) = self.obey(order) {
                return Ok(Next::Stop(mode));
            }
        }
        Ok(Next::Wait { more })
    }

    /// Polls the sockets and all drivers, until one of them is ready; at most until the next timer
    /// or the next message to the service manager, or once if there is `more` to do. Returns what the sockets brought.
    async fn wait(&mut self, more: bool) -> Vec<Event> {
        let now = self.io.clock().now();
        let timers = [self.drivers.poll_timeout(), self.drain.poll_timeout()];
        let rest = timers.into_iter().flatten().min();
        let rest = rest.map(|at| at.saturating_duration_since(now));
        let rest = rest.into_iter().chain(self.service_manager.rest()).min();
        let mut io = pin!(self.io.next());
        let mut drivers = pin!(self.drivers.wait());
        let mut pause = pin!(pause(more, rest));
        let (events, driver) = poll_fn(|cx| {
            let events = io.as_mut().poll(cx);
            // Polled each time, also when the sockets are ready: neither starves the other.
            let driver = drivers.as_mut().poll(cx).is_ready();
            match events {
                Poll::Ready(events) => Poll::Ready((events, false)),
                Poll::Pending if driver => Poll::Ready((Vec::new(), true)),
                Poll::Pending => pause.as_mut().poll(cx).map(|()| (Vec::new(), false)),
            }
        })
        .await;
        if driver {
            // A driver that is always ready must not prevent the runtime from polling sockets.
            yield_now().await;
        }
        events
    }

    fn observe(&mut self, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        let (now, speaker) = (self.io.clock().now(), self.io.speaker());
        for event in events {
            if let Event::Speaker(event) = event {
                self.end_of_ribs.observe(now, speaker, event);
            }
            self.drivers.observe(now, speaker, event);
        }
    }

    /// Executes an order; returns how the daemon ends if the order stops it.
    fn obey(&mut self, order: Order) -> Option<StopMode> {
        match order {
            Order::Adopt(intent, duties) => {
                let is_drain_changed = self.drain.assign(self.io.clock().now(), &duties);
                if self.adopt(*intent) {
                    self.drivers.assign(&duties);
                } else if is_drain_changed {
                    self.apply_drain();
                }
                self.report_drain();
            }
            Order::Reconfigure(speaker) => {
                self.adopt(Intent {
                    speaker: *speaker,
                    listen: self.listen.clone(),
                    restart_wait: self.restart_wait,
                    notes: self.remarks.clone(),
                });
            }
            Order::Answer(request) => {
                let reply = self.answer(&request.command);
                request.reply(reply);
            }
            Order::Reload => self.reload(),
            Order::Stop { returns } => {
                return Some(match returns && self.drivers.keeps_forwarding() {
                    true => StopMode::GracefulRestart,
                    false => StopMode::Permanent,
                });
            }
        }
        None
    }

    pub(crate) fn status(&self) -> Status {
        let mut status = Status {
            configured_s: Some(self.configured.elapsed().as_secs()),
            turns: Some(self.turns),
            restarting: !self.io.speaker().deferred().is_empty(),
            waiting_for: report::waiting(self.io.speaker()),
            notes: self.notes(),
            config_error: self
                .config_error
                .as_ref()
                .or(self.refused.as_ref())
                .cloned(),
            facts: report::facts(self.io.speaker()),
            tables: Some(report::tables(self.io.speaker()).into()),
            ..startup::process::<P>(&self.config, self.started)
        };
        status.notes.extend(report::full_ranges(self.io.speaker()));
        let rejected = report::rejected_for_memory(self.io.speaker());
        status.notes.extend(rejected);
        self.drivers.report(&mut status);
        status.readiness = Some(self.readiness().into());
        status.drain = self.drain.figures().map(Box::new);
        status
            .notes
            .extend(status.drain.iter().map(|drain| drain.note()));
        self.privileges.report(&mut status);
        if let Some(origins) = &mut status.origins {
            origins.excluded = report::excluded(self.io.speaker());
            status.notes.extend(origins.note());
        }
        status.facts.push(self.listening());
        status.ready = status.waiting_for.is_empty();
        status
    }

    /// Returns the criteria of readiness.
    pub(crate) fn readiness(&self) -> Readiness {
        let (now, speaker) = (self.io.clock().now(), self.io.speaker());
        let mut criteria = vec![self.end_of_ribs.criterion(now, speaker)];
        criteria.extend(self.drivers.criteria(speaker));
        ready::report(criteria)
    }

    /// Returns the operator's notes on the configuration.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.remarks.clone();
        notes.extend(self.config.settings.notes());
        notes.extend(self.drivers.notes(self.io.clock().now()));
        notes.extend(self.sockets_notes());
        notes
    }

    /// Returns the missing functions of the listening sockets.
    fn sockets_notes(&self) -> Vec<String> {
        let unbound = self.io.unbound();
        let mut notes: Vec<String> = unbound
            .map(|address| format!("cannot listen on {address} yet: it is tried again"))
            .collect();
        let (neighbors, ranges): (Vec<_>, Vec<_>) =
            (self.io.keyless()).partition(|(scope, _)| scope.is_neighbor());
        notes.extend(ranges.iter().map(|(_, error)| error.to_string()));
        if let Some((_, error)) = neighbors.first() {
            let count = neighbors.len();
            notes.push(format!(
                "neighbors rejected because of a missing key: {count}; {error}"
            ));
        }
        notes
    }

    fn listening(&self) -> Fact {
        let listening: Vec<String> = self.io.listening().map(|at| at.to_string()).collect();
        Fact {
            name: "listening".to_owned(),
            value: listening.join(" "),
        }
    }
}

/// The next step after a round.
enum Next {
    /// Wait for an event, or poll once if there is `more` to do.
    Wait { more: bool },
    /// The daemon stops.
    Stop(StopMode),
}

/// Returns after `rest`, or at once if there is `more` to do.
async fn pause(more: bool, rest: Option<Duration>) {
    match (more, rest) {
        (true, _) => yield_now().await,
        (false, Some(rest)) => tokio::time::sleep(rest).await,
        (false, None) => pending().await,
    }
}
