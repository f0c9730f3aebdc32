//! Detection of the end of initial convergence after a start.

use std::collections::BTreeSet;

use bgp_daemon::AwaitedEndOfRib;
use bgp_io::Speaker;
use bgp_io::bgp_speaker::{Event, PathConsequence, PeerView};
use bgp_io::rib::PeerId;
use fib_sync::Instant;

use crate::limits::QUIET;

/// Waits for the End-of-RIB markers of all configured neighbors (RFC 4724 §4), and then for a
/// period without changes. For a neighbor that never connects, or never sends a marker, the wait
/// lasts until the end of the grace period.
#[derive(Debug, Default)]
pub(super) struct Convergence {
    awaited: AwaitedEndOfRib,
    /// The neighbors that BFD has found dead since before the start: they are not waited for, as long as
    /// another one has sent its markers.
    failed: BTreeSet<PeerId>,
    /// The end of the period without changes, unless another change occurs.
    quiet_at: Option<Instant>,
    over: bool,
}

impl Convergence {
    /// Applies a session event.
    pub(super) fn record(&mut self, event: &Event) {
        self.awaited.observe(event);
        match event {
            Event::PathFailed {
                peer,
                consequence: PathConsequence::FormerRemoved,
                ..
            } => {
                self.failed.insert(*peer);
            }
            Event::Up { peer, .. } => {
                self.failed.remove(peer);
            }
            _ => {}
        }
    }

    /// Restarts the period after a change, or lets it continue.
    pub(super) fn observe(&mut self, now: Instant, speaker: &Speaker, changed: bool) {
        if self.over {
            return;
        }
        let is_awaited = |peer: &PeerView<'_>| !peer.dynamic && !self.failed.contains(&peer.id);
        let mut peers = speaker.peers().filter(is_awaited).peekable();
        let any = peers.peek().is_some();
        let deferred = !speaker.deferred().is_empty();
        if deferred || !any || !peers.all(|peer| self.awaited.has_all_of(peer.id)) {
            self.quiet_at = None;
        } else if changed || self.quiet_at.is_none() {
            self.quiet_at = Some(now + QUIET);
        }
    }

    /// Returns when to call [`expire`](Self::expire).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.quiet_at
    }

    /// Returns whether the period has ended with this call.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        if self.quiet_at.is_none_or(|at| now < at) {
            return false;
        }
        self.quiet_at = None;
        self.over = true;
        true
    }
}
