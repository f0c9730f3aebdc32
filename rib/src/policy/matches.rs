//! Conditions of a term.

use alloc::boxed::Box;

use bgp_proto::{
    AsPath, Asn, Attributes, Community, Family, LargeCommunity, PeerKind, SegmentKind,
};

use super::{InterfaceGlob, InterfaceName, PrefixSet, RouteContext};
use crate::attributes::LOCAL_PREF_DEFAULT;
use crate::role::Role;

/// A condition on a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Match {
    /// The inner condition does not hold.
    Not(Box<Self>),
    /// The route is of this family.
    Family(Family),
    /// The destination is in the set.
    Net(PrefixSet),
    /// The route has this source.
    Source(Source),
    /// The peer of this policy is of this kind.
    Peer(PeerKind),
    /// The route is locally originated and its interface matches one of these patterns.
    Interface(Box<[InterfaceGlob]>),
    /// The route has the community.
    Community(Community),
    /// The route has the large community.
    LargeCommunity(LargeCommunity),
    /// Its AS_PATH begins with these AS numbers, in this order and none of them in a set.
    AsPathPrefix(Box<[Asn]>),
    /// Its degree of preference is in this range; a missing one counts as 100, as in the decision
    /// process.
    LocalPref {
        /// The least.
        min: u32,
        /// The greatest.
        max: u32,
    },
}

/// The source of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Locally originated.
    Local,
    /// Any peer.
    AnyPeer,
    /// A peer of this kind.
    Peer(PeerKind),
}

impl Match {
    /// Returns the opposite condition.
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Self::Not(other) => *other,
            other => Self::Not(Box::new(other)),
        }
    }

    /// Returns whether the condition holds for a route with attributes that earlier terms may have
    /// edited.
    pub(super) fn holds(&self, route: &RouteContext<'_>, edited: Option<&Attributes>) -> bool {
        let attributes = || edited.unwrap_or_else(|| route.attributes);
        match self {
            Self::Not(other) => !other.holds(route, edited),
            Self::Family(family) => route.family == *family,
            Self::Net(set) => set.contains(route.net),
            Self::Source(source) => source.is(route.source),
            Self::Peer(kind) => kind_of(route.peer) == Some(*kind),
            Self::Interface(globs) => route.interface.is_some_and(|name| is_like(globs, name)),
            Self::Community(community) => attributes().communities.contains(community),
            Self::LargeCommunity(community) => attributes().large_communities.contains(community),
            Self::AsPathPrefix(asns) => begins_with(&attributes().as_path, asns),
            Self::LocalPref { min, max } => {
                let degree = attributes().local_pref.unwrap_or(LOCAL_PREF_DEFAULT);
                (*min..=*max).contains(&degree)
            }
        }
    }
}

impl Source {
    fn is(self, role: Role) -> bool {
        match self {
            Self::Local => role == Role::Local,
            Self::AnyPeer => role != Role::Local,
            Self::Peer(kind) => kind_of(role) == Some(kind),
        }
    }
}

const fn kind_of(role: Role) -> Option<PeerKind> {
    match role {
        Role::Local => None,
        Role::External => Some(PeerKind::External),
        Role::Internal | Role::Client => Some(PeerKind::Internal),
    }
}

fn is_like(globs: &[InterfaceGlob], name: InterfaceName) -> bool {
    globs.iter().any(|glob| glob.matches(name.as_str()))
}

fn begins_with(path: &AsPath, asns: &[Asn]) -> bool {
    let segments = path.segments();
    let ordered = segments.take_while(|segment| segment.kind == SegmentKind::Sequence);
    let mut found = ordered.flat_map(|segment| segment.asns());
    asns.iter().all(|asn| found.next() == Some(*asn))
}
