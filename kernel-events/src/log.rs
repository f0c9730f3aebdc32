//! Kernel events in the log.

use std::time::Duration;

use daemon_common::events::{self, Event, Text};
use daemon_common::log::Repeats;
use fib_sync::claim::Claim;
use fib_sync::limits::NOTICE_WINDOW;
use fib_sync::netlink::NetlinkFib;
use fib_sync::{DeleteCause, Notice, Owner, PendingWrite, Reconciler, Route, RouteKey};

use crate::limits::LOG_KEYS_MAX;

/// Kernel events on their way to the log; repeated ones are summarized by kind and error.
#[derive(Debug)]
pub struct Log(Repeats<Key, Event>);

/// The key of repetitions of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Routes that the kernel rejects with this error number.
    Refused(i32),
    /// Routes that the kernel rejects with error numbers beyond the limit of the log.
    RefusedOtherwise,
    Overrun,
    Changed,
}

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}

impl Log {
    /// Creates a log without repetitions.
    pub const fn new() -> Self {
        Self(Repeats::new(LOG_KEYS_MAX))
    }

    /// Logs one unusual kernel event, or counts it. `now`: since the start of the daemon.
    pub fn kernel(&mut self, now: Duration, event: &fib_sync::Event) {
        if let fib_sync::Event::Link(link) = event {
            let (name, up, running) = (&link.name, link.up, link.running);
            tracing::debug!(name, up, running, "link");
        }
        if let Some(event) = self.admit(now, event) {
            events::emit(event);
        }
    }

    /// Returns when to call [`look`](Self::look) again.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.0.poll_timeout()
    }

    /// Logs the summaries that are due.
    pub fn look(&mut self, now: Duration) {
        self.0.due(now).iter().for_each(events::emit_summary);
    }

    /// Logs all summaries at the end of the daemon.
    pub fn finish(&mut self, now: Duration) {
        self.0.finish(now).iter().for_each(events::emit_summary);
    }

    fn admit(&mut self, now: Duration, event: &fib_sync::Event) -> Option<Event> {
        let (key, event) = converted(event)?;
        let others = match key {
            Key::Refused(_) => Key::RefusedOtherwise,
            key => key,
        };
        let level = event.kind().level;
        self.0.admit(now, key, others, level, event)
    }
}

fn converted(event: &fib_sync::Event) -> Option<(Key, Event)> {
    match event {
        fib_sync::Event::Applied(key, Err(error)) if !error.is_cancelled() => {
            let event = Event::RouteRefused {
                prefix: key.prefix,
                table: key.table.into(),
                metric: key.metric.into(),
                reason: Text::new(error),
                errno: error.errno.unsigned_abs().into(),
            };
            Some((Key::Refused(error.errno), event))
        }
        fib_sync::Event::Overrun => Some((Key::Overrun, Event::KernelOverrun {})),
        fib_sync::Event::DumpDone {
            table,
            complete: false,
            ..
        } => {
            let event = Event::KernelReread {
                table: (*table).into(),
            };
            Some((Key::Changed, event))
        }
        _ => None,
    }
}

/// Emits what the opened routing table lacks.
pub fn opened(claim: Option<&Claim>, owner: Owner, fib: &NetlinkFib) {
    for doubt in claim.into_iter().flat_map(Claim::doubts) {
        events::emit(Event::RouteProtocolUnclaimed {
            protocol: owner.0.into(),
            reason: Text::new(doubt),
        });
    }
    if !fib.has_large_buffers() {
        events::emit(Event::KernelBuffersSmall {});
    }
}

const INSTALLED: &str = "route.installed";
const REFUSED: &str = "route.refused";
const DELETED: &str = "route.deleted";

/// Notes that readers of events can watch each kernel route.
pub fn offer() {
    events::offer(&[INSTALLED, REFUSED, DELETED]);
}

/// Reports an answer of the kernel to the readers that watch it, before the reconciler takes it.
pub fn answered(reconciler: &Reconciler, event: &fib_sync::Event) {
    if let fib_sync::Event::Applied(key, _) = event
        && events::is_watched()
        && let Some(event) = route_event(reconciler, event)
    {
        events::emit_watched(event.kind().name, Some(key.prefix), || event);
    }
}

/// Returns the event of one route for an answer of the kernel, before the reconciler takes it.
pub fn route_event(reconciler: &Reconciler, event: &fib_sync::Event) -> Option<Event> {
    let fib_sync::Event::Applied(key, result) = event else {
        return None;
    };
    match (result, reconciler.pending_write(key)) {
        (Err(_), _) => converted(event).map(|(_, refused)| refused),
        (Ok(()), Some(PendingWrite::Put(route))) => Some(installed(key, route)),
        (Ok(()), Some(PendingWrite::Delete { route, cause })) => Some(deleted(key, route, cause)),
        // The reconciler has not requested this write.
        (Ok(()), None) => None,
    }
}

fn installed(key: &RouteKey, route: &Route) -> Event {
    Event::RouteInstalled {
        prefix: key.prefix,
        table: key.table.into(),
        metric: key.metric.into(),
        gateways: Text::new(route.gateways()),
    }
}

fn deleted(key: &RouteKey, route: Option<&Route>, cause: DeleteCause) -> Event {
    Event::RouteDeleted {
        prefix: key.prefix,
        table: key.table.into(),
        metric: key.metric.into(),
        gateways: Text::new(route.map(Route::gateways).unwrap_or_default()),
        cause: Text::new(cause.as_str()),
    }
}

/// Logs an event of kernel routes.
pub fn notice(notice: &Notice) {
    events::emit(noticed(notice));
}

/// Returns the event for a notice.
pub fn noticed(notice: &Notice) -> Event {
    match notice {
        Notice::Deleting { key, route, cause } => deleted(key, route.as_ref(), *cause),
        Notice::DeletedMore { count } => Event::RouteDeletedMore {
            count: *count,
            within_s: NOTICE_WINDOW.as_secs(),
        },
        Notice::Foreign { key, owner } => Event::RouteForeign {
            prefix: key.prefix,
            table: key.table.into(),
            metric: key.metric.into(),
            protocol: owner.0.into(),
        },
        Notice::ForeignMore => Event::RouteForeignMore {},
    }
}

#[cfg(test)]
mod tests {
    use daemon_common::limits::{REPEATS_LOGGED, REPEATS_WINDOW};
    use fib_sync::OpError;

    use super::*;

    #[test]
    fn deletions_beyond_the_limit_are_one_line_with_their_count() {
        let event = noticed(&Notice::DeletedMore { count: 7 });
        let kind = event.kind();
        assert_eq!(
            (kind.name, kind.message),
            ("route.deleted_more", "deleted more kernel routes")
        );
        let fields = event.fields();
        assert_eq!(
            (&fields["count"], &fields["within_s"]),
            (&7.into(), &NOTICE_WINDOW.as_secs().into())
        );
    }

    #[test]
    fn refused_routes_are_summarized_by_error() {
        let mut log = Log::new();
        let mut emitted = Vec::new();
        for number in 0..2000_u32 {
            let prefix = format!("10.{}.{}.0/24", number / 256, number % 256);
            let key = RouteKey::new(254, prefix.parse().expect("a prefix"), 1024, 0);
            // ENETUNREACH mostly, and ENOSPC once.
            let errno = if number == 1000 { 28 } else { 101 };
            let event = fib_sync::Event::Applied(key, Err(OpError::new(errno)));
            emitted.extend(log.admit(Duration::ZERO, &event));
        }
        assert_eq!(emitted.len() as u64, REPEATS_LOGGED + 1);
        let is_of = |event: &Event, of: &str| event.fields()["prefix"] == of;
        assert!(is_of(&emitted[5], "10.3.232.0/24"), "{emitted:?}");
        assert_eq!(log.poll_timeout(), Some(REPEATS_WINDOW));
        let summaries = log.0.due(REPEATS_WINDOW);
        let [last] = summaries.as_slice() else {
            panic!("{summaries:?}")
        };
        assert!(
            last.more == 1994 && is_of(&last.last, "10.7.207.0/24"),
            "{last:?}"
        );
    }
}
