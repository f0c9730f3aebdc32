//! AIGP: the accumulated interior cost of a path (RFC 7311).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

#[cfg(feature = "strategy")]
use proptest::{collection, prelude::*};

use crate::attr::decode::Context;
use crate::attr::field::Value;
use crate::attr::pack::octets;
use crate::attr::report::Report;
use crate::fault::FaultKind;
use crate::reader::Reader;

/// Type of the TLV with the metric (RFC 7311 §3).
const METRIC: u8 = 1;
/// Its length, type and length included.
const METRIC_OCTETS: u16 = 11;

/// The accumulated interior cost of a path, as its octets: other TLVs are passed on unmodified
/// (RFC 7311 §3). Always well-formed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Aigp(Box<[u8]>);

impl Aigp {
    /// Returns the attribute with a metric. Receivers discard one of `u64::MAX` (RFC 7311 §3.2).
    pub fn new(metric: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = metric.to_be_bytes();
        let [high, low] = METRIC_OCTETS.to_be_bytes();
        Self(Box::new([METRIC, high, low, a, b, c, d, e, f, g, h]))
    }

    /// Returns the attribute of a value on the wire; `None` if it is malformed (RFC 7311 §3.2).
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(octets, 0);
        while !reader.is_empty() {
            let (kind, value) = tlv(&mut reader)?;
            if kind == METRIC && value.len() != 8 {
                return None;
            }
        }
        let aigp = Self(octets.into());
        (aigp.metric() != Some(u64::MAX)).then_some(aigp)
    }

    /// Returns the value on the wire.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    /// Returns the TLVs: types and values.
    pub fn tlvs(&self) -> impl Iterator<Item = (u8, &[u8])> {
        Reader::new(&self.0, 0).each(tlv)
    }

    /// Returns the metric: that of the first TLV that has one.
    pub fn metric(&self) -> Option<u64> {
        let (_, value) = self.tlvs().find(|(kind, _)| *kind == METRIC)?;
        Some(u64::from_be_bytes(value.try_into().ok()?))
    }

    /// Adds the distance to the next hop that the speaker replaces with itself, at least 1
    /// (RFC 7311 §3.4.3).
    pub fn add(&mut self, distance: u64) {
        let Some(metric) = self.metric() else {
            return;
        };
        let sum = metric.saturating_add(distance.max(1));
        let mut octets = Vec::with_capacity(self.0.len());
        let mut is_first = true;
        for (kind, value) in self.tlvs() {
            octets.push(kind);
            octets.extend_from_slice(&(value.len() as u16 + 3).to_be_bytes());
            if kind == METRIC && is_first {
                octets.extend_from_slice(&sum.to_be_bytes());
                is_first = false;
            } else {
                octets.extend_from_slice(value);
            }
        }
        self.0 = octets.into();
    }
}

/// Reads a TLV. Its length includes its type and length fields.
fn tlv<'a>(reader: &mut Reader<'a>) -> Option<(u8, &'a [u8])> {
    let kind = reader.u8()?;
    let length = reader.u16()?.checked_sub(3)?;
    Some((kind, reader.take(usize::from(length))?))
}

impl Value for Aigp {
    fn decode(value: &[u8], _: &Context) -> Result<Self, FaultKind> {
        Self::from_octets(value).ok_or(FaultKind::Value)
    }

    fn encode(&self, _as4: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn unpack(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self(octets(reader)?.into()))
    }

    /// The metric alone is a number.
    fn report(&self) -> Report {
        let others = self.tlvs().filter(|(kind, _)| *kind != METRIC);
        let others: Vec<Report> = others
            .map(|(kind, value)| {
                let kind = Report::Number(u64::from(kind));
                Report::Fields(vec![("type", kind), ("value", Report::hex(value))])
            })
            .collect();
        match self.metric().map(Report::Number) {
            Some(metric) if others.is_empty() => metric,
            Some(metric) => {
                Report::Fields(vec![("metric", metric), ("tlvs", Report::List(others))])
            }
            None => Report::Fields(vec![("tlvs", Report::List(others))]),
        }
    }

    #[cfg(feature = "strategy")]
    fn strategy() -> BoxedStrategy<Self> {
        let other = (2_u8.., collection::vec(any::<u8>(), 0..9)).prop_map(|(kind, value)| {
            let length = (value.len() as u16 + 3).to_be_bytes();
            [&[kind][..], &length, &value].concat()
        });
        (0..u64::MAX, collection::vec(other, 0..3))
            .prop_map(|(metric, others)| {
                let metric = Self::new(metric);
                Self([metric.octets(), &others.concat()].concat().into())
            })
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Remedy;
    use crate::attr::samples::*;

    /// As BIRD and GoBGP send it.
    const TEN: &[u8] = &[0x80, 26, 11, 1, 0, 11, 0, 0, 0, 0, 0, 0, 0, 10];

    #[test]
    fn aigp_is_carried_with_other_tlvs() {
        let set = decoded(TEN);
        assert_eq!(set.rare.aigp, Some(Aigp::new(10)));
        assert_eq!(
            (encoded(&set), shown(&set)),
            (TEN.to_vec(), "AIGP 10".into())
        );
        let tlvs = [&TEN[3..], &[9, 0, 4, 7], &TEN[3..], &[2, 0, 3]].concat();
        let more = attribute(0x80, 26, &tlvs);
        let set = decoded(&more);
        assert_eq!(encoded(&set), more);
        let text = "AIGP metric 10, tlvs {type 9, value 07} {type 2, value }";
        assert_eq!(shown(&set), text);
    }

    #[test]
    fn malformed_aigp_is_discarded() {
        let bad: &[&[u8]] = &[
            &[0x80, 26, 2, 1, 0],
            &[0x80, 26, 3, 9, 0, 2],
            &[0x80, 26, 4, 9, 0, 5, 1],
            &[0x80, 26, 7, 1, 0, 7, 0, 0, 0, 1],
            &[
                0x80, 26, 11, 1, 0, 11, 255, 255, 255, 255, 255, 255, 255, 255,
            ],
        ];
        for octets in bad {
            let wanted = (FaultKind::Value, Remedy::AttributeDiscard);
            assert_eq!(fault(octets), wanted, "{octets:?}");
        }
        // RFC 7311 §3.2: a transitive one, too.
        let transitive = [&[0xc0], &TEN[1..]].concat();
        let wanted = (FaultKind::Flags, Remedy::AttributeDiscard);
        assert_eq!(fault(&transitive), wanted);
    }

    #[test]
    fn distance_adds_to_the_first_metric_without_overflow() {
        let octets = [&TEN[3..], &[9, 0, 4, 7], &TEN[3..]].concat();
        let mut aigp = Aigp::from_octets(&octets).unwrap();
        aigp.add(5);
        let sum = Aigp::new(15);
        assert_eq!(aigp.octets(), [sum.octets(), &octets[11..]].concat());
        aigp.add(0);
        assert_eq!(aigp.metric(), Some(16), "never less than 1");
        aigp.add(u64::MAX);
        assert_eq!(aigp.metric(), Some(u64::MAX), "no overflow");
    }
}
