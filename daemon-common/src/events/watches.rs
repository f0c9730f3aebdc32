//! Readers that watch events of single routes, each with a queue of its own.
//!
//! Such events are created only while a reader watches them. A watch begins with a request at the
//! control socket and lasts as long as its reader asks again. Its queue is bounded: a reader that
//! is too slow learns how many events it lost, and delays nothing.

use std::sync::Arc;

use ipnet::IpNet;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::filter::Filter;
use super::history::{History, Query};
use super::table::{Event, KINDS, Kind};
use crate::limits::{EVENT_WATCH_IDLE, EVENT_WATCHES_MAX};
use crate::report::EventPage;

/// All watches of a daemon.
#[derive(Debug)]
pub(super) struct Watches {
    open: Vec<Watch>,
    /// Number of the last watch.
    last: u64,
    /// Grows whenever a watch begins or ends.
    generation: u64,
    /// The generation that the daemon's loop has taken over.
    taken: u64,
    /// Names of the events on demand that this daemon can report.
    offered: Vec<&'static str>,
}

#[derive(Debug)]
struct Watch {
    number: u64,
    filter: Filter,
    queue: History,
    /// Wakes the reader.
    news: Arc<Notify>,
    /// When its reader last asked.
    asked: Instant,
}

/// The watched events, for their reporters.
#[derive(Clone, Debug, Default)]
pub struct Watched(Vec<Filter>);

impl Watched {
    /// Whether an event of this name is watched.
    pub fn has(&self, name: &str) -> bool {
        self.of(name).next().is_some()
    }

    /// Whether an event of this name and prefix is watched.
    pub fn wants(&self, name: &str, prefix: Option<IpNet>) -> bool {
        self.of(name).any(|filter| filter.wants_prefix(prefix))
    }

    /// Returns the watched prefixes for events of this name, with the prefixes inside them; `None`
    /// for all.
    pub fn prefixes(&self, name: &str) -> Option<Vec<IpNet>> {
        self.of(name).map(|filter| filter.prefix).collect()
    }

    fn of(&self, name: &str) -> impl Iterator<Item = &Filter> {
        let kind = kind(name);
        let filters = self.0.iter();
        filters.filter(move |filter| kind.is_some_and(|kind| filter.wants_kind(kind)))
    }
}

impl Watches {
    pub(super) const fn new() -> Self {
        Self {
            open: Vec::new(),
            last: 0,
            generation: 0,
            taken: 0,
            offered: Vec::new(),
        }
    }

    /// Numbers further watches from here on, at least: a reader of an earlier run of the daemon names
    /// none of them.
    pub(super) fn number_from(&mut self, number: u64) {
        self.last = self.last.max(number);
    }

    /// Notes which events on demand this daemon reports.
    pub(super) fn offer(&mut self, names: &[&'static str]) {
        debug_assert!(names.iter().all(|name| kind(name).is_some()), "{names:?}");
        let new = names.iter().filter(|name| !self.offered.contains(name));
        let new: Vec<_> = new.copied().collect();
        self.offered.extend(new);
    }

    /// Whether this daemon reports each event of a row to readers that watch.
    pub(super) fn offers(&self, kind: &Kind) -> bool {
        self.offered.contains(&kind.name)
    }

    /// Begins a watch; returns its number.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub(super) fn open(&mut self, now: Instant, filter: Filter) -> Result<u64, String> {
        if self.open.len() >= EVENT_WATCHES_MAX {
            return Err(format!(
                "{EVENT_WATCHES_MAX} readers watch events of routes already; a reader that has \
                 disconnected counts for {} s more",
                EVENT_WATCH_IDLE.as_secs()
            ));
        }
        self.last += 1;
        self.open.push(Watch {
            number: self.last,
            filter,
            queue: History::new(),
            news: Arc::default(),
            asked: now,
        });
        self.generation += 1;
        Ok(self.last)
    }

    /// Ends a watch.
    pub(super) fn close(&mut self, number: u64) {
        self.open.retain(|watch| watch.number != number);
        self.generation += 1;
    }

    /// Ends a watch if its reader has not asked for too long. Returns when to look again; `None` if
    /// there is no such watch any more.
    pub(super) fn expire(&mut self, now: Instant, number: u64) -> Option<Instant> {
        let watch = self.open.iter().find(|watch| watch.number == number)?;
        let end = watch.asked + EVENT_WATCH_IDLE;
        if now < end {
            return Some(end);
        }
        self.close(number);
        None
    }

    /// Whether an event of a row and prefix is watched.
    pub(super) fn want(&self, kind: &Kind, prefix: Option<IpNet>) -> bool {
        let mut filters = self.open.iter().map(|watch| &watch.filter);
        filters.any(|filter| filter.wants_kind(kind) && filter.wants_prefix(prefix))
    }

    /// Adds an event to the queues of the readers that watch it.
    pub(super) fn push(&mut self, at_ms: u64, event: &Event) {
        for watch in &mut self.open {
            if watch.filter.wants_event(event) {
                watch.queue.push(at_ms, event.clone());
                watch.news.notify_waiters();
            }
        }
    }

    /// Reports to the readers of events of these names that some are missing.
    pub(super) fn push_missed(&mut self, at_ms: u64, names: &[&str], count: u64) {
        for watch in &mut self.open {
            let mut kinds = names.iter().filter_map(|name| kind(name));
            if kinds.any(|kind| watch.filter.wants_kind(kind)) {
                watch.queue.push(at_ms, Event::RouteMissed { count });
                watch.news.notify_waiters();
            }
        }
    }

    /// Returns the notifier of a watch's reader.
    pub(super) fn news(&self, number: u64) -> Option<Arc<Notify>> {
        let watch = self.open.iter().find(|watch| watch.number == number);
        watch.map(|watch| Arc::clone(&watch.news))
    }

    /// Returns the events of a watch after those that its reader has; the latter are dropped.
    pub(super) fn read(&mut self, now: Instant, number: u64, after: u64) -> Option<EventPage> {
        let mut watches = self.open.iter_mut();
        let watch = watches.find(|watch| watch.number == number)?;
        watch.asked = now;
        watch.queue.forget_through(after);
        let mut page = watch.queue.page(&Query {
            after: Some(after),
            ..Query::default()
        });
        page.watch = Some(number);
        Some(page)
    }

    /// Returns the watched events, for their reporters.
    pub(super) fn take(&mut self) -> Watched {
        self.taken = self.generation;
        Watched(self.open.iter().map(|watch| watch.filter.clone()).collect())
    }

    /// Grows whenever a watch begins or ends.
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns whether all reporters have taken over everything up to a generation.
    pub(super) const fn is_taken(&self, generation: u64) -> bool {
        self.taken >= generation
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.open.len()
    }
}

/// The row of a name.
pub(super) fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::events::Text;
    use crate::limits::{EVENT_OCTETS_MAX, EVENTS_MAX};

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn installed(prefix: &str) -> Event {
        Event::RouteInstalled {
            prefix: net(prefix),
            table: 254,
            metric: 1024,
            gateways: Text::new("10.0.0.1"),
        }
    }

    fn of(name: &str, prefix: Option<&str>) -> Filter {
        Filter {
            prefix: prefix.map(net),
            ..Filter::named(name)
        }
    }

    fn open(watches: &mut Watches, filter: Filter) -> u64 {
        watches.open(Instant::now(), filter).expect("room")
    }

    #[test]
    fn prefix_is_compared_before_the_queue() {
        let mut watches = Watches::new();
        let number = open(&mut watches, of("route.installed", Some("10.65.0.0/16")));
        let row = kind("route.installed").expect("a row");
        assert!(!watches.want(row, Some(net("10.66.0.0/24"))));
        assert!(watches.want(row, Some(net("10.65.1.0/24"))));
        watches.push(1, &installed("10.66.0.0/24"));
        watches.push(2, &installed("10.65.1.0/24"));
        let page = watches.read(Instant::now(), number, 0).expect("a watch");
        assert_eq!(page.events.len(), 1);
        assert_eq!(page.events[0].fields["prefix"], "10.65.1.0/24");
    }

    #[test]
    fn reader_that_does_not_read_loses_a_counted_number() {
        let mut watches = Watches::new();
        let number = open(&mut watches, of("route", None));
        let count = 3 * EVENTS_MAX as u64;
        for _ in 0..count {
            watches.push(1, &installed("10.65.1.0/24"));
            let (entries, octets) = watches.open[0].queue.kept();
            assert!(entries <= EVENTS_MAX && octets <= EVENT_OCTETS_MAX);
        }
        let (mut seen, mut lost, mut after) = (0, 0, 0);
        loop {
            let page = watches.read(Instant::now(), number, after);
            let page = page.expect("a watch");
            seen += page.events.len() as u64;
            lost += page.lost;
            after = page.next;
            if !page.more {
                break;
            }
        }
        assert!(lost > 0);
        assert_eq!(seen + lost, count);
        watches.read(Instant::now(), number, after);
        assert_eq!(
            watches.open[0].queue.kept(),
            (0, 0),
            "read ones are dropped"
        );
    }

    #[test]
    fn missing_events_are_reported_to_their_readers() {
        let mut watches = Watches::new();
        let chosen = open(&mut watches, of("route.chosen", Some("10.0.0.0/8")));
        let installed = open(&mut watches, of("route.installed", None));
        watches.push_missed(1, &["route.chosen", "route.withdrawn"], 7);
        let mut read = |number| watches.read(Instant::now(), number, 0).expect("a watch");
        let page = read(chosen);
        assert_eq!(page.events[0].event, "route.missed");
        assert_eq!(page.events[0].fields["count"], 7);
        assert!(read(installed).events.is_empty());
    }

    #[test]
    fn watches_are_bounded_and_end_with_their_reader() {
        let now = Instant::now();
        let mut watches = Watches::new();
        for _ in 0..EVENT_WATCHES_MAX {
            watches.open(now, of("route", None)).expect("room");
        }
        watches.open(now, of("route", None)).expect_err("no room");
        let end = now + EVENT_WATCH_IDLE;
        assert_eq!(watches.expire(now, 1), Some(end));
        let asked = now + Duration::from_secs(1);
        watches.read(asked, 1, 0).expect("a watch");
        assert_eq!(watches.expire(end, 1), Some(asked + EVENT_WATCH_IDLE));
        let before = watches.generation();
        assert_eq!(watches.expire(end, 2), None);
        assert!(watches.generation() > before && !watches.is_taken(before + 1));
        assert_eq!(watches.len(), EVENT_WATCHES_MAX - 1);
        assert!(watches.read(end, 2, 0).is_none());
        watches.take();
        assert!(watches.is_taken(watches.generation()));
    }

    #[test]
    fn watched_prefixes_are_those_of_all_readers() {
        let mut watches = Watches::new();
        assert!(!watches.take().has("route.chosen"));
        open(&mut watches, of("route.chosen", Some("10.0.0.0/8")));
        open(&mut watches, of("session", None));
        let watched = watches.take();
        assert_eq!(
            watched.prefixes("route.chosen"),
            Some(vec![net("10.0.0.0/8")])
        );
        assert!(!watched.has("route.filtered"));
        open(&mut watches, of("route", None));
        let watched = watches.take();
        assert_eq!(watched.prefixes("route.chosen"), None, "all of them");
        assert!(watched.has("route.filtered"));
    }
}
