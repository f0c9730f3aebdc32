//! NLRI: the destination of a route, and its path identifier (RFC 4271 §4.3, RFC 7911).

use core::fmt;

use bytes::BytesMut;

use crate::attr::AttrCode;
use crate::family::{Family, FamilyRow, Framing};
use crate::fault::{Fault, FaultKind};
use crate::prefix::{Ipv4Prefix, Ipv6Prefix, Prefix};
use crate::reader::Reader;

/// The destination of a route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Net<'a> {
    /// An IPv4 prefix.
    V4(Ipv4Prefix),
    /// An IPv6 prefix.
    V6(Ipv6Prefix),
    /// One NLRI of an opaque family: its octets with their own length field, without the path
    /// identifier. [`FamilyRow::key`] selects the octets that identify the route.
    Opaque(&'a [u8]),
}

impl Net<'_> {
    /// Returns the prefix, unless the family is an opaque one.
    pub const fn prefix(&self) -> Option<Prefix> {
        match self {
            Self::V4(prefix) => Some(Prefix::V4(*prefix)),
            Self::V6(prefix) => Some(Prefix::V6(*prefix)),
            Self::Opaque(_) => None,
        }
    }

    /// Returns the number of octets that the NLRI takes in a message, without a path identifier.
    pub fn wire_octets(&self) -> usize {
        match self {
            Self::V4(prefix) => 1 + octets_of_bits(prefix.len()),
            Self::V6(prefix) => 1 + octets_of_bits(prefix.len()),
            Self::Opaque(octets) => octets.len(),
        }
    }

    /// Appends the NLRI's octets.
    #[inline]
    pub(crate) fn put(&self, out: &mut BytesMut) {
        match self {
            Self::V4(prefix) => {
                let [a, b, c, d] = prefix.addr().octets();
                put_front(out, [prefix.len(), a, b, c, d], self.wire_octets());
            }
            Self::V6(prefix) => {
                let mut octets = [prefix.len(); 17];
                if let Some(address) = octets.last_chunk_mut() {
                    *address = prefix.addr().octets();
                }
                put_front(out, octets, self.wire_octets());
            }
            Self::Opaque(octets) => out.extend_from_slice(octets),
        }
    }
}

/// Appends the first `len` of `octets`. If there is capacity for all of them they are written and
/// the rest is truncated: copying a constant number takes one instruction.
#[inline]
fn put_front<const N: usize>(out: &mut BytesMut, octets: [u8; N], len: usize) {
    if out.capacity() - out.len() < N {
        return out.extend_from_slice(octets.get(..len).unwrap_or(&octets));
    }
    let end = out.len() + len;
    out.extend_from_slice(&octets);
    out.truncate(end);
}

impl From<Prefix> for Net<'_> {
    fn from(prefix: Prefix) -> Self {
        match prefix {
            Prefix::V4(prefix) => Self::V4(prefix),
            Prefix::V6(prefix) => Self::V6(prefix),
        }
    }
}

impl From<Ipv4Prefix> for Net<'_> {
    fn from(prefix: Ipv4Prefix) -> Self {
        Self::V4(prefix)
    }
}

impl From<Ipv6Prefix> for Net<'_> {
    fn from(prefix: Ipv6Prefix) -> Self {
        Self::V6(prefix)
    }
}

impl fmt::Display for Net<'_> {
    /// A prefix in its usual form; opaque octets as lower-case hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => fmt::Display::fmt(prefix, f),
            Self::V6(prefix) => fmt::Display::fmt(prefix, f),
            Self::Opaque(octets) => octets.iter().try_for_each(|octet| write!(f, "{octet:02x}")),
        }
    }
}

impl fmt::Debug for Net<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One reachable or unreachable destination of an UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Nlri<'a> {
    /// Path identifier (RFC 7911 §3); 0 on a session without them.
    pub path_id: u32,
    /// The destination.
    pub net: Net<'a>,
}

impl<'a> Nlri<'a> {
    /// Returns a destination without a path identifier.
    pub const fn new(net: Net<'a>) -> Self {
        Self { path_id: 0, net }
    }
}

/// Iterates over the NLRI in a run of octets, in place.
///
/// After an `Err` the iterator is at its end: the start of the next NLRI is unknown.
#[derive(Clone, Debug)]
pub struct NlriIter<'a> {
    framing: Option<Framing>,
    add_path: bool,
    attr: AttrCode,
    reader: Reader<'a>,
    /// A second run, read after the first: routes that became withdrawals (RFC 7606 §2).
    then: Option<Run<'a>>,
}

/// Octets of another field of the same message.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    attr: AttrCode,
    reader: Reader<'a>,
}

impl<'a> NlriIter<'a> {
    /// Iterates over `octets`, which lie `at` octets into the UPDATE's body. With `add_path`
    /// every NLRI has a path identifier ahead (RFC 7911 §3).
    pub fn new(family: Family, add_path: bool, octets: &'a [u8], at: usize) -> Self {
        Self {
            framing: family.row().map(|row| row.framing),
            add_path,
            attr: AttrCode::None,
            reader: Reader::new(octets, at),
            then: None,
        }
    }

    /// Returns an iterator over nothing.
    pub const fn empty() -> Self {
        Self {
            framing: None,
            add_path: false,
            attr: AttrCode::None,
            reader: Reader::new(&[], 0),
            then: None,
        }
    }

    /// Names the attribute that faults are to be laid to.
    pub(crate) const fn within(mut self, attr: AttrCode) -> Self {
        self.attr = attr;
        self
    }

    /// Reads `next` after this one; both are of one family and session.
    pub(crate) fn then(self, next: &Self) -> Self {
        if self.is_empty() {
            return next.clone();
        }
        if next.reader.is_empty() {
            return self;
        }
        debug_assert!(
            self.then.is_none(),
            "a message has two fields of routes at most"
        );
        let run = Run {
            attr: next.attr,
            reader: next.reader,
        };
        Self {
            then: Some(run),
            ..self
        }
    }

    /// Returns whether nothing is left to read.
    pub const fn is_empty(&self) -> bool {
        self.reader.is_empty() && self.then.is_none()
    }

    /// Returns the number of octets left to read.
    pub const fn octets_left(&self) -> usize {
        let then = match &self.then {
            Some(run) => run.reader.rest().len(),
            None => 0,
        };
        self.reader.rest().len() + then
    }

    #[inline]
    fn step(&mut self) -> Option<Nlri<'a>> {
        let path_id = if self.add_path { self.reader.u32()? } else { 0 };
        let net = match self.framing? {
            Framing::Ipv4 => Net::V4(ipv4(&mut self.reader)?),
            Framing::Ipv6 => Net::V6(ipv6(&mut self.reader)?),
            framing => {
                let len = opaque_octets(framing, self.reader.rest())?;
                Net::Opaque(self.reader.take(len)?)
            }
        };
        Some(Nlri { path_id, net })
    }
}

impl<'a> Iterator for NlriIter<'a> {
    type Item = Result<Nlri<'a>, Fault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            let run = self.then.take()?;
            self.attr = run.attr;
            self.reader = run.reader;
        }
        let at = self.reader.at();
        if let Some(nlri) = self.step() {
            return Some(Ok(nlri));
        }
        self.reader = Reader::new(&[], at);
        self.then = None;
        let typed = matches!(self.framing, Some(Framing::Ipv4 | Framing::Ipv6));
        let kind = if typed {
            FaultKind::NlriSyntax
        } else {
            FaultKind::OpaqueNlriSyntax
        };
        Some(Err(Fault::new(kind, self.attr, at)))
    }
}

impl FamilyRow {
    /// Returns the number of octets of the first NLRI in `octets`, its length field included;
    /// `None` if it is cut off or its length is not one the family allows.
    pub fn nlri_octets(&self, octets: &[u8]) -> Option<usize> {
        let len = match self.framing {
            Framing::Ipv4 => bits_octets(octets, 0, 32),
            Framing::Ipv6 => bits_octets(octets, 0, 128),
            framing => opaque_octets(framing, octets),
        }?;
        (len <= octets.len()).then_some(len)
    }
}

/// Octets that hold `bits` bits.
const fn octets_of_bits(bits: u8) -> usize {
    (bits as usize).div_ceil(8)
}

#[inline]
fn ipv4(reader: &mut Reader<'_>) -> Option<Ipv4Prefix> {
    let (len, octets) = prefix::<4, 5>(reader)?;
    Ipv4Prefix::new(octets.into(), len)
}

#[inline]
fn ipv6(reader: &mut Reader<'_>) -> Option<Ipv6Prefix> {
    let (len, octets) = prefix::<16, 17>(reader)?;
    Ipv6Prefix::new(octets.into(), len)
}

/// Reads a length in bits and the octets of an address; the octets beyond the length are arbitrary.
/// `WITH` is one more than `N`.
#[inline]
fn prefix<const N: usize, const WITH: usize>(reader: &mut Reader<'_>) -> Option<(u8, [u8; N])> {
    // Nearly always other octets follow: so many can be read at once, for any length.
    if let Some(wire) = reader.rest().first_chunk::<WITH>()
        && let Some((&len, octets)) = wire.split_first()
    {
        reader.take(1 + octets_of_bits(len))?;
        return Some((len, *octets.first_chunk()?));
    }
    let len = reader.u8()?;
    let mut octets = [0; N];
    let wire = reader.take(octets_of_bits(len))?;
    octets.get_mut(..wire.len())?.copy_from_slice(wire);
    Some((len, octets))
}

/// Returns the number of octets of the NLRI at the start of `octets`, by its length field.
fn opaque_octets(framing: Framing, octets: &[u8]) -> Option<usize> {
    match framing {
        Framing::Ipv4 => bits_octets(octets, 0, 32),
        Framing::Ipv6 => bits_octets(octets, 0, 128),
        Framing::Bits { min, max } => bits_octets(octets, min, max),
        Framing::RouteTarget => match octets.first()? {
            0 => Some(1),
            _ => bits_octets(octets, 32, 96), // RFC 4684 §4
        },
        Framing::TypeLength => Some(2 + usize::from(*octets.get(1)?)),
        // RFC 8955 §4.1: lengths from 240 on take two octets, the first one 0xf_.
        Framing::Flowspec => match *octets.first()? {
            len if len < 240 => Some(1 + usize::from(len)),
            high => {
                let len = usize::from(high & 0x0f) << 8 | usize::from(*octets.get(1)?);
                Some(2 + len)
            }
        },
    }
}

fn bits_octets(octets: &[u8], min: u8, max: u8) -> Option<usize> {
    let bits = *octets.first()?;
    (min..=max)
        .contains(&bits)
        .then(|| 1 + octets_of_bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn all(family: Family, add_path: bool, octets: &[u8]) -> Vec<Result<Nlri<'_>, Fault>> {
        NlriIter::new(family, add_path, octets, 100).collect()
    }

    #[test]
    fn reads_prefixes_and_path_ids() {
        let octets = [0, 0, 0, 7, 17, 10, 1, 0xff, 0, 0, 0, 0, 0];
        let read = all(Family::IPV4_UNICAST, true, &octets);
        let one = "10.1.128.0/17".parse::<Ipv4Prefix>().unwrap();
        assert_eq!(
            read,
            [
                Ok(Nlri {
                    path_id: 7,
                    net: Net::V4(one)
                }),
                Ok(Nlri::new(Net::V4(Ipv4Prefix::DEFAULT))),
            ]
        );
    }

    #[test]
    fn stops_at_the_first_fault() {
        for octets in [&[8, 10, 33, 0, 0, 0, 0, 0][..], &[8, 10, 24, 1, 2]] {
            let read = all(Family::IPV4_UNICAST, false, octets);
            assert_eq!(read.len(), 2);
            assert!(read[0].is_ok());
            assert_eq!(
                read[1],
                Err(Fault::new(FaultKind::NlriSyntax, AttrCode::None, 102))
            );
        }
    }

    #[test]
    fn frames_opaque_families() {
        let cases: &[(Family, &[u8])] = &[
            (Family::IPV4_LABELED_UNICAST, &[32, 0, 0, 0x11, 10]),
            (
                Family::IPV4_VPN,
                &[96, 0, 0, 0x11, 0, 0, 0, 1, 0, 0, 0, 2, 10],
            ),
            (Family::L2VPN_EVPN, &[9, 2, 0xaa, 0xbb]),
            (Family::ROUTE_TARGET, &[0]),
            (Family::ROUTE_TARGET, &[32, 0, 0, 0xfd, 0xe8]),
            (Family::IPV4_FLOWSPEC, &[3, 1, 8, 10]),
            (Family::IPV6_FLOWSPEC, &[0xf0, 2, 1, 8]),
        ];
        for (family, octets) in cases {
            let twice: Vec<u8> = [*octets, *octets].concat();
            let read = all(*family, false, &twice);
            let want = Ok(Nlri::new(Net::Opaque(octets)));
            assert_eq!(read, [want, want], "{family}");
            let row = family.row().unwrap();
            assert_eq!(row.nlri_octets(&twice), Some(octets.len()));
        }
        let short = all(Family::IPV4_VPN, false, &[24, 0, 0, 1]);
        assert!(matches!(
            short[..],
            [Err(Fault {
                kind: FaultKind::OpaqueNlriSyntax,
                ..
            })]
        ));
    }

    #[test]
    fn a_second_run_follows_the_first() {
        let one = NlriIter::new(Family::IPV4_UNICAST, false, &[8, 10], 0);
        let two = NlriIter::new(Family::IPV4_UNICAST, false, &[8, 11], 9);
        let nets: Vec<_> = one
            .clone()
            .then(&two)
            .map(|nlri| nlri.unwrap().net)
            .collect();
        assert_eq!(alloc::format!("{nets:?}"), "[10.0.0.0/8, 11.0.0.0/8]");
        assert_eq!(NlriIter::empty().then(&two).count(), 1);
        assert_eq!(one.then(&NlriIter::empty()).count(), 1);
    }
}
