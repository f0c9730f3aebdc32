//! The ends of a packet, from the octets of its headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Protocols with ports at the beginning of their header: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// ICMP and ICMPv6. The identifier of an echo is where the second pair of octets is.
const ICMP: [u8; 2] = [1, 58];
/// Types of messages with an identifier: echo reply and request, RFC 792 and RFC 4443 §4.
const ECHO: [(u8, u8); 4] = [(1, 0), (1, 8), (58, 128), (58, 129)];
/// IPv6 extension headers: hop-by-hop options, routing, fragment, destination options.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;
/// Extension headers that are read at most.
const EXTENSIONS_MAX: usize = 8;
/// Octets of the headers of IPv4, without options, and of IPv6.
const IPV4_OCTETS: usize = 20;
const IPV6_OCTETS: usize = 40;

/// The ends of a connection, as the packet filter meets them: after the translation of the
/// destination, and before that of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tuple {
    pub(crate) protocol: u8,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// The source port; of an ICMP echo its identifier; else 0.
    pub(crate) source_port: u16,
    /// The destination port; 0 without one.
    pub(crate) port: u16,
}

impl Tuple {
    /// Returns whether its protocol has ports.
    pub(crate) fn has_ports(&self) -> bool {
        WITH_PORTS.contains(&self.protocol)
    }
}

/// Parses the beginning of an IP packet. Returns its ends, and the octets of the whole packet; `None`
/// if the octets are no packet.
pub(super) fn parse(octets: &[u8]) -> Option<(Tuple, u64)> {
    match octets.first()? >> 4 {
        4 => ipv4(octets),
        6 => ipv6(octets),
        _ => None,
    }
}

/// RFC 791 §3.1.
fn ipv4(octets: &[u8]) -> Option<(Tuple, u64)> {
    let header: &[u8; IPV4_OCTETS] = octets.first_chunk()?;
    let [first, _, a, b, _, _, flags, offset, _, protocol, ..] = *header;
    let words = usize::from(first & 0x0f);
    let source = Ipv4Addr::from(*header.get(12..)?.first_chunk()?);
    let destination = Ipv4Addr::from(*header.get(16..)?.first_chunk()?);
    let is_first = u16::from_be_bytes([flags & 0x1f, offset]) == 0;
    let rest = octets.get(4 * words..).filter(|_| is_first && words >= 5);
    let tuple = tuple(protocol, source.into(), destination.into(), rest);
    Some((tuple, u16::from_be_bytes([a, b]).into()))
}

/// RFC 8200 §3 and §4.
fn ipv6(octets: &[u8]) -> Option<(Tuple, u64)> {
    let header: &[u8; IPV6_OCTETS] = octets.first_chunk()?;
    let [_, _, _, _, a, b, first, ..] = *header;
    let source = Ipv6Addr::from(*header.get(8..)?.first_chunk()?);
    let destination = Ipv6Addr::from(*header.get(24..)?.first_chunk()?);
    let (mut protocol, mut rest) = (first, octets.get(IPV6_OCTETS..));
    for _ in 0..EXTENSIONS_MAX {
        let Some([next, length, high, low]) = rest.and_then(<[u8]>::first_chunk).copied() else {
            break;
        };
        let octets = match protocol {
            HOP_BY_HOP | ROUTING | OPTIONS => 8 * (usize::from(length) + 1),
            // Only the first fragment has the other headers.
            FRAGMENT if u16::from_be_bytes([high, low]) >> 3 != 0 => {
                protocol = next;
                rest = None;
                break;
            }
            FRAGMENT => 8,
            _ => break,
        };
        protocol = next;
        rest = rest.and_then(|rest| rest.get(octets..));
    }
    let tuple = tuple(protocol, source.into(), destination.into(), rest);
    let octets = u64::from(u16::from_be_bytes([a, b])) + IPV6_OCTETS as u64;
    Some((tuple, octets))
}

/// Returns the ends of a packet with this header after those of IP.
fn tuple(protocol: u8, source: IpAddr, destination: IpAddr, rest: Option<&[u8]>) -> Tuple {
    let rest = rest.unwrap_or_default();
    let (source_port, port) = match rest {
        [a, b, c, d, ..] if WITH_PORTS.contains(&protocol) => {
            (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
        }
        [kind, _, _, _, a, b, ..] if ICMP.contains(&protocol) => {
            let has_identifier = ECHO.contains(&(protocol, *kind));
            let identifier = u16::from_be_bytes([*a, *b]);
            (if has_identifier { identifier } else { 0 }, 0)
        }
        _ => (0, 0),
    };
    Tuple {
        protocol,
        source,
        destination,
        source_port,
        port,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v4(protocol: u8, offset: u16, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(20 + rest.len()).unwrap().to_be_bytes();
        let [high, low] = offset.to_be_bytes();
        let mut octets = vec![
            0x45, 0, length[0], length[1], 0, 0, high, low, 64, protocol, 0, 0,
        ];
        octets.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        octets.extend(rest);
        octets
    }

    fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        let mut octets = vec![0x60, 0, 0, 0, length[0], length[1], next, 64];
        octets.extend("fd00::1".parse::<Ipv6Addr>().unwrap().octets());
        octets.extend("fd00::2".parse::<Ipv6Addr>().unwrap().octets());
        octets.extend(rest);
        octets
    }

    fn ports(octets: &[u8]) -> (u8, u16, u16, u64) {
        let (tuple, octets) = parse(octets).unwrap();
        (tuple.protocol, tuple.source_port, tuple.port, octets)
    }

    #[test]
    fn ports_follow_the_headers_of_ip() {
        let udp = [0x30, 0x39, 0, 53, 0, 8, 0, 0];
        assert_eq!(ports(&v4(17, 0, &udp)), (17, 12345, 53, 28));
        assert_eq!(ports(&v6(17, &udp)), (17, 12345, 53, 48));
        let hop = [&[17, 0, 1, 4, 0, 0, 0, 0], &udp[..]].concat();
        assert_eq!(ports(&v6(0, &hop)), (17, 12345, 53, 56));
        let first = [&[17, 0, 0, 1, 0, 0, 0, 1], &udp[..]].concat();
        assert_eq!(ports(&v6(44, &first)), (17, 12345, 53, 56));
        let later = [&[17, 0, 0, 9, 0, 0, 0, 1], &udp[..]].concat();
        assert_eq!(ports(&v6(44, &later)), (17, 0, 0, 56));
        assert_eq!(ports(&v4(17, 185, &udp)), (17, 0, 0, 28));
        // The identifier of an echo request, and a cut header.
        assert_eq!(ports(&v4(1, 0, &[8, 0, 0, 0, 1, 2])), (1, 258, 0, 26));
        assert_eq!(ports(&v4(1, 0, &[3, 0, 0, 0, 1, 2])), (1, 0, 0, 26));
        assert_eq!(ports(&v4(6, 0, &[1, 2, 3])), (6, 0, 0, 23));
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[0x45; 19]), None);
        assert_eq!(parse(&[0x60; 39]), None);
    }

    proptest! {
        #[test]
        fn any_octets_are_parsed_without_panic(
            first in any::<u8>(),
            octets in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = parse(&octets);
            let _ = parse(&[&[first], &octets[..]].concat());
        }
    }
}
