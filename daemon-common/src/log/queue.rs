//! Lines that wait to be written, bounded by their number and their octets.

use std::collections::VecDeque;

use tracing::Level;

use crate::limits::{LOG_LINES_MAX, LOG_LINES_RESERVED, LOG_OCTETS_MAX, LOG_OCTETS_RESERVED};

/// Lines counted by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts([u64; 4]);

impl Counts {
    /// Returns the lines of a level; lines of `trace` count as `debug`.
    pub(super) fn of(&self, level: Level) -> u64 {
        self.0[index(level)]
    }

    /// All lines.
    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn add(&mut self, level: Level) {
        self.0[index(level)] += 1;
    }

    fn add_all(&mut self, more: Self) {
        for (sum, count) in self.0.iter_mut().zip(more.0) {
            *sum += count;
        }
    }
}

fn index(level: Level) -> usize {
    match level {
        Level::ERROR => 0,
        Level::WARN => 1,
        Level::INFO => 2,
        _ => 3,
    }
}

/// The next item to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A line, with its end.
    Line(Level, Vec<u8>),
    /// So many lines were lost at this place.
    Lost(Counts),
}

/// Lines in the order of their arrival, and the counts of lost ones.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: VecDeque<Entry>,
    octets: usize,
    /// The most entries there ever were.
    pub(super) peak: usize,
    /// Lost since the start.
    pub(super) lost: Counts,
    /// Of these, not reported in the log yet.
    unreported: Counts,
    /// The last line could not be written.
    broken: bool,
    /// The process ends: the room reserved for errors is for all lines now.
    is_ending: bool,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            octets: 0,
            peak: 0,
            lost: Counts([0; 4]),
            unreported: Counts([0; 4]),
            broken: false,
            is_ending: false,
        }
    }

    /// Gives the capacity that is reserved for errors to all lines: the last ones of a process.
    pub(super) const fn open_reserve(&mut self) {
        self.is_ending = true;
    }

    /// Entries that wait.
    pub(super) fn waiting(&self) -> usize {
        self.entries.len()
    }

    /// Octets of lines that wait.
    #[cfg(test)]
    pub(super) const fn octets(&self) -> usize {
        self.octets
    }

    /// Returns whether nothing is left to write.
    pub(super) fn is_done(&self) -> bool {
        self.entries.is_empty() && (self.broken || self.unreported.total() == 0)
    }

    /// Appends a line, or counts it as lost if there is no room.
    pub(super) fn push(&mut self, level: Level, line: Vec<u8>) {
        if !self.has_room(level, line.len()) {
            self.lose(level);
            return;
        }
        if self.unreported.total() > 0 {
            let lost = std::mem::take(&mut self.unreported);
            self.entries.push_back(Entry::Lost(lost));
        }
        self.octets += line.len();
        self.entries.push_back(Entry::Line(level, line));
        self.peak = self.peak.max(self.entries.len());
    }

    /// Returns whether a line fits, with a report of lines that were lost before it.
    fn has_room(&self, level: Level, octets: usize) -> bool {
        let (lines, reserved) = match level {
            Level::ERROR => (0, 0),
            _ if self.is_ending => (0, 0),
            _ => (LOG_LINES_RESERVED, LOG_OCTETS_RESERVED),
        };
        self.entries.len() + 2 <= LOG_LINES_MAX - lines
            && self.octets.saturating_add(octets) <= LOG_OCTETS_MAX - reserved
    }

    /// Takes the next entry out.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front();
        if let Some(Entry::Line(_, line)) = &entry {
            self.octets -= line.len();
        }
        entry.or_else(|| {
            // A sink that fails would fail for this report, too: it waits for the next line.
            let worth = !self.broken && self.unreported.total() > 0;
            worth.then(|| Entry::Lost(std::mem::take(&mut self.unreported)))
        })
    }

    /// Takes note of how writing an entry went.
    pub(super) fn written(&mut self, outcome: Result<(), &Entry>) {
        self.broken = outcome.is_err();
        match outcome {
            Ok(()) => {}
            Err(Entry::Line(level, _)) => self.lose(*level),
            Err(Entry::Lost(lost)) => self.unreported.add_all(*lost),
        }
    }

    /// Drops all entries but the last `count`.
    pub(super) fn keep_last(&mut self, count: usize) {
        let mut lost = Counts::default();
        while self.entries.len() > count {
            match self.entries.pop_front() {
                Some(Entry::Line(level, line)) => {
                    self.octets -= line.len();
                    self.lost.add(level);
                    lost.add(level);
                }
                Some(Entry::Lost(earlier)) => lost.add_all(earlier),
                None => break,
            }
        }
        if lost.total() > 0 {
            self.entries.push_front(Entry::Lost(lost));
        }
    }

    fn lose(&mut self, level: Level) {
        self.lost.add(level);
        self.unreported.add(level);
    }
}
