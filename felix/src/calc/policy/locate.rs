//! Keeps the index of addresses up to date, while the flow log is on.

use std::sync::Arc;

use super::index::Index;
use super::located::Located;
use super::member::Entry;
use crate::work;

impl Index {
    /// Sets whether members of other hosts are found by their addresses.
    pub(crate) fn locate(&mut self, wanted: bool) {
        if wanted == self.located.is_some() {
            return;
        }
        self.located = wanted.then(|| {
            let mut located = Located::default();
            work::count(self.members.len());
            for (key, entry) in &self.members {
                located.add(key, entry.located());
            }
            located
        });
    }

    /// Returns the members of other hosts by their addresses, while they are needed.
    pub(in crate::calc) const fn located(&self) -> Option<&Located> {
        self.located.as_ref()
    }

    /// Follows a change of a member that is not recorded yet.
    pub(super) fn relocate(&mut self, key: &Arc<str>, entry: Option<&Entry>) {
        let Some(located) = &mut self.located else {
            return;
        };
        if let Some(old) = self.members.get(key) {
            located.remove(key, old.located());
        }
        if let Some(entry) = entry {
            located.add(key, entry.located());
        }
    }
}
