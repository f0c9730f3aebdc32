//! Operations on the path attributes of a route as one value.

use crate::attr::code::{AttrCode, FLAG_PARTIAL};
use crate::attr::codes::AttrCodes;
use crate::attr::field::{Field, sort_dedup};
use crate::attr::next_hop::NextHop;
use crate::attr::table::{Attributes, Place, Visitor, VisitorMut};
use crate::attr::unknown::RawAttribute;
use crate::community::Community;

struct Canonicalize;

impl VisitorMut for Canonicalize {
    #[inline]
    fn field<F: Field>(&mut self, _: AttrCode, _: Place, field: &mut F) {
        field.canonicalize();
    }
}

/// Crosses the border of an AS, with these attributes of an administrative domain.
struct LeaveAs(AttrCodes);

impl VisitorMut for LeaveAs {
    #[inline]
    fn field<F: Field>(&mut self, code: AttrCode, place: Place, field: &mut F) {
        match place {
            Place::Internal => *field = F::default(),
            Place::Domain if !self.0.contains(code) => *field = F::default(),
            Place::Any | Place::Domain | Place::TwoOctet => field.leave_as(),
        }
    }
}

/// Comes from another AS, with these attributes of an administrative domain.
struct EnterAs(AttrCodes);

impl VisitorMut for EnterAs {
    fn field<F: Field>(&mut self, code: AttrCode, place: Place, field: &mut F) {
        if place == Place::Domain && !self.0.contains(code) {
            *field = F::default();
        }
    }
}

/// Collects the types of attributes of an administrative domain.
struct OfDomain(AttrCodes);

impl Visitor for OfDomain {
    fn field<F: Field>(&mut self, code: AttrCode, place: Place, field: &F) {
        if place == Place::Domain && field.is_present() {
            self.0.insert(code);
        }
    }
}

impl Attributes {
    /// Sorts values without an order of their own and removes duplicates.
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

    /// Removes attributes that are not sent to another AS: attributes of internal sessions (RFC
    /// 4271 §5.1.5, RFC 4456 §8), extended communities that are not transitive (RFC 4360 §6, RFC
    /// 5701 §2), and attributes of an administrative domain except for those of `domain`.
    pub fn leave_as(&mut self, domain: AttrCodes) {
        self.edit(&mut LeaveAs(domain));
    }

    /// Removes attributes that are not accepted from another AS: those of an administrative domain
    /// except for those of `domain`. Attributes of internal sessions are faults and not in the set.
    pub fn enter_as(&mut self, domain: AttrCodes) {
        if let Some(rare) = self.rare.get_mut() {
            rare.visit_mut(&mut EnterAs(domain));
        }
    }

    /// Returns the attributes that stay in one administrative domain: TUNNEL_ENCAPSULATION
    /// (RFC 9012 §11), PREFIX_SID (RFC 8669 §4, §8) and AIGP (RFC 7311 §3.3).
    pub fn of_domain(&self) -> AttrCodes {
        let mut found = OfDomain(AttrCodes::NONE);
        if self.rare.has_room() {
            self.rare.visit(&mut found);
        }
        found.0
    }

    fn edit(&mut self, visitor: &mut impl VisitorMut) {
        self.visit_mut(visitor);
        if let Some(rare) = self.rare.get_mut() {
            rare.visit_mut(visitor);
        }
    }

    /// Returns the address that the next hop leads to, if it is an IP address.
    pub fn next_hop_address(&self) -> Option<core::net::IpAddr> {
        self.next_hop.as_ref().and_then(NextHop::address)
    }

    /// Returns whether the route carries this well-known or other community.
    pub fn has_community(&self, community: Community) -> bool {
        self.communities.contains(&community)
    }
}
