//! When everything that neighbours have to say is known after a start.

use std::collections::{BTreeMap, BTreeSet};

use bgp_io::Speaker;
use bgp_io::bgp_proto::Family;
use bgp_io::bgp_speaker::Event;
use bgp_io::rib::PeerId;
use fib_sync::Instant;

use crate::limits::QUIET;

/// Waits for the End-of-RIB markers of all configured neighbours (RFC 4724 §4), and then for a
/// while in which nothing changes. A neighbour that never comes up, or never sends one, is left to
/// the grace period's end.
#[derive(Debug, Default)]
pub(super) struct Settle {
    /// Families whose marker is awaited, of neighbours that are up.
    awaited: BTreeMap<PeerId, BTreeSet<Family>>,
    /// When it is quiet long enough, unless something changes.
    quiet_at: Option<Instant>,
    over: bool,
}

impl Settle {
    /// Takes note of what happens to sessions.
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

    /// Something changed, or nothing did: the wait begins anew, or goes on.
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

    /// When to ask [`expire`](Self::expire).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.quiet_at
    }

    /// Whether it is quiet long enough with this call.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        if self.quiet_at.is_none_or(|at| now < at) {
            return false;
        }
        self.quiet_at = None;
        self.over = true;
        true
    }
}
