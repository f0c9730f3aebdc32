//! The log of changes for readers of all paths.
//!
//! Readers of routes read a prefix when the paths in use change; groups that send several paths of
//! a prefix need it when any path changes. They have a log of their own, kept only while there are
//! such groups, and in step with the other one: both count the same versions, and a version that is
//! not relevant for readers of routes is blank in their log. So cursors into both are comparable,
//! and a withdrawn prefix is kept until the readers of both have read it.

use alloc::vec::Vec;

use super::log::Log;

/// The second log, with the version of each slot in it.
#[derive(Debug)]
pub(crate) struct PathLog {
    pub(crate) log: Log,
    /// By slot: the version of its entry; 0 without one.
    versions: Vec<u64>,
}

impl PathLog {
    /// Makes a log that begins with the next version of the other one.
    pub(crate) fn new(next: u64) -> Self {
        Self {
            log: Log::starting(next),
            versions: Vec::new(),
        }
    }

    /// Logs a change of a slot; returns the version of the previous one, 0 for none.
    pub(crate) fn push(&mut self, slot: u32) -> u64 {
        let at = slot as usize;
        if at >= self.versions.len() {
            self.versions.resize(at + 1, 0);
        }
        let old = self.versions[at];
        self.versions[at] = self.log.push(slot, old);
        old
    }

    /// Returns the version of a slot's entry; 0 if it never had one.
    pub(crate) fn version(&self, slot: u32) -> u64 {
        self.versions.get(slot as usize).copied().unwrap_or(0)
    }

    /// Clears the version of a slot that is about to be released.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(version) = self.versions.get_mut(slot as usize) {
            self.log.blank(core::mem::take(version));
        }
    }

    /// Clears all versions of an empty table.
    pub(crate) fn forget_all(&mut self) {
        self.versions = Vec::new();
    }
}
