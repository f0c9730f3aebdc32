//! Peers as the tables know them.

use core::fmt;
use core::net::IpAddr;

use alloc::vec::Vec;

use bgp_proto::{Asn, AttrCodes, ClusterId, FamilySet, Prefix, RouterId};

use crate::eligible::AsPathChecks;
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

/// What the tables need to know of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// What it is to us.
    pub role: Role,
    /// Its AS number.
    pub asn: Asn,
    /// Its BGP Identifier.
    pub id: RouterId,
    /// Its address.
    pub address: IpAddr,
    /// Our address on the session: a next hop equal to it is ourselves.
    pub local: Option<IpAddr>,
    /// What we accept from it.
    pub import: Policy,
    /// Our AS number on the session: the speaker's, or another one for this peer (RFC 7705).
    pub local_asn: Asn,
    /// Which AS_PATHs its routes may have.
    pub as_path: AsPathChecks,
    /// The attributes of an administrative domain that are accepted from it although it is in
    /// another AS.
    pub domain: AttrCodes,
    /// The cluster it belongs to, if it is our client (RFC 4456 §7).
    pub cluster_id: ClusterId,
    /// The subnets of the link to an external peer that is one hop away: its next hops are its own
    /// address or lie in a subnet of their IP version (RFC 4271 §5.1.3). Without a subnet of that
    /// version every next hop is accepted.
    pub link: Vec<Prefix>,
}

/// What becomes of a peer's paths when its session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownMode {
    /// They all go.
    Flush,
    /// Those of these families stay and are marked stale until the peer has sent them again
    /// (RFC 4724 §4.2); those already stale go, and so do all other families.
    Stale(FamilySet),
}

/// How many paths a peer may have in a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimit {
    /// So many.
    pub max: u32,
    /// Whether announcements beyond it are refused, rather than only noted.
    pub refuse: bool,
}

/// Counts of one peer in one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Paths held from it, those that are about to be swept included.
    pub paths: u32,
    /// Of these, paths that the import policy accepted.
    pub accepted: u32,
    /// Of the accepted, paths that can never be used as they are: loops, bad next hops.
    pub ineligible: u32,
    /// Announcements taken in since the peer was first seen.
    pub reach: u64,
    /// Withdrawals taken in since the peer was first seen.
    pub unreach: u64,
    /// Announcements refused for its [`PathLimit`] since the peer was first seen.
    pub limited: u64,
}
