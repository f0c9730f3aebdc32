//! The data that a speaker gets from its predecessor and leaves to its successor. Pure: the
//! simulator, which does not run this crate's loop, restarts a speaker in the same way.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use bgp_io::Speaker;
use bgp_io::bgp_proto::{FamilySet, SessionParams};
use bgp_io::bgp_speaker::{PeerView, Restart};

use crate::Forwarding;

/// Configures a speaker, before it starts, as restarted or not: `former` are the dynamic neighbors
/// of its predecessor if there was one, and `wait` is how long route selection is deferred then
/// (RFC 4724 §4.1).
pub fn begin(
    speaker: &mut Speaker,
    former: Option<BTreeSet<IpAddr>>,
    wait: Duration,
    forwarding: Forwarding,
) {
    if former.is_none() && forwarding == Forwarding::Kernel {
        speaker.forwarding_kept(FamilySet::EMPTY);
    }
    if let Some(dynamic) = former.filter(|_| !wait.is_zero()) {
        speaker.restarted(
            Restart::new(wait)
                .with_dynamic(dynamic)
                .with_own_routes(forwarding == Forwarding::Kernel),
        );
    }
}

/// Returns the dynamic neighbors that the next start needs: those that may retain this speaker's
/// routes.
pub fn remembered(speaker: &Speaker) -> BTreeSet<IpAddr> {
    let mut needed: BTreeSet<IpAddr> = speaker.awaited().into_iter().flatten().collect();
    for peer in speaker.peers() {
        let remote = peer.config.remote;
        match peer.dynamic {
            true if may_keep_routes(&peer) => drop(needed.insert(remote)),
            true => {}
            false => drop(needed.remove(&remote)),
        }
    }
    needed
}

/// Returns whether a neighbor retains this speaker's routes during a restart, or is restarting
/// itself and may do so.
fn may_keep_routes(peer: &PeerView<'_>) -> bool {
    let graceful = |params: &SessionParams| params.peer_graceful.is_some();
    peer.config.session.graceful_restart.is_some() && peer.params.is_none_or(graceful)
}
