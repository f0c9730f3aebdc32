//! PMSI_TUNNEL: the tunnel of multicast, broadcast and unknown traffic of a VPN (RFC 6514 §5).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

#[cfg(feature = "strategy")]
use proptest::prelude::*;

use crate::attr::decode::Context;
use crate::attr::field::Value;
use crate::attr::report::Report;
use crate::enums::wire_enum;
use crate::fault::FaultKind;
use crate::reader::Reader;

wire_enum! {
    /// The technology of a tunnel (IANA "P-Multicast Service Interface Tunnel Types").
    pub struct PmsiTunnelType(u8) {
        /// The attribute carries no tunnel (RFC 6514 §5).
        None = 0 => "none",
        /// RFC 6514 §5.
        RsvpTeP2mp = 1 => "rsvp-te-p2mp",
        /// RFC 6514 §5.
        MldpP2mp = 2 => "mldp-p2mp",
        /// RFC 6514 §5.
        PimSsm = 3 => "pim-ssm",
        /// RFC 6514 §5.
        PimSm = 4 => "pim-sm",
        /// RFC 6514 §5.
        BidirPim = 5 => "bidir-pim",
        /// RFC 6514 §5.
        IngressReplication = 6 => "ingress-replication",
        /// RFC 6514 §5.
        MldpMp2mp = 7 => "mldp-mp2mp",
        /// RFC 7524 §8.
        Transport = 8 => "transport",
        /// RFC 9574 §4.
        AssistedReplication = 10 => "assisted-replication",
        /// RFC 8556 §2.1.
        Bier = 11 => "bier",
        /// A tree of segment routing over MPLS.
        SrMplsP2mp = 12 => "sr-mpls-p2mp",
        /// A tree of segment routing over IPv6.
        Srv6P2mp = 13 => "srv6-p2mp",
    }
}

impl PmsiTunnelType {
    /// Returns whether the type is defined: by name, as a composite tunnel (RFC 8317 §8.1), or for
    /// experiments (RFC 7385 §4).
    const fn is_defined(self) -> bool {
        self.is_known() || matches!(self.0, 0x7b..=0x7e | 0x80..=0xfe)
    }

    /// Returns whether a tunnel identifier of this type can have these octets. Types without a
    /// rule here take any.
    fn takes(self, identifier: &[u8]) -> bool {
        let octets = identifier.len();
        match self {
            // An extended tunnel id, two octets that are reserved, a tunnel id, a P2MP id.
            Self::RsvpTeP2mp => matches!(octets, 12 | 24),
            Self::MldpP2mp | Self::MldpMp2mp => is_mldp_element(identifier),
            // A root, or a sender, and a group.
            Self::PimSsm | Self::PimSm | Self::BidirPim => matches!(octets, 8 | 32),
            Self::IngressReplication | Self::AssistedReplication => matches!(octets, 4 | 16),
            _ => true,
        }
    }
}

/// Returns whether octets are one mLDP FEC element: type, address family, root, opaque value
/// (RFC 6388 §2.2).
fn is_mldp_element(octets: &[u8]) -> bool {
    let mut reader = Reader::new(octets, 0);
    let mut read = || {
        let [_, _, _, root] = reader.array()?;
        reader.take(usize::from(root))?;
        let opaque = reader.u16()?;
        reader.take(usize::from(opaque))?;
        Some(reader.is_empty())
    };
    read().unwrap_or(false)
}

/// The tunnel that a route's multicast traffic takes (RFC 6514 §5).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PmsiTunnel {
    /// Flags; bit 0 requests leaf information.
    pub flags: u8,
    /// The type of the tunnel.
    pub kind: PmsiTunnelType,
    /// The label field, of which the three low octets are sent: an MPLS label in the upper 20 of
    /// its 24 bits, or a VNI (RFC 8365 §5.1.3).
    pub label: u32,
    /// Which tunnel it is; its form depends on the kind.
    pub identifier: Box<[u8]>,
}

impl Value for PmsiTunnel {
    /// RFC 6514 §5: undefined types and identifiers that cannot be read are malformed.
    fn decode(value: &[u8], _: &Context) -> Result<Self, FaultKind> {
        let mut reader = Reader::new(value, 0);
        let [flags, kind, a, b, c] = reader.array().ok_or(FaultKind::Length)?;
        let (kind, identifier) = (PmsiTunnelType(kind), reader.rest());
        if !kind.is_defined() || !kind.takes(identifier) {
            return Err(FaultKind::Value);
        }
        Ok(Self {
            flags,
            kind,
            label: u32::from_be_bytes([0, a, b, c]),
            identifier: identifier.into(),
        })
    }

    fn encode(&self, _as4: bool, out: &mut Vec<u8>) {
        let [_, a, b, c] = self.label.to_be_bytes();
        out.extend_from_slice(&[self.flags, self.kind.0, a, b, c]);
        out.extend_from_slice(&self.identifier);
    }

    fn report(&self) -> Report {
        let identifier = match (self.kind, self.identifier.len()) {
            (PmsiTunnelType::IngressReplication, 4) => {
                Report::text(&Ipv4Addr::from(array::<4>(&self.identifier)))
            }
            (PmsiTunnelType::IngressReplication, 16) => {
                Report::text(&Ipv6Addr::from(array::<16>(&self.identifier)))
            }
            _ => Report::hex(&self.identifier),
        };
        Report::Fields(vec![
            ("flags", Report::Number(u64::from(self.flags))),
            ("type", Report::text(&self.kind)),
            ("label", Report::Number(u64::from(self.label))),
            ("identifier", identifier),
        ])
    }

    #[cfg(feature = "strategy")]
    fn strategy() -> BoxedStrategy<Self> {
        let address = prop_oneof![
            any::<[u8; 4]>().prop_map(|octets| octets.to_vec()),
            any::<[u8; 16]>().prop_map(|octets| octets.to_vec()),
        ];
        let kinds = prop_oneof![
            address.prop_map(|octets| (PmsiTunnelType::IngressReplication, octets)),
            proptest::collection::vec(any::<u8>(), 0..40)
                .prop_map(|octets| (PmsiTunnelType::Bier, octets)),
        ];
        (any::<u8>(), 0..1_u32 << 24, kinds)
            .prop_map(|(flags, label, (kind, identifier))| Self {
                flags,
                kind,
                label,
                identifier: identifier.into(),
            })
            .boxed()
    }
}

/// The octets as an array, which has their length.
fn array<const N: usize>(octets: &[u8]) -> [u8; N] {
    octets.try_into().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Remedy;
    use crate::attr::samples::*;

    /// As FRR 8.4 and GoBGP 3.10 send it with an EVPN route of type 3.
    const INGRESS: &[u8] = &[0xc0, 22, 9, 0, 6, 0, 0x03, 0xe8, 10, 0, 0, 2];

    #[test]
    fn pmsi_tunnel_is_carried_unchanged() {
        let set = decoded(INGRESS);
        assert_eq!(encoded(&set), INGRESS);
        let text = "PMSI_TUNNEL flags 0, type ingress-replication, label 1000, identifier 10.0.0.2";
        assert_eq!(shown(&set), text);
        let six = &[&[0xc0, 22, 21, 1, 6, 0, 0, 1][..], &[0xfd; 16]].concat();
        assert_eq!(encoded(&decoded(six)), *six);
        let mldp = attribute(0xc0, 22, &[0, 2, 0, 0, 0, 6, 0, 1, 1, 9, 0, 1, 7]);
        assert_eq!(encoded(&decoded(&mldp)), mldp);
        let composite: &[u8] = &[0xc0, 22, 5, 0, 0x86, 0, 0, 0];
        assert_eq!(encoded(&decoded(composite)), composite);
    }

    #[test]
    fn malformed_pmsi_tunnel_withdraws_the_route() {
        let bad: &[(&[u8], FaultKind)] = &[
            (&[0xc0, 22, 0], FaultKind::Length),
            (&[0xc0, 22, 4, 0, 6, 0, 0], FaultKind::Length),
            (&[0xc0, 22, 5, 0, 0x70, 0, 0, 0], FaultKind::Value),
            (&[0xc0, 22, 8, 0, 6, 0, 0, 0, 1, 2, 3], FaultKind::Value),
            (&[0xc0, 22, 9, 0, 2, 0, 0, 0, 6, 0, 1, 1], FaultKind::Value),
            (&[0xc0, 22, 7, 0, 3, 0, 0, 0, 1, 1], FaultKind::Value),
        ];
        for (octets, kind) in bad {
            assert_eq!(
                fault(octets),
                (*kind, Remedy::TreatAsWithdraw),
                "{octets:?}"
            );
        }
    }
}
