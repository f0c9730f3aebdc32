//! Parses routes, links and addresses from `rtnetlink` messages.
//!
//! Only the fields of [`Route`], [`Link`] and [`InterfaceAddress`] are read, so that a route with
//! an attribute unknown to this crate is still parsed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::NlasIterator;

use crate::route::{Hop, InterfaceAddress, Link, Route, RouteKey, RouteKind, Scope, Tunnel};

const AF_INET: u8 = libc::AF_INET as u8;
const AF_INET6: u8 = libc::AF_INET6 as u8;

/// `RTM_F_CLONED`: a cached route, which is not part of a table.
const CLONED: u32 = 0x200;
/// `RTNH_F_ONLINK`.
pub(super) const ONLINK: u8 = 4;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_NH_ID: u16 = 30;

const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VXLAN_PORT: u16 = 15;
const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 0x40;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// Parses a route message; `None` if it is not a route of a table, or of another address family.
pub(super) fn route(payload: &[u8]) -> Option<(RouteKey, Route)> {
    let (header, attributes) = payload.split_first_chunk::<12>()?;
    let [
        family,
        length,
        source_length,
        tos,
        table,
        protocol,
        scope,
        kind,
        ..,
    ] = *header;
    let flags = u32::from_ne_bytes(*header.last_chunk::<4>()?);
    if flags & CLONED != 0 || source_length != 0 {
        return None;
    }
    let mut destination = unspecified(family)?;
    let mut table = u32::from(table);
    let (mut metric, mut source, mut nexthop) = (0, None, None);
    let mut hop = Hop {
        gateway: None,
        interface: None,
        weight: 1,
        onlink: false,
    };
    let mut hops = Vec::new();
    for attribute in NlasIterator::new(attributes).flatten() {
        let value = attribute.value();
        match attribute.kind() {
            RTA_DST => destination = address(value)?,
            RTA_OIF => hop.interface = number(value),
            RTA_GATEWAY => hop.gateway = address(value),
            RTA_VIA => hop.gateway = via(value),
            RTA_PRIORITY => metric = number(value)?,
            RTA_PREFSRC => source = address(value),
            RTA_MULTIPATH => hops = multipath(value),
            RTA_TABLE => table = number(value)?,
            RTA_NH_ID => nexthop = number(value),
            _ => {}
        }
    }
    let kind = route_kind(kind);
    // A route that names an object may lack its next hops (`net.ipv4.nexthop_compat_mode=0`).
    let has_hop = nexthop.is_none() || hop.interface.is_some();
    if hops.is_empty() && kind.forwards() && has_hop {
        hop.onlink = flags & u32::from(ONLINK) != 0;
        hops.push(hop);
    }
    let prefix = IpNet::new(destination, length).ok()?;
    let route = Route {
        kind,
        next_hops: hops,
        scope: route_scope(scope),
        source,
        protocol,
        nexthop,
    };
    Some((RouteKey::new(table, prefix, metric, tos), route.canonical()))
}

/// Parses a link message; `None` if it reports membership of a link, such as that of a bridge port.
pub(super) fn link(payload: &[u8]) -> Option<Link> {
    let (header, attributes) = payload.split_first_chunk::<16>()?;
    if header.first() != Some(&0) {
        return None;
    }
    let index = u32::from_ne_bytes(*header.get(4..8)?.first_chunk()?);
    let flags = u32::from_ne_bytes(*header.get(8..12)?.first_chunk()?);
    let name = String::from_utf8_lossy(&attribute(attributes, IFLA_IFNAME)?)
        .trim_end_matches('\0')
        .to_owned();
    let up = flags & IFF_UP != 0;
    Some(Link {
        index,
        name,
        up,
        running: up && flags & IFF_RUNNING != 0,
        tunnel: attribute(attributes, IFLA_LINKINFO).and_then(|info| tunnel(&info)),
    })
}

/// Parses `IFLA_LINKINFO`.
fn tunnel(info: &[u8]) -> Option<Tunnel> {
    let kind = attribute(info, IFLA_INFO_KIND)?;
    match kind.strip_suffix(b"\0").unwrap_or(&kind) {
        b"ipip" => Some(Tunnel::Ipip),
        b"vxlan" => {
            let port = attribute(&attribute(info, IFLA_INFO_DATA)?, IFLA_VXLAN_PORT)?;
            let port = u16::from_be_bytes(*port.first_chunk()?);
            Some(Tunnel::Vxlan { port })
        }
        _ => None,
    }
}

/// Returns the value of the first attribute of this kind.
fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut all = NlasIterator::new(attributes).flatten();
    all.find(|nla| nla.kind() == kind)
        .map(|nla| nla.value().to_vec())
}

/// Parses an address message.
pub(super) fn interface_address(payload: &[u8]) -> Option<InterfaceAddress> {
    let (header, attributes) = payload.split_first_chunk::<8>()?;
    let length = *header.get(1)?;
    let interface = u32::from_ne_bytes(*header.last_chunk::<4>()?);
    let (mut local, mut other) = (None, None);
    for attribute in NlasIterator::new(attributes).flatten() {
        match attribute.kind() {
            IFA_LOCAL => local = address(attribute.value()),
            IFA_ADDRESS => other = address(attribute.value()),
            _ => {}
        }
    }
    let address = IpNet::new(local.or(other)?, length).ok()?;
    Some(InterfaceAddress { interface, address })
}

/// Parses the next hops of `RTA_MULTIPATH`: `struct rtnexthop`, each with its own attributes.
fn multipath(mut octets: &[u8]) -> Vec<Hop> {
    let mut hops = Vec::new();
    while let Some((&[l0, l1, flags, shares, i0, i1, i2, i3], _)) = octets.split_first_chunk::<8>()
    {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let Some(attributes) = octets.get(8..length) else {
            break;
        };
        let mut hop = Hop {
            gateway: None,
            interface: Some(u32::from_ne_bytes([i0, i1, i2, i3])),
            weight: u16::from(shares) + 1,
            onlink: flags & ONLINK != 0,
        };
        for attribute in NlasIterator::new(attributes).flatten() {
            match attribute.kind() {
                RTA_GATEWAY => hop.gateway = address(attribute.value()),
                RTA_VIA => hop.gateway = via(attribute.value()),
                _ => {}
            }
        }
        hops.push(hop);
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}

fn unspecified(family: u8) -> Option<IpAddr> {
    match family {
        AF_INET => Some(Ipv4Addr::UNSPECIFIED.into()),
        AF_INET6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => octets
            .first_chunk::<4>()
            .map(|octets| IpAddr::from(*octets)),
        16 => octets
            .first_chunk::<16>()
            .map(|octets| IpAddr::from(*octets)),
        _ => None,
    }
}

/// Parses `struct rtvia`: an address family and an address.
fn via(octets: &[u8]) -> Option<IpAddr> {
    address(octets.get(2..)?)
}

fn number(octets: &[u8]) -> Option<u32> {
    octets
        .first_chunk::<4>()
        .map(|octets| u32::from_ne_bytes(*octets))
}

fn route_kind(kind: u8) -> RouteKind {
    match kind {
        libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_LOCAL => RouteKind::Local,
        libc::RTN_BLACKHOLE => RouteKind::Blackhole,
        libc::RTN_UNREACHABLE => RouteKind::Unreachable,
        libc::RTN_PROHIBIT => RouteKind::Prohibit,
        libc::RTN_THROW => RouteKind::Throw,
        other => RouteKind::Other(other),
    }
}

fn route_scope(scope: u8) -> Scope {
    match scope {
        libc::RT_SCOPE_UNIVERSE => Scope::Universe,
        libc::RT_SCOPE_LINK => Scope::Link,
        libc::RT_SCOPE_HOST => Scope::Host,
        other => Scope::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an attribute, padded to four octets.
    fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut octets = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        octets.extend(value);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    }

    /// Returns the tunnel of a link message with these nested attributes of `IFLA_LINKINFO`.
    fn tunnel_of(info: &[Vec<u8>]) -> Option<Tunnel> {
        let mut message = vec![0; 16];
        message[4] = 7;
        message.extend(nla(IFLA_IFNAME, b"t0\0"));
        message.extend(nla(IFLA_LINKINFO, &info.concat()));
        let link = link(&message).unwrap();
        assert_eq!((link.index, &*link.name), (7, "t0"));
        link.tunnel
    }

    #[test]
    fn link_message_has_kind_and_port_of_tunnel() {
        let kind = |name: &str| nla(IFLA_INFO_KIND, format!("{name}\0").as_bytes());
        let data = |port: u16| {
            // The kernel marks a nested attribute.
            let port = nla(IFLA_VXLAN_PORT, &port.to_be_bytes());
            nla(
                IFLA_INFO_DATA | 0x8000,
                &[nla(1, &[77, 0, 0, 0]), port].concat(),
            )
        };
        let vxlan = Some(Tunnel::Vxlan { port: 8472 });
        assert_eq!(tunnel_of(&[kind("vxlan"), data(8472)]), vxlan);
        assert_eq!(tunnel_of(&[kind("ipip"), data(8472)]), Some(Tunnel::Ipip));
        for other in ["vxlan0", "ipip6", "veth", ""] {
            assert_eq!(tunnel_of(&[kind(other), data(8472)]), None, "{other}");
        }
        assert_eq!(tunnel_of(&[kind("vxlan")]), None, "no port");
        let short = nla(IFLA_INFO_DATA, &nla(IFLA_VXLAN_PORT, &[18]));
        assert_eq!(tunnel_of(&[kind("vxlan"), short]), None, "half a port");
        assert_eq!(tunnel_of(&[]), None);
    }
}
