//! Common tasks of every daemon around its loop: logging, signals, notifications to systemd, facts
//! about its own process.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;

use sd_notify::NotifyState;
use tokio::signal::unix::{self, SignalKind};
use tracing::Subscriber;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, reload};

use crate::events::{Event, Text, emit};
pub use crate::log::LogFormat;
use crate::{level, log, log_level};

/// The environment variable that overrides the level of the configuration.
pub const LOG_VARIABLE: &str = "CAMBRIC_LOG";

/// Starts logging to standard error. `level` is a level (`info`, or `Warning` as in Calico) or a
/// list of directives (`info,bgp_io=debug`); `CAMBRIC_LOG` overrides it. Lines pass through the
/// queue of [`crate::log`]: hold a [`Logging`](crate::log::Logging), which writes the last ones.
///
/// # Errors
///
/// The level is invalid, logging was started before, or no thread can be created.
pub fn init_logging(level: &str, format: LogFormat) -> Result<(), LogError> {
    let from_environment = std::env::var(LOG_VARIABLE)
        .ok()
        .filter(|value| !value.is_empty());
    let level = from_environment.as_deref().unwrap_or(level);
    let filter = log_filter(level)?;
    log::start_writer().map_err(LogError::Writer)?;
    let layer = log_layer(log::set_format(format));
    let (filter, handle) = reload::Layer::new(filter);
    let subscriber = tracing_subscriber::registry().with(layer).with(filter);
    subscriber.try_init().map_err(|_| LogError::Twice)?;
    log_level::begin(level, Box::new(move |filter| handle.reload(filter).is_ok()));
    Ok(())
}

/// Sets the configured level of the log, for a daemon with a level in the datastore. A temporary level
/// stays in effect until its end, and `CAMBRIC_LOG` in any case.
pub fn configure_level(level: &str) {
    let is_fixed = std::env::var_os(LOG_VARIABLE).is_some_and(|value| !value.is_empty());
    if !is_fixed {
        log_level::configure(level);
    }
}

/// The layer that writes lines into the queue of the log.
fn log_layer<S>(style: log::Style) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(log::ToSink);
    match (style.format, style.with_fields) {
        (LogFormat::Text, false) => layer.boxed(),
        (LogFormat::Json, false) => layer.json().boxed(),
        (LogFormat::Text, true) => {
            let bare = tracing_subscriber::fmt::format().without_time();
            let bare = bare.with_level(false).with_target(false);
            layer.event_format(log::WithFields(bare)).boxed()
        }
        (LogFormat::Json, true) => layer.json().map_event_format(log::WithFields).boxed(),
    }
}

/// Checks a log level without starting anything.
///
/// # Errors
///
/// The level cannot be parsed.
pub fn log_filter(level: &str) -> Result<Targets, LogError> {
    level::filter(level).map_err(|cause| LogError::Level {
        level: level.to_owned(),
        cause,
    })
}

/// Why logging does not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// No such level.
    #[error(
        "log level `{level}`: {cause}; write error, warn, info, debug, trace or off, or Calico's \
         Fatal, Error, Warning, Info, Debug or None; and single crates as in info,bgp_io=debug"
    )]
    Level {
        /// The given level.
        level: String,
        /// Why it is refused.
        cause: String,
    },
    /// The thread that writes the lines cannot start.
    #[error("no thread for the log: {0}")]
    Writer(#[source] io::Error),
    /// Logging runs already.
    #[error("logging was started twice")]
    Twice,
}

/// Returns the machine's host name, in lower case as in Calico.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_lowercase()
}

/// The request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: leave in good order.
    Terminate,
    /// SIGINT: leave in good order, and for good.
    Interrupt,
    /// SIGHUP: read the configuration again.
    Reload,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminate => "terminate",
            Self::Interrupt => "interrupt",
            Self::Reload => "reload",
        })
    }
}

/// The signals that a daemon listens to.
#[derive(Debug)]
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hangup: unix::Signal,
}

impl Signals {
    /// Starts listening. Must be called inside a tokio runtime with I/O enabled.
    ///
    /// # Errors
    ///
    /// The handler cannot be installed.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hangup: unix::signal(SignalKind::hangup())?,
        })
    }

    /// The next signal. Cancel-safe.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.hangup.recv() => Signal::Reload,
        }
    }
}

/// Notifies systemd, if it has started this process, that the sockets are open and the
/// configuration is applied. Sessions, kernel and datastore may take longer: see the status.
pub fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// Notifies systemd that this daemon stops, and keeps capacity for the last lines of its log.
pub fn notify_stopping() {
    log::open_reserve();
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        let reason = Text::new(error);
        emit(Event::DaemonNotifyFailed { reason });
    }
}

/// Chance from the operating system, for timer jitter and hash functions.
pub fn chance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Returns the resident memory of this process in KiB, if `/proc` has it.
pub fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the number of open file descriptors of this process and their limit, if `/proc` has
/// them.
pub fn open_files() -> Option<(u64, u64)> {
    let used = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    Some((used, line.split_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{LogError, log_filter, open_files, resident_kib};

    #[test]
    fn levels_and_directives_parse() {
        for level in ["info", "warn,bgp_io=debug", "off"] {
            assert!(log_filter(level).is_ok(), "{level}");
        }
        // `tracing` itself takes such a word for a target, and then logs nothing.
        assert!(log_filter("verbose").is_err());
        match log_filter("bgp_io=loud") {
            Err(error @ LogError::Level { .. }) => {
                let shown = error.to_string();
                assert!(
                    shown.contains("`bgp_io=loud`") && shown.contains("trace"),
                    "{shown}"
                );
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn own_memory_is_known() {
        assert!(resident_kib().expect("linux") > 100);
    }

    #[test]
    fn own_files_are_counted() {
        let (before, limit) = open_files().expect("linux");
        let _file = std::fs::File::open("/proc/self/stat").expect("a file");
        let (after, _) = open_files().expect("linux");
        assert!(
            (1..=limit).contains(&before) && after > 1,
            "{before} {after}"
        );
    }
}
