//! Prefixes without paths, kept until every reader has heard of their withdrawal.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Slots in the order in which their withdrawals went into the log. A slot stands here at most
/// once; whether it still is a tombstone when its turn comes is for the table to say.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    queue: VecDeque<(u64, u32)>,
    /// Of the withdrawals below this version some have been forgotten.
    forgotten: u64,
    /// Every reader has heard of withdrawals below this version.
    heard: u64,
}

impl Tombstones {
    /// The slot's withdrawal has gone into the log as `version`.
    pub(crate) fn push(&mut self, version: u64, slot: u32) {
        self.queue.push_back((version, slot));
    }

    /// Takes the oldest ones that all readers have heard of, at most `max`.
    pub(crate) fn take_heard(&mut self, max: usize, slots: &mut Vec<u32>) {
        let oldest = self.queue.iter().take(max);
        let heard = oldest.take_while(|(version, _)| *version < self.heard);
        let heard = heard.count();
        slots.extend(self.queue.drain(..heard).map(|(_, slot)| slot));
        if self.queue.is_empty() && self.queue.capacity() > 4096 {
            self.queue = VecDeque::new();
        }
    }

    /// The oldest one, if there are more than `max`.
    pub(crate) fn pop_excess(&mut self, max: usize) -> Option<u32> {
        if self.queue.len() <= max {
            return None;
        }
        self.queue.pop_front().map(|(_, slot)| slot)
    }

    /// The withdrawal with this version is not in the table any more.
    pub(crate) fn forget(&mut self, version: u64) {
        self.forgotten = self.forgotten.max(version + 1);
    }

    /// Every reader has heard of withdrawals below `version`.
    pub(crate) fn set_heard(&mut self, version: u64) {
        self.heard = self.heard.max(version);
    }

    /// Whether every reader has heard of it.
    pub(crate) const fn all_heard(&self, version: u64) -> bool {
        version < self.heard
    }

    /// Whether a reader that has heard of withdrawals below `version` only has missed some.
    pub(crate) const fn are_lost_to(&self, version: u64) -> bool {
        version < self.forgotten
    }
}
