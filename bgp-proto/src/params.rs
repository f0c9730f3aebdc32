//! The parameters that the two OPENs of a session negotiated.

use alloc::vec::Vec;

use crate::asn::Asn;
use crate::family::FamilySet;
use crate::header::{MESSAGE_OCTETS_MAX, MESSAGE_OCTETS_MAX_EXTENDED};
use crate::id::RouterId;
use crate::open::{GracefulRestart, LongLivedEntry};

/// Whether the peer is in another AS or in the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerKind {
    /// eBGP: the peer is in another AS.
    #[default]
    External,
    /// iBGP: the peer is in the local AS.
    Internal,
}

/// The negotiated parameters of a session, as far as reading and writing its messages needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SessionParams {
    /// The local AS number on this session.
    pub local_asn: Asn,
    /// The peer's AS number: from its four-octet capability, else from its OPEN.
    pub peer_asn: Asn,
    /// The local BGP identifier.
    pub local_id: RouterId,
    /// The peer's BGP identifier.
    pub peer_id: RouterId,
    /// eBGP or iBGP.
    pub kind: PeerKind,
    /// Hold time in seconds: the smaller of both, 0 to disable it (RFC 4271 §4.2).
    pub hold_time_s: u16,
    /// Whether AS numbers in AS_PATH and AGGREGATOR have four octets (RFC 6793).
    pub as4: bool,
    /// Families that both sides advertised and that have a row.
    pub families: FamilySet,
    /// Families with path identifiers in received NLRI (RFC 7911).
    pub add_path_receive: FamilySet,
    /// Families with path identifiers in sent NLRI (RFC 7911).
    pub add_path_send: FamilySet,
    /// Whether extended messages were advertised: then the peer may send messages of up to 65535
    /// octets, whether it advertised them or not (RFC 8654 §4).
    pub extended_receive: bool,
    /// Whether it is allowed to send messages of up to 65535 octets: the peer advertised them (RFC 8654 §4)
    /// and the configuration has them.
    pub extended_send: bool,
    /// Whether the peer supports ROUTE-REFRESH (RFC 2918).
    pub route_refresh: bool,
    /// Whether both sides mark the borders of a refresh (RFC 7313).
    pub enhanced_route_refresh: bool,
    /// Whether IPv4 routes may have an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
    /// Whether an IPv4-mapped IPv6 next hop of an IPv6 unicast route is accepted. Off unless
    /// configured: the kernel cannot forward to such an address.
    pub v4_mapped_next_hop: bool,
    /// The peer's graceful restart capability, if it sent one (RFC 4724). Its N bit is set if both sides
    /// set it (RFC 8538 §2).
    pub peer_graceful: Option<GracefulRestart>,
    /// The peer's long-lived graceful restart capability (RFC 9494 §3), restricted to the families of
    /// the session, of each family the last entry. `None` without a graceful restart capability, too.
    pub peer_long_lived: Option<Vec<LongLivedEntry>>,
}

impl SessionParams {
    /// Returns the length of the longest message that the peer may send, header included, in
    /// octets. RFC 8654 §4
    pub const fn receive_octets_max(&self) -> usize {
        octets_max(self.extended_receive)
    }

    /// Returns the length of the longest message that the peer may be sent, header included, in
    /// octets. RFC 8654 §4
    pub const fn send_octets_max(&self) -> usize {
        octets_max(self.extended_send)
    }
}

const fn octets_max(extended: bool) -> usize {
    if extended {
        MESSAGE_OCTETS_MAX_EXTENDED
    } else {
        MESSAGE_OCTETS_MAX
    }
}
