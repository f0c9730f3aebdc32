//! Which paths may not take part in the decision process, and why (RFC 4271 §9.1.2).

use core::fmt;
use core::net::IpAddr;

use bgp_proto::Prefix;

use crate::attributes::{AttrId, times};
use crate::peer::{PeerInfo, Role};
use crate::shared::Shared;

/// Which AS_PATHs the routes of a peer may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsPathChecks {
    /// How often our own AS number, the speaker's or that of the session, may be in it: where
    /// several sites of one AS meet in another, more than never (RFC 4271 §9.1.2).
    pub own_as_max: u8,
    /// Whether it may have an AS_SET or AS_CONFED_SET (RFC 9774).
    pub allow_as_sets: bool,
    /// Whether the first AS of an external peer's routes must be its own (RFC 4271 §6.3). A route
    /// server does not prepend its AS (RFC 7947 §2.2.2.1).
    pub enforce_first_as: bool,
}

/// Why a path cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Ineligible {
    /// The import policy refused it; without a policy that is so for all routes of external peers
    /// (RFC 8212 §2).
    Policy = 1,
    /// Our AS number is in the AS_PATH, more often than the peer's routes may have it
    /// (RFC 4271 §9.1.2).
    AsLoop = 2,
    /// The ORIGINATOR_ID is ours: a reflector gave us our own route back (RFC 4456 §8).
    OwnOriginator = 3,
    /// A CLUSTER_ID of ours is in the CLUSTER_LIST (RFC 4456 §8).
    ClusterLoop = 4,
    /// The next hop is one of our own addresses (RFC 4271 §5.1.3).
    OwnNextHop = 5,
    /// The next hop is not resolved (RFC 4271 §9.1.2).
    NextHopUnresolved = 6,
    /// Its peer has gone; the path is about to be swept.
    PeerGone = 7,
    /// An AS_SET or AS_CONFED_SET is in the AS_PATH, and the peer's routes may have none
    /// (RFC 9774 §3).
    AsSet = 8,
    /// The peer is external and one hop away, and the next hop is not on its link
    /// (RFC 4271 §5.1.3).
    NextHopOffLink = 9,
    /// The first AS in the AS_PATH is not that of the external peer (RFC 4271 §6.3).
    FirstAs = 10,
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
            7 => Self::PeerGone,
            8 => Self::AsSet,
            9 => Self::NextHopOffLink,
            10 => Self::FirstAs,
            _ => return None,
        })
    }

    /// A few words for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Policy => "refused by import policy",
            Self::AsLoop => "own AS in AS_PATH",
            Self::OwnOriginator => "own ORIGINATOR_ID",
            Self::ClusterLoop => "own CLUSTER_ID in CLUSTER_LIST",
            Self::OwnNextHop => "next hop is ourselves",
            Self::NextHopUnresolved => "next hop not resolved",
            Self::PeerGone => "peer gone",
            Self::AsSet => "AS_SET in AS_PATH",
            Self::NextHopOffLink => "next hop not on the link",
            Self::FirstAs => "first AS is not the neighbor's",
        }
    }
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// The reason, if any, that holds as long as a path with these attributes does. It looks at what
/// is known of the set, not at the set itself: that would have to be unpacked.
pub(crate) fn evaluate(shared: &Shared, set: AttrId, peer: &PeerInfo) -> Option<Ineligible> {
    let config = &shared.config;
    let ranks = shared.interner.ranks(set);
    // RFC 9774 §3: treated as withdrawn.
    if ranks.has_as_set && !peer.as_path.allow_as_sets {
        return Some(Ineligible::AsSet);
    }
    // RFC 4271 §6.3, RFC 7606 §7.2: treated as withdrawn. A path that begins with a set has no
    // first AS.
    let is_enforced = peer.as_path.enforce_first_as && peer.role == Role::External;
    if is_enforced && ranks.neighbour_as != peer.asn {
        return Some(Ineligible::FirstAs);
    }
    // RFC 4271 §9.1.2; inside an AS the number has no business in the path either.
    if ranks.own_as > peer.as_path.own_as_max || has_session_as(shared, set, peer) {
        return Some(Ineligible::AsLoop);
    }
    // RFC 4456 §8. Reflectors that keep one copy of octets for many clients do send a client its
    // own routes back: this is no error and nothing to count.
    if ranks.originator != 0 && ranks.originator == u32::from(config.router_id) {
        return Some(Ineligible::OwnOriginator);
    }
    let mut clusters = shared.interner.cluster_list(set);
    if clusters.any(|id| config.cluster_ids.contains(&id)) {
        return Some(Ineligible::ClusterLoop);
    }
    let next_hop = shared.next_hops.address(ranks.next_hop)?;
    if peer.local == Some(next_hop) {
        return Some(Ineligible::OwnNextHop);
    }
    // A peer on this machine has the machine's addresses, too: they lead to it.
    if next_hop == peer.address || config.own_addresses.contains(&peer.address) {
        return None;
    }
    if config.own_addresses.contains(&next_hop) {
        return Some(Ineligible::OwnNextHop);
    }
    is_off_link(peer, next_hop).then_some(Ineligible::NextHopOffLink)
}

/// Returns whether a next hop lies outside all subnets of the peer's link. RFC 4271 §5.1.3
fn is_off_link(peer: &PeerInfo, next_hop: IpAddr) -> bool {
    let of_version = |subnet: &&Prefix| subnet.addr().is_ipv4() == next_hop.is_ipv4();
    let mut subnets = peer.link.iter().filter(of_version).peekable();
    // A link-local address is on the link it came over.
    let is_link_local = matches!(next_hop, IpAddr::V6(v6) if v6.is_unicast_link_local());
    subnets.peek().is_some() && !is_link_local && !subnets.any(|subnet| subnet.contains(next_hop))
}

/// Returns whether our AS number of the session, where it is another than the speaker's, is in the
/// AS_PATH more often than it may be: a route that left us by this number has come back.
fn has_session_as(shared: &Shared, set: AttrId, peer: &PeerInfo) -> bool {
    peer.local_asn != shared.config.local_asn
        && times(&shared.interner.get(set).as_path, peer.local_asn) > peer.as_path.own_as_max
}
