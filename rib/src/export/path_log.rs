//! The log of changes as readers of all paths see it.
//!
//! Readers of routes are given a prefix when what is in use changes; groups that send several paths
//! of a prefix need it when any path changes. They have a log of their own, kept only while there
//! are such groups, and in step with the other one: both count the same versions, and where a
//! version is of no interest to the readers of routes their log has a blank. So cursors into
//! either can be compared, and a withdrawn prefix is kept until the readers of both have passed.

use alloc::vec::Vec;

use super::log::Log;

/// The second log and where in it each slot stands.
#[derive(Debug)]
pub(crate) struct PathLog {
    pub(crate) log: Log,
    /// By slot: the version of its entry; 0 if there is none.
    versions: Vec<u64>,
}

impl PathLog {
    /// A log that begins with the version that the other one gives out next.
    pub(crate) fn new(next: u64) -> Self {
        Self {
            log: Log::starting(next),
            versions: Vec::new(),
        }
    }

    /// Takes note of a change of a slot; returns the version of the one before, 0 for none.
    pub(crate) fn push(&mut self, slot: u32) -> u64 {
        let at = slot as usize;
        if at >= self.versions.len() {
            self.versions.resize(at + 1, 0);
        }
        let old = self.versions[at];
        self.versions[at] = self.log.push(slot, old);
        old
    }

    /// The version of a slot's entry; 0 if it never had one.
    pub(crate) fn version(&self, slot: u32) -> u64 {
        self.versions.get(slot as usize).copied().unwrap_or(0)
    }

    /// The slot is about to be given back.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(version) = self.versions.get_mut(slot as usize) {
            self.log.blank(core::mem::take(version));
        }
    }

    /// The table is empty.
    pub(crate) fn forget_all(&mut self) {
        self.versions = Vec::new();
    }
}
