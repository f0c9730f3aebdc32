//! Import and export policy: ordered rules over routes, as data.
//!
//! A policy is a pure function of a route: a verdict, perhaps with edited attributes. Whoever
//! configures a speaker compiles files or resources into [`Rules`]; nothing here knows their
//! grammar. Rules compare by content, so that peers with equal rules share an update group.

mod edits;
mod interface;
mod judgement;
mod matches;
mod prefixes;
mod rules;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;

use bgp_proto::{Attributes, Family, Net};

use crate::role::Role;

pub use edits::Edit;
pub use interface::{InterfaceGlob, InterfaceName, InterfaceNameError};
pub use judgement::Judgement;
pub use matches::{Match, Source};
pub use prefixes::{PrefixRange, PrefixSet};
pub use rules::{Outcome, Rules, Term, Then};

/// What decides about a route on its way in or out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// Every route passes as it is.
    AcceptAll,
    /// No route passes.
    RejectAll,
    /// Rules judge each route.
    Rules(Arc<Rules>),
}

impl From<Rules> for Policy {
    fn from(rules: Rules) -> Self {
        Self::Rules(Arc::new(rules))
    }
}

/// What a policy may look at.
#[derive(Clone, Copy)]
pub struct RouteContext<'a> {
    /// The family of the table.
    pub family: Family,
    /// The destination.
    pub net: Net<'a>,
    /// The attributes: as received on import, as accepted on export. They are kept packed and
    /// unpacked when a rule first looks at them.
    pub attributes: &'a dyn Deref<Target = Attributes>,
    /// What the peer the route was learned from is to us; [`Role::Local`] for our own routes.
    pub source: Role,
    /// What the peer whose policy this is is to us: on import the source, on export the receiver.
    pub peer: Role,
    /// The interface of a route of our own, if it has one.
    pub interface: Option<InterfaceName>,
}

/// What a policy says of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes as it is.
    Accept,
    /// It passes with these attributes.
    AcceptWith(Box<Attributes>),
    /// It does not pass.
    Reject,
}

impl Policy {
    /// Applies the policy.
    #[must_use]
    pub fn judge(&self, route: &RouteContext<'_>) -> Verdict {
        match self {
            Self::AcceptAll => Verdict::Accept,
            Self::RejectAll => Verdict::Reject,
            Self::Rules(rules) => rules.judge(route, &mut |_| {}),
        }
    }
}
