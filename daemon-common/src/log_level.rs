//! The level of the log at run time.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing_subscriber::filter::Targets;

use crate::command::LogRequest;
use crate::events::{Event, Text, debugged_neighbors, emit};
use crate::level::filter;
use crate::limits::{LOG_LEVEL_FOR, LOG_LEVEL_FOR_MAX};
use crate::report::LogState;

/// Puts another filter in the place of the one in effect; returns whether that is done.
type Reload = Box<dyn Fn(Targets) -> bool + Send + Sync>;

static RELOAD: OnceLock<Reload> = OnceLock::new();

static LEVEL: Mutex<Level> = Mutex::new(Level {
    configured: String::new(),
    temporary: None,
});

/// The level that is configured, and the one in its place for a while.
#[derive(Debug)]
struct Level {
    configured: String,
    temporary: Option<Temporary>,
}

#[derive(Debug)]
struct Temporary {
    level: String,
    until: Instant,
    /// Ends it.
    end: JoinHandle<()>,
}

/// Records the configured level, and the function that sets another one.
pub(crate) fn begin(configured: &str, reload: Reload) {
    lock().configured = configured.to_owned();
    // Logging starts once.
    let _ = RELOAD.set(reload);
}

/// Sets the configured level. One that cannot be parsed changes nothing.
pub(crate) fn configure(text: &str) {
    let Ok(filter) = filter(text) else {
        return;
    };
    let has_temporary = {
        let mut level = lock();
        if level.configured == text {
            return;
        }
        text.clone_into(&mut level.configured);
        level.temporary.is_some()
    };
    if has_temporary {
        return;
    }
    // While the level is in effect that logs the event.
    let is_logged = tracing::enabled!(target: "event", tracing::Level::INFO);
    let changed = || {
        emit(Event::LogLevelChanged {
            level: Text::new(text),
            for_s: None,
        });
    };
    if is_logged {
        changed();
    }
    let done = reload(filter).is_ok();
    if done && !is_logged {
        changed();
    }
}

/// Sets another level for a while. Must be called within a Tokio runtime.
///
/// # Errors
///
/// The level cannot be parsed, or the time is too long.
fn set(text: &str, time: Duration) -> Result<(), String> {
    if time > LOG_LEVEL_FOR_MAX {
        let hours = LOG_LEVEL_FOR_MAX.as_secs() / 3600;
        return Err(format!("a level can be set for at most {hours} h"));
    }
    let filter = filter(text).map_err(|cause| format!("log level `{text}`: {cause}"))?;
    reload(filter)?;
    let end = tokio::spawn(async move {
        tokio::time::sleep(time).await;
        // It cannot fail: the configured level was in effect before.
        let _ = reset();
    });
    let temporary = Temporary {
        level: text.to_owned(),
        until: Instant::now() + time,
        end,
    };
    if let Some(former) = lock().temporary.replace(temporary) {
        former.end.abort();
    }
    emit(Event::LogLevelChanged {
        level: Text::new(text),
        for_s: Some(time.as_secs()),
    });
    Ok(())
}

/// Returns to the configured level.
///
/// # Errors
///
/// Logging has not started.
fn reset() -> Result<(), String> {
    let (configured, former) = {
        let mut level = lock();
        (level.configured.clone(), level.temporary.take())
    };
    let filter = filter(&configured)?;
    // While the other level is in effect, at which the event was wanted.
    emit(Event::LogLevelChanged {
        level: Text::new(&configured),
        for_s: None,
    });
    reload(filter)?;
    if let Some(former) = former {
        former.end.abort();
    }
    Ok(())
}

/// Sets a level for a while, or returns to the configured one.
///
/// # Errors
///
/// As [`set`] and [`reset`].
pub(crate) fn answer(request: &LogRequest) -> Result<LogState, String> {
    match &request.level {
        Some(level) => {
            let time = request.for_s.map_or(LOG_LEVEL_FOR, Duration::from_secs);
            set(level, time)?;
        }
        None => reset()?,
    }
    Ok(state())
}

/// Returns the state of the log.
pub fn state() -> LogState {
    let debugged = debugged_neighbors().into_iter();
    let level = lock();
    let temporary = level.temporary.as_ref();
    let now = Instant::now();
    LogState {
        configured: level.configured.clone(),
        temporary: temporary.map(|one| one.level.clone()),
        temporary_for_s: temporary.map(|one| one.until.saturating_duration_since(now).as_secs()),
        debugged: debugged
            .map(|(name, left)| (name, left.as_secs()))
            .collect(),
    }
}

fn reload(filter: Targets) -> Result<(), String> {
    let done = RELOAD.get().is_some_and(|reload| reload(filter));
    done.then_some(())
        .ok_or_else(|| "logging has not started".to_owned())
}

fn lock() -> MutexGuard<'static, Level> {
    LEVEL.lock().unwrap_or_else(PoisonError::into_inner)
}
