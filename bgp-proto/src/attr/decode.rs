//! Reading a set of path attributes (RFC 4271 §5, RFC 7606 §3).

use alloc::vec::Vec;

use crate::attr::aggregator::Aggregator;
use crate::attr::as_path::AsPath;
use crate::attr::code::{AttrCode, FLAG_OPTIONAL, FLAG_PARTIAL, FLAG_TRANSITIVE};
use crate::attr::raw::{RawAttr, RawAttrs};
use crate::attr::table::{Attributes, Place, row};
use crate::attr::unknown::RawAttribute;
use crate::attr::{as4, next_hop};
use crate::family::Family;
use crate::fault::{Fault, FaultKind};
use crate::params::{PeerKind, SessionParams};

/// The part of the session that decides the meaning of attributes. Every block of attributes has a
/// copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// AS numbers have four octets.
    as4: bool,
    /// eBGP or iBGP.
    kind: PeerKind,
    /// IPv4-mapped next hops of IPv6 unicast are taken.
    v4_mapped_next_hop: bool,
}

/// The context that decides the meaning of an attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// AS numbers have four octets.
    pub(crate) as4: bool,
    /// eBGP or iBGP.
    pub(crate) kind: PeerKind,
    /// IPv4-mapped next hops of IPv6 unicast are taken.
    pub(crate) v4_mapped_next_hop: bool,
    /// Where the routes are.
    pub(crate) routes: Routes,
}

impl Context {
    /// That of values in packed sets.
    pub(crate) const PACKED: Self = Self {
        as4: true,
        kind: PeerKind::Internal,
        v4_mapped_next_hop: true,
        routes: Routes::Body,
    };
}

impl Session {
    pub(crate) const fn new(params: &SessionParams) -> Self {
        Self {
            as4: params.as4,
            kind: params.kind,
            v4_mapped_next_hop: params.v4_mapped_next_hop,
        }
    }

    /// It in one octet, for cache keys.
    pub(crate) const fn octet(self) -> u8 {
        (self.as4 as u8)
            | (matches!(self.kind, PeerKind::Internal) as u8) << 1
            | (self.v4_mapped_next_hop as u8) << 2
    }
}

/// The kind of routes that a set of attributes belongs to, which decides where their next hop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// The NLRI field: IPv4 unicast, next hop in NEXT_HOP.
    Body,
    /// MP_REACH_NLRI with its next hop and offset. NEXT_HOP has no meaning beside it
    /// (RFC 4760 §3).
    Mp {
        family: Family,
        next_hop: &'a [u8],
        at: usize,
    },
    /// No routes: nothing is mandatory.
    Nothing,
}

impl Source<'_> {
    const fn routes(&self) -> Routes {
        match self {
            Self::Body => Routes::Body,
            Self::Mp { family, .. } => Routes::Mp(*family),
            Self::Nothing => Routes::None,
        }
    }
}

/// Where the routes of a set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routes {
    /// In the NLRI field.
    Body,
    /// In MP_REACH_NLRI.
    Mp(Family),
    /// There are no routes.
    None,
}

/// A set that is being read.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) attributes: Attributes,
    pub(crate) as4_path: Option<AsPath>,
    pub(crate) as4_aggregator: Option<Aggregator>,
    seen: [u64; 4],
}

impl Draft {
    /// Records a type code; returns whether it was seen before.
    const fn seen_before(&mut self, code: AttrCode) -> bool {
        let (word, bit) = ((code.0 >> 6) as usize, 1 << (code.0 & 63));
        #[allow(clippy::indexing_slicing)] // 256 codes, four words of 64
        let word = &mut self.seen[word];
        let before = *word & bit != 0;
        *word |= bit;
        before
    }
}

/// Decodes the attributes in `pieces` (octets and their offset). Errors are added to the faults;
/// the set has the valid attributes. Allocates only for the set itself, and for the list of faults
/// if there are any.
pub(crate) fn decode<'a>(
    pieces: impl Iterator<Item = (&'a [u8], usize)>,
    source: Source<'_>,
    session: Session,
) -> (Attributes, Vec<Fault>) {
    let context = &Context {
        as4: session.as4,
        kind: session.kind,
        v4_mapped_next_hop: session.v4_mapped_next_hop,
        routes: source.routes(),
    };
    let mut draft = Draft::default();
    let mut faults = Vec::new();
    for attr in pieces.flat_map(|(octets, at)| RawAttrs::new(octets, at)) {
        let fault = match attr {
            Ok(attr) => {
                one(&attr, context, &mut draft).map_err(|kind| Fault::new(kind, attr.code, attr.at))
            }
            Err((code, at)) => Err(Fault::new(FaultKind::Overrun, code, at)),
        };
        faults.extend(fault.err());
    }
    if let Source::Mp {
        family,
        next_hop,
        at,
    } = source
    {
        match next_hop::decode_mp(family, next_hop, context) {
            Ok(next_hop) => draft.attributes.next_hop = next_hop,
            Err(kind) => faults.push(Fault::new(kind, AttrCode::MpReach, at)),
        }
    }
    missing(&draft, source, &mut faults);
    as4::merge(&mut draft);
    draft.attributes.canonicalize();
    (draft.attributes, faults)
}

/// Reads one attribute into the draft.
fn one(attr: &RawAttr<'_>, context: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    // RFC 7606 §3 g: all but the first are discarded.
    if draft.seen_before(attr.code) {
        return Err(FaultKind::Duplicate);
    }
    let Some(row) = row(attr.code) else {
        // RFC 4271 §6.3: an unknown type may not claim to be well-known.
        if attr.flags & FLAG_OPTIONAL == 0 {
            return Err(FaultKind::UnrecognizedWellKnown);
        }
        draft.attributes.unknown.push(RawAttribute::of(attr));
        return Ok(());
    };
    match row.place {
        // RFC 7606 §7.5, §7.9, §7.10
        Place::Internal if context.kind == PeerKind::External => {
            return Err(FaultKind::NotFromExternal);
        }
        // RFC 6793 §4.1
        Place::TwoOctet if context.as4 => return Err(FaultKind::NotFromFourOctet),
        _ => {}
    }
    // RFC 7606 §3 c
    if attr.flags & (FLAG_OPTIONAL | FLAG_TRANSITIVE) != row.flags {
        return Err(FaultKind::Flags);
    }
    let Some(codec) = &row.codec else {
        return Ok(());
    };
    (codec.decode)(attr, context, draft)?;
    if attr.flags & FLAG_PARTIAL != 0 && row.can_be_partial() {
        draft.attributes.rare.partial.insert(attr.code);
    }
    Ok(())
}

/// RFC 7606 §3 d: mandatory attributes that are not there at all. LOCAL_PREF is not among
/// them: RFC 4271 §5 lists it as discretionary, and two of four widespread implementations
/// take routes without it; the decision process then assumes the default.
fn missing(draft: &Draft, source: Source<'_>, faults: &mut Vec<Fault>) {
    let mandatory: &[AttrCode] = match source {
        Source::Body => &[AttrCode::Origin, AttrCode::AsPath, AttrCode::NextHop],
        Source::Mp { .. } => &[AttrCode::Origin, AttrCode::AsPath],
        Source::Nothing => &[],
    };
    let [low, ..] = draft.seen;
    for code in mandatory {
        if low & 1 << code.0 == 0 {
            faults.push(Fault::new(FaultKind::Missing, *code, 0));
        }
    }
}
