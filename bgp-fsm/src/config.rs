//! The configuration of one session by the operator.

use alloc::{collections::BTreeMap, string::String};

use bgp_proto::{Asn, Family, FamilySet, RouterId};

use crate::limits::HANDSHAKE_S;

/// The autonomous systems that the peer may belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAs {
    /// This one.
    Exactly(Asn),
    /// The local one.
    Internal,
    /// Any except the local one.
    External,
    /// Any at all.
    Any,
}

impl PeerAs {
    /// Returns whether a peer in `asn` is accepted by a speaker in `local`.
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
#[non_exhaustive]
pub struct SessionConfig {
    /// Local autonomous system on this session.
    pub local_asn: Asn,
    /// Local BGP Identifier (RFC 6286).
    pub local_id: RouterId,
    /// The autonomous system the peer must be in.
    pub peer_asn: PeerAs,
    /// Whether the session only accepts the peer's connection and never dials.
    pub passive: bool,
    /// The proposed hold time, in seconds: 0 (no keepalives) or at least 3 (RFC 4271 §4.2).
    pub hold_time_s: u16,
    /// The shortest hold time in the peer's OPEN that is accepted, in seconds: never less than 3. 0,
    /// for no keepalives, is always accepted (RFC 4271 §4.2).
    pub min_hold_time_s: u16,
    /// The KEEPALIVE interval, in seconds. `None` is a third of the negotiated hold time, which is
    /// also the maximum (RFC 4271 §4.4, §10).
    pub keepalive_s: Option<u16>,
    /// The longest duration of a dial and the wait before the next one, in seconds.
    pub connect_retry_s: u16,
    /// How long a connection may take from its transport to Established, in seconds, not counting
    /// `open_delay_s`.
    pub handshake_s: u16,
    /// The least and greatest idle hold after an error, in seconds: it doubles with each failure
    /// in a row.
    pub idle_hold_s: (u16, u16),
    /// How long to wait for the peer's OPEN before the local one is sent, in seconds (RFC 4271
    /// §8.1.1, DelayOpenTime); 0 sends it at once.
    pub open_delay_s: u16,
    /// How long the peer may refuse to read, in seconds; 0 is forever. `None` is the recommendation
    /// of RFC 9687 §3.1: twice the hold time, at least eight minutes.
    pub send_hold_s: Option<u32>,
    /// The offered families.
    pub families: FamilySet,
    /// The families in which several paths per prefix can be received (RFC 7911).
    pub add_path_receive: FamilySet,
    /// The families in which several paths per prefix can be sent (RFC 7911).
    pub add_path_send: FamilySet,
    /// The offered graceful restart capability (RFC 4724), if any.
    pub graceful_restart: Option<GracefulRestartConfig>,
    /// Whether a session with a peer that has this, too, is established only when the path to the peer is up
    /// (draft-ietf-idr-bgp-bfd-strict-mode §6). The wait ends with [`Self::handshake_s`].
    pub bfd_strict: bool,
    /// Whether the N bit of that capability is set: graceful restart applies after a NOTIFICATION, too
    /// (RFC 8538). Effective if both sides set it.
    pub graceful_notification: bool,
    /// The families with long-lived graceful restart (RFC 9494), and the offered long-lived stale time
    /// of each in seconds. Not offered without [`Self::graceful_restart`].
    pub long_lived_stale_time_s: BTreeMap<Family, u32>,
    /// Whether messages of up to 65,535 octets are offered (RFC 8654).
    pub extended_messages: bool,
    /// Whether IPv4 routes with IPv6 next hops are offered (RFC 8950).
    pub extended_next_hop: bool,
    /// The local name in the FQDN capability, if any (draft-walton-bgp-hostname-capability).
    pub hostname: Option<String>,
}

impl SessionConfig {
    /// Returns the default configuration of a speaker with this AS number and BGP Identifier.
    #[must_use]
    pub fn new(local_asn: Asn, local_id: RouterId) -> Self {
        Self {
            local_asn,
            local_id,
            ..Self::default()
        }
    }

    /// Returns the configuration after `change`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
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
            bfd_strict: false,
            graceful_notification: true,
            long_lived_stale_time_s: BTreeMap::new(),
            extended_messages: false,
            extended_next_hop: false,
            hostname: None,
        }
    }
}

/// The graceful restart capability in the OPEN (RFC 4724 §3).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GracefulRestartConfig {
    /// The restart time for which the peer must retain the routes, in seconds; at most 4095.
    pub time_s: u16,
    /// The Restart State bit: whether this speaker has just restarted, so that the peer must not
    /// wait for its End-of-RIB marker.
    pub restarting: bool,
    /// The families with forwarding state preserved over the restart.
    pub families_forwarding: FamilySet,
}

impl GracefulRestartConfig {
    /// Returns the configuration of a speaker that announces this Restart Time, in seconds, and no
    /// preserved forwarding state.
    #[must_use]
    pub fn new(time_s: u16) -> Self {
        Self {
            time_s,
            ..Self::default()
        }
    }

    /// Returns the configuration with these families as those whose forwarding state is preserved.
    #[must_use]
    pub const fn with_forwarding(mut self, families: FamilySet) -> Self {
        self.families_forwarding = families;
        self
    }
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
