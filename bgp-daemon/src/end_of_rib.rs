//! The End-of-RIB markers that established peers have not sent yet (RFC 4724 §2).

use std::collections::BTreeMap;

use bgp_io::bgp_proto::FamilySet;
use bgp_io::bgp_speaker::Event;
use bgp_io::rib::PeerId;

/// The families of each established peer whose End-of-RIB marker is awaited.
#[derive(Debug, Default)]
pub struct AwaitedEndOfRib(BTreeMap<PeerId, FamilySet>);

impl AwaitedEndOfRib {
    /// Applies a session event.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Up { peer, params, .. } => {
                self.0.insert(*peer, params.families);
            }
            Event::EndOfRib { peer, family, .. } => {
                if let Some(families) = self.0.get_mut(peer) {
                    families.remove(*family);
                }
            }
            Event::Down { peer, .. } => {
                self.0.remove(peer);
            }
            _ => {}
        }
    }

    /// Removes a peer.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.0.remove(&peer);
    }

    /// Returns whether a peer is established and has sent the markers of all its families.
    pub fn has_all_of(&self, peer: PeerId) -> bool {
        self.0
            .get(&peer)
            .is_some_and(|families| families.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use bgp_io::bgp_fsm::DownReason;
    use bgp_io::bgp_proto::{Family, SessionParams};

    use super::*;

    const PEER: PeerId = PeerId(1);

    fn up(families: &[Family]) -> Event {
        let families = families.iter().copied().collect();
        Event::Up {
            peer: PEER,
            name: String::new(),
            params: Box::new(SessionParams {
                families,
                ..SessionParams::default()
            }),
        }
    }

    fn marker(peer: PeerId, family: Family) -> Event {
        let name = String::new();
        Event::EndOfRib { peer, name, family }
    }

    #[test]
    fn peer_is_complete_after_the_marker_of_its_last_family() {
        let mut awaited = AwaitedEndOfRib::default();
        assert!(!awaited.has_all_of(PEER), "the session is not established");
        awaited.observe(&up(&[Family::IPV4_UNICAST, Family::IPV6_UNICAST]));
        assert!(!awaited.has_all_of(PEER));
        awaited.observe(&marker(PEER, Family::IPV4_UNICAST));
        awaited.observe(&marker(PEER, Family::IPV4_UNICAST));
        awaited.observe(&marker(PeerId(2), Family::IPV6_UNICAST));
        assert!(!awaited.has_all_of(PEER), "one family is missing");
        awaited.observe(&marker(PEER, Family::IPV6_UNICAST));
        assert!(awaited.has_all_of(PEER));
        assert!(
            !awaited.has_all_of(PeerId(2)),
            "its session is not established"
        );
    }

    #[test]
    fn new_session_of_a_peer_awaits_all_markers_again() {
        let mut awaited = AwaitedEndOfRib::default();
        awaited.observe(&up(&[Family::IPV4_UNICAST]));
        awaited.observe(&marker(PEER, Family::IPV4_UNICAST));
        awaited.observe(&Event::Down {
            peer: PEER,
            name: String::new(),
            reason: DownReason::TransportLost,
        });
        assert!(!awaited.has_all_of(PEER), "the session has ended");
        awaited.observe(&up(&[Family::IPV4_UNICAST]));
        assert!(
            !awaited.has_all_of(PEER),
            "a marker of the old session does not count"
        );
    }
}
