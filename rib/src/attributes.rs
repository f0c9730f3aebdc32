//! The number of an interned attribute set, and the inputs of the decision process from the set.

use core::fmt;
use core::num::NonZeroU32;

use bgp_proto::{AsPath, Asn, AttrCodes, Attributes, Community, NextHop, Origin};

/// The number of an interned attribute set. A number is used again after its set was removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttrId(NonZeroU32);

impl AttrId {
    pub(crate) const fn from_index(index: u32) -> Self {
        match NonZeroU32::MIN.checked_add(index) {
            Some(id) => Self(id),
            None => Self(NonZeroU32::MAX),
        }
    }

    pub(crate) const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl fmt::Debug for AttrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attr{}", self.0)
    }
}

/// LOCAL_PREF of a path without the attribute: routes from other ASes, locally originated ones, and
/// routes of internal peers that omit it (RFC 4271 §5.1.5 leaves the value to the implementation;
/// 100 is the usual one).
pub(crate) const LOCAL_PREF_DEFAULT: u32 = 100;

/// The inputs of the decision process from an attribute set, so that paths are compared without
/// reading the set itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranks {
    pub(crate) local_pref: u32,
    /// MULTI_EXIT_DISC; absent counts as 0 (RFC 4271 §9.1.2.2 c).
    pub(crate) med: u32,
    /// The neighboring AS of the route; 0 if the AS_PATH begins with a set.
    pub(crate) neighbor_as: Asn,
    /// ORIGINATOR_ID, 0 if absent.
    pub(crate) originator: u32,
    /// Index into the next hops.
    pub(crate) next_hop: u32,
    pub(crate) as_path_length: u16,
    pub(crate) cluster_list_length: u16,
    pub(crate) origin: u8,
    pub(crate) next_hop_form: HopForm,
    /// The well-known communities.
    pub(crate) scope: Scope,
    /// Whether AS_PATH has an AS_SET or AS_CONFED_SET.
    pub(crate) has_as_set: bool,
    /// How often the local AS is in the AS_PATH.
    pub(crate) own_as: u8,
    /// Whether LOCAL_PREF is present.
    pub(crate) has_local_pref: bool,
    /// Other well-known communities.
    pub(crate) well_known: WellKnown,
    /// Whether it has attributes that are restricted to one administrative domain.
    pub(crate) has_domain: bool,
}

/// The form of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HopForm {
    /// None.
    Absent,
    /// An IPv4 address.
    V4,
    /// An IPv6 address, or two.
    V6,
    /// Opaque octets.
    Opaque,
}

impl HopForm {
    pub(crate) fn of(next_hop: Option<&NextHop>) -> Self {
        match next_hop {
            None => Self::Absent,
            Some(NextHop::V4(_)) => Self::V4,
            Some(NextHop::V6 { .. }) => Self::V6,
            Some(NextHop::Opaque(_)) => Self::Opaque,
        }
    }
}

/// The scope of a route's advertisement by the well-known communities (RFC 1997).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// No restriction.
    Everywhere,
    /// Not to external peers: NO_EXPORT or, as confederations are not supported,
    /// NO_EXPORT_SUBCONFED.
    OwnAs,
    /// To no peer: NO_ADVERTISE.
    NoPeer,
}

/// The well-known communities that change the treatment of a route, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WellKnown(u8);

impl WellKnown {
    const SHUTS_DOWN: u8 = 1;
    const LLGR_STALE: u8 = 1 << 1;
    const NO_LLGR: u8 = 1 << 2;

    fn of(communities: &[Community]) -> Self {
        let bit = |community: &Community| match *community {
            Community::GRACEFUL_SHUTDOWN => Self::SHUTS_DOWN,
            Community::LLGR_STALE => Self::LLGR_STALE,
            Community::NO_LLGR => Self::NO_LLGR,
            _ => 0,
        };
        Self(communities.iter().map(bit).fold(0, |bits, bit| bits | bit))
    }

    /// Returns whether the route has GRACEFUL_SHUTDOWN (RFC 8326).
    pub(crate) const fn shuts_down(self) -> bool {
        self.0 & Self::SHUTS_DOWN != 0
    }

    /// Returns whether the route has LLGR_STALE: some speaker has retained it beyond the restart time
    /// of its source (RFC 9494 §3.2).
    pub(crate) const fn is_llgr_stale(self) -> bool {
        self.0 & Self::LLGR_STALE != 0
    }

    /// Returns whether the route has NO_LLGR: it is not retained beyond the restart time (RFC 9494
    /// §3.3).
    pub(crate) const fn refuses_llgr(self) -> bool {
        self.0 & Self::NO_LLGR != 0
    }
}

impl Ranks {
    pub(crate) fn new(attributes: &Attributes, local_asn: Asn, next_hop: u32) -> Self {
        let as_path = &attributes.as_path;
        let neighbor_as = match as_path.first_as() {
            Some(asn) => asn,
            // RFC 4271 §9.1.2.2: a route that originates in the local AS is its own neighbor AS.
            None if as_path.is_empty() => local_asn,
            None => Asn(0),
        };
        Self {
            local_pref: attributes.local_pref.unwrap_or(LOCAL_PREF_DEFAULT),
            med: attributes.med.unwrap_or(0),
            neighbor_as,
            originator: attributes.originator_id.map_or(0, u32::from),
            next_hop,
            as_path_length: saturate(as_path.length()),
            cluster_list_length: saturate(attributes.cluster_list.len()),
            origin: origin_rank(attributes.origin),
            next_hop_form: HopForm::of(attributes.next_hop.as_ref()),
            scope: Scope::of(&attributes.communities),
            has_as_set: as_path.has_set(),
            own_as: times(as_path, local_asn),
            has_local_pref: attributes.local_pref.is_some(),
            well_known: WellKnown::of(&attributes.communities),
            has_domain: attributes.of_domain() != AttrCodes::NONE,
        }
    }
}

impl Scope {
    fn of(communities: &[Community]) -> Self {
        let mut scope = Self::Everywhere;
        for &community in communities {
            match community {
                Community::NO_ADVERTISE => return Self::NoPeer,
                Community::NO_EXPORT | Community::NO_EXPORT_SUBCONFED => scope = Self::OwnAs,
                _ => {}
            }
        }
        scope
    }
}

/// Returns how often an AS number is in a path, up to 255.
pub(crate) fn times(as_path: &AsPath, asn: Asn) -> u8 {
    let found = as_path.asns().filter(|&each| each == asn);
    u8::try_from(found.count()).unwrap_or(u8::MAX)
}

fn saturate(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// IGP before EGP before INCOMPLETE (RFC 4271 §9.1.2.2 b).
fn origin_rank(origin: Origin) -> u8 {
    origin as u8
}
