//! What happens in a daemon, as typed events: one source for the log and for the history that
//! `cambric events` reads.
//!
//! [`table`] has a row for each event. [`emit`] writes an event into the log, at the level of its
//! row, and appends it to the history of this process. The history is bounded; each event has a
//! number, so that a reader that lags learns how many events it lost. Readers wait for further
//! events at the control socket: none of them has a queue of its own, and one that never reads
//! costs nothing.

mod answer;
mod field;
mod history;
#[cfg(test)]
mod page;
mod table;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tracing::Level;

pub(crate) use answer::answer;
pub use field::Text;
use history::History;
pub use table::{Event, FieldKind, KINDS, Kind, VERSION};

use crate::limits::{EVENT_OCTETS_MAX, EVENTS_MAX};
use crate::log::Summary;
use crate::report::Limit;

static HISTORY: Mutex<History> = Mutex::new(History::new());

/// Wakes readers that wait for further events.
static NEWS: Notify = Notify::const_new();

/// Writes an event into the log and appends it to the history. An event of level `debug` goes
/// nowhere unless the log has that level.
pub fn emit(event: Event) {
    if event.kind().level <= Level::INFO || is_debugging() {
        event.log();
        history().push(unix_ms(), event);
        NEWS.notify_waiters();
    }
}

/// Emits the summary of repeated events.
pub fn emit_summary(summary: &Summary<Event>) {
    let of = Text::new(summary.last.kind().name);
    let (more, within_s) = (summary.more, summary.within.as_secs());
    let last = Text::new(&summary.last);
    emit(match summary.level {
        Level::INFO => Event::EventsRepeated {
            of,
            more,
            within_s,
            last,
        },
        _ => Event::WarningsRepeated {
            of,
            more,
            within_s,
            last,
        },
    });
}

/// Whether events of level `debug` are logged. Where not, they need not be built.
pub fn is_debugging() -> bool {
    tracing::enabled!(target: "event", Level::DEBUG)
}

fn unix_ms() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(unix.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The limits of the history.
pub fn limits() -> [Limit; 2] {
    let history = history();
    let (entries, octets) = history.kept();
    let then = "the oldest events are dropped";
    let kept = Limit::new("events kept", EVENTS_MAX as u64, then).used(entries as u64);
    [
        Limit {
            met: Some(history.dropped()),
            ..kept
        },
        Limit::new("octets of events kept", EVENT_OCTETS_MAX as u64, then).used(octets as u64),
    ]
}

fn history() -> MutexGuard<'static, History> {
    HISTORY.lock().unwrap_or_else(PoisonError::into_inner)
}
