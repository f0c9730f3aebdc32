//! The interface for readers of the tables beside the peers.

use bgp_proto::Family;
use rib::{Budget, Change, Progress};

use crate::{readers::ReaderId, speaker::Speaker};

impl Speaker {
    /// Adds a reader of the tables, such as the kernel's FIB: it receives the whole tables, then
    /// changes.
    pub fn add_reader(&mut self) -> ReaderId {
        self.readers.add()
    }

    /// Adds a reader that receives only later changes, such as a watcher of events. One that falls
    /// too far behind continues with the latest change: see [`missed`](Self::missed).
    pub fn add_follower(&mut self) -> ReaderId {
        let families = self.config.families;
        self.readers.add_follower(&self.rib, families)
    }

    /// Removes a reader. The tables keep nothing for it any more; its number may be assigned again.
    pub fn remove_reader(&mut self, reader: ReaderId) {
        self.readers.remove(reader);
    }

    /// Returns the number of readers.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.readers.len()
    }

    /// Reads further changes of one family. After [`Progress::Lost`] the reader receives everything
    /// again and must remove the routes that it does not receive.
    pub fn read(
        &mut self,
        reader: ReaderId,
        family: Family,
        budget: Budget,
        each: &mut dyn FnMut(Change<'_>),
    ) -> Progress {
        if self.deferred().contains(family) {
            return Progress::Done;
        }
        let place = (reader, family);
        self.readers.read(&mut self.rib, place, budget, each)
    }

    /// Returns an upper bound of the changes that a follower has missed since it was added, because
    /// it fell too far behind.
    #[must_use]
    pub fn missed(&self, reader: ReaderId) -> u64 {
        self.readers.missed(reader)
    }
}
