//! Paths that are excluded from the decision process, and why (RFC 4271 §9.1.2).

use core::fmt;

/// The restrictions on the AS_PATHs of a peer's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsPathChecks {
    /// How often the local AS number, the speaker's or that of the session, may occur: more than 0
    /// where several sites of one AS are connected through another (RFC 4271 §9.1.2).
    pub own_as_max: u8,
    /// Whether an AS_SET or AS_CONFED_SET is accepted (RFC 9774).
    pub allow_as_sets: bool,
    /// Whether the first AS of an external peer's routes must be its own (RFC 4271 §6.3); the
    /// default. A route server does not prepend its AS (RFC 7947 §2.2.2.1).
    pub enforce_first_as: bool,
    /// The maximum length of the path, counted as in the decision process (RFC 4271 §9.1.2.2); 0 for
    /// no limit.
    pub length_max: u16,
}

impl Default for AsPathChecks {
    fn default() -> Self {
        Self {
            own_as_max: 0,
            allow_as_sets: false,
            enforce_first_as: true,
            length_max: 0,
        }
    }
}

/// Why a path cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Ineligible {
    /// The import policy rejected it; without a policy this applies to all routes of external peers
    /// (RFC 8212 §2).
    Policy = 1,
    /// The local AS number is in the AS_PATH, more often than the peer's routes may have it (RFC
    /// 4271 §9.1.2).
    AsLoop = 2,
    /// The ORIGINATOR_ID is the local BGP Identifier: a reflector returned the speaker's own route
    /// (RFC 4456 §8).
    OwnOriginator = 3,
    /// A local CLUSTER_ID is in the CLUSTER_LIST (RFC 4456 §8).
    ClusterLoop = 4,
    /// The next hop is a local address (RFC 4271 §5.1.3).
    OwnNextHop = 5,
    /// The next hop is not resolved (RFC 4271 §9.1.2).
    NextHopUnresolved = 6,
    /// Its peer is disconnected; the path is about to be swept.
    PeerDown = 7,
    /// AS_PATH has an AS_SET or AS_CONFED_SET, which the peer's routes must not have (RFC 9774 §3).
    AsSet = 8,
    /// The peer is external and one hop away, and the next hop is not on its link
    /// (RFC 4271 §5.1.3).
    NextHopOffLink = 9,
    /// The first AS in the AS_PATH is not that of the external peer (RFC 4271 §6.3).
    FirstAs = 10,
    /// AS_PATH is longer than the limit of the peer.
    AsPathTooLong = 11,
    /// Its origin is not confirmed: see [`crate::OriginCheck`].
    Unconfirmed = 12,
    /// It is stale, and its origin has failed, or another peer has withdrawn the origin's routes: see
    /// [`crate::Rib::fail_origin`].
    OriginFailed = 13,
}

impl Ineligible {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Policy,
            2 => Self::AsLoop,
            3 => Self::OwnOriginator,
            4 => Self::ClusterLoop,
            5 => Self::OwnNextHop,
            6 => Self::NextHopUnresolved,
            7 => Self::PeerDown,
            8 => Self::AsSet,
            9 => Self::NextHopOffLink,
            10 => Self::FirstAs,
            11 => Self::AsPathTooLong,
            12 => Self::Unconfirmed,
            13 => Self::OriginFailed,
            _ => return None,
        })
    }

    /// Returns a short text for operators.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Policy => "refused by import policy",
            Self::AsLoop => "own AS in AS_PATH",
            Self::OwnOriginator => "own ORIGINATOR_ID",
            Self::ClusterLoop => "own CLUSTER_ID in CLUSTER_LIST",
            Self::OwnNextHop => "next hop is ourselves",
            Self::NextHopUnresolved => "next hop not resolved",
            Self::PeerDown => "peer disconnected",
            Self::AsSet => "AS_SET in AS_PATH",
            Self::NextHopOffLink => "next hop not on the link",
            Self::FirstAs => "first AS is not the neighbor's",
            Self::AsPathTooLong => "AS_PATH too long",
            Self::Unconfirmed => "origin not confirmed",
            Self::OriginFailed => "stale, and its origin has failed or withdrawn it",
        }
    }
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

#[cfg(test)]
mod tests {
    use std::{format, vec::Vec};

    use super::*;

    #[test]
    fn page_of_symptoms_lists_every_reason() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/symptoms.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        let reasons: Vec<_> = (1..=u8::MAX).map_while(Ineligible::from_code).collect();
        assert!(reasons.contains(&Ineligible::OriginFailed));
        for reason in reasons {
            assert!(page.contains(&format!("`{reason}")), "{reason}");
        }
    }
}
