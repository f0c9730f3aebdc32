//! The daemon's loop, and its beginning on the command line.

use std::error::Error;
use std::process::ExitCode;

use bgp_io::bgp_proto::Notification;
use bgp_io::rib::Progress;
use bgp_io::{IoError, Parting};
use daemon_common::control::{BindError, Control};
use daemon_common::daemon::{
    LogError, Signal, Signals, chance, init_logging, tell_ready, tell_stopping,
};
use daemon_common::program::{About, start};

use crate::fabric::Fabric;
use crate::guard::HostGuard;
use crate::source::Source;
use crate::{Config, Daemon, Program, begin};

/// Why a daemon does not start, or cannot go on. Each prints as one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Failure<E: Error> {
    /// The log level is none.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The control socket, or the one for scrapers, cannot be bound.
    #[error(transparent)]
    Control(#[from] BindError),
    /// A BGP socket cannot be had.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Signals cannot be listened to.
    #[error("signals: {0}")]
    Signals(std::io::Error),
    /// The store cannot be reached the way the file says.
    #[error("datastore: {0}")]
    Store(#[from] calico_store::Error),
    /// What the program adds.
    #[error(transparent)]
    Program(E),
}

/// The whole of a program's `main`.
pub fn main<P: Program>() -> ExitCode {
    let about = About {
        name: P::NAME,
        about: P::ABOUT,
        config_default: P::CONFIG_DEFAULT,
    };
    start(&about, Config::read, Config::notes, run::<P>)
}

/// Runs a daemon until it is told to leave.
///
/// # Errors
///
/// It cannot start, or the program cannot go on.
pub async fn run<P: Program>(config: Config<P::Settings>) -> Result<(), Failure<P::Error>> {
    init_logging(config.file.log.get_ref(), config.file.log_format)?;
    for note in config.notes() {
        tracing::warn!("{note}");
    }
    let mut signals = Signals::new().map_err(Failure::Signals)?;
    let mut control = Control::bind(config.control())?;
    for (path, view) in config.bird_controls() {
        control.bind_bird(path, view)?;
    }
    if let Some(metrics) = &config.file.metrics {
        control.bind_metrics(metrics.listen)?;
    }
    let mut source = match config.store() {
        Some(store) => Some(Source::open(&config, store, chance()).await?),
        None => None,
    };
    let mut fabric = Fabric::default();
    let mut duties = None;
    let intent = match (config.intent(), &mut source) {
        (None, Some(source)) => {
            // However long the store is away, to be started again would not help.
            tell_ready();
            let derived = begin::first::<P>(&config, source, &mut control, &mut signals).await;
            duties = derived.as_ref().map(|derived| derived.duties.clone());
            derived.and_then(|derived| fabric.begin(derived))
        }
        (intent, _) => intent.cloned(),
    };
    let Some(intent) = intent else { return Ok(()) };
    // Before a port opens.
    let mut guard = HostGuard::new(&config);
    guard.cover(&intent);
    let mut daemon: Daemon<P> = Daemon::new(config, intent, source, (fabric, guard), chance())?;
    if let Some(duties) = duties {
        daemon.program.take_duties(&duties);
    }
    for address in daemon.io.listening() {
        tracing::info!("listening on {address}");
    }
    daemon.remember();
    tell_ready();
    let parting = loop {
        daemon.remember_in_time();
        daemon.summarize(false);
        daemon.guard.look();
        let mut more = daemon.program.carry(&mut daemon.io) != Progress::Done;
        more |= daemon.look() != Progress::Done;
        let rest = daemon.rest();
        tokio::select! {
            events = daemon.io.next() => daemon.hear(&events),
            event = daemon.program.next() => {
                let now = daemon.io.clock().now();
                daemon.program.handle(now, event).map_err(Failure::Program)?;
            }
            updates = Daemon::<P>::store_news(&mut daemon.source) => daemon.hear_store(updates),
            request = control.next() => {
                let reply = daemon.answer(&request.command);
                request.reply(reply);
            }
            signal = signals.next() => match signal {
                Signal::Reload => daemon.reload(),
                Signal::Terminate if daemon.program.leaves_routes() => break Parting::ToComeBack,
                Signal::Terminate | Signal::Interrupt => break Parting::ForGood,
            },
            () = tokio::time::sleep(rest.unwrap_or_default()), if rest.is_some() => {}
            () = tokio::task::yield_now(), if more => {}
        }
    };
    leave(daemon, parting).await;
    Ok(())
}

/// Closes all sessions, and leaves the other side in good order.
async fn leave<P: Program>(mut daemon: Daemon<P>, parting: Parting) {
    tell_stopping();
    daemon.summarize(true);
    tracing::info!("leaving: closing all sessions");
    match parting {
        Parting::ToComeBack => daemon.remember(),
        Parting::ForGood => daemon.memory.forget(),
    }
    let why = Notification::administrative_shutdown(P::FAREWELL);
    daemon.io.shutdown(parting, &why).await;
    let clock = *daemon.io.clock();
    daemon.program.leave(|| clock.now()).await;
}
