//! PREFIX_SID: the segment of a prefix (RFC 8669).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

#[cfg(feature = "strategy")]
use proptest::{collection, prelude::*};

use crate::attr::decode::{Context, Routes};
use crate::attr::field::Value;
use crate::attr::pack::octets;
use crate::attr::report::Report;
use crate::enums::wire_enum;
use crate::family::Family;
use crate::fault::FaultKind;
use crate::reader::Reader;

wire_enum! {
    /// The type of a TLV of the attribute (IANA "BGP Prefix-SID TLV Types").
    pub struct PrefixSidTlvType(u8) {
        /// RFC 8669 §3.1.
        LabelIndex = 1 => "label-index",
        /// RFC 8669 §3.2.
        OriginatorSrgb = 3 => "originator-srgb",
        /// RFC 9252 §2.
        Srv6L3Service = 5 => "srv6-l3-service",
        /// RFC 9252 §2.
        Srv6L2Service = 6 => "srv6-l2-service",
    }
}

/// The segment of a prefix, as its octets: TLVs that are not known here are passed on unmodified
/// (RFC 8669 §6). Always well-formed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixSid(Box<[u8]>);

impl PrefixSid {
    /// Returns the attribute with a Label-Index TLV alone (RFC 8669 §3.1).
    pub fn label_index_of(index: u32) -> Self {
        let [a, b, c, d] = index.to_be_bytes();
        let kind = PrefixSidTlvType::LabelIndex.0;
        Self(Box::new([kind, 0, 7, 0, 0, 0, a, b, c, d]))
    }

    /// Returns the attribute of a value on the wire; `None` if it is malformed. A known TLV that
    /// comes again is left out (RFC 8669 §6).
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(octets, 0);
        let (mut kept, mut seen) = (Vec::with_capacity(octets.len()), [false; 256]);
        while !reader.is_empty() {
            let before = reader.rest();
            let (kind, value) = tlv(&mut reader)?;
            let fits = match kind {
                PrefixSidTlvType::LabelIndex => value.len() == 7,
                // Flags, and at least one range of six octets.
                PrefixSidTlvType::OriginatorSrgb => value.len() >= 8 && value.len() % 6 == 2,
                _ => true,
            };
            if !fits {
                return None;
            }
            let seen = seen.get_mut(usize::from(kind.0))?;
            if !kind.is_known() || !*seen {
                kept.extend_from_slice(before.get(..before.len() - reader.rest().len())?);
            }
            *seen = true;
        }
        (!kept.is_empty()).then(|| Self(kept.into()))
    }

    /// Returns the value on the wire.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    /// Returns the TLVs: types and values.
    pub fn tlvs(&self) -> impl Iterator<Item = (PrefixSidTlvType, &[u8])> {
        Reader::new(&self.0, 0).each(tlv)
    }

    /// Returns the index of the prefix's label in the SRGB.
    pub fn label_index(&self) -> Option<u32> {
        let (_, value) = self
            .tlvs()
            .find(|(kind, _)| *kind == PrefixSidTlvType::LabelIndex)?;
        Some(u32::from_be_bytes(*value.last_chunk()?))
    }
}

fn tlv<'a>(reader: &mut Reader<'a>) -> Option<(PrefixSidTlvType, &'a [u8])> {
    let kind = PrefixSidTlvType(reader.u8()?);
    let length = reader.u16()?;
    Some((kind, reader.take(usize::from(length))?))
}

impl Value for PrefixSid {
    fn decode(value: &[u8], context: &Context) -> Result<Self, FaultKind> {
        let sid = Self::from_octets(value).ok_or(FaultKind::Value)?;
        // RFC 8669 §4.1: of a labeled prefix it is invalid without a label index.
        let is_labeled = matches!(
            context.routes,
            Routes::Mp(Family::IPV4_LABELED_UNICAST | Family::IPV6_LABELED_UNICAST)
        );
        if is_labeled && sid.label_index().is_none() {
            return Err(FaultKind::Value);
        }
        Ok(sid)
    }

    fn encode(&self, _as4: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn unpack(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self(octets(reader)?.into()))
    }

    fn report(&self) -> Report {
        let tlvs = self.tlvs().map(|(kind, value)| {
            let value = match (kind, value.last_chunk()) {
                (PrefixSidTlvType::LabelIndex, Some(index)) => {
                    Report::Number(u64::from(u32::from_be_bytes(*index)))
                }
                _ => Report::hex(value),
            };
            Report::Fields(vec![("type", Report::text(&kind)), ("value", value)])
        });
        Report::List(tlvs.collect())
    }

    #[cfg(feature = "strategy")]
    fn strategy() -> BoxedStrategy<Self> {
        let other = (7_u8.., collection::vec(any::<u8>(), 0..30)).prop_map(|(kind, value)| {
            let length = (value.len() as u16).to_be_bytes();
            [&[kind][..], &length, &value].concat()
        });
        (any::<u32>(), collection::vec(other, 0..3))
            .prop_map(|(index, others)| {
                let index = Self::label_index_of(index);
                Self([index.octets(), &others.concat()].concat().into())
            })
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Remedy;
    use crate::attr::samples::*;

    /// As FRR 8.4.4 sent it on a session for IPv4 labeled unicast, of `network 10.75.0.0/24
    /// label-index 9` in its IPv4 unicast.
    const INDEX: &[u8] = &[0xc0, 40, 10, 1, 0, 7, 0, 0, 0, 0, 0, 0, 9];

    /// As GoBGP 3.10.0 sent it: `gobgp global rib add -a ipv4-mup isd 10.0.0.0/24 rd 100:100 prefix
    /// 2001:db8:1:1::/64 locator-node-length 24 function-length 16 behavior ENDM_GTP4E rt 10:10
    /// nexthop 2001:db8::2`.
    const SRV6: &[u8] = &[
        0xc0, 0x28, 0x25, 5, 0, 0x22, 0, 1, 0, 0x1e, 0, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 1, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0x48, 0, 1, 0, 6, 0x40, 0x18, 0x10, 0, 0, 0,
    ];

    #[test]
    fn prefix_sid_is_carried_with_unknown_tlvs() {
        let (set, faults) = read(INDEX, Family::IPV4_LABELED_UNICAST);
        assert_eq!((faults.len(), encoded(&set)), (0, INDEX.to_vec()));
        assert_eq!(shown(&set), "PREFIX_SID {type label-index, value 9}");
        let sid = set.rare.prefix_sid.as_ref();
        assert_eq!(sid.and_then(PrefixSid::label_index), Some(9));
        let srv6: &[u8] = &[0xc0, 40, 8, 5, 0, 2, 0, 1, 99, 0, 0];
        assert_eq!(encoded(&decoded(srv6)), srv6);
    }

    #[test]
    fn segment_of_gobgp_is_carried() {
        let set = decoded(SRV6);
        assert_eq!(encoded(&set), SRV6);
        let text = "PREFIX_SID {type srv6-l3-service, value 0001001e00\
                    20010db800010001000000000000000000004800010006401810000000}";
        assert_eq!(shown(&set), text);
    }

    #[test]
    fn repeated_known_tlv_is_left_out() {
        let (index, others) = (&INDEX[3..], &[99, 0, 0, 99, 0, 0]);
        let again = attribute(0xc0, 40, &[index, index, others].concat());
        let kept = attribute(0xc0, 40, &[index, others].concat());
        assert_eq!(encoded(&decoded(&again)), kept);
    }

    #[test]
    fn malformed_prefix_sid_is_discarded() {
        let bad: &[&[u8]] = &[
            &[0xc0, 40, 0],
            &[0xc0, 40, 2, 9, 0],
            &[0xc0, 40, 4, 9, 0, 2, 1],
            &[0xc0, 40, 9, 1, 0, 6, 0, 0, 0, 0, 0, 9],
            &[0xc0, 40, 5, 3, 0, 2, 0, 0],
            &[0xc0, 40, 12, 3, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ];
        for octets in bad {
            let wanted = (FaultKind::Value, Remedy::AttributeDiscard);
            assert_eq!(fault(octets), wanted, "{octets:?}");
        }
        let no_index: &[u8] = &[0xc0, 40, 3, 99, 0, 0];
        let (set, faults) = read(no_index, Family::IPV6_LABELED_UNICAST);
        assert_eq!(set.rare.prefix_sid, None);
        assert_eq!(faults[0].kind, FaultKind::Value);
        assert_eq!(encoded(&decoded(no_index)), no_index);
    }
}
