//! The bounded queue of a monitor.

use alloc::collections::VecDeque;

use super::record::Record;

/// Records that were not taken yet. With too many, the oldest ones are dropped.
#[derive(Debug)]
pub(super) struct Queue {
    records: VecDeque<Record>,
    entries: usize,
    entries_max: usize,
    octets: usize,
    octets_max: usize,
    /// Routes and events that were dropped before the oldest record.
    lost: u64,
}

impl Queue {
    pub(super) const fn new(entries_max: usize, octets_max: usize) -> Self {
        Self {
            records: VecDeque::new(),
            entries: 0,
            entries_max,
            octets: 0,
            octets_max,
            lost: 0,
        }
    }

    pub(super) fn push(&mut self, record: Record) {
        self.entries += record.entries();
        self.octets += record.octets();
        self.records.push_back(record);
        while (self.entries > self.entries_max || self.octets > self.octets_max)
            && let Some(oldest) = self.pop_record()
        {
            self.lost += oldest.lost();
        }
    }

    pub(super) const fn octets(&self) -> usize {
        self.octets
    }

    /// Adds the marker of records that were lost before they came here, if there are any.
    pub(super) fn push_lost(&mut self, count: u64) {
        if count > 0 {
            self.push(Record::Lost { count });
        }
    }

    /// Takes the oldest record, or the marker of those that were dropped before it.
    pub(super) fn pop(&mut self) -> Option<Record> {
        match core::mem::take(&mut self.lost) {
            0 => self.pop_record(),
            count => Some(Record::Lost { count }),
        }
    }

    /// Returns whether records wait, and half of a limit is reached.
    pub(super) fn is_half_full(&self) -> bool {
        let is_half = self.entries >= self.entries_max / 2 || self.octets >= self.octets_max / 2;
        is_half && !self.records.is_empty()
    }

    fn pop_record(&mut self) -> Option<Record> {
        let record = self.records.pop_front()?;
        self.entries -= record.entries();
        self.octets -= record.octets();
        Some(record)
    }
}
