//! Address families: one row of a table for each that may be negotiated (RFC 4760).

use core::fmt;
use core::str::FromStr;

/// An address family: AFI and SAFI (RFC 4760 §3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Family {
    /// Address family identifier (IANA "Address Family Numbers").
    pub afi: u16,
    /// Subsequent address family identifier.
    pub safi: u8,
}

/// AFI of IPv4.
pub(crate) const AFI_IPV4: u16 = 1;
/// AFI of IPv6.
pub(crate) const AFI_IPV6: u16 = 2;

macro_rules! families {
    ($( $(#[$meta:meta])* $constant:ident = $afi:literal / $safi:literal,
        $name:literal $(| $alias:literal)*, $framing:expr, $key:expr, $next_hop:expr; )*) => {
        impl Family {
            $( $(#[$meta])* pub const $constant: Self = Self::new($afi, $safi); )*
        }

        /// Every family that this speaker can carry. A family that has no row here is not
        /// negotiated.
        pub const FAMILIES: &[FamilyRow] = &[
            $( FamilyRow {
                family: Family::$constant,
                name: $name,
                aliases: &[$($alias),*],
                framing: $framing,
                key: $key,
                next_hop: $next_hop,
            }, )*
        ];
    };
}

families! {
    /// IPv4 unicast (RFC 4271).
    IPV4_UNICAST = 1/1, "ipv4-unicast" | "ipv4", Framing::Ipv4, KeyRule::Whole, NextHopForm::Ip;
    /// IPv6 unicast (RFC 2545).
    IPV6_UNICAST = 2/1, "ipv6-unicast" | "ipv6", Framing::Ipv6, KeyRule::Whole, NextHopForm::Ipv6;
    /// IPv4 prefixes for multicast reverse-path checks (RFC 4760).
    IPV4_MULTICAST = 1/2, "ipv4-multicast", Framing::Ipv4, KeyRule::Whole, NextHopForm::Ip;
    /// IPv6 prefixes for multicast reverse-path checks (RFC 4760).
    IPV6_MULTICAST = 2/2, "ipv6-multicast", Framing::Ipv6, KeyRule::Whole, NextHopForm::Ipv6;
    /// IPv4 prefixes with an MPLS label (RFC 8277).
    IPV4_LABELED_UNICAST = 1/4,
        "ipv4-labeled-unicast" | "ipv4-labelled-unicast" | "ipv4-labeled" | "ipv4-mpls",
        Framing::Bits { min: 24, max: 24 + 32 }, KeyRule::AfterLabel, NextHopForm::IpOrMapped;
    /// IPv6 prefixes with an MPLS label (RFC 8277, RFC 4798).
    IPV6_LABELED_UNICAST = 2/4,
        "ipv6-labeled-unicast" | "ipv6-labelled-unicast" | "ipv6-labeled" | "ipv6-mpls",
        Framing::Bits { min: 24, max: 24 + 128 }, KeyRule::AfterLabel, NextHopForm::IpOrMapped;
    /// IPv4 VPN routes (RFC 4364).
    IPV4_VPN = 1/128,
        "ipv4-vpn" | "vpnv4" | "vpnv4-unicast" | "vpn4-mpls" | "l3vpn-ipv4-unicast" | "ipv4-l3vpn",
        Framing::Bits { min: 88, max: 88 + 32 }, KeyRule::AfterLabel, NextHopForm::Vpn;
    /// IPv6 VPN routes (RFC 4659).
    IPV6_VPN = 2/128,
        "ipv6-vpn" | "vpnv6" | "vpnv6-unicast" | "vpn6-mpls" | "l3vpn-ipv6-unicast" | "ipv6-l3vpn",
        Framing::Bits { min: 88, max: 88 + 128 }, KeyRule::AfterLabel, NextHopForm::Vpn;
    /// Ethernet VPN (RFC 7432, RFC 9136).
    L2VPN_EVPN = 25/70,
        "l2vpn-evpn" | "evpn", Framing::TypeLength, KeyRule::Evpn, NextHopForm::IpOrMapped;
    /// Route target membership (RFC 4684).
    ROUTE_TARGET = 1/132, "route-target" | "rtc",
        Framing::RouteTarget, KeyRule::Whole, NextHopForm::IpOrMapped;
    /// IPv4 flow specification (RFC 8955).
    IPV4_FLOWSPEC = 1/133, "ipv4-flowspec" | "flow4",
        Framing::Flowspec, KeyRule::Whole, NextHopForm::Optional;
    /// IPv6 flow specification (RFC 8956).
    IPV6_FLOWSPEC = 2/133, "ipv6-flowspec" | "flow6",
        Framing::Flowspec, KeyRule::Whole, NextHopForm::Optional;
    /// IPv4 flow specification in a VPN (RFC 8955 §8).
    IPV4_VPN_FLOWSPEC = 1/134, "ipv4-vpn-flowspec" | "l3vpn-ipv4-flowspec" | "ipv4-l3vpn-flowspec",
        Framing::Flowspec, KeyRule::Whole, NextHopForm::Optional;
    /// IPv6 flow specification in a VPN (RFC 8956).
    IPV6_VPN_FLOWSPEC = 2/134, "ipv6-vpn-flowspec" | "l3vpn-ipv6-flowspec" | "ipv6-l3vpn-flowspec",
        Framing::Flowspec, KeyRule::Whole, NextHopForm::Optional;
    /// Flow specification for Ethernet VPNs.
    L2VPN_FLOWSPEC = 25/134, "l2vpn-flowspec",
        Framing::Flowspec, KeyRule::Whole, NextHopForm::Optional;
}

const _: () = assert!(FAMILIES.len() <= u32::BITS as usize);

impl Family {
    /// Returns the family of this AFI and SAFI, whether it has a row or not.
    pub const fn new(afi: u16, safi: u8) -> Self {
        Self { afi, safi }
    }

    /// Returns the family's row of [`FAMILIES`]; `None` if this speaker cannot carry it.
    pub fn row(self) -> Option<&'static FamilyRow> {
        self.index()
            .and_then(|index| FAMILIES.get(usize::from(index)))
    }

    /// Returns the position of the family's row in [`FAMILIES`]: small, dense, good as an array
    /// index.
    pub const fn index(self) -> Option<u8> {
        let mut rows = FAMILIES;
        let mut index = 0;
        while let [row, tail @ ..] = rows {
            if row.family.afi == self.afi && row.family.safi == self.safi {
                return Some(index);
            }
            rows = tail;
            index += 1;
        }
        None
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some(row) => f.pad(row.name),
            None => write!(f, "afi-{}-safi-{}", self.afi, self.safi),
        }
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Family {
    type Err = FamilyError;

    /// Parses a name or an alias of the table, or "afi-N-safi-N". Letters may have any case, and a
    /// space or `_` may replace `-`: "IPv4 unicast" is "ipv4-unicast".
    fn from_str(text: &str) -> Result<Self, FamilyError> {
        if let Some(row) = FAMILIES.iter().find(|row| row.is_called(text)) {
            return Ok(row.family);
        }
        let numbers = text
            .strip_prefix("afi-")
            .and_then(|rest| rest.split_once("-safi-"));
        let (afi, safi) = numbers.ok_or(FamilyError)?;
        let afi = afi.parse().map_err(|_| FamilyError)?;
        let safi = safi.parse().map_err(|_| FamilyError)?;
        Ok(Self { afi, safi })
    }
}

/// The text names no family of [`FAMILIES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyError;

impl fmt::Display for FamilyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address family: known are")?;
        for row in FAMILIES {
            write!(f, " {}", row.name)?;
        }
        Ok(())
    }
}

impl core::error::Error for FamilyError {}

/// The codec's description of a family.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FamilyRow {
    /// AFI and SAFI.
    pub family: Family,
    /// Name in configuration and output.
    pub name: &'static str,
    /// Names of other BGP implementations that configuration and commands take as well.
    pub aliases: &'static [&'static str],
    /// How one NLRI is cut out of the octets.
    pub framing: Framing,
    /// Which octets of an NLRI identify the route.
    pub key: KeyRule,
    /// The form of the next hop in MP_REACH_NLRI.
    pub next_hop: NextHopForm,
}

impl FamilyRow {
    /// Returns whether NLRI of this family decode into prefixes; others stay opaque octets.
    pub const fn is_typed(&self) -> bool {
        matches!(self.framing, Framing::Ipv4 | Framing::Ipv6)
    }

    fn is_called(&self, text: &str) -> bool {
        let mut names = core::iter::once(&self.name).chain(self.aliases);
        names.any(|name| name.bytes().eq(text.bytes().map(folded)))
    }
}

/// The octet as the names of [`FAMILIES`] have it.
const fn folded(octet: u8) -> u8 {
    match octet {
        b' ' | b'_' => b'-',
        other => other.to_ascii_lowercase(),
    }
}

/// How one NLRI of a family is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Length in bits, then an IPv4 prefix (RFC 4271 §4.3).
    Ipv4,
    /// Length in bits, then an IPv6 prefix (RFC 4760 §5).
    Ipv6,
    /// Length in bits within the bounds, then as many octets as hold them (RFC 8277 §2.2).
    Bits {
        /// Smallest length allowed.
        min: u8,
        /// Greatest length allowed.
        max: u8,
    },
    /// Length in bits: 0, or 32 to 96 (RFC 4684 §4).
    RouteTarget,
    /// Route type, length in octets, value (RFC 7432 §7).
    TypeLength,
    /// Length in octets, of one or two octets itself (RFC 8955 §4.1).
    Flowspec,
}

/// The octets of an NLRI that identify the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// All of them.
    Whole,
    /// All but the label: a withdrawal has another one (RFC 8277 §2.4).
    AfterLabel,
    /// By route type: labels, and for some types the segment identifier and the gateway, are not
    /// part of the key (RFC 7432 §7.1, §7.2, RFC 9136 §3.1).
    Evpn,
}

/// The allowed forms of the next hop of MP_REACH_NLRI in a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHopForm {
    /// IPv4; IPv6 if RFC 8950 was negotiated.
    Ip,
    /// IPv6, perhaps with a link-local address (RFC 2545 §3).
    Ipv6,
    /// IPv4 or IPv6, where an IPv4-mapped address is usual (RFC 4798 §2).
    IpOrMapped,
    /// An IP address after a route distinguisher of zero (RFC 4364 §4.3.2, RFC 4659 §3.2.1).
    Vpn,
    /// May be absent (RFC 8955 §4).
    Optional,
}

/// A set of families that have a row.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FamilySet(u32);

impl FamilySet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// IPv4 and IPv6 unicast.
    pub const UNICAST: Self = Self::EMPTY
        .with(Family::IPV4_UNICAST)
        .with(Family::IPV6_UNICAST);

    /// Returns every family of [`FAMILIES`].
    pub const fn all() -> Self {
        Self(u32::MAX >> (u32::BITS as usize - FAMILIES.len()))
    }

    /// Returns the set and `family`; the same set if the family has no row.
    #[must_use]
    pub const fn with(self, family: Family) -> Self {
        match family.index() {
            Some(index) => Self(self.0 | 1 << index),
            None => self,
        }
    }

    /// Adds `family`; returns whether it has a row and was not in the set.
    pub const fn insert(&mut self, family: Family) -> bool {
        let after = self.with(family);
        let new = after.0 != self.0;
        *self = after;
        new
    }

    /// Removes `family`; returns whether it was in the set.
    pub const fn remove(&mut self, family: Family) -> bool {
        let was = self.contains(family);
        if let Some(index) = family.index() {
            self.0 &= !(1 << index);
        }
        was
    }

    /// Returns whether `family` is in the set.
    pub const fn contains(&self, family: Family) -> bool {
        match family.index() {
            Some(index) => self.0 & 1 << index != 0,
            None => false,
        }
    }

    /// Returns the families of both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the families of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the families of this set that are not in `other`.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether no family is in the set.
    pub const fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Returns the number of families in the set.
    pub const fn len(&self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the families in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = Family> + Clone {
        FAMILIES
            .iter()
            .map(|row| row.family)
            .filter(move |family| self.contains(*family))
    }
}

impl fmt::Debug for FamilySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<Family> for FamilySet {
    fn from_iter<I: IntoIterator<Item = Family>>(families: I) -> Self {
        families.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl From<Family> for FamilySet {
    fn from(family: Family) -> Self {
        Self::EMPTY.with(family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_round_trip() {
        for row in FAMILIES {
            assert_eq!(row.family.to_string().parse(), Ok(row.family));
            assert_eq!(row.family.row().map(|found| found.name), Some(row.name));
        }
        let foreign = Family::new(16_388, 71);
        assert_eq!(foreign.to_string().parse(), Ok(foreign));
        for unknown in ["", "ip", "ipv4-", "ipv4--unicast", "unicast", "afi-1-safi-"] {
            assert_eq!(unknown.parse::<Family>(), Err(FamilyError), "{unknown}");
        }
    }

    #[test]
    fn names_of_other_implementations_are_taken() {
        for (text, family) in [
            ("ipv4 unicast", Family::IPV4_UNICAST), // FRR
            ("IPv6 unicast", Family::IPV6_UNICAST), // OpenBGPD
            ("ipv4 labeled-unicast", Family::IPV4_LABELED_UNICAST),
            ("ipv4 vpn", Family::IPV4_VPN),
            ("vpnv4-unicast", Family::IPV4_VPN),
            ("l2vpn evpn", Family::L2VPN_EVPN),
            ("l3vpn-ipv6-unicast", Family::IPV6_VPN), // GoBGP
            ("ipv6-labelled-unicast", Family::IPV6_LABELED_UNICAST),
            ("rtc", Family::ROUTE_TARGET),
            ("ipv4", Family::IPV4_UNICAST), // BIRD
            ("vpn4 mpls", Family::IPV4_VPN),
            ("flow6", Family::IPV6_FLOWSPEC),
        ] {
            assert_eq!(text.parse(), Ok(family), "{text}");
        }
    }

    #[test]
    fn every_alias_names_one_family() {
        for row in FAMILIES {
            for alias in row.aliases {
                assert_eq!(alias.parse(), Ok(row.family), "{alias}");
                assert_eq!(alias.to_uppercase().parse(), Ok(row.family), "{alias}");
            }
        }
    }

    #[test]
    fn sets_hold_only_rows() {
        let mut set = FamilySet::EMPTY;
        assert!(set.insert(Family::IPV6_UNICAST));
        assert!(!set.insert(Family::IPV6_UNICAST));
        assert!(!set.insert(Family::new(9, 9)));
        assert_eq!(set.len(), 1);
        assert!(set.remove(Family::IPV6_UNICAST) && set.is_empty());
        assert_eq!(FamilySet::all().len(), FAMILIES.len());
        assert_eq!(
            FamilySet::all().iter().collect::<FamilySet>(),
            FamilySet::all()
        );
    }
}
