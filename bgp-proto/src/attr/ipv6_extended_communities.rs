//! IPV6_EXTENDED_COMMUNITIES: extended communities with an IPv6 address (RFC 5701).

use core::fmt;
use core::net::Ipv6Addr;

use crate::attr::field::Item;

/// An IPv6 address specific extended community (RFC 5701 §2), as its octets. Prints as
/// `rt:[2001:db8::1]:100` or `ro:[2001:db8::1]:7`; other types as `0x` and hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ipv6ExtendedCommunity(pub [u8; 20]);

/// Types known by name: route target and route origin of RFC 5701 §3.
const NAMES: &[([u8; 2], &str)] = &[([0x00, 0x02], "rt"), ([0x00, 0x03], "ro")];

/// The bit of the type of a community that does not cross the border of an AS (RFC 4360 §2).
const NON_TRANSITIVE: u8 = 0x40;

impl Ipv6ExtendedCommunity {
    /// Returns the community of a type, a global administrator and a local one.
    pub const fn new(kind: [u8; 2], address: Ipv6Addr, number: u16) -> Self {
        let mut octets = [0; 20];
        let (head, rest) = octets.split_at_mut(2);
        head.copy_from_slice(&kind);
        let (global, local) = rest.split_at_mut(16);
        global.copy_from_slice(&address.octets());
        local.copy_from_slice(&number.to_be_bytes());
        Self(octets)
    }

    /// Returns a route target.
    pub const fn route_target(address: Ipv6Addr, number: u16) -> Self {
        Self::new([0x00, 0x02], address, number)
    }

    /// Returns the type.
    pub const fn kind(&self) -> [u8; 2] {
        let [high, low, ..] = self.0;
        [high, low]
    }

    /// Returns the global administrator.
    pub fn address(&self) -> Ipv6Addr {
        let address = self.0.get(2..18).unwrap_or_default();
        <[u8; 16]>::try_from(address).unwrap_or_default().into()
    }

    /// Returns the local administrator.
    pub const fn number(&self) -> u16 {
        let [.., high, low] = self.0;
        u16::from_be_bytes([high, low])
    }

    /// Returns whether the community crosses the border of an AS.
    pub const fn is_transitive(&self) -> bool {
        let [high, _] = self.kind();
        high & NON_TRANSITIVE == 0
    }
}

impl fmt::Display for Ipv6ExtendedCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(kind, _)| *kind == self.kind()) {
            Some((_, name)) => write!(f, "{name}:[{}]:{}", self.address(), self.number()),
            None => {
                f.write_str("0x")?;
                self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
            }
        }
    }
}

impl Item for Ipv6ExtendedCommunity {
    type Octets = [u8; 20];

    fn from_octets(octets: [u8; 20]) -> Self {
        Self(octets)
    }

    fn octets(&self) -> [u8; 20] {
        self.0
    }

    fn is_transitive(&self) -> bool {
        Self::is_transitive(self)
    }
}

#[cfg(test)]
mod tests {
    use super::Ipv6ExtendedCommunity;
    use crate::attr::samples::*;
    use crate::{FaultKind, Remedy};
    use alloc::string::ToString;
    use alloc::vec::Vec;

    /// As GoBGP 3.10.0 sent it, of a request `AddPath` of its interface over gRPC with the route
    /// target 2001:db8::1:100.
    const TARGET: &[u8] = &[
        0xc0, 0x19, 0x14, 0, 2, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0x64,
    ];

    /// As GoBGP 3.10.0 sent it: `gobgp global rib add -a ipv6-flowspec match destination
    /// 2001:db8:1::/48 then redirect 2001:db8::1:100`. The type is that before RFC 8956.
    const REDIRECT: &[u8] = &[
        0xc0, 0x19, 0x14, 0x80, 0x0b, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
        0x64,
    ];

    fn target(number: u16) -> Ipv6ExtendedCommunity {
        Ipv6ExtendedCommunity::route_target("2001:db8::1".parse().unwrap(), number)
    }

    fn list(communities: &[Ipv6ExtendedCommunity]) -> Vec<u8> {
        let octets: Vec<u8> = communities.iter().flat_map(|one| one.0).collect();
        attribute(0xc0, 25, &octets)
    }

    #[test]
    fn ipv6_communities_of_gobgp_are_carried() {
        let set = decoded(TARGET);
        assert_eq!(set.rare.ipv6_extended_communities, [target(100)]);
        assert_eq!(encoded(&set), TARGET);
        assert_eq!(
            shown(&set),
            "IPV6_EXTENDED_COMMUNITIES rt:[2001:db8::1]:100"
        );
        let set = decoded(REDIRECT);
        assert_eq!(encoded(&set), REDIRECT);
        let text = "IPV6_EXTENDED_COMMUNITIES 0x800b20010db80000000000000000000000010064";
        assert_eq!(shown(&set), text);
        assert!(set.rare.ipv6_extended_communities[0].is_transitive());
    }

    #[test]
    fn ipv6_communities_are_carried_sorted() {
        let set = decoded(&list(&[target(9), target(7), target(9)]));
        assert_eq!(set.rare.ipv6_extended_communities, [target(7), target(9)]);
        assert_eq!(encoded(&set), list(&[target(7), target(9)]));
        let text = "IPV6_EXTENDED_COMMUNITIES rt:[2001:db8::1]:7 rt:[2001:db8::1]:9";
        assert_eq!(shown(&set), text);
        let other = Ipv6ExtendedCommunity([0x40; 20]);
        assert_eq!(other.to_string(), "0x".to_string() + &"40".repeat(20));
    }

    #[test]
    fn ipv6_communities_that_are_not_transitive_stay_in_the_as() {
        let inside = Ipv6ExtendedCommunity::new([0x40, 2], "::1".parse().unwrap(), 1);
        let mut set = decoded(&list(&[target(1), inside]));
        set.leave_as(crate::AttrCodes::NONE);
        assert_eq!(set.rare.ipv6_extended_communities, [target(1)]);
    }

    #[test]
    fn ipv6_communities_of_a_bad_length_withdraw_the_route() {
        // RFC 7606 §7.15
        for length in [0, 19, 21] {
            let octets = attribute(0xc0, 25, &[0; 21][..length]);
            let found = fault(&octets);
            assert_eq!(found, (FaultKind::Length, Remedy::TreatAsWithdraw));
        }
    }
}
