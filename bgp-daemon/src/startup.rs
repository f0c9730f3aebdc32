//! The daemon's actions before it has its configuration.

use std::pin::pin;
use std::time::Instant;

use calico_bgp::Derived;
use daemon_common::daemon::Signal;
use daemon_common::events::{Event, emit};
use daemon_common::report::{Fact, LogFigures, Readiness, Status};
use daemon_common::service_manager::ServiceManager;
use daemon_common::{Command, Reply};

use crate::limits::{ANSWERS_AFTER, LIVENESS_TURN};
use crate::operators::{SignalDriver, Sockets};
use crate::source::Source;
use crate::transition::Transition;
use crate::{Config, Criterion, Program, ready};

/// Waits for the node's configuration in the datastore, and answers operators until then. No
/// session starts and no kernel route of an earlier run changes before. Returns `None` if a signal
/// stops the daemon.
pub(crate) async fn first<P: Program>(
    config: &Config<P::Settings>,
    source: &mut Source,
    (sockets, signals, service_manager): (&mut Sockets, &mut SignalDriver, &mut ServiceManager),
) -> Option<Derived> {
    let started = Instant::now();
    let mut first_moments = pin!(tokio::time::sleep(ANSWERS_AFTER));
    let mut answers = false;
    loop {
        service_manager.turned(|| format!("waiting for {}", waiting(source)));
        sockets.beat();
        tokio::select! {
            // Probes find the loop alive.
            () = tokio::time::sleep(LIVENESS_TURN) => {}
            () = service_manager.due() => {}
            () = &mut first_moments, if !answers => answers = true,
            updates = source.next() => {
                let derived = source.take(updates, &Transition::default());
                if let Some(derived) = derived.filter(|derived| derived.intent.is_some()) {
                    return Some(derived);
                }
            }
            // Until then requests wait in their queue: usually the running daemon answers them.
            request = sockets.next(), if answers => {
                let reply = match &request.command {
                    Command::Status {} => Reply::Status(status::<P>(config, source, started)),
                    Command::Readiness {} => Reply::Readiness(readiness(source)),
                    _ => Reply::error(format!("waiting for {}", waiting(source))),
                };
                request.reply(reply);
            }
            signal = signals.next() => match signal {
                Signal::Reload => emit(Event::ConfigReloadIgnored {}),
                Signal::Terminate | Signal::Interrupt => return None,
            },
        }
    }
}

fn waiting(source: &Source) -> String {
    let waiting = source.waiting();
    waiting.unwrap_or_else(|| "the Node of this host in the store".to_owned())
}

/// Returns the criterion that a daemon without its configuration does not meet.
fn readiness(source: &Source) -> Readiness {
    let why = format!("waiting for {}", waiting(source));
    ready::report(vec![Criterion::new("configuration", Some(why))])
}

fn status<P: Program>(config: &Config<P::Settings>, source: &Source, started: Instant) -> Status {
    let mut notes = config.notes();
    notes.extend(source.notes());
    let process = process::<P>(config, started);
    notes.extend(log_note(&process));
    Status {
        waiting_for: vec![waiting(source)],
        notes,
        facts: vec![fact(source), log_fact(&process)],
        store: Some(source.figures().into()),
        readiness: Some(readiness(source).into()),
        ..process
    }
}

/// Returns the part of the status that all daemons have.
pub(crate) fn process<P: Program>(config: &Config<P::Settings>, started: Instant) -> Status {
    Status {
        daemon: P::NAME.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_s: started.elapsed().as_secs(),
        resident_kib: daemon_common::daemon::resident_kib(),
        config: config.path.display().to_string(),
        log: Some(daemon_common::log::figures().into()),
        ..Status::default()
    }
}

/// Returns how current the view of the datastore is.
pub(crate) fn fact(source: &Source) -> Fact {
    Fact {
        name: "store".to_owned(),
        value: source.figures().to_string(),
    }
}

/// Returns the counts of log lines.
pub(crate) fn log_fact(status: &Status) -> Fact {
    let figures = status.log.as_deref().cloned().unwrap_or_default();
    Fact {
        name: "log lines".to_owned(),
        value: figures.to_string(),
    }
}

/// Returns the operator's note on the log.
pub(crate) fn log_note(status: &Status) -> Option<String> {
    status.log.as_deref().and_then(LogFigures::note)
}

#[cfg(test)]
mod tests;
