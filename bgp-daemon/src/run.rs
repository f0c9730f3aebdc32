//! A daemon's command line, its start and its end.

use std::process::ExitCode;
use std::time::Duration;

use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_proto::Notification;
use bgp_io::{IoError, Speaker, StopMode};
use daemon_common::control::BindError;
use daemon_common::daemon::{LogError, chance, init_logging, notify_ready, notify_stopping};
use daemon_common::events::{Event, Text, emit};
use daemon_common::program::{About, start};
use daemon_common::service_manager::ServiceManager;
use tokio::time::timeout;

use crate::addresses::Addresses;
use crate::bfd::Bfd;
use crate::guard::HostGuard;
use crate::limits::STOP_MAX;
use crate::log::Log;
use crate::node_drain::NodeDrain;
use crate::node_drain::file::DrainFile;
use crate::operators::{SignalDriver, Sockets};
use crate::origins::Origins;
use crate::restart_file::RestartFile;
use crate::route_events::RouteEvents;
use crate::source::Source;
use crate::store::Store;
use crate::transition::Transition;
use crate::{
    Config, Daemon, Driver, DriverError, Open, Parent, Privileges, Program, heap, memory, parent,
    privileges, reload, restart, startup,
};

/// Why a daemon does not start, or cannot continue. Each prints as one line with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The log level is invalid.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The control socket or the metrics socket cannot be bound.
    #[error(transparent)]
    Control(#[from] BindError),
    /// A BGP socket cannot be opened.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Handlers of signals cannot be installed.
    #[error("signals: {0}")]
    Signals(std::io::Error),
    /// The datastore cannot be used as the file configures it.
    #[error("datastore: {0}")]
    Store(#[from] calico_store::Error),
    /// A driver cannot start or continue.
    #[error("{0}")]
    Driver(#[from] DriverError),
}

/// Runs a program: all of its `main`.
pub fn main<P: Program>() -> ExitCode {
    let about = About {
        name: P::NAME,
        about: P::ABOUT,
        config_default: P::CONFIG_DEFAULT,
    };
    if parent::is_parser() {
        parent::settle(P::NAME);
        privileges::give_up();
    }
    start(
        &about,
        Config::read,
        Config::notes,
        Config::control,
        confine::<P>,
        run::<P>,
    )
}

/// Confines the parser, or becomes its parent and returns its exit code. If the configuration keeps
/// all privileges, the daemon is one process.
fn confine<P: Program>(
    config: Config<P::Settings>,
) -> Result<(Config<P::Settings>, Privileges), ExitCode> {
    heap::trim();
    if parent::is_parser() {
        let parent = Parent::at_stdin().map_err(|_| ExitCode::FAILURE)?;
        let privileges = Privileges::confine(&config.files(), Some(parent));
        return Ok((config, privileges));
    }
    if config.file.keeps_privileges() {
        return Ok((config, Privileges::kept()));
    }
    privileges::reduce_parent();
    Err(parent::serve::<P>(config))
}

/// Runs a daemon until a signal stops it. `privileges` are those of this process.
///
/// # Errors
///
/// It cannot start, or a driver cannot continue.
pub async fn run<P: Program>(
    mut config: Config<P::Settings>,
    privileges: Privileges,
) -> Result<(), Failure> {
    init_logging(config.file.log.get_ref(), config.file.log_format)?;
    let hostname = config.file.hostname.as_ref();
    emit(Event::DaemonStarted {
        version: Text::new(env!("CARGO_PKG_VERSION")),
        hostname: hostname.map(|name| Text::new(name.get_ref())),
    });
    reload::emit_notes(&config.notes());
    privileges.emit();
    let parent = privileges.parent().cloned();
    let mut service_manager = ServiceManager::from_environment();
    let mut signals = SignalDriver::new(parent.as_ref()).map_err(Failure::Signals)?;
    let mut sockets = Sockets::bind(&config)?;
    let mut source = match config.store() {
        Some(store) => Some(Source::open(&config, store, chance()).await?),
        None => None,
    };
    let mode = config.file.origin_mode();
    let mut origins = source
        .as_ref()
        .map(|source| Origins::new(source.store().clone(), mode, chance()));
    let mut transition = Transition::default();
    let mut duties = None;
    let intent = match (config.take_intent(), &mut source) {
        (None, Some(source)) => {
            // Another start of the daemon would not make the datastore reachable.
            notify_ready();
            let outside = (&mut sockets, &mut signals, &mut service_manager);
            let derived = startup::first::<P>(&config, source, outside).await;
            duties = derived.as_ref().map(|derived| derived.duties.clone());
            derived.and_then(|derived| transition.begin(derived))
        }
        (intent, _) => intent,
    };
    let Some(intent) = intent else { return Ok(()) };
    // Before a port opens.
    let mut guard = HostGuard::new(&config, parent.clone());
    guard.cover(&intent);
    let (restart_file, former) = RestartFile::open(&config.control());
    let (drain_file, drain_since) = DrainFile::open(&config.control());
    let mut drain = NodeDrain::new(drain_since);
    if let Some(duties) = &duties {
        drain.assign(Instant::ZERO, duties);
    }
    drain.started();
    let drained = drain.effective(&intent.speaker);
    let drained = drained.unwrap_or_else(|| intent.speaker.clone());
    let mut speaker = Speaker::new(drained, chance());
    speaker.limit_memory(memory::octets_max(&config));
    restart::begin(&mut speaker, former, intent.restart_wait, P::FORWARDING);
    if let Some(origins) = &mut origins {
        origins.enforce(&mut speaker);
    }
    let own = P::Drivers::open(&config.settings, &mut speaker, parent.as_ref())?;
    // The drivers of every BGP daemon and the program's own, in the order of their turns and of
    // their reports.
    let drivers = (
        restart_file,
        Addresses::default(),
        Bfd::new::<P::Settings>(config.bfd_socket()),
        source.map(|source| Store::new(source, transition)),
        Log::new(),
        // Before the kernel's routes: a best path is reported before it is installed.
        RouteEvents::new(),
        origins,
        own,
        guard,
        sockets,
        signals,
    );
    let mut daemon: Daemon<P, _> = Daemon::new(
        config,
        intent,
        speaker,
        drivers,
        privileges,
        (drain, drain_file),
    )?;
    daemon.service_manager = service_manager;
    if let Some(duties) = duties {
        daemon.drivers.assign(&duties);
    }
    for address in daemon.io.listening() {
        emit(Event::ListenerReady { local: address });
    }
    let mode = daemon.serve().await?;
    stop(daemon, mode, STOP_MAX).await;
    Ok(())
}

/// Closes all sessions, and lets the drivers leave the other side in a clean state.
async fn stop<P: Program, D: Driver<P::Settings>>(
    mut daemon: Daemon<P, D>,
    mode: StopMode,
    limit: Duration,
) {
    notify_stopping();
    let clock = *daemon.io.clock();
    let speaker = daemon.io.speaker();
    daemon.drivers.stopping(speaker, clock.now(), mode);
    emit(Event::DaemonStopping {});
    let why = Notification::administrative_shutdown(P::FAREWELL);
    daemon.io.shutdown(mode, &why).await;
    if timeout(limit, daemon.drivers.stop(&clock)).await.is_err() {
        let within_s = limit.as_secs();
        emit(Event::DaemonStopTimeout { within_s });
    }
}
