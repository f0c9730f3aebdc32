//! What a term may change in a route.

use alloc::boxed::Box;

use bgp_proto::{Asn, Attributes, Community, LargeCommunity};

/// One change of a route's attributes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edit {
    /// The community is put beside the others (RFC 1997).
    AddCommunity(Community),
    /// The large community is put beside the others (RFC 8092).
    AddLargeCommunity(LargeCommunity),
    /// These AS numbers are put before the AS_PATH, in this order. Our own still comes before them
    /// when the route leaves our AS (RFC 4271 §5.1.2).
    PrependAsPath(Box<[Asn]>),
    /// The degree of preference (RFC 4271 §5.1.5). External peers are never told it.
    SetLocalPref(u32),
}

impl Edit {
    /// Makes the change. Sets stay canonical, so that equal ones are interned once.
    pub(super) fn apply(&self, attributes: &mut Attributes) {
        match self {
            Self::AddCommunity(community) => insert(&mut attributes.communities, *community),
            Self::AddLargeCommunity(community) => {
                insert(&mut attributes.large_communities, *community);
            }
            Self::PrependAsPath(asns) => {
                for &asn in asns.iter().rev() {
                    attributes.as_path.prepend(asn);
                }
            }
            Self::SetLocalPref(degree) => attributes.local_pref = Some(*degree),
        }
    }
}

/// Puts an element into its place, unless it is there.
fn insert<T: Ord>(sorted: &mut alloc::vec::Vec<T>, element: T) {
    if let Err(at) = sorted.binary_search(&element) {
        sorted.insert(at, element);
    }
}
