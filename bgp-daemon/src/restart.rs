//! What a speaker is told of its former self, and what it leaves to its next one. Pure: whoever runs
//! a speaker without this crate's loop, as the simulator does, restarts it in the same way.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use bgp_io::Speaker;
use bgp_io::bgp_proto::{FamilySet, SessionParams};
use bgp_io::bgp_speaker::{PeerView, Restart};

use crate::Forwarding;

/// Tells a speaker, before it starts, whether it has been here before: `former` are the dynamic
/// neighbors of its former self if it was, and `wait` is how long the choice of routes is deferred
/// then (RFC 4724 §4.1).
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
        speaker.restarted(Restart {
            wait,
            dynamic,
            own_routes: forwarding == Forwarding::Kernel,
        });
    }
}

/// The dynamic neighbors that the next start is to know: those that may keep our routes
/// meanwhile.
pub fn remembered(speaker: &Speaker) -> BTreeSet<IpAddr> {
    let dynamic = speaker
        .peers()
        .filter(|peer| peer.dynamic && may_keep_routes(peer));
    let present = dynamic.map(|peer| peer.config.remote);
    let configured = speaker.peers().filter(|peer| !peer.dynamic);
    let configured: BTreeSet<IpAddr> = configured.map(|peer| peer.config.remote).collect();
    let awaited = speaker.awaited().into_iter().flatten();
    let awaited = awaited.filter(|address| !configured.contains(address));
    present.chain(awaited).collect()
}

/// Whether a neighbor keeps our routes while we are away, or is away itself and may do so.
fn may_keep_routes(peer: &PeerView<'_>) -> bool {
    let graceful = |params: &SessionParams| params.peer_graceful.is_some();
    peer.config.session.graceful_restart.is_some() && peer.params.is_none_or(graceful)
}
