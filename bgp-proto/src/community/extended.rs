//! Communities of eight octets with a type (RFC 4360, RFC 5668).

use core::fmt;
use core::net::Ipv4Addr;

/// An extended community (RFC 4360 §2), as its octets. Prints as "rt:64512:100" or
/// "ro:10.0.0.1:7", a link bandwidth in octets per second as "bandwidth:64512:125000000" or, if it is
/// not transitive, "link-bandwidth:64512:125000000"; other types as "0x" and hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtendedCommunity(pub [u8; 8]);

/// The sub-type of a link bandwidth (RFC 10005 §2).
const LINK_BANDWIDTH: u8 = 0x04;

/// Types whose first two octets have a name: route target and route origin of RFC 4360 §4 and §5.
const NAMES: &[(u8, &str)] = &[(0x02, "rt"), (0x03, "ro")];

/// The three forms of the administrator (RFC 4360 §3.1, §3.2, RFC 5668 §2).
const TWO_OCTET_AS: u8 = 0x00;
const IPV4: u8 = 0x01;
const FOUR_OCTET_AS: u8 = 0x02;

/// The type of the communities of Ethernet VPNs (RFC 7432 §7.5).
const EVPN: u8 = 0x06;

/// The bit of the type for non-transitive communities (RFC 4360 §2).
const NON_TRANSITIVE: u8 = 0x40;

impl ExtendedCommunity {
    /// Returns a route target of a two-octet AS.
    pub const fn route_target_as2(asn: u16, number: u32) -> Self {
        let [a, b] = asn.to_be_bytes();
        let [c, d, e, f] = number.to_be_bytes();
        Self([TWO_OCTET_AS, 0x02, a, b, c, d, e, f])
    }

    /// Returns a route target of a four-octet AS.
    pub const fn route_target_as4(asn: u32, number: u16) -> Self {
        let [a, b, c, d] = asn.to_be_bytes();
        let [e, f] = number.to_be_bytes();
        Self([FOUR_OCTET_AS, 0x02, a, b, c, d, e, f])
    }

    /// Returns a route target of an IPv4 address.
    pub const fn route_target_ipv4(address: Ipv4Addr, number: u16) -> Self {
        let [a, b, c, d] = address.octets();
        let [e, f] = number.to_be_bytes();
        Self([IPV4, 0x02, a, b, c, d, e, f])
    }

    /// Returns the bandwidth of a link of an AS, in octets per second, in the transitive form or the other one.
    pub const fn link_bandwidth(asn: u16, octets_per_s: f32, is_transitive: bool) -> Self {
        let kind = if is_transitive {
            TWO_OCTET_AS
        } else {
            TWO_OCTET_AS | NON_TRANSITIVE
        };
        let [a, b] = asn.to_be_bytes();
        let [c, d, e, f] = octets_per_s.to_bits().to_be_bytes();
        Self([kind, LINK_BANDWIDTH, a, b, c, d, e, f])
    }

    /// Returns whether this is a link bandwidth, even one with an invalid number.
    pub const fn is_link_bandwidth(&self) -> bool {
        self.kind() & !NON_TRANSITIVE == TWO_OCTET_AS && self.subkind() == LINK_BANDWIDTH
    }

    /// Returns the octets per second of a link bandwidth. `None` for another type, and for a number that is
    /// negative, infinite or no number.
    pub fn octets_per_s(&self) -> Option<f32> {
        let [_, _, _, _, number @ ..] = self.0;
        let number = f32::from_bits(u32::from_be_bytes(number));
        let is_valid = number.is_finite() && number.is_sign_positive();
        (self.is_link_bandwidth() && is_valid).then_some(number)
    }

    /// Returns the high octet of the type.
    pub const fn kind(&self) -> u8 {
        let [kind, ..] = self.0;
        kind
    }

    /// Returns the low octet of the type.
    pub const fn subkind(&self) -> u8 {
        let [_, subkind, ..] = self.0;
        subkind
    }

    /// Returns whether the community crosses the border of an AS (RFC 4360 §2).
    pub const fn is_transitive(&self) -> bool {
        self.kind() & NON_TRANSITIVE == 0
    }

    /// Returns whether this is a route target (RFC 4360 §4).
    pub const fn is_route_target(&self) -> bool {
        matches!(self.kind(), TWO_OCTET_AS | IPV4 | FOUR_OCTET_AS) && self.subkind() == 0x02
    }

    /// Returns whether this is an ES-Import route target, which route target memberships select
    /// like any other one (RFC 7432 §7.6).
    pub const fn is_es_import(&self) -> bool {
        self.kind() == EVPN && self.subkind() == 0x02
    }

    /// Writes "administrator:number" in the form of the type.
    fn fmt_value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, _, a, b, c, d, e, g] = self.0;
        let low = u16::from_be_bytes([e, g]);
        match kind {
            TWO_OCTET_AS => {
                let asn = u16::from_be_bytes([a, b]);
                write!(f, "{asn}:{}", u32::from_be_bytes([c, d, e, g]))
            }
            IPV4 => write!(f, "{}:{low}", Ipv4Addr::new(a, b, c, d)),
            // The "L" distinguishes it from a two-octet AS of the same number.
            _ => write!(f, "{}L:{low}", u32::from_be_bytes([a, b, c, d])),
        }
    }
}

impl fmt::Display for ExtendedCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.octets_per_s() {
            let [_, _, a, b, ..] = self.0;
            let name = if self.is_transitive() {
                "bandwidth"
            } else {
                "link-bandwidth"
            };
            return write!(f, "{name}:{}:{number}", u16::from_be_bytes([a, b]));
        }
        let name = NAMES.iter().find(|(subkind, _)| *subkind == self.subkind());
        match (name, self.kind()) {
            (Some((_, name)), TWO_OCTET_AS | IPV4 | FOUR_OCTET_AS) => {
                write!(f, "{name}:")?;
                self.fmt_value(f)
            }
            _ => {
                f.write_str("0x")?;
                self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_bandwidth_of_frr_is_read() {
        // FRR 8.4: "set extcommunity bandwidth 1000", in Mbit/s, in AS 65001; with "non-transitive" the second one.
        for (kind, is_transitive) in [(0x00, true), (0x40, false)] {
            let sent = ExtendedCommunity([kind, 0x04, 0xfd, 0xe9, 0x4c, 0xee, 0x6b, 0x28]);
            assert_eq!(sent.octets_per_s(), Some(125_000_000.0));
            assert_eq!(sent.is_transitive(), is_transitive);
            let own = ExtendedCommunity::link_bandwidth(65_001, 125_000_000.0, is_transitive);
            assert_eq!(own, sent);
        }
    }

    #[test]
    fn link_bandwidth_with_invalid_number_has_none() {
        for number in [-1.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let one = ExtendedCommunity::link_bandwidth(1, number, true);
            assert!(one.is_link_bandwidth());
            assert_eq!(one.octets_per_s(), None, "{number}");
        }
        assert_eq!(
            ExtendedCommunity::route_target_as2(1, 4).octets_per_s(),
            None
        );
        // The same sub-type with the address of a router has another meaning.
        assert_eq!(
            ExtendedCommunity([0x01, 0x04, 0, 0, 0, 0, 0, 0]).octets_per_s(),
            None
        );
    }
}
