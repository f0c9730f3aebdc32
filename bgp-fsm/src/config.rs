//! What an operator decides about one session.

use alloc::string::String;

use bgp_proto::{Asn, FamilySet, RouterId};

use crate::limits::HANDSHAKE_S;

/// Which autonomous systems the peer may belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAs {
    /// This one.
    Exactly(Asn),
    /// Ours.
    Internal,
    /// Any but ours.
    External,
    /// Any at all.
    Any,
}

impl PeerAs {
    /// Whether a peer in `asn` is the one expected by a speaker in `local`.
    #[must_use]
    pub fn admits(self, asn: Asn, local: Asn) -> bool {
        match self {
            Self::Exactly(expected) => asn == expected,
            Self::Internal => asn == local,
            Self::External => asn != local,
            Self::Any => true,
        }
    }
}

/// The configuration of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Our autonomous system on this session.
    pub local_asn: Asn,
    /// Our BGP Identifier (RFC 6286).
    pub local_id: RouterId,
    /// The autonomous system the peer must be in.
    pub peer_asn: PeerAs,
    /// Whether we only wait for the peer's connection and never dial.
    pub passive: bool,
    /// The hold time we propose, in seconds: 0 (no keepalives) or at least 3 (RFC 4271 §4.2).
    pub hold_time_s: u16,
    /// The shortest hold time in the peer's OPEN that is accepted, in seconds: never less than 3. 0,
    /// for no keepalives, is always accepted (RFC 4271 §4.2).
    pub min_hold_time_s: u16,
    /// How often we say that we are alive, in seconds. `None` is a third of the hold time that both
    /// settle on, which is the most it ever is (RFC 4271 §4.4, §10).
    pub keepalive_s: Option<u16>,
    /// How long a dial may take and how long we wait until the next one, in seconds.
    pub connect_retry_s: u16,
    /// How long a connection may take from its transport to Established, in seconds, not counting
    /// `open_delay_s`.
    pub handshake_s: u16,
    /// The least and greatest idle hold after an error, in seconds: it doubles with each failure
    /// in a row.
    pub idle_hold_s: (u16, u16),
    /// How long we wait for the peer's OPEN before we send ours, in seconds (RFC 4271 §8.1.1,
    /// DelayOpenTime); 0 sends it at once.
    pub open_delay_s: u16,
    /// How long the peer may refuse to read, in seconds; 0 is for ever. `None` is what RFC 9687
    /// §3.1 recommends: twice the hold time, at least eight minutes.
    pub send_hold_s: Option<u32>,
    /// The families we offer.
    pub families: FamilySet,
    /// The families in which we can receive several paths per prefix (RFC 7911).
    pub add_path_receive: FamilySet,
    /// The families in which we would send several paths per prefix (RFC 7911).
    pub add_path_send: FamilySet,
    /// What we say about graceful restart (RFC 4724), if anything.
    pub graceful_restart: Option<GracefulRestartConfig>,
    /// Whether we offer messages of up to 65,535 octets (RFC 8654).
    pub extended_messages: bool,
    /// Whether we offer IPv4 routes with IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// The name we give of ourselves, if any (draft-walton-bgp-hostname-capability).
    pub hostname: Option<String>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            local_asn: Asn(0),
            local_id: RouterId(core::net::Ipv4Addr::UNSPECIFIED),
            peer_asn: PeerAs::Internal,
            passive: false,
            hold_time_s: 90,
            min_hold_time_s: 3,
            keepalive_s: None,
            connect_retry_s: 5,
            handshake_s: HANDSHAKE_S,
            idle_hold_s: (1, 60),
            open_delay_s: 0,
            send_hold_s: None,
            families: FamilySet::default(),
            add_path_receive: FamilySet::default(),
            add_path_send: FamilySet::default(),
            graceful_restart: None,
            extended_messages: false,
            extended_next_hop: false,
            hostname: None,
        }
    }
}

/// What our OPEN says about graceful restart (RFC 4724 §3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GracefulRestartConfig {
    /// How long the peer shall keep our routes after it lost us, in seconds; at most 4095.
    pub time_s: u16,
    /// Whether we have just restarted and the peer need not wait for our End-of-RIB marker.
    pub restarting: bool,
    /// The families whose forwarding state outlived our restart.
    pub families_forwarding: FamilySet,
}

impl Default for GracefulRestartConfig {
    fn default() -> Self {
        Self {
            time_s: 120,
            restarting: false,
            families_forwarding: FamilySet::default(),
        }
    }
}
