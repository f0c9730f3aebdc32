//! Events of single routes: their reporters, and the answers to their readers.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::history::Query;
use super::table::Event;
use super::watches::{Watched, Watches, kind};
use super::{history, unix_ms};
use crate::limits::EVENT_WAIT;
use crate::report::EventPage;

static WATCHES: Mutex<Watches> = Mutex::new(Watches::new());

/// Whether there are watches: without any, one read of this flag is the only cost.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Generation of the watches, see [`watched_generation`].
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Wakes the daemon's loop after a watch has begun or ended.
static CHANGED: Notify = Notify::const_new();

/// Wakes readers with a watch that the loop has taken over.
static TAKEN: Notify = Notify::const_new();

/// Whether events of single routes are watched. Where not, they need not be built.
#[inline]
pub fn is_watched() -> bool {
    IS_WATCHED.load(Ordering::Relaxed)
}

/// Notes that this daemon reports each event of these names to readers that watch them.
pub fn offer(names: &[&'static str]) {
    watches().offer(names);
}

/// Reports an event of one route to the readers that watch it. It is built only if there are any.
pub fn emit_watched(name: &str, prefix: Option<IpNet>, event: impl FnOnce() -> Event) {
    if !is_watched() {
        return;
    }
    let mut watches = watches();
    if kind(name).is_some_and(|kind| watches.want(kind, prefix)) {
        watches.push(unix_ms(), &event());
    }
}

/// Reports to the readers of events of these names that at most so many are missing.
pub fn emit_missed(names: &[&str], count: u64) {
    watches().push_missed(unix_ms(), names, count);
}

/// A number that changes whenever a watch begins or ends.
#[inline]
pub fn watched_generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// Returns the watched events, with their generation. From now on the caller reports them.
pub fn take_watched() -> (u64, Watched) {
    let mut watches = watches();
    let taken = (watches.generation(), watches.take());
    drop(watches);
    TAKEN.notify_waiters();
    taken
}

/// Waits until a watch begins or ends. Cancel-safe for a caller that compares
/// [`watched_generation`] afterwards.
pub async fn watches_changed() {
    CHANGED.notified().await;
}

/// Begins a watch. The answer comes once the daemon reports all further events; it has the
/// requested events of the history, and the number of the watch.
///
/// # Errors
///
/// There are too many watches, or the daemon is busy.
pub(super) async fn open(query: &Query) -> Result<EventPage, String> {
    let (number, generation, mut page) = begin(query)?;
    tokio::spawn(expire(number));
    if timeout(EVENT_WAIT, taken(generation)).await.is_err() {
        changed(&mut watches(), |watches| watches.close(number));
        return Err("the daemon is busy: it does not report events of routes yet".to_owned());
    }
    page.watch = Some(number);
    page.next = 0;
    Ok(page)
}

/// Opens a watch together with the events of the history before it: no event is missed or reported
/// twice.
fn begin(query: &Query) -> Result<(u64, u64, EventPage), String> {
    let mut watches = watches();
    watches.number_from(unix_ms());
    let open = |watches: &mut Watches| watches.open(Instant::now(), query.filter.clone());
    let number = changed(&mut watches, open)?;
    let mut page = history().page(query);
    while page.more {
        let after = Some(page.next);
        let mut next = history().page(&Query {
            after,
            ..query.clone()
        });
        page.events.append(&mut next.events);
        (page.next, page.more) = (next.next, next.more);
    }
    Ok((number, watches.generation(), page))
}

/// Answers the reader of a watch: at once if there are events that it does not have, otherwise with
/// the next one or after [`EVENT_WAIT`].
///
/// # Errors
///
/// There is no such watch.
pub(super) async fn next(number: u64, after: u64) -> Result<EventPage, String> {
    let deadline = Instant::now() + EVENT_WAIT;
    let ended = || "the watch has ended: its events were not read in time".to_owned();
    loop {
        let news = watches().news(number).ok_or_else(ended)?;
        let mut news = pin!(news.notified());
        // From here on no event is missed.
        news.as_mut().enable();
        let page = watches().read(Instant::now(), number, after);
        let page = page.ok_or_else(ended)?;
        if !page.events.is_empty() || page.lost > 0 {
            return Ok(page);
        }
        tokio::select! {
            () = news => {}
            () = sleep_until(deadline) => return Ok(page),
        }
    }
}

/// Waits until the daemon's loop reports the watches of a generation.
async fn taken(generation: u64) {
    loop {
        let mut taken = pin!(TAKEN.notified());
        taken.as_mut().enable();
        if watches().is_taken(generation) {
            return;
        }
        taken.await;
    }
}

/// Ends a watch after its reader has not asked for too long.
async fn expire(number: u64) {
    let end = |watches: &mut Watches| watches.expire(Instant::now(), number);
    loop {
        let Some(at) = changed(&mut watches(), end) else {
            return;
        };
        sleep_until(at).await;
    }
}

/// Changes the watches, and wakes the daemon's loop if there are others then.
fn changed<T>(watches: &mut Watches, change: impl FnOnce(&mut Watches) -> T) -> T {
    let before = watches.generation();
    let changed = change(watches);
    if watches.generation() != before {
        IS_WATCHED.store(watches.len() > 0, Ordering::Relaxed);
        GENERATION.store(watches.generation(), Ordering::Release);
        CHANGED.notify_one();
    }
    changed
}

pub(super) fn watches() -> MutexGuard<'static, Watches> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}
