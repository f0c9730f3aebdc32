//! The steps of the decision process, in order.

use core::cmp::Ordering;
use core::fmt;
use core::net::IpAddr;

use bgp_proto::{Asn, RouterId};

/// The configurable rules of the decision process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecisionRules {
    /// Compare MULTI_EXIT_DISC between routes from different neighboring ASes, too.
    pub always_compare_med: bool,
}

impl DecisionRules {
    /// The rules of the RFCs.
    pub const DEFAULT: Self = Self {
        always_compare_med: false,
    };
}

/// The inputs of the decision process for one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Whether the path may be used at all (RFC 4271 §9.1.2).
    pub eligible: bool,
    /// Whether it has LLGR_STALE, and is less preferred than any path without it (RFC 9494 §4.3).
    pub long_lived_stale: bool,
    /// Whether it is locally originated.
    pub local: bool,
    /// Degree of preference: LOCAL_PREF, or its substitute (RFC 4271 §9.1.1).
    pub local_pref: u32,
    /// Length of AS_PATH (RFC 4271 §9.1.2.2 a).
    pub as_path_length: u32,
    /// ORIGIN, the smaller the better (RFC 4271 §9.1.2.2 b).
    pub origin: u8,
    /// The neighboring AS of the route; 0 if it is unknown.
    pub neighbor_as: Asn,
    /// MULTI_EXIT_DISC, 0 if absent (RFC 4271 §9.1.2.2 c).
    pub med: u32,
    /// Whether it was received from an external peer (RFC 4271 §9.1.2.2 d).
    pub external: bool,
    /// Interior cost of the next hop (RFC 4271 §9.1.2.2 e).
    pub igp_cost: u32,
    /// ORIGINATOR_ID, or the BGP Identifier of the peer (RFC 4271 §9.1.2.2 f, RFC 4456 §9).
    pub id: RouterId,
    /// Length of CLUSTER_LIST (RFC 4456 §9).
    pub cluster_list_length: u32,
    /// The peer's address (RFC 4271 §9.1.2.2 g).
    pub address: IpAddr,
    /// The path identifier: distinguishes paths of one peer, for which no RFC defines an order.
    pub path_id: u32,
    /// Identifies the next hop: paths of a multipath set have distinct ones.
    pub next_hop: u32,
}

/// The step of the decision process at which a path lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Step {
    /// It could not be used at all.
    Ineligible,
    /// It has LLGR_STALE, and another path does not (RFC 9494 §4.3).
    LongLivedStale,
    /// There is a locally originated route.
    Local,
    /// Lower LOCAL_PREF (RFC 4271 §9.1.1).
    LocalPref,
    /// Longer AS_PATH (RFC 4271 §9.1.2.2 a).
    AsPathLength,
    /// Higher ORIGIN (RFC 4271 §9.1.2.2 b).
    Origin,
    /// Higher MULTI_EXIT_DISC than a path of the same neighboring AS (RFC 4271 §9.1.2.2 c).
    Med,
    /// Internal, while there is an external one (RFC 4271 §9.1.2.2 d).
    EbgpOverIbgp,
    /// Farther next hop (RFC 4271 §9.1.2.2 e).
    IgpCost,
    /// Higher BGP Identifier or ORIGINATOR_ID (RFC 4271 §9.1.2.2 f, RFC 4456 §9).
    BgpIdentifier,
    /// Longer CLUSTER_LIST (RFC 4456 §9).
    ClusterListLength,
    /// Higher peer address (RFC 4271 §9.1.2.2 g).
    PeerAddress,
    /// Higher path identifier.
    PathId,
}

impl Step {
    /// Every step, in the order in which they are taken.
    pub const ALL: [Self; 13] = [
        Self::Ineligible,
        Self::LongLivedStale,
        Self::Local,
        Self::LocalPref,
        Self::AsPathLength,
        Self::Origin,
        Self::Med,
        Self::EbgpOverIbgp,
        Self::IgpCost,
        Self::BgpIdentifier,
        Self::ClusterListLength,
        Self::PeerAddress,
        Self::PathId,
    ];

    /// Returns the reason of a loss at this step, in a few words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ineligible => "not eligible",
            Self::LongLivedStale => "long-lived stale",
            Self::Local => "own route preferred",
            Self::LocalPref => "lower LOCAL_PREF",
            Self::AsPathLength => "longer AS_PATH",
            Self::Origin => "higher ORIGIN",
            Self::Med => "higher MULTI_EXIT_DISC",
            Self::EbgpOverIbgp => "external path preferred",
            Self::IgpCost => "farther next hop",
            Self::BgpIdentifier => "higher BGP Identifier",
            Self::ClusterListLength => "longer CLUSTER_LIST",
            Self::PeerAddress => "higher peer address",
            Self::PathId => "higher path identifier",
        }
    }

    /// Returns the compared value of the step; the lowest wins. For MULTI_EXIT_DISC it is the
    /// number alone: the caller restricts the comparison to paths of one AS.
    pub(super) fn key(self, path: &Candidate) -> u128 {
        match self {
            Self::Ineligible => u128::from(!path.eligible),
            Self::LongLivedStale => u128::from(path.long_lived_stale),
            Self::Local => u128::from(!path.local),
            Self::LocalPref => u128::from(!path.local_pref),
            Self::AsPathLength => u128::from(path.as_path_length),
            Self::Origin => u128::from(path.origin),
            Self::Med => u128::from(path.med),
            Self::EbgpOverIbgp => u128::from(!path.external),
            Self::IgpCost => u128::from(path.igp_cost),
            Self::BgpIdentifier => u128::from(u32::from(path.id)),
            Self::ClusterListLength => u128::from(path.cluster_list_length),
            // No peer has an IPv4-mapped address, so the two versions do not mix.
            Self::PeerAddress => match path.address {
                IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
                IpAddr::V6(address) => address.to_bits(),
            },
            Self::PathId => u128::from(path.path_id),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// Compares two paths step by step; `Less` is the better one. [`select`](super::select) uses this
/// order as long as paths of one neighboring AS do not differ in MULTI_EXIT_DISC (or the rules
/// always compare it). If they do, the better of two paths depends on the others.
pub(crate) fn compare(one: &Candidate, two: &Candidate, rules: &DecisionRules) -> Ordering {
    for step in Step::ALL {
        if step == Step::Med && !rules.always_compare_med && !same_neighbor(one, two) {
            continue;
        }
        match step.key(one).cmp(&step.key(two)) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
    }
    Ordering::Equal
}

/// Returns whether both paths came from the same neighboring AS (RFC 4271 §9.1.2.2 c).
fn same_neighbor(one: &Candidate, two: &Candidate) -> bool {
    one.neighbor_as == two.neighbor_as && one.neighbor_as != Asn::ZERO
}
