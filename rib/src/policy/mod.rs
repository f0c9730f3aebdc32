//! Import and export policy: ordered rules over routes, as data.
//!
//! A policy is a pure function of a route: a verdict, possibly with edited attributes. The
//! configuration of a speaker is compiled from files or resources into [`Rules`]; this module is
//! independent of their grammar. Rules compare by content, so that peers with equal rules share an
//! update group.

mod edits;
mod evaluation;
mod interface;
mod matches;
mod prefixes;
mod rules;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;

use bgp_proto::{Attributes, Family, Net};

use crate::role::Role;

pub use edits::Edit;
pub(crate) use edits::insert;
pub use evaluation::Evaluation;
pub use interface::{InterfaceGlob, InterfaceName, InterfaceNameError};
pub use matches::{Match, Source};
pub use prefixes::{PrefixRange, PrefixSet};
pub use rules::{Outcome, Rules, Term, Then};

/// An import or export policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// Every route is accepted unchanged.
    AcceptAll,
    /// Every route is rejected.
    RejectAll,
    /// Rules evaluate each route.
    Rules(Arc<Rules>),
}

impl From<Rules> for Policy {
    fn from(rules: Rules) -> Self {
        Self::Rules(Arc::new(rules))
    }
}

/// The inputs of a policy.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct RouteContext<'a> {
    /// The family of the table.
    pub family: Family,
    /// The destination.
    pub net: Net<'a>,
    /// The attributes: as received on import, as accepted on export. They are stored packed, and
    /// unpacked when a rule first reads them.
    pub attributes: &'a dyn Deref<Target = Attributes>,
    /// The role of the peer from which the route was received; [`Role::Local`] for locally
    /// originated routes.
    pub source: Role,
    /// The role of the peer of this policy: on import the source, on export the receiver.
    pub peer: Role,
    /// The interface of a locally originated route, if it has one.
    pub interface: Option<InterfaceName>,
}

impl<'a> RouteContext<'a> {
    /// Returns the context of a route from a peer of the role `source` to one of the role `peer`.
    #[must_use]
    pub const fn new(
        family: Family,
        net: Net<'a>,
        attributes: &'a dyn Deref<Target = Attributes>,
        source: Role,
        peer: Role,
    ) -> Self {
        Self {
            family,
            net,
            attributes,
            source,
            peer,
            interface: None,
        }
    }

    /// Returns the context with the interface of the route.
    #[must_use]
    pub const fn with_interface(mut self, interface: Option<InterfaceName>) -> Self {
        self.interface = interface;
        self
    }
}

/// The result of a policy for a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted unchanged.
    Accept,
    /// Accepted with these attributes.
    AcceptWith(Box<Attributes>),
    /// Rejected.
    Reject,
}

impl Policy {
    /// Applies the policy.
    #[must_use]
    pub fn evaluate(&self, route: &RouteContext<'_>) -> Verdict {
        match self {
            Self::AcceptAll => Verdict::Accept,
            Self::RejectAll => Verdict::Reject,
            Self::Rules(rules) => rules.evaluate(route, &mut |_| {}),
        }
    }
}
