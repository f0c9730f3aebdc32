//! AS_PATH (RFC 4271 §5.1.2, RFC 5065, RFC 6793).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

#[cfg(feature = "strategy")]
use proptest::prelude::*;

use crate::asn::Asn;
use crate::attr::decode::Context;
use crate::attr::field::Field;
use crate::attr::pack::{octets, put_slice};
use crate::attr::report::Report;
use crate::enums::wire_enum;
use crate::fault::FaultKind;
use crate::limits::SEGMENT_ASNS_MAX;
use crate::params::PeerKind;
use crate::reader::Reader;

wire_enum! {
    /// The type of a segment (RFC 4271 §4.3, RFC 5065 §3).
    pub struct SegmentKind(u8) {
        /// ASes in no order; counts as one (RFC 4271 §9.1.2.2).
        Set = 1 => "AS_SET",
        /// ASes in the order the route came through them, the latest first.
        Sequence = 2 => "AS_SEQUENCE",
        /// Member ASes of a confederation in order; adds nothing to the length (RFC 5065 §5.3).
        ConfedSequence = 3 => "AS_CONFED_SEQUENCE",
        /// Member ASes of a confederation in no order; adds nothing to the length.
        ConfedSet = 4 => "AS_CONFED_SET",
    }
}

impl SegmentKind {
    /// Returns whether the segment has member ASes of a confederation.
    pub const fn is_confederation(self) -> bool {
        matches!(self, Self::ConfedSequence | Self::ConfedSet)
    }
}

/// The ASes a route came through. Kept as octets in the four-octet wire form, which is small,
/// compares fast and is sent by copying; always well-formed.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AsPath {
    octets: Box<[u8]>,
}

/// One segment of an [`AsPath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsPathSegment<'a> {
    /// Set or sequence, of ASes or of member ASes.
    pub kind: SegmentKind,
    asns: &'a [[u8; 4]],
}

impl<'a> AsPathSegment<'a> {
    /// Returns the segment's AS numbers, in their order.
    pub fn asns(
        self,
    ) -> impl DoubleEndedIterator<Item = Asn> + ExactSizeIterator + Clone + use<'a> {
        self.asns
            .iter()
            .map(|octets| Asn(u32::from_be_bytes(*octets)))
    }

    /// Returns the segment's part of the path's length (RFC 4271 §9.1.2.2, RFC 5065 §5.3).
    pub const fn length(&self) -> usize {
        match self.kind {
            SegmentKind::Sequence => self.asns.len(),
            SegmentKind::Set => 1,
            _ => 0,
        }
    }
}

impl AsPath {
    /// Returns the empty path, which a route has within the AS of its origin.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Returns a path of one AS_SEQUENCE, cut into segments of 255 if it is longer.
    pub fn sequence(asns: &[Asn]) -> Self {
        let mut builder = Builder::default();
        builder.push(SegmentKind::Sequence, asns.iter().copied());
        builder.finish()
    }

    /// Makes a path of these segments. Segments without AS numbers are left out, and segments
    /// longer than 255 are split.
    pub fn from_segments<'s>(segments: impl IntoIterator<Item = (SegmentKind, &'s [Asn])>) -> Self {
        let mut builder = Builder::default();
        for (kind, asns) in segments {
            builder.push(kind, asns.iter().copied());
        }
        builder.finish()
    }

    /// Returns whether the path has no segment.
    pub const fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Returns the segments, the latest AS first.
    pub fn segments(&self) -> impl Iterator<Item = AsPathSegment<'_>> + Clone {
        let mut left: &[u8] = &self.octets;
        core::iter::from_fn(move || {
            let (&[kind, count], rest) = left.split_first_chunk::<2>()?;
            let (asns, rest) = rest.split_at_checked(usize::from(count) * 4)?;
            left = rest;
            Some(AsPathSegment {
                kind: SegmentKind(kind),
                asns: asns.as_chunks::<4>().0,
            })
        })
    }

    /// Returns all AS numbers of all segments.
    pub fn asns(&self) -> impl Iterator<Item = Asn> + Clone + '_ {
        self.segments().flat_map(AsPathSegment::asns)
    }

    /// Returns the length that the decision process compares: an AS_SET counts one, confederation
    /// segments count nothing (RFC 4271 §9.1.2.2 a, RFC 5065 §5.3).
    pub fn length(&self) -> usize {
        self.segments().map(|segment| segment.length()).sum()
    }

    /// Returns the neighboring AS the route came from: the first of the first segment that is not a
    /// confederation's, if that is an AS_SEQUENCE.
    pub fn first_as(&self) -> Option<Asn> {
        let mut segments = self.segments();
        let first = segments.find(|segment| !segment.kind.is_confederation())?;
        (first.kind == SegmentKind::Sequence)
            .then(|| first.asns().next())
            .flatten()
    }

    /// Returns the origin AS: the last AS number, unless it is in a set.
    pub fn origin_as(&self) -> Option<Asn> {
        let last = self.segments().last()?;
        (last.kind == SegmentKind::Sequence)
            .then(|| last.asns().next_back())
            .flatten()
    }

    /// Returns whether the path has an AS_SET or AS_CONFED_SET, which RFC 9774 has abandoned.
    pub fn has_set(&self) -> bool {
        self.segments()
            .any(|segment| matches!(segment.kind, SegmentKind::Set | SegmentKind::ConfedSet))
    }

    /// Returns whether the AS number is anywhere in the path (RFC 4271 §9.1.2, loop detection).
    pub fn contains(&self, asn: Asn) -> bool {
        self.asns().any(|each| each == asn)
    }

    /// Puts an AS number in front, as a speaker does that passes the route to another AS
    /// (RFC 4271 §5.1.2).
    pub fn prepend(&mut self, asn: Asn) {
        let mut builder = Builder::default();
        builder.push(SegmentKind::Sequence, core::iter::once(asn));
        builder.append(self.segments());
        *self = builder.finish();
    }

    /// Returns the path without confederation segments, for peers outside the confederation (RFC
    /// 5065 §4).
    #[must_use]
    pub fn without_confederations(&self) -> Self {
        let mut builder = Builder::default();
        builder.append(
            self.segments()
                .filter(|segment| !segment.kind.is_confederation()),
        );
        builder.finish()
    }

    /// This two-octet path with the four-octet numbers of `as4_path` at its end; `None` if
    /// that is longer and so to be ignored (RFC 6793 §4.2.3).
    pub(super) fn merged(&self, as4_path: &Self) -> Option<Self> {
        let mut lead = self.length().checked_sub(as4_path.length())?;
        let mut builder = Builder::default();
        for segment in self.segments() {
            if segment.kind.is_confederation() {
                builder.push(segment.kind, segment.asns());
            } else if lead == 0 {
                break;
            } else if segment.kind == SegmentKind::Set {
                lead -= 1;
                builder.push(segment.kind, segment.asns());
            } else {
                let taken = lead.min(segment.asns.len());
                lead -= taken;
                builder.push(segment.kind, segment.asns().take(taken));
            }
        }
        builder.append(as4_path.segments());
        Some(builder.finish())
    }

    /// Reads the value of AS_PATH with AS numbers of four or two octets (RFC 7606 §7.2).
    pub(super) fn read(value: &[u8], as4: bool) -> Result<Self, FaultKind> {
        let mut reader = Reader::new(value, 0);
        let mut octets = Vec::with_capacity(if as4 { value.len() } else { value.len() * 2 });
        while !reader.is_empty() {
            segment(&mut reader, as4, &mut octets).ok_or(FaultKind::Value)?;
        }
        Ok(Self {
            octets: octets.into_boxed_slice(),
        })
    }

    /// Appends the value of AS_PATH with AS numbers of four octets, or of two with
    /// AS_TRANS where a number does not fit (RFC 6793 §4.2.2).
    pub(super) fn encode_value(&self, as4: bool, out: &mut Vec<u8>) {
        if as4 {
            out.extend_from_slice(&self.octets);
            return;
        }
        for segment in self.segments() {
            let count = u8::try_from(segment.asns.len()).unwrap_or(u8::MAX);
            out.extend_from_slice(&[segment.kind.0, count]);
            for asn in segment.asns() {
                out.extend_from_slice(&asn.two_octet().to_be_bytes());
            }
        }
    }
}

/// Reads one segment and appends it in four-octet form.
fn segment(reader: &mut Reader<'_>, as4: bool, out: &mut Vec<u8>) -> Option<()> {
    let [kind, count] = reader.array()?;
    // RFC 7606 §7.2: an unknown type, or a segment without AS numbers.
    if !SegmentKind(kind).is_known() || count == 0 {
        return None;
    }
    out.extend_from_slice(&[kind, count]);
    for _ in 0..count {
        let asn = if as4 {
            reader.u32()?
        } else {
            u32::from(reader.u16()?)
        };
        // RFC 7607 §2: AS 0 makes the path malformed.
        if asn == 0 {
            return None;
        }
        out.extend_from_slice(&asn.to_be_bytes());
    }
    Some(())
}

/// Puts paths together: joins a sequence to the sequence before it while there is room.
#[derive(Default)]
struct Builder {
    octets: Vec<u8>,
    /// Start of the last segment, if it is a sequence.
    open: Option<usize>,
}

impl Builder {
    fn push(&mut self, kind: SegmentKind, asns: impl Iterator<Item = Asn>) {
        let joins = kind == SegmentKind::Sequence;
        let mut open = if joins { self.open } else { None };
        for asn in asns {
            let start = match open {
                Some(start) if self.count(start) < SEGMENT_ASNS_MAX => start,
                _ => {
                    let start = self.octets.len();
                    self.octets.extend_from_slice(&[kind.0, 0]);
                    start
                }
            };
            open = Some(start);
            if let Some(count) = self.octets.get_mut(start + 1) {
                *count += 1;
            }
            self.octets.extend_from_slice(&asn.0.to_be_bytes());
            self.open = if joins { open } else { None };
        }
    }

    fn append<'a>(&mut self, segments: impl Iterator<Item = AsPathSegment<'a>>) {
        segments.for_each(|segment| self.push(segment.kind, segment.asns()));
    }

    fn count(&self, start: usize) -> usize {
        self.octets
            .get(start + 1)
            .map_or(SEGMENT_ASNS_MAX, |count| usize::from(*count))
    }

    fn finish(self) -> AsPath {
        AsPath {
            octets: self.octets.into_boxed_slice(),
        }
    }
}

impl fmt::Display for AsPath {
    /// "64512 64513 {64514,64515}"; confederation segments in "( )" and "[ ]".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments().enumerate() {
            let (open, between, close) = match segment.kind {
                SegmentKind::Sequence => ("", " ", ""),
                SegmentKind::Set => ("{", ",", "}"),
                SegmentKind::ConfedSequence => ("(", " ", ")"),
                _ => ("[", ",", "]"),
            };
            f.write_str(if index == 0 { "" } else { " " })?;
            f.write_str(open)?;
            for (index, asn) in segment.asns().enumerate() {
                f.write_str(if index == 0 { "" } else { between })?;
                fmt::Display::fmt(&asn, f)?;
            }
            f.write_str(close)?;
        }
        Ok(())
    }
}

impl fmt::Debug for AsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Field for AsPath {
    /// It is always packed, an empty path as one octet.
    const BITS: u32 = 0;

    fn form(&self) -> u64 {
        0
    }

    fn is_present(&self) -> bool {
        true
    }

    fn decode(value: &[u8], context: &Context) -> Result<Self, FaultKind> {
        let path = Self::read(value, context.as4)?;
        // RFC 5065 §5: member ASes do not leave their confederation.
        let confederation = path
            .segments()
            .any(|segment| segment.kind.is_confederation());
        // RFC 4271 §5.1.2: a speaker prepends its AS to paths that it sends to another AS.
        if context.kind == PeerKind::External && (confederation || path.is_empty()) {
            return Err(FaultKind::Value);
        }
        Ok(path)
    }

    fn encode(&self, as4: bool, out: &mut Vec<u8>) {
        self.encode_value(as4, out);
    }

    fn pack(&self, out: &mut Vec<u8>) {
        put_slice(&self.octets, out);
    }

    fn unpack(_: u64, reader: &mut Reader<'_>) -> Option<Self> {
        let octets = octets(reader)?.into();
        Some(Self { octets })
    }

    fn report(&self) -> Report {
        Report::text(self)
    }

    #[cfg(feature = "strategy")]
    fn strategy(confederations: bool) -> BoxedStrategy<Self> {
        crate::strategy::as_path(confederations).boxed()
    }
}
