//! Pauses of a thread.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// A channel on which nothing arrives.
#[derive(Debug)]
pub(super) struct Pace {
    nothing: Receiver<()>,
    _sender: SyncSender<()>,
}

impl Pace {
    pub(super) fn new() -> Self {
        let (sender, nothing) = sync_channel(1);
        Self {
            nothing,
            _sender: sender,
        }
    }

    /// Waits for so long.
    pub(super) fn pause(&self, time: Duration) {
        let _ = self.nothing.recv_timeout(time);
    }
}
