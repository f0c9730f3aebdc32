//! TUNNEL_ENCAPSULATION: tunnels that lead to the next hop (RFC 9012).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

#[cfg(feature = "strategy")]
use proptest::{collection, prelude::*};

use crate::attr::decode::Context;
use crate::attr::field::Value;
use crate::attr::pack::octets;
use crate::attr::report::Report;
use crate::enums::wire_enum;
use crate::fault::FaultKind;
use crate::reader::Reader;

wire_enum! {
    /// The technology of a tunnel (IANA "BGP Tunnel Encapsulation Attribute Tunnel Types").
    pub struct TunnelType(u16) {
        /// RFC 9012 §3.2.2.
        L2tpv3 = 1 => "l2tpv3",
        /// RFC 9012 §3.2.4.
        Gre = 2 => "gre",
        /// RFC 9012.
        IpInIp = 7 => "ip-in-ip",
        /// RFC 9012 §3.2.1.
        Vxlan = 8 => "vxlan",
        /// RFC 9012 §3.2.3.
        Nvgre = 9 => "nvgre",
        /// RFC 8365 §5.1.3.
        Mpls = 10 => "mpls",
        /// RFC 9012 §3.2.5.
        MplsInGre = 11 => "mpls-in-gre",
        /// RFC 7510.
        MplsInUdp = 13 => "mpls-in-udp",
        /// RFC 9830.
        SrPolicy = 15 => "sr-policy",
        /// RFC 8926.
        Geneve = 19 => "geneve",
    }
}

wire_enum! {
    /// The type of a sub-TLV of a tunnel (IANA "BGP Tunnel Encapsulation Attribute Sub-TLVs").
    pub struct TunnelSubTlvType(u8) {
        /// RFC 9012 §3.2.
        Encapsulation = 1 => "encapsulation",
        /// RFC 9012 §3.4.1.
        ProtocolType = 2 => "protocol-type",
        /// RFC 9012 §3.4.2.
        Color = 4 => "color",
        /// RFC 9012 §3.1.
        EgressEndpoint = 6 => "egress-endpoint",
        /// RFC 9012 §3.3.1.
        DsField = 7 => "ds-field",
        /// RFC 9012 §3.3.2.
        UdpDestinationPort = 8 => "udp-destination-port",
        /// RFC 9012 §3.5.
        EmbeddedLabelHandling = 9 => "embedded-label-handling",
        /// RFC 9012 §3.6.
        MplsLabelStack = 10 => "mpls-label-stack",
        /// RFC 9012 §3.7.
        PrefixSid = 11 => "prefix-sid",
        /// RFC 9830 §2.4.1.
        Preference = 12 => "preference",
        /// RFC 9830 §2.4.2.
        BindingSid = 13 => "binding-sid",
        /// RFC 9830 §2.4.4.
        SegmentList = 128 => "segment-list",
    }
}

/// Types of sub-TLVs from here on have a length of two octets (RFC 9012 §2).
const LONG: u8 = 128;

/// The tunnels of a route, as their octets: tunnels and sub-TLVs that are not known here are
/// passed on with the others (RFC 9012 §13). Always well-formed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelEncapsulation(Box<[u8]>);

/// One tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel<'a> {
    /// Its technology.
    pub kind: TunnelType,
    sub_tlvs: &'a [u8],
}

impl<'a> Tunnel<'a> {
    /// Returns the sub-TLVs: types and values.
    pub fn sub_tlvs(self) -> impl Iterator<Item = (TunnelSubTlvType, &'a [u8])> {
        Reader::new(self.sub_tlvs, 0).each(sub_tlv)
    }
}

impl TunnelEncapsulation {
    /// Returns the attribute of a value on the wire; `None` if it is malformed.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(octets, 0);
        // RFC 9012 §13: an attribute without a tunnel is as good as malformed.
        while let Some(tunnel) = reader.whole(tunnel) {
            // The last sub-TLV ends where the tunnel ends.
            let mut reader = Reader::new(tunnel.sub_tlvs, 0);
            while reader.whole(sub_tlv).is_some() {}
            if !reader.is_empty() {
                return None;
            }
        }
        (reader.is_empty() && !octets.is_empty()).then(|| Self(octets.into()))
    }

    /// Returns the value on the wire.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    /// Returns the tunnels.
    pub fn tunnels(&self) -> impl Iterator<Item = Tunnel<'_>> {
        Reader::new(&self.0, 0).each(tunnel)
    }
}

fn tunnel<'a>(reader: &mut Reader<'a>) -> Option<Tunnel<'a>> {
    let kind = TunnelType(reader.u16()?);
    let length = reader.u16()?;
    let sub_tlvs = reader.take(usize::from(length))?;
    Some(Tunnel { kind, sub_tlvs })
}

fn sub_tlv<'a>(reader: &mut Reader<'a>) -> Option<(TunnelSubTlvType, &'a [u8])> {
    let kind = reader.u8()?;
    let length = if kind < LONG {
        u16::from(reader.u8()?)
    } else {
        reader.u16()?
    };
    let value = reader.take(usize::from(length))?;
    Some((TunnelSubTlvType(kind), value))
}

impl Value for TunnelEncapsulation {
    fn decode(value: &[u8], _: &Context) -> Result<Self, FaultKind> {
        Self::from_octets(value).ok_or(FaultKind::Value)
    }

    fn encode(&self, _as4: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn unpack(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self(octets(reader)?.into()))
    }

    fn report(&self) -> Report {
        let tunnels = self.tunnels().map(|tunnel| {
            let sub_tlvs = tunnel.sub_tlvs().map(|(kind, value)| {
                let kind = Report::text(&kind);
                Report::Fields(vec![("type", kind), ("value", Report::hex(value))])
            });
            let sub_tlvs = Report::List(sub_tlvs.collect());
            Report::Fields(vec![
                ("type", Report::text(&tunnel.kind)),
                ("sub_tlvs", sub_tlvs),
            ])
        });
        Report::List(tunnels.collect())
    }

    #[cfg(feature = "strategy")]
    fn strategy() -> BoxedStrategy<Self> {
        let sub_tlv =
            (any::<u8>(), collection::vec(any::<u8>(), 0..20)).prop_map(|(kind, value)| {
                let length = value.len() as u8;
                let head = if kind < LONG {
                    vec![kind, length]
                } else {
                    vec![kind, 0, length]
                };
                [head, value].concat()
            });
        let tunnel = (any::<u16>(), collection::vec(sub_tlv, 0..4)).prop_map(|(kind, sub_tlvs)| {
            let sub_tlvs = sub_tlvs.concat();
            let length = (sub_tlvs.len() as u16).to_be_bytes();
            [&kind.to_be_bytes(), &length, sub_tlvs.as_slice()].concat()
        });
        collection::vec(tunnel, 1..3)
            .prop_map(|tunnels| Self(tunnels.concat().into()))
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Remedy;
    use crate::attr::samples::*;

    /// A VXLAN tunnel to 10.0.0.9 with color 7, and a tunnel of an unknown type with a long
    /// sub-TLV.
    const TWO: &[u8] = &[
        0xc0, 23, 40, 0, 8, 0, 22, 6, 10, 0, 0, 0, 0, 0, 1, 10, 0, 0, 9, 4, 8, 3, 11, 0, 0, 0, 0,
        0, 7, 0, 99, 0, 10, 200, 0, 3, 1, 2, 3, 5, 2, 4, 5,
    ];

    /// As GoBGP 3.10.0 sent it, of a request `AddPath` of its interface over gRPC: its program
    /// `gobgp` has no words for tunnels. VXLAN with VNI 100 (without the fixed length that RFC 9012
    /// §3.2.1 gives the sub-TLV), color 7, endpoint 10.0.0.9, UDP port 4789; Geneve to 2001:db8::9;
    /// an SR policy with preference 200 and the labels 16001 and 16002, weight 5.
    const GOBGP: &[u8] = &[
        0xc0, 0x17, 0x68, 0, 8, 0, 0x20, 1, 4, 0, 0, 0, 0x64, 4, 8, 3, 0x0b, 0, 0, 0, 0, 0, 7, 6,
        0x0a, 0, 0, 0, 0, 0, 1, 0x0a, 0, 0, 9, 8, 2, 0x12, 0xb5, 0, 0x13, 0, 0x18, 6, 0x16, 0, 0,
        0, 0, 0, 2, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0x0f, 0, 0x24,
        0x0c, 6, 0, 0, 0, 0, 0, 0xc8, 0x80, 0, 0x19, 0, 9, 6, 0, 0, 0, 0, 0, 5, 1, 6, 0, 0, 3,
        0xe8, 0x10, 0, 1, 6, 0, 0, 3, 0xe8, 0x20, 0,
    ];

    /// As FRR 8.4.4 sent it, of `vnc nve-group` with `rd` and `rt both 64512:9`, and `add vnc prefix
    /// 10.77.0.0/24 vn 10.0.0.2 un 10.0.0.9 lifetime 1000`. Its endpoint has the form of a draft
    /// before RFC 9012: the address, then the AS. GoBGP leaves out the whole attribute.
    const FRR: &[u8] = &[
        0xc0, 0x17, 0x0e, 0, 7, 0, 0x0a, 6, 8, 0x0a, 0, 0, 9, 0, 0, 0xfc, 0,
    ];

    #[test]
    fn tunnels_of_gobgp_and_frr_are_carried() {
        let set = decoded(GOBGP);
        assert_eq!(encoded(&set), GOBGP);
        let text = "TUNNEL_ENCAPSULATION \
                    {type vxlan, sub_tlvs {type encapsulation, value 00000064} \
                    {type color, value 030b000000000007} \
                    {type egress-endpoint, value 0000000000010a000009} \
                    {type udp-destination-port, value 12b5}} \
                    {type geneve, sub_tlvs {type egress-endpoint, \
                    value 00000000000220010db8000000000000000000000009}} \
                    {type sr-policy, sub_tlvs {type preference, value 0000000000c8} \
                    {type segment-list, \
                    value 0009060000000000050106000003e810000106000003e82000}}";
        assert_eq!(shown(&set), text);
        let set = decoded(FRR);
        assert_eq!(encoded(&set), FRR);
        let text = "TUNNEL_ENCAPSULATION {type ip-in-ip, sub_tlvs \
                    {type egress-endpoint, value 0a0000090000fc00}}";
        assert_eq!(shown(&set), text);
    }

    #[test]
    fn tunnels_are_carried_with_unknown_ones() {
        let set = decoded(TWO);
        assert_eq!(encoded(&set), TWO);
        let text = "TUNNEL_ENCAPSULATION \
                    {type vxlan, sub_tlvs {type egress-endpoint, value 0000000000010a000009} \
                    {type color, value 030b000000000007}} \
                    {type 99, sub_tlvs {type 200, value 010203} {type 5, value 0405}}";
        assert_eq!(shown(&set), text);
    }

    #[test]
    fn malformed_tunnels_withdraw_the_route() {
        let bad: &[&[u8]] = &[
            &[0xc0, 23, 0],
            &[0xc0, 23, 3, 0, 8, 0],
            // The tunnel exceeds the attribute; a sub-TLV exceeds its tunnel; an octet is left.
            &[0xc0, 23, 6, 0, 8, 0, 3, 1, 0],
            &[0xc0, 23, 7, 0, 8, 0, 3, 4, 2, 1],
            &[0xc0, 23, 7, 0, 8, 0, 3, 4, 0, 1],
            &[0xc0, 23, 7, 0, 8, 0, 3, 200, 0, 9],
        ];
        for octets in bad {
            let found = fault(octets);
            let wanted = (FaultKind::Value, Remedy::TreatAsWithdraw);
            assert_eq!(found, wanted, "{octets:?}");
        }
        let (kind, remedy) = fault(&[0x80, 23, 4, 0, 8, 0, 0]);
        assert_eq!((kind, remedy), (FaultKind::Flags, Remedy::TreatAsWithdraw));
    }
}
