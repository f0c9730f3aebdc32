//! What can be done with the path attributes of a route as one value.

use crate::attr::code::FLAG_PARTIAL;
use crate::attr::field::{Field, sort_dedup};
use crate::attr::next_hop::NextHop;
use crate::attr::table::{Attributes, Place, VisitorMut};
use crate::attr::unknown::RawAttribute;
use crate::community::Community;

struct Canonicalize;

impl VisitorMut for Canonicalize {
    #[inline]
    fn field<F: Field>(&mut self, _: Place, field: &mut F) {
        field.canonicalize();
    }
}

/// Crosses the border of an AS.
struct LeaveAs;

impl VisitorMut for LeaveAs {
    #[inline]
    fn field<F: Field>(&mut self, place: Place, field: &mut F) {
        match place {
            Place::Internal => *field = F::default(),
            Place::Any | Place::TwoOctet => field.leave_as(),
        }
    }
}

impl Attributes {
    /// Sorts what has no order of its own and takes duplicates out.
    pub fn canonicalize(&mut self) {
        self.edit(&mut Canonicalize);
        sort_dedup(&mut self.unknown);
    }

    /// Makes a received set one to pass on: unknown attributes stay only if they are transitive,
    /// and get the Partial flag (RFC 4271 §5).
    pub fn pass_on(&mut self) {
        self.unknown.retain(RawAttribute::is_transitive);
        for attr in &mut self.unknown {
            attr.flags |= FLAG_PARTIAL;
        }
    }

    /// Removes what does not cross the border of an AS: attributes of internal sessions
    /// (RFC 4271 §5.1.5, RFC 4456 §8) and extended communities that are not transitive
    /// (RFC 4360 §6).
    pub fn leave_as(&mut self) {
        self.edit(&mut LeaveAs);
    }

    fn edit(&mut self, visitor: &mut impl VisitorMut) {
        self.visit_mut(visitor);
        if let Some(rare) = self.rare.get_mut() {
            rare.visit_mut(visitor);
        }
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
