//! The recording of changes of the Adj-RIBs-In.

use alloc::boxed::Box;

use super::Rib;
use crate::recorder::Recorder;
use crate::routes::{Routes, Stages};

impl Rib {
    /// Records the changes of the Adj-RIBs-In from now on, at these stages of them.
    ///
    /// Recorded are received announcements and withdrawals that the tables take (not those that a
    /// limit refuses), paths that are removed because a peer did not send them again (RFC 4724
    /// §4.2, RFC 7313 §4.1), and, after policy, paths with another result of a changed policy. The
    /// end of a session removes the paths that it does not retain without records of them.
    pub fn record(&mut self, stages: Stages) {
        self.shared.recorder = Some(Box::new(Recorder::new(stages)));
    }

    /// Stops recording, and drops what is recorded.
    pub fn stop_recording(&mut self) {
        self.shared.recorder = None;
    }

    /// Takes what was recorded since the last call, in order. Returns the number of routes that
    /// were lost after it, because there were more than
    /// [`RECORDED_ROUTES_MAX`](crate::limits::RECORDED_ROUTES_MAX) or
    /// [`RECORDED_OCTETS_MAX`](crate::limits::RECORDED_OCTETS_MAX).
    pub fn take_recorded(&mut self, each: &mut dyn FnMut(Routes)) -> u64 {
        let recorder = self.shared.recorder.as_deref_mut();
        recorder.map_or(0, |recorder| recorder.take(each))
    }
}
