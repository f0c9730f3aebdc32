//! Compaction of the history.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::Core;
use super::apply::event_octets;
use calico_store::Error;
use calico_store::Revision;

impl Core {
    /// Compacts everything before a revision: earlier reads and watches fail from now on.
    pub fn compact(&mut self, at: Revision) -> Result<(), Error> {
        self.answering()?;
        if at <= self.compacted {
            return Err(Error::Compacted { at: self.compacted });
        }
        if at > self.revision {
            return Err(Error::FutureRevision);
        }
        self.forget(at);
        Ok(())
    }

    /// Keeps the history within its limits. It compacts half of the history at once, so that the
    /// work is amortized.
    pub(super) fn compact_by_itself(&mut self) {
        let long = self.log.len() > self.config.history_revisions_max;
        let large = self.log_octets > self.config.history_octets_max;
        if (long || large)
            && let Some(middle) = self.log.get(self.log.len() / 2)
            && middle.revision > self.compacted
        {
            self.forget(middle.revision);
        }
    }

    pub(super) fn forget(&mut self, at: Revision) {
        self.note_compaction(at);
        self.compacted = at;
        let mut touched: BTreeSet<Bytes> = BTreeSet::new();
        while let Some(entry) = self.log.front()
            && entry.revision < at
        {
            for event in &entry.events {
                self.log_octets -= event_octets(event);
                touched.insert(event.item.key.clone());
            }
            self.log.pop_front();
        }
        // Events at the revision itself stay for watches, but their previous values are removed.
        if let Some(entry) = self.log.front()
            && entry.revision == at
        {
            touched.extend(entry.events.iter().map(|event| event.item.key.clone()));
        }
        for key in touched {
            if let Some(history) = self.keys.get_mut(&key) {
                let (octets, empty) = history.compact(&key, at);
                self.octets -= octets;
                if empty {
                    self.keys.remove(&key);
                }
            }
        }
    }
}
