//! NEXT_HOP and the next hop of MP_REACH_NLRI (RFC 4271 §5.1.3, RFC 4760, RFC 2545, RFC 8950).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[cfg(feature = "strategy")]
use proptest::prelude::*;

use crate::attr::decode::{Context, Routes};
use crate::attr::field::Field;
use crate::attr::pack::{octets, put_slice};
use crate::attr::report::Report;
use crate::family::{AFI_IPV4, Family, NextHopForm};
use crate::fault::FaultKind;
use crate::reader::Reader;

/// Octets of the route distinguisher ahead of a VPN next hop; all zero (RFC 4364 §4.3.2).
const RD: [u8; 8] = [0; 8];

/// Where a route's traffic is sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextHop {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address (RFC 2545 §3). Peers on the same link may send `::` as the global
    /// address, or a link-local one in its place.
    V6 {
        /// The global address.
        global: Ipv6Addr,
        /// The link-local address of the same interface.
        link_local: Option<Ipv6Addr>,
    },
    /// Anything else, as it came.
    Opaque(Box<[u8]>),
}

impl NextHop {
    /// Returns an IPv6 next hop without a link-local address.
    pub const fn v6(global: Ipv6Addr) -> Self {
        Self::V6 {
            global,
            link_local: None,
        }
    }

    /// Returns the IP address to resolve: the global address if there is one, else the link-local
    /// one.
    pub const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::V4(address) => Some(IpAddr::V4(*address)),
            Self::V6 {
                global,
                link_local: Some(link_local),
            } if global.is_unspecified() => Some(IpAddr::V6(*link_local)),
            Self::V6 { global, .. } => Some(IpAddr::V6(*global)),
            Self::Opaque(_) => None,
        }
    }
}

impl From<IpAddr> for NextHop {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::v6(address),
        }
    }
}

impl From<Ipv4Addr> for NextHop {
    fn from(address: Ipv4Addr) -> Self {
        Self::V4(address)
    }
}

impl From<Ipv6Addr> for NextHop {
    fn from(address: Ipv6Addr) -> Self {
        Self::v6(address)
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => fmt::Display::fmt(address, f),
            Self::V6 {
                global,
                link_local: None,
            } => fmt::Display::fmt(global, f),
            Self::V6 {
                global,
                link_local: Some(local),
            } => write!(f, "{global} {local}"),
            Self::Opaque(octets) => octets.iter().try_for_each(|octet| write!(f, "{octet:02x}")),
        }
    }
}

/// Whether traffic can be sent to the address: not zero, loopback, multicast or broadcast.
const fn usable_v4(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && !address.is_loopback() && !address.is_multicast() && !address.is_broadcast()
}

const fn usable_v6(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

/// The forms of a packed next hop.
const V4: u64 = 1;
const V6: u64 = 2;
const V6_LINK_LOCAL: u64 = 3;
const OPAQUE: u64 = 4;

impl Field for Option<NextHop> {
    const BITS: u32 = 3;

    fn form(&self) -> u64 {
        match self {
            None => 0,
            Some(NextHop::V4(_)) => V4,
            Some(NextHop::V6 {
                link_local: None, ..
            }) => V6,
            Some(NextHop::V6 { .. }) => V6_LINK_LOCAL,
            Some(NextHop::Opaque(_)) => OPAQUE,
        }
    }

    /// Others are in MP_REACH_NLRI.
    fn is_sent(&self) -> bool {
        self.form() == V4
    }

    fn decode(value: &[u8], context: &Context) -> Result<Self, FaultKind> {
        // RFC 4760 §3: beside MP_REACH_NLRI it is ignored; some peers send 0.0.0.0 there.
        if context.routes != Routes::Body {
            return Ok(None);
        }
        let value: [u8; 4] = value.try_into().map_err(|_| FaultKind::Length)?;
        let address = Ipv4Addr::from(value);
        // RFC 4271 §6.3
        if !usable_v4(address) {
            return Err(FaultKind::NextHop);
        }
        Ok(Some(NextHop::V4(address)))
    }

    fn encode(&self, _as4: bool, out: &mut Vec<u8>) {
        if let Some(NextHop::V4(address)) = self {
            out.extend_from_slice(&address.octets());
        }
    }

    fn pack(&self, out: &mut Vec<u8>) {
        match self {
            None => {}
            Some(NextHop::V4(address)) => out.extend_from_slice(&address.octets()),
            Some(NextHop::V6 { global, link_local }) => {
                out.extend_from_slice(&global.octets());
                out.extend(link_local.iter().flat_map(Ipv6Addr::octets));
            }
            Some(NextHop::Opaque(octets)) => put_slice(octets, out),
        }
    }

    fn unpack(form: u64, reader: &mut Reader<'_>) -> Option<Self> {
        let mut address = || reader.array::<16>().map(Ipv6Addr::from);
        Some(Some(match form {
            0 => return Some(None),
            V4 => NextHop::V4(reader.array::<4>()?.into()),
            V6 => NextHop::v6(address()?),
            V6_LINK_LOCAL => NextHop::V6 {
                global: address()?,
                link_local: Some(address()?),
            },
            _ => NextHop::Opaque(octets(reader)?.into()),
        }))
    }

    fn report(&self) -> Report {
        self.as_ref().map_or(Report::Flag, Report::text)
    }

    #[cfg(feature = "strategy")]
    fn strategy(_confederations: bool) -> BoxedStrategy<Self> {
        let addresses = crate::strategy::ipv4_unicast();
        addresses
            .prop_map(|address| Some(NextHop::V4(address)))
            .boxed()
    }
}

/// Whether a next hop of this many octets fits the family (RFC 7606 §7.11).
pub(crate) fn mp_octets_allowed(family: Family, octets: usize, extended_next_hop: bool) -> bool {
    let Some(row) = family.row() else {
        return false;
    };
    match (row.next_hop, octets) {
        (NextHopForm::Ip, 4) => true,
        (NextHopForm::Ip, 16 | 32) => extended_next_hop, // RFC 8950 §3
        (NextHopForm::Ipv6, 16 | 32) => true,            // RFC 2545 §3
        (NextHopForm::IpOrMapped, 4) => family.afi != crate::family::AFI_IPV6,
        (NextHopForm::IpOrMapped, 16 | 32) => true,
        (NextHopForm::Vpn, 12) => family.afi == AFI_IPV4, // RFC 4364 §4.3.2
        (NextHopForm::Vpn, 24 | 48) => true,              // RFC 4659 §3.2.1, RFC 8950 §3
        (NextHopForm::Optional, 0 | 4 | 12 | 16 | 24 | 32 | 48) => true,
        _ => false,
    }
}

/// Reads the next hop of MP_REACH_NLRI; its length has been checked.
pub(super) fn decode_mp(
    family: Family,
    octets: &[u8],
    context: &Context,
) -> Result<Option<NextHop>, FaultKind> {
    let Some(row) = family.row() else {
        return Ok(None);
    };
    let opaque = || Ok(Some(NextHop::Opaque(octets.into())));
    let mapped =
        context.v4_mapped_next_hop || !matches!(row.next_hop, NextHopForm::Ip | NextHopForm::Ipv6);
    match (row.next_hop, octets.len()) {
        (_, 0) => Ok(None),
        (_, 4) => v4(octets).map(Some),
        (NextHopForm::Vpn | NextHopForm::Optional, 12) => match octets.strip_prefix(&RD) {
            Some(address) => v4(address).map(Some),
            None => opaque(),
        },
        (_, 16) => v6(octets, None, mapped).map(Some),
        (NextHopForm::Vpn | NextHopForm::Optional, 24) => match octets.strip_prefix(&RD) {
            Some(address) => v6(address, None, mapped).map(Some),
            None => opaque(),
        },
        (_, 32) => {
            let (global, local) = octets.split_at(16);
            v6(global, Some(local), mapped).map(Some)
        }
        (NextHopForm::Vpn | NextHopForm::Optional, 48) => {
            let (global, local) = octets.split_at(24);
            match (global.strip_prefix(&RD), local.strip_prefix(&RD)) {
                (Some(global), Some(local)) => v6(global, Some(local), mapped).map(Some),
                _ => opaque(),
            }
        }
        _ => opaque(),
    }
}

fn v4(octets: &[u8]) -> Result<NextHop, FaultKind> {
    let octets: [u8; 4] = octets.try_into().map_err(|_| FaultKind::MpNextHopLength)?;
    let address = Ipv4Addr::from(octets);
    if usable_v4(address) {
        Ok(NextHop::V4(address))
    } else {
        Err(FaultKind::NextHop)
    }
}

fn v6(octets: &[u8], local: Option<&[u8]>, mapped: bool) -> Result<NextHop, FaultKind> {
    let address = |octets: &[u8]| {
        let octets: [u8; 16] = octets.try_into().map_err(|_| FaultKind::MpNextHopLength)?;
        Ok(Ipv6Addr::from(octets))
    };
    let global = address(octets)?;
    // A link-local address of zero counts as absent.
    let link_local = match local.map(address).transpose()? {
        Some(local) if local.is_unspecified() => None,
        local => local,
    };
    let only_local = global.is_unspecified() && link_local.is_some();
    let embedded_usable = match global.to_ipv4_mapped() {
        Some(embedded) => mapped && usable_v4(embedded),
        None => true,
    };
    let usable = (only_local || usable_v6(global))
        && embedded_usable
        && link_local.is_none_or(|local| local.is_unicast_link_local());
    if usable {
        Ok(NextHop::V6 { global, link_local })
    } else {
        Err(FaultKind::NextHop)
    }
}

/// Octets that [`encode_mp`] writes.
pub(crate) fn mp_octets(family: Family, next_hop: &NextHop) -> usize {
    let mut count = 0;
    encode_mp(family, next_hop, &mut |octets| count += octets.len());
    count
}

/// Passes the next hop in the family's form to `write`, piece by piece.
pub(crate) fn encode_mp(family: Family, next_hop: &NextHop, write: &mut dyn FnMut(&[u8])) {
    let form = family
        .row()
        .map_or(NextHopForm::Optional, |row| row.next_hop);
    let rd: &[u8] = if form == NextHopForm::Vpn { &RD } else { &[] };
    match next_hop {
        // RFC 4798 §2, RFC 4659 §3.2.1.2: an IPv4 next hop of IPv6 routes is a mapped one.
        NextHop::V4(address) if family.afi == crate::family::AFI_IPV6 => {
            write(rd);
            write(&address.to_ipv6_mapped().octets());
        }
        NextHop::V4(address) => {
            write(rd);
            write(&address.octets());
        }
        NextHop::V6 { global, link_local } => {
            write(rd);
            write(&global.octets());
            if let Some(local) = link_local {
                write(rd);
                write(&local.octets());
            }
        }
        NextHop::Opaque(octets) => write(octets),
    }
}
