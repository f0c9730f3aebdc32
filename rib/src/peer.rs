//! Peers in the tables.

use core::fmt;
use core::net::IpAddr;

use alloc::vec::Vec;

use bgp_proto::{Asn, AttrCodes, ClusterId, FamilySet, Prefix, RouterId};

use crate::eligible::AsPathChecks;
use crate::origin_rules::OriginRules;
use crate::policy::Policy;
use crate::role::Role;

/// The number of a peer within one speaker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u16);

impl PeerId {
    /// This speaker itself: the source of its own routes.
    pub const LOCAL: Self = Self(0);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer{}", self.0)
    }
}

/// The properties of a peer that the tables depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its role.
    pub role: Role,
    /// Its AS number.
    pub asn: Asn,
    /// Its BGP Identifier.
    pub id: RouterId,
    /// Its address.
    pub address: IpAddr,
    /// The local address of the session: a next hop equal to it is this speaker.
    pub local: Option<IpAddr>,
    /// The import policy.
    pub import: Policy,
    /// The local AS number of the session: the speaker's, or another one for this peer (RFC 7705).
    pub local_asn: Asn,
    /// The restrictions on the AS_PATHs of its routes.
    pub as_path: AsPathChecks,
    /// The attributes restricted to an administrative domain that are accepted from it although it
    /// is in another AS.
    pub domain: AttrCodes,
    /// Its cluster, if it is a client (RFC 4456 §7).
    pub cluster_id: ClusterId,
    /// The subnets of the link to an external peer that is one hop away: its next hops must be its
    /// own address, in one of these subnets, or link-local (RFC 4271 §5.1.3 and §6.3). `None` if
    /// every next hop is accepted.
    pub link: Option<Vec<Prefix>>,
    /// The validation of the origin of its paths.
    pub origin: OriginRules,
}

/// The treatment of a peer's paths when its session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownMode {
    /// All are removed.
    Flush,
    /// Paths of these families are retained and marked stale until the peer has sent them again
    /// (RFC 4724 §4.2); paths that are already stale, and those of all other families, are removed.
    Stale {
        /// These families.
        kept: FamilySet,
        /// The ones of `kept` in which paths that are already stale are retained, too (RFC 9494 §4.2).
        long_lived: FamilySet,
    },
}

/// The maximum number of paths of a peer in a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathLimit {
    /// The maximum.
    pub max: u32,
    /// Whether excess announcements are rejected, rather than only reported.
    pub refuse: bool,
}

impl PathLimit {
    /// Returns a limit of `max` paths; beyond it, paths are refused if `refuse` is set.
    #[must_use]
    pub const fn new(max: u32, refuse: bool) -> Self {
        Self { max, refuse }
    }
}

/// Counters of one peer in one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCounters {
    /// Paths held from it, including those that are about to be swept.
    pub paths: u32,
    /// Of these, paths that the import policy accepted.
    pub accepted: u32,
    /// Of the accepted, paths that can never be used in their current form: loops, invalid next
    /// hops.
    pub ineligible: u32,
    /// Of the ineligible, paths whose origin is not confirmed ([`crate::OriginCheck`]).
    pub unconfirmed: u32,
    /// Announcements since the peer was first seen.
    pub reach: u64,
    /// Withdrawals since the peer was first seen.
    pub unreach: u64,
    /// Announcements rejected for its [`PathLimit`] since the peer was first seen.
    pub limited: u64,
}
