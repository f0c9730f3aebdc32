//! The history of events: a ring in memory, bounded in entries and octets.

use std::collections::VecDeque;

use super::filter::Filter;
use super::table::{Delivery, Event, KINDS};
use crate::limits::{EVENT_OCTETS_MAX, EVENTS_MAX, EVENTS_PAGE_MAX};
use crate::report::{EventPage, EventRecord};

/// An event with its number and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    number: u64,
    /// Unix time.
    at_ms: u64,
    event: Event,
}

/// The last events of a daemon.
#[derive(Debug)]
pub(super) struct History {
    records: VecDeque<Record>,
    octets: usize,
    /// The number of the last event; the first one has number 1.
    last: u64,
    /// Events of each row since the start.
    counts: [u64; KINDS.len()],
}

/// The events that a reader requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    /// Only these.
    pub(super) filter: Filter,
    /// Only events after this number.
    pub(super) after: Option<u64>,
    /// Only events since this Unix time.
    pub(super) since_ms: u64,
}

impl Query {
    fn wants(&self, record: &Record) -> bool {
        record.at_ms >= self.since_ms && self.filter.wants_event(&record.event)
    }
}

impl Record {
    fn octets(&self) -> usize {
        size_of::<Self>() - size_of::<Event>() + self.event.octets()
    }

    fn report(&self) -> EventRecord {
        let kind = self.event.kind();
        EventRecord {
            number: self.number,
            time_ms: self.at_ms,
            event: kind.name.to_owned(),
            level: kind.level.as_str().to_ascii_lowercase(),
            message: kind.message.to_owned(),
            fields: self.event.fields(),
        }
    }
}

impl History {
    pub(super) const fn new() -> Self {
        Self {
            records: VecDeque::new(),
            octets: 0,
            last: 0,
            counts: [0; KINDS.len()],
        }
    }

    /// Appends an event; the oldest ones are dropped for it.
    pub(super) fn push(&mut self, at_ms: u64, event: Event) {
        if let Some(count) = self.counts.get_mut(event.index()) {
            *count += 1;
        }
        self.last += 1;
        let record = Record {
            number: self.last,
            at_ms,
            event,
        };
        self.octets += record.octets();
        self.records.push_back(record);
        while self.records.len() > EVENTS_MAX || self.octets > EVENT_OCTETS_MAX {
            let Some(oldest) = self.records.pop_front() else {
                return;
            };
            self.octets -= oldest.octets();
        }
    }

    /// Returns a page of the requested events, and how many were lost before them.
    pub(super) fn page(&self, query: &Query) -> EventPage {
        let after = query.after.unwrap_or(0).min(self.last);
        let oldest = self.last - self.records.len() as u64;
        let kept = after.max(oldest);
        let skip = usize::try_from(kept - oldest).unwrap_or(usize::MAX);
        let mut page = EventPage {
            lost: self.lost(query, after, oldest),
            next: self.last,
            ..EventPage::default()
        };
        for record in self.records.iter().skip(skip) {
            if page.events.len() >= EVENTS_PAGE_MAX {
                page.more = true;
                break;
            }
            page.next = record.number;
            if query.wants(record) {
                page.events.push(record.report());
            }
        }
        page
    }

    /// Returns the number of events behind `after` that are no longer kept, unless all of them
    /// happened before the requested time.
    fn lost(&self, query: &Query, after: u64, oldest: u64) -> u64 {
        let first = self.records.front();
        let are_older = first.is_some_and(|first| first.at_ms < query.since_ms);
        match are_older {
            true => 0,
            false => oldest.saturating_sub(after),
        }
    }

    /// Drops the events up to a number: their reader has them.
    pub(super) fn forget_through(&mut self, number: u64) {
        while let Some(oldest) = self.records.pop_front_if(|oldest| oldest.number <= number) {
            self.octets -= oldest.octets();
        }
    }

    /// Events that are kept, and their octets.
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.records.len(), self.octets)
    }

    /// Events that are no longer kept.
    pub(super) fn dropped(&self) -> u64 {
        self.last - self.records.len() as u64
    }

    /// All events that are kept, and how often each happened since the start.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let kinds = KINDS.iter().zip(self.counts);
        let kept = kinds.filter(|(kind, _)| kind.delivery != Delivery::OnDemand);
        kept.map(|(kind, count)| (kind.name, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Text;
    use crate::limits::EVENT_TEXT_OCTETS_MAX;

    fn failed(reason: &str) -> Event {
        Event::ListenerFailed {
            reason: Text::new(reason),
        }
    }

    fn ready() -> Event {
        Event::ListenerReady {
            local: ([127, 0, 0, 1], 179).into(),
        }
    }

    fn numbers(page: &EventPage) -> Vec<u64> {
        page.events.iter().map(|event| event.number).collect()
    }

    /// All pages from `after` on.
    fn all(history: &History, mut query: Query) -> (Vec<u64>, u64) {
        let (mut seen, mut lost) = (Vec::new(), 0);
        loop {
            let page = history.page(&query);
            seen.extend(numbers(&page));
            lost += page.lost;
            query.after = Some(page.next);
            if !page.more {
                return (seen, lost);
            }
        }
    }

    #[test]
    fn history_is_bounded_in_octets_and_entries() {
        let mut history = History::new();
        let long = "x".repeat(EVENT_TEXT_OCTETS_MAX);
        for at in 0..3 * EVENTS_MAX as u64 {
            let event = match at % 2 {
                0 => failed(&long),
                _ => ready(),
            };
            history.push(at, event);
            let (entries, octets) = history.kept();
            assert!(octets <= EVENT_OCTETS_MAX && entries <= EVENTS_MAX);
        }
        let octets: usize = history.records.iter().map(Record::octets).sum();
        assert_eq!(history.kept(), (history.records.len(), octets));
        assert_eq!(
            history.dropped() + history.records.len() as u64,
            history.last
        );
        let mut short = History::new();
        (0..2 * EVENTS_MAX as u64).for_each(|at| short.push(at, ready()));
        assert_eq!(short.records.len(), EVENTS_MAX);
    }

    // Promise (Daemons): A slow reader of events learns how many events it lost, and never
    // delays a daemon.
    #[test]
    fn reader_that_lags_learns_how_many_events_it_lost() {
        let mut history = History::new();
        (0..10).for_each(|at| history.push(at, ready()));
        let first = history.page(&Query::default());
        assert_eq!((numbers(&first), first.lost), ((1..=10).collect(), 0));
        let more = 2 * EVENTS_MAX as u64;
        (0..more).for_each(|at| history.push(at, ready()));
        let query = Query {
            after: Some(first.next),
            ..Query::default()
        };
        let (seen, lost) = all(&history, query);
        assert_eq!(lost + seen.len() as u64, more);
        assert_eq!(seen.first(), Some(&(10 + lost + 1)));
        assert_eq!(seen.last(), Some(&(10 + more)));
    }

    #[test]
    fn pages_are_bounded_and_continue_without_a_gap() {
        let mut history = History::new();
        let count = 2 * EVENTS_PAGE_MAX as u64 + 3;
        (0..count).for_each(|at| history.push(at, ready()));
        let page = history.page(&Query::default());
        assert_eq!((page.events.len(), page.more), (EVENTS_PAGE_MAX, true));
        let (seen, lost) = all(&history, Query::default());
        assert_eq!((seen, lost), ((1..=count).collect(), 0));
    }

    #[test]
    fn query_selects_by_name_and_time() {
        let mut history = History::new();
        history.push(5, ready());
        history.push(6, failed("a"));
        history.push(7, ready());
        let of = |name: &str, since_ms| {
            let query = Query {
                filter: Filter::named(name),
                since_ms,
                ..Query::default()
            };
            numbers(&history.page(&query))
        };
        assert_eq!(of("listener", 0), [1, 2, 3]);
        assert_eq!(of("listener.ready", 0), [1, 3]);
        assert_eq!(of("listener.ready", 6), [3]);
        assert_eq!(of("listen", 0), [0; 0]);
        let counts = history.counts().filter(|(_, count)| *count > 0);
        let counts: Vec<_> = counts.collect();
        assert_eq!(counts, [("listener.ready", 2), ("listener.failed", 1)]);
    }

    #[test]
    fn number_beyond_the_last_is_the_last() {
        let mut history = History::new();
        history.push(1, ready());
        let query = Query {
            after: Some(u64::MAX),
            ..Query::default()
        };
        let page = history.page(&query);
        assert_eq!((page.next, page.lost, page.events.len()), (1, 0, 0));
    }
}
