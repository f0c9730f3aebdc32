//! Where import and export policy run. A policy is a pure function of a route: a verdict, perhaps
//! with edited attributes. The policy language compiles into [`PolicyHook`]s.

use alloc::boxed::Box;
use core::cmp::Ordering;
use core::fmt;

use bgp_proto::{Attributes, Family, Net};

use crate::peer::{PeerId, Role};

/// What decides about a route on its way in or out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// Every route passes as it is.
    AcceptAll,
    /// No route passes: the default for external peers without a policy (RFC 8212 §2).
    RejectAll,
    /// A function judges each route.
    Hook(&'static PolicyHook),
}

/// A named function over routes.
#[derive(Clone, Copy)]
pub struct PolicyHook {
    /// Its name, for people; hooks are equal if their names are.
    pub name: &'static str,
    /// The judgement. It must be a pure function of its argument.
    pub judge: fn(&RouteContext<'_>) -> Verdict,
}

/// Which way a route goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a peer into the tables.
    Import,
    /// From the tables to an update group.
    Export,
}

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct RouteContext<'a> {
    /// Which way the route goes.
    pub direction: Direction,
    /// The family of the table.
    pub family: Family,
    /// The destination.
    pub net: Net<'a>,
    /// The attributes: as received on import, as accepted on export.
    pub attributes: &'a Attributes,
    /// The peer the route was learned from.
    pub source: PeerId,
    /// What that peer is to us.
    pub source_role: Role,
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
    pub fn judge(&self, context: &RouteContext<'_>) -> Verdict {
        match self {
            Self::AcceptAll => Verdict::Accept,
            Self::RejectAll => Verdict::Reject,
            Self::Hook(hook) => (hook.judge)(context),
        }
    }
}

impl fmt::Debug for PolicyHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PolicyHook").field(&self.name).finish()
    }
}

impl PartialEq for PolicyHook {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for PolicyHook {}

impl PartialOrd for PolicyHook {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PolicyHook {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}

impl core::hash::Hash for PolicyHook {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
