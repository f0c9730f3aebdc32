//! The octets that a speaker holds, in the accounts of its peers and groups.

use bgp_fsm::Session;
use rib::{PeerId, Rib};

/// The octets in the accounts of a speaker. Messages that wait for several peers of a group are in
/// the account of each, and in that of the group as long as it keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Octets {
    /// The octets of all peers.
    pub peers: PeerOctets,
    /// The octets in the rings and feeds of all groups.
    pub groups: usize,
}

/// The octets in the account of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerOctets {
    /// The octets of its received routes in the tables: see [`rib::Rib::octets`].
    pub received: usize,
    /// The octets that wait for its socket.
    pub queued: usize,
}

impl PeerOctets {
    pub(crate) fn of(id: PeerId, session: &Session, rib: &Rib) -> Self {
        Self {
            received: rib.octets(id),
            queued: session.queued_octets(),
        }
    }
}
