//! Watches: cursors over the events.

use super::Core;
use crate::limits::{BATCH_EVENTS_MAX, BATCH_OCTETS_MAX};
use calico_store::Error;
use calico_store::WatchRequest;
use calico_store::{Batch, Event, Revision};

/// The position of one watch in the history. Dropping it ends the watch.
#[derive(Debug)]
pub struct WatchCursor {
    request: WatchRequest,
    /// The first unprocessed revision.
    next: Revision,
    epoch: u64,
}

/// The result of polling a watch.
#[derive(Debug, PartialEq, Eq)]
pub enum WatchPoll {
    /// Changes.
    Events(Batch),
    /// Nothing yet.
    Idle,
    /// The watch has ended, for this reason.
    Ended(Error),
}

impl WatchCursor {
    /// Returns the first unprocessed revision.
    pub const fn next(&self) -> Revision {
        self.next
    }
}

impl Core {
    /// Opens a watch.
    pub fn watch(&self, request: WatchRequest) -> Result<WatchCursor, Error> {
        self.answering()?;
        let next = match request.from {
            Some(from) if from > Revision::ZERO => from,
            _ => self.visible().next(),
        };
        Ok(WatchCursor {
            request,
            next,
            epoch: self.watch_epoch,
        })
    }

    /// Returns the next changes of a watch.
    pub fn poll_watch(&self, cursor: &mut WatchCursor) -> WatchPoll {
        if cursor.epoch != self.watch_epoch {
            return WatchPoll::Ended(Error::WatchLost("the store dropped it".into()));
        }
        if self.faults.watches_silent {
            return WatchPoll::Idle;
        }
        if cursor.next < self.compacted {
            return WatchPoll::Ended(Error::Compacted { at: self.compacted });
        }
        let visible = self.visible();
        let start = self
            .log
            .partition_point(|entry| entry.revision < cursor.next);
        let mut batch = Batch::default();
        let mut octets = 0;
        for entry in self.log.range(start..) {
            let full = batch.events.len() >= BATCH_EVENTS_MAX || octets >= BATCH_OCTETS_MAX;
            if entry.revision > visible || full {
                break;
            }
            cursor.next = entry.revision.next();
            let before = batch.events.len();
            let wanted = entry
                .events
                .iter()
                .filter(|event| cursor.request.range.contains(&event.item.key));
            batch
                .events
                .extend(wanted.map(|event| shown(event, cursor.request.previous)));
            if batch.events.len() > before {
                batch.revision = entry.revision;
                octets += batch
                    .events
                    .iter()
                    .skip(before)
                    .map(octets_of)
                    .sum::<usize>();
            }
        }
        if batch.events.is_empty() {
            WatchPoll::Idle
        } else {
            WatchPoll::Events(batch)
        }
    }

    /// Returns a progress batch for a watch that has processed everything; `None` while watches are
    /// silent.
    pub fn progress(&self) -> Option<Batch> {
        (!self.faults.watches_silent).then(|| Batch {
            revision: self.visible(),
            events: Vec::new(),
        })
    }
}

fn shown(event: &Event, previous: bool) -> Event {
    let mut event = event.clone();
    if !previous {
        event.previous = None;
    }
    event
}

fn octets_of(event: &Event) -> usize {
    let previous = event
        .previous
        .as_ref()
        .map_or(0, |previous| previous.value.len());
    event.item.key.len() + event.item.value.len() + previous
}
