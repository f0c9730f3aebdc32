//! The log of changed prefixes.
//!
//! One entry per version, each with a slot; a slot stores the version of its entry. A change
//! appends a new entry and blanks the slot's old one, so that every prefix is in the log at most
//! once, in the order of last changes, and the entry of a version is found by subtraction.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::cursor::{Cursor, DUMPED, UNSTARTED};
use crate::budget::Progress;

/// The entry's slot has changed again since, or was removed.
const BLANK: u32 = u32::MAX;

/// A log of changes of one family.
#[derive(Debug)]
pub(crate) struct Log {
    /// Version of the first entry.
    first: u64,
    entries: VecDeque<u32>,
    /// Readers below this version have missed entries that were cut off.
    cut: u64,
}

/// The result of a step of a cursor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) progress: Progress,
    /// The slots of this step are for a reader without routes: it needs no withdrawals.
    pub(crate) fresh: bool,
}

impl Default for Log {
    fn default() -> Self {
        // Version 0 means "never in the log".
        Self {
            first: 1,
            entries: VecDeque::new(),
            cut: 0,
        }
    }
}

impl Log {
    /// Makes a log with this version for its first change.
    pub(crate) fn starting(first: u64) -> Self {
        Self {
            first,
            entries: VecDeque::new(),
            cut: first,
        }
    }

    /// Returns the version of the next change.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Returns the number of entries, including blank ones.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Logs a change of `slot`, whose last one had version `old`; returns the version of the new
    /// one.
    pub(crate) fn push(&mut self, slot: u32, old: u64) -> u64 {
        self.blank(old);
        let version = self.next();
        self.entries.push_back(slot);
        version
    }

    /// Skips a version of a change that is not relevant for the readers of this log.
    pub(crate) fn skip(&mut self) {
        if self.entries.is_empty() {
            self.first += 1;
        } else {
            self.entries.push_back(BLANK);
        }
    }

    /// Blanks an entry.
    pub(crate) fn blank(&mut self, version: u64) {
        let Some(index) = version.checked_sub(self.first) else {
            return;
        };
        let Ok(index) = usize::try_from(index) else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(index) {
            *entry = BLANK;
        }
        while self.entries.pop_front_if(|slot| *slot == BLANK).is_some() {
            self.first += 1;
        }
    }

    /// Drops versions below `version`, which no reader needs any more.
    pub(crate) fn trim(&mut self, version: u64) {
        while self.first < version
            && let Some(slot) = self.entries.pop_front()
        {
            self.first += 1;
            if slot != BLANK {
                self.cut = self.first;
            }
        }
        if self.entries.is_empty() && self.entries.capacity() > 4096 {
            self.entries = VecDeque::new();
        }
    }

    /// Cuts the log to half of `max` entries if it is longer than `max`. Readers that lose their
    /// position read the whole table.
    pub(crate) fn cut_to(&mut self, max: usize) {
        if self.entries.len() <= max {
            return;
        }
        let excess = self.entries.len() - max / 2;
        self.entries.drain(..excess);
        self.first += excess as u64;
        self.cut = self.first;
    }

    /// Advances a cursor by up to `budget` slots and puts them into `slots`. `table_len` is the
    /// number of existing slots.
    pub(crate) fn read(
        &self,
        cursor: &mut Cursor,
        table_len: u32,
        budget: u32,
        slots: &mut Vec<u32>,
    ) -> Step {
        slots.clear();
        self.place(cursor);
        if cursor.dump_at != DUMPED {
            let fresh = cursor.fresh;
            let end = table_len.min(cursor.dump_at.saturating_add(budget));
            slots.extend(cursor.dump_at..end);
            cursor.dump_at = end;
            if end == table_len {
                *cursor = Cursor::following(cursor.at);
            }
            return Step {
                progress: self.progress(cursor),
                fresh,
            };
        }
        self.follow(cursor, budget, slots);
        Step {
            progress: self.progress(cursor),
            fresh: false,
        }
    }

    /// Returns whether entries that a cursor has not read were cut off.
    pub(crate) const fn is_cut_before(&self, cursor: &Cursor) -> bool {
        cursor.at < self.cut
    }

    /// Gives a cursor without a position one: the end of the log, after a dump of the table.
    fn place(&self, cursor: &mut Cursor) {
        if cursor.at == UNSTARTED {
            cursor.at = self.next();
            cursor.read_below = cursor.at;
        } else if self.is_cut_before(cursor) {
            *cursor = Cursor {
                at: self.next(),
                dump_at: 0,
                read_below: cursor.read_below,
                fresh: false,
            };
        }
    }

    fn follow(&self, cursor: &mut Cursor, budget: u32, slots: &mut Vec<u32>) {
        let from = usize::try_from(cursor.at.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut at = self.first + from.min(self.entries.len()) as u64;
        for &slot in self.entries.iter().skip(from) {
            if slots.len() >= budget as usize {
                break;
            }
            at += 1;
            if slot != BLANK {
                slots.push(slot);
            }
        }
        *cursor = Cursor::following(at.max(cursor.at));
    }

    fn progress(&self, cursor: &Cursor) -> Progress {
        if cursor.dump_at == DUMPED && cursor.at >= self.next() {
            Progress::Done
        } else {
            Progress::More
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(log: &Log, cursor: &mut Cursor, budget: u32) -> (Vec<u32>, Progress) {
        let mut slots = Vec::new();
        let step = log.read(cursor, 4, budget, &mut slots);
        (slots, step.progress)
    }

    #[test]
    fn a_change_moves_to_the_end() {
        let mut log = Log::default();
        let mut cursor = Cursor::following(log.next());
        let one = log.push(1, 0);
        let two = log.push(2, 0);
        let again = log.push(1, one);
        assert!(one < two && two < again);
        assert_eq!(read(&log, &mut cursor, 1), (alloc::vec![2], Progress::More));
        assert_eq!(read(&log, &mut cursor, 9), (alloc::vec![1], Progress::Done));
        assert_eq!(read(&log, &mut cursor, 9), (alloc::vec![], Progress::Done));
        log.trim(cursor.at());
        assert_eq!(log.len(), 0);
        assert_eq!(log.next(), again + 1);
    }

    #[test]
    fn blank_entries_at_the_front_take_no_room() {
        let mut log = Log::default();
        let mut version = 0;
        for _ in 0..1000 {
            version = log.push(7, version);
        }
        assert_eq!(log.len(), 1);
        let mut cursor = Cursor::following(1);
        assert_eq!(read(&log, &mut cursor, 1), (alloc::vec![7], Progress::Done));
    }

    #[test]
    fn member_that_falls_behind_reads_alone() {
        let mut log = Log::default();
        let mut slow = Cursor::following(1);
        for slot in 0..100 {
            log.push(slot, 0);
        }
        log.cut_to(100);
        assert_eq!(read(&log, &mut { slow }, 2).0, alloc::vec![0, 1]);
        log.push(3, 4);
        log.cut_to(100);
        assert_eq!(log.len(), 50);
        let step = log.read(&mut slow, 4, 9, &mut Vec::new());
        assert_eq!(
            step,
            Step {
                progress: Progress::Done,
                fresh: false
            }
        );
        assert_eq!(slow, Cursor::following(log.next()));
    }

    #[test]
    fn a_feed_joins_where_it_began() {
        let mut log = Log::default();
        log.push(0, 0);
        let mut cursor = Cursor::initial();
        assert_eq!(
            read(&log, &mut cursor, 2),
            (alloc::vec![0, 1], Progress::More)
        );
        log.push(0, 1);
        assert_eq!(
            read(&log, &mut cursor, 2),
            (alloc::vec![2, 3], Progress::More)
        );
        assert!(cursor.has_full_table());
        assert_eq!(read(&log, &mut cursor, 2), (alloc::vec![0], Progress::Done));
        let again = cursor.refreshed();
        assert!(!again.has_full_table() && again.fresh);
    }

    /// A naive model: for every reader the slots that it has not read, in the order of their last
    /// changes.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Change(u32),
        Read { reader: usize, budget: u32 },
        Again(usize),
        Trim,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0..4u32).prop_map(Event::Change),
            4 => (0..3usize, 1..4u32).prop_map(|(reader, budget)| Event::Read { reader, budget }),
            1 => (0..3usize).prop_map(Event::Again),
            1 => Just(Event::Trim),
        ]
    }

    proptest! {
        #[test]
        fn readers_get_each_change_once_and_in_order(
            events in prop::collection::vec(event(), 1..80),
        ) {
            let mut log = Log::default();
            let mut versions = [0u64; 4];
            let mut cursors = [Cursor::following(log.next()); 3];
            // Per reader: slots of the dump that are still to be read, then changes in their order.
            let mut owed: [(Vec<u32>, Vec<u32>); 3] = Default::default();
            for event in events {
                match event {
                    Event::Change(slot) => {
                        versions[slot as usize] = log.push(slot, versions[slot as usize]);
                        for (_, changes) in &mut owed {
                            changes.retain(|&other| other != slot);
                            changes.push(slot);
                        }
                    }
                    Event::Read { reader, budget } => {
                        let (slots, progress) = read(&log, &mut cursors[reader], budget);
                        let (dump, changes) = &mut owed[reader];
                        let source = if dump.is_empty() { &mut *changes } else { &mut *dump };
                        let expected: Vec<u32> =
                            source.drain(..source.len().min(budget as usize)).collect();
                        prop_assert_eq!(slots, expected);
                        let done = dump.is_empty() && changes.is_empty();
                        prop_assert_eq!(progress == Progress::Done, done);
                    }
                    Event::Again(reader) => {
                        cursors[reader] = cursors[reader].refreshed();
                        owed[reader].0 = (0..4).collect();
                    }
                    Event::Trim => {
                        log.trim(cursors.iter().map(Cursor::at).min().unwrap_or_default());
                        let held = owed.iter().map(|(_, changes)| changes.len()).max();
                        prop_assert!(log.len() >= held.unwrap_or_default());
                    }
                }
            }
        }
    }
}
