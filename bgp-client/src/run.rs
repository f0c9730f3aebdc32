//! The daemon's loop.

use std::hash::{BuildHasher, RandomState};

use admin::config::Report;
use admin::control::{BindError, Control};
use admin::daemon::{LogError, Signal, Signals, init_logging};
use bgp_io::IoError;
use bgp_io::bgp_proto::Notification;
use bgp_io::rib::Progress;
use fib_sync::OpError;
use fib_sync::netlink::OpenError;

use crate::{Config, Daemon, OnExit};

/// Why the daemon does not start, or cannot go on. Each prints as one line that says what to do, a
/// [`Report`] as one paragraph a mistake.
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
    /// The kernel's routes cannot be reached.
    #[error(transparent)]
    Kernel(#[from] OpenError),
    /// The connection to the kernel broke.
    #[error("the connection to the kernel's routes broke: {0}")]
    KernelLost(#[from] OpError),
    /// Signals cannot be listened to.
    #[error("signals: {0}")]
    Signals(std::io::Error),
}

/// Runs the daemon until it is told to leave.
///
/// # Errors
///
/// It cannot start, or the kernel takes its socket away.
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
        let more = daemon.carry() != Progress::Done;
        let rest = daemon.rest();
        tokio::select! {
            events = daemon.io.next() => daemon.hear(&events),
            event = daemon.fib.event() => daemon.kernel(event)?,
            request = control.next() => {
                let reply = daemon.answer(&request.command);
                request.reply(reply);
            }
            signal = signals.next() => match signal {
                Signal::Reload => daemon.reload(),
                Signal::Terminate => break,
            },
            () = tokio::time::sleep(rest.unwrap_or_default()), if rest.is_some() => {}
            () = tokio::task::yield_now(), if more => {}
        }
    }
    leave(&mut daemon).await;
    Ok(())
}

/// Tells the neighbours, and leaves the kernel's routes as configured. Routes that stay carry
/// traffic until the next start, which adopts them.
async fn leave(daemon: &mut Daemon) {
    tracing::info!("leaving: closing all sessions");
    let why = Notification::administrative_shutdown("BGP client stops");
    daemon.io.shutdown(&why).await;
    if daemon.config.kernel.on_exit == OnExit::Flush && daemon.node.config().install {
        tracing::info!(
            "leaving: deleting all kernel routes of protocol {}",
            daemon.node.config().owner
        );
        daemon.flush().await;
    }
}

/// Chance for timer jitter and hash functions, from the operating system.
fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
