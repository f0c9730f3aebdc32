//! The program: the controller, with its control socket and signals.

use std::io;
use std::sync::Arc;

use calico_store::{Error, EtcdStore};
use daemon_common::control::{BindError, Control, Request};
use daemon_common::daemon::{
    LogError, Signal, Signals, init_logging, notify_ready, notify_stopping,
};
use daemon_common::events::{Event, Text, emit};
use daemon_common::service_manager::ServiceManager;
use daemon_common::{Command, Reply};
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::config::{Config, DAEMON};
use crate::controller::{Controller, Input, Options};
use crate::report;

/// Why the daemon does not start. Each prints as one line with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The log level is invalid.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The control socket or the metrics endpoint cannot be opened.
    #[error(transparent)]
    Control(#[from] BindError),
    /// The datastore's options are invalid.
    #[error("datastore: {0}")]
    Store(#[from] Error),
    /// Signal handlers cannot be installed.
    #[error("signal handlers: {0}")]
    Signals(io::Error),
}

/// The event that woke the daemon.
enum Wake {
    Input(Input),
    Request(Request),
    Signal(Signal),
    Work,
}

/// Runs the daemon until a signal ends it.
///
/// # Errors
///
/// A requirement is missing; each error is one line.
pub async fn run(config: Config) -> Result<(), DaemonError> {
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
    let store = EtcdStore::connect(&config.datastore).await?;
    let options = Options {
        lease: config.lease.clone(),
        variables: config.variables.clone(),
    };
    let mut controller = Controller::start(Arc::new(store), config.access.clone(), options);
    let started = Instant::now();
    let mut config_error = None;
    notify_ready();
    loop {
        let more = controller.step();
        service_manager.turned(|| report::summary(&controller));
        let wake = tokio::select! {
            input = controller.wait() => Wake::Input(input),
            request = control.next() => Wake::Request(request),
            signal = signals.next() => Wake::Signal(signal),
            () = service_manager.due() => Wake::Work,
            () = yield_now(), if more => Wake::Work,
        };
        match wake {
            Wake::Input(input) => controller.handle(input),
            Wake::Work => {}
            Wake::Request(request) => {
                let reply = match &request.command {
                    Command::Status {} => {
                        let mut status = report::status(&controller, &config);
                        status.uptime_s = started.elapsed().as_secs();
                        status.config_error.clone_from(&config_error);
                        Reply::Status(status)
                    }
                    Command::Limits {} => Reply::Limits(report::limits(&controller)),
                    Command::Reload {} => {
                        config_error = reload(&config);
                        Reply::reloaded(config.path.display(), config_error.clone())
                    }
                    other => Reply::not_here(DAEMON, other),
                };
                request.reply(reply);
            }
            Wake::Signal(Signal::Reload) => config_error = reload(&config),
            Wake::Signal(Signal::Terminate | Signal::Interrupt) => break,
        }
    }
    notify_stopping();
    controller.end().await;
    emit(Event::DaemonStopping {});
    Ok(())
}

/// Reads the file again. All changes require a restart, which is reported.
fn reload(config: &Config) -> Option<String> {
    let new = match Config::read(&config.path) {
        Ok(new) => new,
        Err(report) => {
            let report = report.to_string();
            let reason = Text::new(&report);
            emit(Event::ConfigRejected { reason });
            return Some(report);
        }
    };
    let changed = config.changed_keys(&new);
    if changed.is_empty() {
        return None;
    }
    let changed = changed.join(", ");
    let keys = Text::new(&changed);
    emit(Event::ConfigRestartRequired { keys });
    Some(format!("{changed} changed: requires a restart"))
}
