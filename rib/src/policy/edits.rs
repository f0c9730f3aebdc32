//! Changes of a route's attributes by a term.

use alloc::boxed::Box;

use bgp_proto::{Asn, Attributes, Community, LargeCommunity};

/// One change of a route's attributes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Edit {
    /// Adds the community (RFC 1997).
    AddCommunity(Community),
    /// Adds the large community (RFC 8092).
    AddLargeCommunity(LargeCommunity),
    /// Prepends these AS numbers to the AS_PATH, in this order. The local one is still prepended to
    /// them when the route leaves the local AS (RFC 4271 §5.1.2).
    PrependAsPath(Box<[Asn]>),
    /// Sets the degree of preference (RFC 4271 §5.1.5). It is never sent to external peers.
    SetLocalPref(u32),
}

impl Edit {
    /// Applies the change. Sets stay canonical, so that equal ones are interned once.
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

/// Inserts an element in order, unless it is present.
pub(crate) fn insert<T: Ord>(sorted: &mut alloc::vec::Vec<T>, element: T) {
    if let Err(at) = sorted.binary_search(&element) {
        sorted.insert(at, element);
    }
}
