//! Detection of the end of initial convergence after a start.

use std::collections::{BTreeMap, BTreeSet};

use bgp_io::Speaker;
use bgp_io::bgp_proto::Family;
use bgp_io::bgp_speaker::Event;
use bgp_io::rib::PeerId;
use fib_sync::Instant;

use crate::limits::QUIET;

/// Waits for the End-of-RIB markers of all configured neighbors (RFC 4724 §4), and then for a
/// period without changes. For a neighbor that never connects, or never sends a marker, the wait
/// lasts until the end of the grace period.
#[derive(Debug, Default)]
pub(super) struct Settle {
    /// Families for which the End-of-RIB marker of a connected neighbor is awaited.
    awaited: BTreeMap<PeerId, BTreeSet<Family>>,
    /// The end of the period without changes, unless another change occurs.
    quiet_at: Option<Instant>,
    over: bool,
}

impl Settle {
    /// Applies a session event.
    pub(super) fn hear(&mut self, event: &Event) {
        match event {
            Event::Up { peer, params, .. } => {
                self.awaited.insert(*peer, params.families.iter().collect());
            }
            Event::EndOfRib { peer, family, .. } => {
                if let Some(families) = self.awaited.get_mut(peer) {
                    families.remove(family);
                }
            }
            Event::Down { peer, .. } => {
                self.awaited.remove(peer);
            }
            _ => {}
        }
    }

    /// Restarts the period after a change, or lets it continue.
    pub(super) fn observe(&mut self, now: Instant, speaker: &Speaker, changed: bool) {
        if self.over {
            return;
        }
        let mut peers = speaker.peers().filter(|peer| !peer.dynamic).peekable();
        let any = peers.peek().is_some();
        let told = |id| self.awaited.get(&id).is_some_and(BTreeSet::is_empty);
        let deferred = !speaker.deferred().is_empty();
        if deferred || !any || !peers.all(|peer| told(peer.id)) {
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
