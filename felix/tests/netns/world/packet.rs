//! Packets as octets, which the sockets of a workload would not send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// `IPPROTO_RAW`: the packet contains its IP header.
const RAW: i32 = 255;
const TCP: u8 = 6;
/// IPv6 extension headers: hop-by-hop options, fragment, destination options.
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Computes the internet checksum (RFC 1071).
pub(crate) fn checksum(octets: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in octets.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().into(),
        IpAddr::V6(v6) => v6.octets().into(),
    }
}

/// Computes the checksum of a transport protocol over a segment with its pseudo-header (RFC 9293
/// §3.1, RFC 8200 §8.1).
pub(crate) fn transport_checksum(from: IpAddr, to: IpAddr, protocol: u8, segment: &[u8]) -> u16 {
    let length = u16::try_from(segment.len()).unwrap();
    let parts = [
        octets(from),
        octets(to),
        vec![0, protocol],
        length.to_be_bytes().into(),
        segment.to_vec(),
    ];
    checksum(&parts.concat())
}

/// Computes the sum of the pseudo-header alone, which a network card completes.
pub(crate) fn pseudo_header_checksum(from: IpAddr, to: IpAddr, protocol: u8, length: u16) -> u16 {
    let parts = [
        octets(from),
        octets(to),
        vec![0, protocol],
        length.to_be_bytes().into(),
    ];
    checksum(&parts.concat())
}

/// Octets of the header of [`syn`].
const HEADER: usize = 24;

/// Returns a SYN with an option and data.
pub(crate) fn syn(from: IpAddr, source_port: u16, to: SocketAddr) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(source_port.to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    segment.extend([
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        6 << 4,
        2,
        0xff,
        0xff,
        0,
        0,
        0,
        0,
        1,
        1,
        1,
        1,
    ]);
    segment.extend([0; 8]);
    let sum = transport_checksum(from, to.ip(), TCP, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// Returns an IPv4 packet; `fragment` is its offset in octets and whether more follow.
pub(crate) fn ipv4(
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    fragment: Option<(usize, bool)>,
    payload: &[u8],
) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).unwrap();
    let (offset, more) = fragment.unwrap_or((0, false));
    let place = u16::try_from(offset / 8).unwrap() | if more { 1 << 13 } else { 0 };
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0x12, 0x34]);
    packet.extend(place.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// Returns an IPv6 packet.
pub(crate) fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(payload);
    packet
}

/// Returns a packet of either family.
pub(crate) fn packet(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, protocol, None, payload),
        (IpAddr::V6(from), IpAddr::V6(to)) => ipv6(from, to, protocol, payload),
        _ => panic!("{from} and {to}"),
    }
}

/// Returns the same segment in fragments. IPv4: eight octets each, so that the first contains the
/// ports, but not the flags. IPv6 has no such fragments (RFC 8200 §4.5: all headers are in the
/// first): two, with hop-by-hop options before the fragment header and destination options after
/// it.
pub(crate) fn fragments(from: IpAddr, to: SocketAddr, segment: &[u8]) -> Vec<Vec<u8>> {
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let whole = match to {
        SocketAddr::V4(_) => segment.to_vec(),
        SocketAddr::V6(_) => [&options(TCP), segment].concat(),
    };
    let size = match to {
        SocketAddr::V4(_) => 8,
        SocketAddr::V6(_) => 8 + HEADER,
    };
    let count = whole.len().div_ceil(size);
    let parts = whole.chunks(size).enumerate();
    let made = parts.map(|(at, part)| {
        let more = at + 1 < count;
        let offset = at * size;
        match (from, to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, TCP, Some((offset, more)), part),
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let place = u16::try_from(offset).unwrap() | u16::from(more);
                let mut payload = options(FRAGMENT).to_vec();
                payload.extend([DESTINATION_OPTIONS, 0]);
                payload.extend(place.to_be_bytes());
                payload.extend([0, 0, 0x12, 0x34]);
                payload.extend(part);
                ipv6(from, to, HOP_BY_HOP, &payload)
            }
            _ => panic!("{from} and {to}"),
        }
    });
    made.collect()
}

/// Sends a packet with its IP header from the thread's namespace. A packet that the namespace's own
/// rules drop is an error.
pub(crate) fn send(packet: &[u8], to: IpAddr) -> std::io::Result<()> {
    let domain = match to {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(RAW)))?;
    socket.send_to(packet, &SocketAddr::new(to, 0).into())?;
    Ok(())
}
