//! The path attributes of a route as one value.

use alloc::vec::Vec;

use crate::attr::aggregator::Aggregator;
use crate::attr::as_path::AsPath;
use crate::attr::code::AttrCode;
use crate::attr::next_hop::NextHop;
use crate::attr::origin::Origin;
use crate::attr::unknown::RawAttribute;
use crate::community::{Community, ExtendedCommunity, LargeCommunity};
use crate::id::{ClusterId, RouterId};

/// The path attributes of a route, typed and in canonical form.
///
/// Decoding gives canonical sets: the three kinds of communities sorted and without
/// duplicates, unknown attributes in the order of their codes. Code that builds or edits a
/// set calls [`Attributes::canonicalize`] at the end, so that equal sets are equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attributes {
    /// ORIGIN.
    pub origin: Origin,
    /// AS_PATH, with AS4_PATH merged in (RFC 6793 §4.2.3).
    pub as_path: AsPath,
    /// NEXT_HOP, or the next hop of MP_REACH_NLRI.
    pub next_hop: Option<NextHop>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// ATOMIC_AGGREGATE.
    pub atomic_aggregate: bool,
    /// AGGREGATOR, with AS4_AGGREGATOR merged in (RFC 6793 §4.2.3).
    pub aggregator: Option<Aggregator>,
    /// COMMUNITIES.
    pub communities: Vec<Community>,
    /// ORIGINATOR_ID.
    pub originator_id: Option<RouterId>,
    /// CLUSTER_LIST, the latest reflector first.
    pub cluster_list: Vec<ClusterId>,
    /// EXTENDED_COMMUNITIES.
    pub extended_communities: Vec<ExtendedCommunity>,
    /// LARGE_COMMUNITIES.
    pub large_communities: Vec<LargeCommunity>,
    /// Attributes without a row in the table.
    pub unknown: Vec<RawAttribute>,
    /// Which typed attributes came with the Partial flag; it must stay set when they are
    /// passed on (RFC 4271 §5).
    pub partial: PartialBits,
}

impl Attributes {
    /// Sorts what has no order of its own and takes duplicates out.
    pub fn canonicalize(&mut self) {
        sort_dedup(&mut self.communities);
        sort_dedup(&mut self.extended_communities);
        sort_dedup(&mut self.large_communities);
        sort_dedup(&mut self.unknown);
    }

    /// The address that the next hop leads to, if it is an IP address.
    pub fn next_hop_address(&self) -> Option<core::net::IpAddr> {
        self.next_hop.as_ref().and_then(NextHop::address)
    }

    /// Whether the route carries this well-known or other community.
    pub fn has_community(&self, community: Community) -> bool {
        self.communities.contains(&community)
    }
}

fn sort_dedup<T: Ord>(items: &mut Vec<T>) {
    if !items.is_sorted_by(|one, two| one < two) {
        items.sort_unstable();
        items.dedup();
    }
}

/// Which optional transitive attributes of a set have the Partial flag (RFC 4271 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartialBits(u8);

impl PartialBits {
    /// No attribute has it.
    pub const NONE: Self = Self(0);

    const fn bit(code: AttrCode) -> u8 {
        match code {
            AttrCode::Aggregator => 1,
            AttrCode::Communities => 2,
            AttrCode::ExtendedCommunities => 4,
            AttrCode::LargeCommunities => 8,
            _ => 0,
        }
    }

    /// The bits, as [`from_octet`](Self::from_octet) takes them.
    pub(super) const fn octet(self) -> u8 {
        self.0
    }

    pub(super) const fn from_octet(octet: u8) -> Self {
        Self(octet)
    }

    /// Notes that `code` has it; ignored for types that cannot have it.
    pub const fn insert(&mut self, code: AttrCode) {
        self.0 |= Self::bit(code);
    }

    /// Notes that `code` has it no more: it was made anew here.
    pub const fn remove(&mut self, code: AttrCode) {
        self.0 &= !Self::bit(code);
    }

    /// Whether `code` has it.
    pub const fn contains(self, code: AttrCode) -> bool {
        self.0 & Self::bit(code) != 0
    }
}
