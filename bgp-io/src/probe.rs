//! Probes of established connections, and the promotion of held ones.

use bgp_speaker::Input;
use bgp_speaker::bgp_fsm::{self, Conn};
use bgp_speaker::rib::PeerId;

use crate::Io;
use crate::link::Stage;
use crate::liveness::Baseline;
use crate::sockopt::tcp_figures;

impl Io {
    /// Compares the figures of a probed connection. If the kernel returns no figures nothing is
    /// reported, and the hold timer decides.
    pub(crate) fn probe(&mut self, peer: PeerId, conn: Conn, begins: bool) {
        let now = self.clock.now();
        let token = self.places.get(&(peer, conn)).copied();
        let Some(link) = token.and_then(|token| self.link(token)) else {
            return;
        };
        let Stage::Open(stream) = &link.stage else {
            return;
        };
        if begins {
            link.baseline = Baseline::take(stream, now).ok();
            return;
        }
        let (Some(baseline), Ok(figures)) = (link.baseline, tcp_figures(stream)) else {
            return;
        };
        let probed = bgp_fsm::Input::Probed(baseline.compare(now, &figures));
        // The caller's loop takes the outputs that follow.
        self.speaker.handle(now, Input::Session(peer, probed));
    }

    /// Makes the held connection of a peer its inbound one.
    pub(crate) fn promote(&mut self, peer: PeerId) {
        let Some(token) = self.places.remove(&(peer, Conn::Held)) else {
            return;
        };
        let before = self.places.insert((peer, Conn::Inbound), token);
        debug_assert!(before.is_none(), "a transport takes the place of another");
        if let Some(link) = self.link(token) {
            link.conn = Conn::Inbound;
            // Octets that were read but not processed are due soon.
            link.wake();
        }
        // The caller's loop takes the outputs that follow.
        let promoted = Input::Session(peer, bgp_fsm::Input::Promoted);
        self.speaker.handle(self.clock.now(), promoted);
    }
}
