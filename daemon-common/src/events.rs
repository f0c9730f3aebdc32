//! Typed events of a daemon: one source for the log and for the history that `cambric events`
//! reads.
//!
//! `table` has a row for each event. [`emit`] writes an event into the log, at the level of its
//! row, and appends it to the history of this process. The history is bounded. Each event has a
//! number, so that a slow reader learns how many events it lost. Readers wait for further events at
//! the control socket: none of them has a queue of its own, and a reader that never reads costs
//! nothing.
//!
//! Events of single routes are created only while a reader watches them ([`is_watched`]): they go
//! into its queue (`watches`) and nowhere else.

mod answer;
mod debugged;
mod field;
mod filter;
mod history;
#[cfg(test)]
mod page;
mod table;
mod watch;
mod watches;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tracing::Level;

pub(crate) use answer::answer;
use debugged::Debugged;
pub use field::Text;
use history::History;
pub use table::{Delivery, Event, FieldKind, KINDS, Kind, VERSION};
pub use watch::{
    emit_missed, emit_watched, is_watched, offer, take_watched, watched_generation, watches_changed,
};
pub use watches::Watched;

use crate::limits::{EVENT_OCTETS_MAX, EVENT_WATCHES_MAX, EVENTS_MAX};
use crate::log::Summary;
use crate::report::Limit;

static HISTORY: Mutex<History> = Mutex::new(History::new());

/// Wakes readers that wait for further events.
static NEWS: Notify = Notify::const_new();

/// Neighbors with all events logged.
static DEBUGGED: Mutex<Debugged> = Mutex::new(Debugged::new());

/// Writes an event into the log and appends it to the history. An event of level `debug` is dropped
/// unless the log has that level, or its neighbor is debugged.
pub fn emit(event: Event) {
    let neighbor = event.address();
    let forced = neighbor.is_some_and(|address| debugged().has(Instant::now(), address));
    if forced || event.kind().level <= Level::INFO || is_debug_logged() {
        event.log(forced);
        record(event);
    }
}

/// Appends an event to the history. A watch gets each event once: events that were reported to it
/// for each route are left out here.
fn record(event: Event) {
    let at_ms = unix_ms();
    // The order of locks: watches, then the history.
    let mut watches = watch::watches();
    if event.kind().delivery == Delivery::Kept {
        watches.push(at_ms, &event);
    }
    history().push(at_ms, event);
    drop(watches);
    NEWS.notify_waiters();
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

/// A daemon's view of the datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datastore {
    /// The name of the status.
    pub status: &'static str,
    /// Whether it is reachable and ready.
    pub is_available: bool,
    /// The revision that is applied.
    pub revision: Option<u64>,
    /// The age of the snapshot that is in its place.
    pub snapshot_age_s: Option<u64>,
    /// Why it is not ready.
    pub reason: Option<Text>,
}

/// Emits the status of the datastore.
pub fn emit_datastore(datastore: &Datastore) {
    let (status, revision) = (Text::new(datastore.status), datastore.revision);
    emit(match datastore.is_available {
        true => Event::DatastoreStatus {
            status,
            revision,
            snapshot_age_s: datastore.snapshot_age_s,
        },
        false => Event::DatastoreUnavailable {
            status,
            revision,
            reason: datastore.reason.clone(),
        },
    });
}

/// Whether events of level `debug` may be logged. Where not, they need not be built.
pub fn is_debugging() -> bool {
    is_debug_logged() || debugged().is_any(Instant::now())
}

fn is_debug_logged() -> bool {
    tracing::enabled!(target: "event", Level::DEBUG)
}

/// Logs all events of a neighbor for a while, or ends that where the time is zero.
///
/// # Errors
///
/// Too many neighbors are debugged already, or the time is too long.
pub fn debug_neighbor(name: &str, address: IpAddr, time: Duration) -> Result<(), String> {
    let event = debugged().set(Instant::now(), name, address, time)?;
    emit(event);
    Ok(())
}

/// Writes an event of a debugged neighbor into the log, and not into the history, which would soon
/// have no other events. Returns false if the neighbor is not debugged.
pub fn log_debugged(event: &Event) -> bool {
    let is_debugged = |address| debugged().has(Instant::now(), address);
    let logged = event.address().is_some_and(is_debugged);
    if logged {
        event.log(true);
    }
    logged
}

/// The addresses of the neighbors that are debugged.
pub fn debugged_addresses() -> BTreeSet<IpAddr> {
    debugged().addresses(Instant::now())
}

/// The neighbors that are debugged, each for how long yet.
pub(crate) fn debugged_neighbors() -> Vec<(String, Duration)> {
    debugged().list(Instant::now())
}

/// How often each event happened since the start.
pub(crate) fn counts() -> Vec<(&'static str, u64)> {
    history().counts().collect()
}

fn unix_ms() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(unix.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The limits of the history and of watches.
pub fn limits() -> [Limit; 3] {
    let watches = watch::watches().len() as u64;
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
        Limit::new(
            "readers that watch events of routes",
            EVENT_WATCHES_MAX as u64,
            "a further one gets an error",
        )
        .used(watches),
    ]
}

fn debugged() -> MutexGuard<'static, Debugged> {
    DEBUGGED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn history() -> MutexGuard<'static, History> {
    HISTORY.lock().unwrap_or_else(PoisonError::into_inner)
}
