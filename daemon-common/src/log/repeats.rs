//! Repeated events: the first ones are logged, the others counted and summarized.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tracing::Level;

use crate::limits::{REPEATS_LOGGED, REPEATS_WINDOW};

/// Counts events by key. Of each key the first [`REPEATS_LOGGED`] within [`REPEATS_WINDOW`] are to be
/// logged, and one summary of the others at the end of that time. Time is the caller's: the time
/// since any fixed moment.
#[derive(Debug)]
pub struct Repeats<K, T> {
    keys_max: usize,
    windows: BTreeMap<K, Window<T>>,
    /// The ends of the windows, the earliest first: all are of one length.
    ends: VecDeque<(Duration, K)>,
    summarized: u64,
}

#[derive(Debug)]
struct Window<T> {
    logged: u64,
    more: u64,
    /// The gravest level among the events that were not logged, and the last one.
    last: Option<(Level, T)>,
}

impl<T> Default for Window<T> {
    fn default() -> Self {
        Self {
            logged: 0,
            more: 0,
            last: None,
        }
    }
}

/// Events of one key that were not logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary<T> {
    /// The gravest of their levels.
    pub level: Level,
    /// How many they are.
    pub more: u64,
    /// The time in which they happened.
    pub within: Duration,
    /// The last one.
    pub last: T,
}

impl<K: Clone + Ord, T> Repeats<K, T> {
    /// Makes a table that distinguishes at most `keys_max` keys.
    pub const fn new(keys_max: usize) -> Self {
        Self {
            keys_max,
            windows: BTreeMap::new(),
            ends: VecDeque::new(),
            summarized: 0,
        }
    }

    /// Takes note of an event, and returns it if it is to be logged now. Where there is no room for
    /// another `key`, the event counts under `others`, of which there must be few.
    pub fn admit(&mut self, now: Duration, key: K, others: K, level: Level, event: T) -> Option<T> {
        let is_known = self.windows.contains_key(&key);
        let key = match is_known || self.windows.len() < self.keys_max {
            true => key,
            false => others,
        };
        let window = self.windows.entry(key.clone()).or_insert_with(|| {
            self.ends.push_back((now + REPEATS_WINDOW, key));
            Window::default()
        });
        if window.logged < REPEATS_LOGGED {
            window.logged += 1;
            return Some(event);
        }
        window.more += 1;
        self.summarized += 1;
        // A graver level is the lesser one.
        let gravest = window
            .last
            .as_ref()
            .map_or(level, |(gravest, _)| level.min(*gravest));
        window.last = Some((gravest, event));
        None
    }

    /// When to call [`due`](Self::due) again.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.ends.front().map(|(end, _)| *end)
    }

    /// Ends the windows that are over, and returns their summaries.
    pub fn due(&mut self, now: Duration) -> Vec<Summary<T>> {
        self.end_until(now, now)
    }

    /// Ends all windows, and returns their summaries, before the caller ends.
    pub fn finish(&mut self, now: Duration) -> Vec<Summary<T>> {
        self.end_until(now, Duration::MAX)
    }

    /// Events that were summarized since the start.
    pub const fn summarized(&self) -> u64 {
        self.summarized
    }

    fn end_until(&mut self, now: Duration, until: Duration) -> Vec<Summary<T>> {
        let mut summaries = Vec::new();
        while let Some((end, key)) = self.ends.pop_front_if(|(end, _)| *end <= until) {
            let began = end.saturating_sub(REPEATS_WINDOW);
            let window = self.windows.remove(&key).unwrap_or_default();
            let more = window.more;
            summaries.extend(window.last.map(|(level, last)| Summary {
                level,
                more,
                within: now.saturating_sub(began),
                last,
            }));
        }
        summaries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: u32 = 0;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn admit(repeats: &mut Repeats<u32, String>, now: Duration, key: u32) -> bool {
        let text = format!("{key}");
        let logged = repeats.admit(now, key, OTHERS, Level::INFO, text.clone());
        assert!(logged.as_ref().is_none_or(|logged| *logged == text));
        logged.is_some()
    }

    #[test]
    fn first_events_are_logged_and_the_others_summarized() {
        let mut repeats = Repeats::new(10);
        let logged = (0..5000).filter(|_| admit(&mut repeats, seconds(1), 7));
        assert_eq!(logged.count() as u64, REPEATS_LOGGED);
        assert_eq!(repeats.poll_timeout(), Some(seconds(1) + REPEATS_WINDOW));
        assert_eq!(repeats.due(seconds(1)), []);
        let text = "gravest".to_owned();
        repeats.admit(seconds(2), 7, OTHERS, Level::WARN, text.clone());
        repeats.admit(seconds(2), 7, OTHERS, Level::INFO, "last".to_owned());
        let more = 5000 - REPEATS_LOGGED + 2;
        let summary = Summary {
            level: Level::WARN,
            more,
            within: REPEATS_WINDOW,
            last: "last".to_owned(),
        };
        assert_eq!(repeats.due(seconds(11)), [summary]);
        assert_eq!((repeats.poll_timeout(), repeats.summarized()), (None, more));
        assert!(admit(&mut repeats, seconds(11), 7), "a window of its own");
    }

    #[test]
    fn rare_events_are_logged_each() {
        let mut repeats = Repeats::new(10);
        for at in 0..100 {
            assert_eq!(repeats.due(seconds(3 * at)), []);
            assert!(admit(&mut repeats, seconds(3 * at), 7));
        }
        assert_eq!(repeats.summarized(), 0);
    }

    #[test]
    fn keys_beyond_the_limit_share_one_window() {
        let mut repeats = Repeats::new(3);
        let logged = (1..=100).filter(|key| admit(&mut repeats, seconds(0), *key));
        assert_eq!(logged.count() as u64, 3 + REPEATS_LOGGED);
        assert!(admit(&mut repeats, seconds(1), 2), "a key that is known");
        let summaries = repeats.due(REPEATS_WINDOW);
        let more = 100 - 3 - REPEATS_LOGGED;
        assert_eq!(summaries.len(), 1);
        assert_eq!((summaries[0].more, &*summaries[0].last), (more, "100"));
        assert!(repeats.windows.is_empty());
    }

    #[test]
    fn summaries_at_the_end_name_the_time_that_passed() {
        let mut repeats = Repeats::new(3);
        for _ in 0..REPEATS_LOGGED + 2 {
            admit(&mut repeats, seconds(5), 1);
        }
        let summaries = repeats.finish(seconds(8));
        let summary = &summaries[0];
        let found = (summary.more, summary.within, summary.last.as_str());
        assert_eq!(found, (2, seconds(3), "1"));
        assert_eq!(repeats.finish(seconds(8)), []);
    }
}
