//! The program: one task that owns the engine, and all its inputs.

use std::collections::BTreeSet;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bfd::{Instant, State};
use bfd_client::Listener;
use daemon_common::control::{BindError, Control, Request};
use daemon_common::daemon::{
    LogError, Signal, Signals, init_logging, notify_ready, notify_stopping, resident_kib,
};
use daemon_common::events::{self, Event, Text, emit};
use daemon_common::report::{Fact, Limit, Limits, Status};
use daemon_common::service_manager::ServiceManager;
use daemon_common::{Command, Reply};
use tokio::task::yield_now;
use tokio::time::sleep_until;

use crate::clients::Clients;
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::Engine;
use crate::host::Host;
use crate::kept::Kept;
use crate::limits::{
    ACCEPT_RETRY, BIND_RETRY_MAX, CLIENTS_MAX, CONNECTIONS_MAX, RECEIVE_EVERY, SESSIONS_OF_ALL_MAX,
    STEPS_PER_TURN, STOP_MAX,
};
use crate::priority::{self, Precedence};
use crate::random::SystemRandom;
use crate::report::{self, DAEMON};
use crate::resolve::Addresses;
use crate::sockets::Sockets;
use crate::users::{self, Users};

/// Why the daemon does not start. Each prints as one line with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The log level is invalid.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The control socket or the metrics endpoint cannot be opened.
    #[error(transparent)]
    Control(#[from] BindError),
    /// The socket for clients cannot be opened.
    #[error("socket {path}: {error}; set another `socket`, or stop the daemon that has it")]
    Clients {
        /// Its path.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// The ports of BFD cannot be listened on.
    #[error("{0}; stop the other program that uses BFD, or set `addresses`")]
    Ports(io::Error),
    /// The system has no random numbers.
    #[error("random numbers: {0}")]
    Random(io::Error),
    /// Signal handlers cannot be installed.
    #[error("signal handlers: {0}")]
    Signals(io::Error),
    /// A thread that reads the addresses or the users of the host cannot be started.
    #[error("a thread for the addresses or the users of the host: {0}; raise the limit of tasks")]
    Thread(io::Error),
}

/// The daemon, opened.
struct Daemon {
    engine: Engine<SystemRandom>,
    sockets: Sockets,
    listener: Listener,
    /// When clients are accepted again, after a failure.
    accept_at: Option<Instant>,
    /// When sockets are read again because packets have arrived.
    read_at: Option<Instant>,
    clients: Clients,
    host: Host,
    users: Users,
    config: Config,
    config_error: Option<String>,
    precedence: Precedence,
    /// The remote systems to which the last packet could not be sent.
    unsent: BTreeSet<IpAddr>,
    clock: Clock,
    kept: Kept,
}

/// The event that woke the daemon.
enum Wake {
    /// Packets, clients, addresses of the host or the time.
    Work,
    Client(io::Result<bfd_client::Socket>),
    Request(Request),
    Signal(Signal),
}

/// Runs the daemon until a signal ends it.
///
/// SIGTERM is a restart: if the state is kept, the next process continues the sessions, and the remote
/// systems notice nothing. After SIGINT, or if no state is kept, they receive AdminDown.
///
/// # Errors
///
/// A requirement is missing; each error is one line.
pub async fn run(config: Config) -> Result<(), DaemonError> {
    let locked = priority::lock();
    init_logging(&config.log, config.log_format)?;
    emit(Event::DaemonStarted {
        version: Text::new(env!("CARGO_PKG_VERSION")),
        hostname: None,
    });
    let mut signals = Signals::new().map_err(DaemonError::Signals)?;
    let mut service_manager = ServiceManager::from_environment();
    let mut control = Control::bind(&config.control)?;
    if let Some(metrics) = config.metrics {
        control.bind_metrics(metrics.listen)?;
    }
    let mut daemon = Daemon::open(config, locked).await?;
    notify_ready();
    let hands_over = loop {
        let more = daemon.turn();
        service_manager.turned(|| daemon.summary());
        let until = daemon.poll_timeout();
        let wake = tokio::select! {
            request = control.next() => Wake::Request(request),
            signal = signals.next() => Wake::Signal(signal),
            client = daemon.accept() => Wake::Client(client),
            () = daemon.arrivals() => Wake::Work,
            () = daemon.clients.ready() => Wake::Work,
            () = daemon.host.ready() => Wake::Work,
            () = daemon.users.ready() => Wake::Work,
            () = at(&daemon.clock, until) => Wake::Work,
            () = service_manager.due() => Wake::Work,
            // Other tasks, such as the control socket, run before more work.
            () = yield_now(), if more => Wake::Work,
        };
        match wake {
            Wake::Work => {}
            Wake::Client(Ok(socket)) => {
                let now = daemon.clock.now();
                daemon.clients.add(now, socket, &mut daemon.users);
            }
            Wake::Client(Err(error)) => {
                daemon.accept_at = Some(daemon.clock.now() + ACCEPT_RETRY);
                emit(Event::ListenerControlFailed {
                    reason: Text::new(error),
                });
            }
            Wake::Request(request) => daemon.answer(request),
            Wake::Signal(Signal::Reload) => daemon.reload(),
            Wake::Signal(Signal::Terminate) => break daemon.kept.continues(),
            Wake::Signal(Signal::Interrupt) => break false,
        }
    };
    notify_stopping();
    emit(Event::DaemonStopping {});
    match hands_over {
        true => daemon.save(),
        false => daemon.stop().await,
    }
    Ok(())
}

impl Daemon {
    async fn open(config: Config, locked: nix::Result<()>) -> Result<Self, DaemonError> {
        let random = SystemRandom::open().map_err(DaemonError::Random)?;
        let clock = Clock::start();
        let mut kept = Kept::take();
        let wanted = Sockets::wanted(&config.addresses);
        let removed = kept.store().remove_other_sockets(&wanted);
        let retry = match removed {
            Ok(false) => Duration::ZERO,
            Ok(true) | Err(_) => BIND_RETRY_MAX,
        };
        let earlier = |at| kept.store().socket(at);
        let sockets = Sockets::open(&config.addresses, earlier, retry).await;
        let mut sockets = sockets.map_err(DaemonError::Ports)?;
        if let Err(error) = kept.store().keep_sockets(sockets.receivers()) {
            let reason = Text::new(error);
            emit(Event::BfdKeepFailed { reason });
        }
        let listener = Listener::bind(&config.socket).map_err(|error| DaemonError::Clients {
            path: config.socket.display().to_string(),
            error,
        })?;
        // A start that fails before is no attempt to continue the state.
        let content = kept.open();
        sockets.were_empty_at(content.emptied_at);
        let mut engine = Engine::new(random, config.limits);
        kept.restore(clock.now(), content.records, &mut engine, &mut sockets);
        for local in sockets.listening() {
            emit(Event::ListenerReady { local });
        }
        // Their threads do not have the raised priority.
        let host = Host::start(Addresses::read).map_err(DaemonError::Thread)?;
        let users = Users::start(clock.now(), &config.users, users::look_up);
        let users = users.map_err(DaemonError::Thread)?;
        let precedence = priority::raise(locked);
        if let Some(note) = precedence.note() {
            let reason = Text::new(note);
            emit(Event::BfdPrecedenceMissing { reason });
        }
        Ok(Self {
            engine,
            sockets,
            listener,
            accept_at: None,
            read_at: None,
            clients: Clients::default(),
            host,
            users,
            config,
            config_error: None,
            precedence,
            unsent: BTreeSet::new(),
            clock,
            kept,
        })
    }

    /// Waits for the next client.
    async fn accept(&self) -> io::Result<bfd_client::Socket> {
        at_or_now(&self.clock, self.accept_at).await;
        self.listener.accept().await
    }

    /// Waits for packets.
    async fn arrivals(&self) {
        at_or_now(&self.clock, self.read_at).await;
        self.sockets.ready().await;
    }

    /// Performs all work that is due, within a bound. Returns whether there is more.
    fn turn(&mut self) -> bool {
        let now = self.clock.now();
        // Received packets count before timers: a delay of this process is no failure of a path.
        let Self {
            engine, sockets, ..
        } = self;
        let mut has_received = false;
        let mut more = sockets.receive(now, |arrival, payload| {
            has_received = true;
            // The engine counts what it discards.
            let _ = engine.receive(now, arrival, payload);
        });
        self.read_at = has_received.then(|| now + RECEIVE_EVERY);
        self.host.turn(now, engine);
        self.users.turn(now);
        self.clients.admit(now, &mut self.users);
        more |= !self.steps(now);
        let (sockets, engine) = (&mut self.sockets, &self.engine);
        sockets.close_ended(engine.len(), |id| engine.contains(id));
        more |= self.clients.serve(now, &mut self.engine, &self.host);
        self.save();
        self.kept.turned(&mut self.engine, &self.sockets);
        more
    }

    /// Writes the changed states, for the next process.
    fn save(&mut self) {
        let now = self.clock.now();
        self.kept.save(now, &mut self.engine, &self.sockets);
    }

    /// Sends the packets that are due. Returns whether all were.
    fn steps(&mut self, now: Instant) -> bool {
        for _ in 0..STEPS_PER_TURN {
            let Some(outgoing) = self.engine.step(now) else {
                return true;
            };
            let remote = outgoing.way.remote;
            // The next process must not contradict a packet that the remote system has received.
            self.kept.save(now, &mut self.engine, &self.sockets);
            match self.sockets.send(&outgoing) {
                Ok(()) => {
                    self.unsent.remove(&remote);
                }
                Err(error) => {
                    if self.unsent.len() < SESSIONS_OF_ALL_MAX && self.unsent.insert(remote) {
                        emit(Event::BfdSendFailed {
                            address: remote,
                            reason: Text::new(error),
                        });
                    }
                }
            }
        }
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let times = [
            self.engine.poll_timeout(),
            self.host.poll_timeout(&self.engine),
            self.clients.poll_timeout(),
        ];
        times.into_iter().flatten().min()
    }

    /// Ends all sessions in AdminDown, and gives the remote systems a moment to receive it.
    async fn stop(&mut self) {
        self.engine.stop(self.clock.now());
        let end = self.clock.now() + STOP_MAX;
        loop {
            self.turn();
            let now = self.clock.now();
            if self.engine.is_empty() || now >= end {
                return;
            }
            let until = self.poll_timeout().map_or(end, |at| at.min(end));
            tokio::select! {
                () = self.sockets.ready() => {}
                () = at(&self.clock, Some(until)) => {}
            }
        }
    }

    fn answer(&mut self, request: Request) {
        let reply = match &request.command {
            Command::Status {} => Reply::Status(self.status()),
            Command::Bfd {} => Reply::Bfd(report::sessions(&self.engine, self.clock.now())),
            Command::Limits {} => Reply::Limits(self.limits()),
            Command::Reload {} => {
                self.reload();
                Reply::reloaded(self.config.path.display(), self.config_error.clone())
            }
            // Listed, so that the compiler asks where a new command belongs.
            other @ (Command::Neighbors {}
            | Command::Routes { .. }
            | Command::Lookup { .. }
            | Command::Fib {}
            | Command::Endpoints {}
            | Command::EndpointRules { .. }
            | Command::Packet(_)
            | Command::Preview { .. }
            | Command::Rules {}
            | Command::Malformed {}
            | Command::Config {}
            | Command::Events(_)
            | Command::Flows(_)
            | Command::Log {}
            | Command::SetLog(_)
            | Command::Debug(_)
            | Command::Refresh { .. }
            | Command::Clear { .. }
            | Command::Readiness {}
            | Command::Drain { .. }) => Reply::not_here(DAEMON, other),
        };
        request.reply(reply);
    }

    /// Reads the file again and applies it. If it has a fault, the configuration in effect stays.
    fn reload(&mut self) {
        self.config_error = None;
        let new = match Config::read(&self.config.path) {
            Ok(new) => new,
            Err(report) => {
                let report = report.to_string();
                let reason = Text::new(&report);
                emit(Event::ConfigRejected { reason });
                self.config_error = Some(report);
                return;
            }
        };
        self.users.configure(self.clock.now(), &new.users);
        self.engine.set_limits(new.limits);
        let fixed = self.config.start_keys_changed(&new);
        self.config.users = new.users;
        self.config.limits = new.limits;
        let keys = Text::new("users, sessions, packets_per_second, interval_min_ms, grace");
        emit(Event::ConfigKeysApplied { keys });
        if !fixed.is_empty() {
            let fixed = fixed.join(", ");
            let keys = Text::new(&fixed);
            emit(Event::ConfigRestartRequired { keys });
            self.config_error = Some(format!("{fixed} changed: requires a restart"));
        }
    }

    fn status(&self) -> Status {
        let figures = report::figures(&self.engine);
        let mut notes = self.users.notes(self.clock.now());
        notes.extend(self.precedence.note());
        notes.extend(self.sockets.sharing());
        notes.extend(self.sockets.short_of_memory(self.packets()));
        notes.extend(self.host.note(self.clock.now()));
        let log = daemon_common::log::figures();
        notes.extend(log.note());
        let fact = |name: &str, value: String| Fact {
            name: name.to_owned(),
            value,
        };
        let listening = self.sockets.listening();
        let listening: Vec<String> = listening.iter().map(ToString::to_string).collect();
        Status {
            daemon: DAEMON.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.clock.uptime().as_secs(),
            resident_kib: resident_kib(),
            ready: true,
            config: self.config.path.display().to_string(),
            config_error: self.config_error.clone(),
            notes,
            facts: vec![
                fact("sessions", self.summary()),
                fact("listening", listening.join(" ")),
                fact(
                    "packets dropped by the kernel",
                    self.sockets.dropped().to_string(),
                ),
                fact("after a restart", self.kept.summary().to_owned()),
                fact("log lines", log.to_string()),
            ],
            log: Some(log.into()),
            bfd: Some(figures.into()),
            ..Status::default()
        }
    }

    /// Returns the packets that all sessions receive within their detection times.
    fn packets(&self) -> u64 {
        let views = self.engine.views();
        views.map(|view| u64::from(view.wanted.multiplier)).sum()
    }

    fn limits(&self) -> Limits {
        let further = "a further one is rejected, and its client logs the reason";
        let mut limits = vec![
            Limit::new(
                "sessions of all clients",
                SESSIONS_OF_ALL_MAX as u64,
                further,
            )
            .used(self.engine.len() as u64),
            Limit::new("clients", CLIENTS_MAX as u64, further).used(self.engine.clients() as u64),
            Limit::new(
                "connections of clients",
                CONNECTIONS_MAX as u64,
                "a further one is closed",
            )
            .used(self.clients.len() as u64),
        ];
        limits.extend(report::client_limits(&self.engine, &self.config.limits));
        limits.extend(events::limits());
        Limits { limits }
    }

    /// Returns the state in one line.
    fn summary(&self) -> String {
        let (mut all, mut up) = (0, 0);
        for view in self.engine.views() {
            all += 1;
            let state = view.session.map(|(_, session)| session.state());
            up += u32::from(state == Some(State::Up));
        }
        let clients = self.engine.clients();
        format!("{up} of {all} sessions up, {clients} clients")
    }
}

/// Waits until an instant, if there is one.
async fn at_or_now(clock: &Clock, until: Option<Instant>) {
    if let Some(until) = until {
        sleep_until(clock.tokio(until)).await;
    }
}

/// Waits until an instant, or forever.
async fn at(clock: &Clock, until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(clock.tokio(until)).await,
        None => pending().await,
    }
}
