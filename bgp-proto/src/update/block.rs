//! The path attributes of an UPDATE as octets: hashed and compared before they are parsed.

use alloc::vec::Vec;
use core::hash::Hasher;

use crate::attr::{AttrCode, Attributes, RawAttr, RawAttrs, Session, Source, decode};
use crate::family::Family;
use crate::fault::Fault;
use crate::params::SessionParams;

/// Maximum number of pieces after MP_REACH_NLRI and MP_UNREACH_NLRI are removed.
pub(super) const PIECES: usize = 3;

/// A run of octets and its offset in the UPDATE's body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece<'a> {
    pub(super) octets: &'a [u8],
    pub(super) at: usize,
}

/// Path attributes as received, without MP_REACH_NLRI and MP_UNREACH_NLRI, but with the next hop
/// and with the part of the session that decides their meaning.
///
/// Two blocks with equal keys decode to the same set and the same faults (except for the faults'
/// offsets), whatever message, session or family they came with. With a cache from key to decoded
/// set, receiving a known set allocates nothing: [`hash`](Self::hash), then
/// [`eq_key`](Self::eq_key) on a candidate, and only on a miss [`parse`](Self::parse) and
/// [`write_key`](Self::write_key). Keep the hash beside the key: the octets of a key may reach a
/// hasher in other pieces than those of the block.
#[derive(Clone, Copy, Debug)]
pub struct AttrBlock<'a> {
    pub(super) pieces: [Piece<'a>; PIECES],
    pub(super) source: Source<'a>,
    pub(super) family: Family,
    pub(super) session: Session,
}

/// Octets of a key ahead of the next hop: session, family, next hop length.
const HEAD_OCTETS: usize = 5;

/// Length octet of a block with its next hop in the NEXT_HOP attribute.
const NO_MP_NEXT_HOP: u8 = 0xff;

/// Takes the multiprotocol attributes out of a run of attributes and passes them to `found`.
/// Returns the pieces between them, and the type code and offset of an attribute that runs past the
/// end.
pub(super) fn take_out<'a>(
    attributes: Piece<'a>,
    mut found: impl FnMut(&RawAttr<'a>),
) -> ([Piece<'a>; PIECES], Option<(AttrCode, usize)>) {
    let mut pieces = [Piece::default(); PIECES];
    let mut slots = pieces.iter_mut();
    let mut keep = |start: usize, end: usize| {
        let octets = attributes.octets.get(start..end).unwrap_or_default();
        if !octets.is_empty()
            && let Some(slot) = slots.next()
        {
            *slot = Piece {
                octets,
                at: attributes.at + start,
            };
        }
    };
    let (mut start, mut end) = (0, 0);
    let mut overrun = None;
    for attr in RawAttrs::new(attributes.octets, attributes.at) {
        let attr = match attr {
            Ok(attr) => attr,
            Err(at) => {
                overrun = Some(at);
                break;
            }
        };
        let next = end + attr.octets.len();
        if matches!(attr.code, AttrCode::MpReach | AttrCode::MpUnreach) {
            found(&attr);
            keep(start, end);
            start = next;
        }
        end = next;
    }
    keep(start, end);
    (pieces, overrun)
}

impl<'a> AttrBlock<'a> {
    /// Returns a block of path attributes from another source than an UPDATE, such as a table dump.
    /// Without `next_hop` it is that of the NEXT_HOP attribute; multiprotocol attributes are
    /// ignored.
    pub fn from_octets(
        attributes: &'a [u8],
        family: Family,
        next_hop: Option<&'a [u8]>,
        params: &SessionParams,
    ) -> Self {
        let (pieces, _) = take_out(
            Piece {
                octets: attributes,
                at: 0,
            },
            |_| {},
        );
        let source = match next_hop {
            Some(next_hop) => Source::Mp {
                family,
                next_hop,
                at: 0,
            },
            None => Source::Body,
        };
        Self {
            pieces,
            source,
            family,
            session: Session::new(params),
        }
    }

    fn head(&self) -> [u8; HEAD_OCTETS] {
        let [afi_high, afi_low] = self.family.afi.to_be_bytes();
        let next_hop_len = match self.source {
            Source::Mp { next_hop, .. } => u8::try_from(next_hop.len()).unwrap_or(u8::MAX - 1),
            Source::Body | Source::Nothing => NO_MP_NEXT_HOP,
        };
        [
            self.session.octet(),
            afi_high,
            afi_low,
            self.family.safi,
            next_hop_len,
        ]
    }

    const fn next_hop(&self) -> &'a [u8] {
        match self.source {
            Source::Mp { next_hop, .. } => next_hop,
            Source::Body | Source::Nothing => &[],
        }
    }

    fn parts(&self) -> impl Iterator<Item = &'a [u8]> {
        let attributes = self.pieces.into_iter().map(|piece| piece.octets);
        core::iter::once(self.next_hop())
            .chain(attributes)
            .filter(|octets| !octets.is_empty())
    }

    /// Appends the key.
    pub fn write_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head());
        self.parts()
            .for_each(|octets| out.extend_from_slice(octets));
    }

    /// Feeds the key to `hasher`. Blocks of equal keys may have different hashes if their
    /// multiprotocol attributes are at different places; a cache then has the set twice.
    #[allow(clippy::should_implement_trait)] // equal keys, unequal hashes: not `Hash`
    pub fn hash(&self, hasher: &mut impl Hasher) {
        hasher.write(&self.head());
        self.parts().for_each(|octets| hasher.write(octets));
    }

    /// Returns whether `key` is this block's key.
    pub fn eq_key(&self, key: &[u8]) -> bool {
        let Some(mut left) = key.strip_prefix(&self.head()) else {
            return false;
        };
        for octets in self.parts() {
            let Some(rest) = left.strip_prefix(octets) else {
                return false;
            };
            left = rest;
        }
        left.is_empty()
    }

    /// Returns the number of octets of the key.
    pub fn key_octets(&self) -> usize {
        HEAD_OCTETS + self.parts().map(<[u8]>::len).sum::<usize>()
    }

    /// Decodes the attributes. The list of faults is empty, and without allocation, if there are
    /// none; otherwise the strongest remedy ([`Fault::worst`]) applies.
    pub fn parse(&self) -> (Attributes, Vec<Fault>) {
        let pieces = self.pieces.iter().map(|piece| (piece.octets, piece.at));
        decode(pieces, self.source, self.session)
    }

    /// Returns the family of the routes that the attributes belong to.
    pub const fn family(&self) -> Family {
        self.family
    }
}
