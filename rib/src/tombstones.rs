//! Prefixes without paths, kept until every reader has read their withdrawal.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Slots in the order of their logged withdrawals. A slot is here at most once; whether it still is
/// a tombstone at its turn is decided by the table.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    queue: VecDeque<(u64, u32)>,
    /// Some withdrawals below this version have been dropped.
    forgotten: u64,
    /// Every reader has read the withdrawals below this version.
    read_below: u64,
}

impl Tombstones {
    /// Adds a slot whose withdrawal was logged as `version`.
    pub(crate) fn push(&mut self, version: u64, slot: u32) {
        self.queue.push_back((version, slot));
    }

    /// Takes the oldest ones that all readers have read, at most `max`.
    pub(crate) fn take_read(&mut self, max: usize, slots: &mut Vec<u32>) {
        let oldest = self.queue.iter().take(max);
        let read_below = oldest.take_while(|(version, _)| *version < self.read_below);
        let read_below = read_below.count();
        slots.extend(self.queue.drain(..read_below).map(|(_, slot)| slot));
        if self.queue.is_empty() && self.queue.capacity() > 4096 {
            self.queue = VecDeque::new();
        }
    }

    /// Takes the oldest one, if there are more than `max`.
    pub(crate) fn pop_excess(&mut self, max: usize) -> Option<u32> {
        if self.queue.len() <= max {
            return None;
        }
        self.queue.pop_front().map(|(_, slot)| slot)
    }

    /// Records that the withdrawal with this version is no longer in the table.
    pub(crate) fn forget(&mut self, version: u64) {
        self.forgotten = self.forgotten.max(version + 1);
    }

    /// Records that every reader has read the withdrawals below `version`.
    pub(crate) fn set_read(&mut self, version: u64) {
        self.read_below = self.read_below.max(version);
    }

    /// Returns whether every reader has read it.
    pub(crate) const fn all_have_read(&self, version: u64) -> bool {
        version < self.read_below
    }

    /// Returns whether a reader that has read the withdrawals below `version` only has missed some.
    pub(crate) const fn are_lost_to(&self, version: u64) -> bool {
        version < self.forgotten
    }
}
