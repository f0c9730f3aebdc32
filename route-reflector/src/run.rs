//! The daemon's loop.

use std::hash::{BuildHasher, RandomState};

use admin::config::Report;
use admin::control::{BindError, Control};
use admin::daemon::{LogError, Signal, Signals, init_logging};
use bgp_io::IoError;
use bgp_io::bgp_proto::Notification;

use crate::{Config, Daemon};

/// Why the daemon does not start. Each prints as one line that says what to do, a [`Report`] as
/// one paragraph a mistake.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration has mistakes.
    #[error(transparent)]
    Config(#[from] Report),
    /// The log level is none.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The control socket cannot be bound.
    #[error(transparent)]
    Control(#[from] BindError),
    /// A BGP socket cannot be had.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Signals cannot be listened to.
    #[error("signals: {0}")]
    Signals(std::io::Error),
}

/// Runs the daemon until it is told to leave.
///
/// # Errors
///
/// It cannot start; once it runs, nothing ends it but a signal.
pub async fn run(config: Config) -> Result<(), Failure> {
    init_logging(&config.file.log, config.file.log_format)?;
    for note in &config.intent.notes {
        tracing::warn!("{note}");
    }
    let mut signals = Signals::new().map_err(Failure::Signals)?;
    let mut control = Control::bind(config.control())?;
    let mut daemon = Daemon::new(config, seed())?;
    for address in daemon.io.listening() {
        tracing::info!("listening on {address}");
    }
    loop {
        tokio::select! {
            events = daemon.io.next() => daemon.hear(&events),
            request = control.next() => {
                let reply = daemon.answer(&request.command);
                request.reply(reply);
            }
            signal = signals.next() => match signal {
                Signal::Reload => daemon.reload(),
                Signal::Terminate => break,
            },
        }
    }
    tracing::info!("leaving: closing all sessions");
    daemon
        .io
        .shutdown(&Notification::administrative_shutdown(
            "route reflector stops",
        ))
        .await;
    Ok(())
}

/// Chance for timer jitter and hash functions, from the operating system.
fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
