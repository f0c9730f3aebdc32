//! The headers of a packet: link, IP, TCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::cursor::Cursor;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const SYN: u8 = 0x02;

/// A TCP segment. Its payload may be shorter than it was on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) syn: bool,
    pub(crate) payload: &'a [u8],
}

/// Returns the TCP segment in a packet of a link type (`LINKTYPE_` in libpcap's list). `None` for
/// fragments of IP packets, for other packets and for truncated headers.
pub(crate) fn segment(link: u16, octets: &[u8]) -> Option<Segment<'_>> {
    let mut packet = Cursor::network(octets);
    match link {
        // NULL and LOOP: loopback of BSD. The version of IP is more reliable than their field.
        0 | 108 => {
            packet.take(4)?;
        }
        // ETHERNET
        1 => {
            packet.take(12)?;
            ether_type(&mut packet)?;
        }
        // RAW, which some systems write with the numbers of their own; IPV4; IPV6.
        12 | 14 | 101 | 228 | 229 => {}
        // C_HDLC: Cisco's HDLC.
        104 => {
            packet.take(2)?;
            ether_type(&mut packet)?;
        }
        // LINUX_SLL
        113 => {
            packet.take(14)?;
            ether_type(&mut packet)?;
        }
        // LINUX_SLL2
        276 => {
            let mut kind = packet;
            packet.take(20)?;
            let kind = kind.u16()?;
            if is_vlan(kind) {
                packet.take(2)?;
                ether_type(&mut packet)?;
            } else if kind != IPV4 && kind != IPV6 {
                return None;
            }
        }
        _ => return None,
    }
    match packet.rest.first()? >> 4 {
        4 => ipv4(packet),
        6 => ipv6(packet),
        _ => None,
    }
}

/// Takes the type of the payload off, VLAN tags (IEEE 802.1Q) and MPLS labels (RFC 3032). `None` if
/// it is not IP.
fn ether_type(packet: &mut Cursor<'_>) -> Option<()> {
    loop {
        match packet.u16()? {
            IPV4 | IPV6 => return Some(()),
            0x8847 | 0x8848 => return labels(packet),
            kind if is_vlan(kind) => packet.take(2)?,
            _ => return None,
        };
    }
}

/// Takes labels off, up to the one with the bottom-of-stack bit.
fn labels(packet: &mut Cursor<'_>) -> Option<()> {
    while packet.u32()? & 0x100 == 0 {}
    Some(())
}

const fn is_vlan(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8 | 0x9100)
}

fn ipv4(packet: Cursor<'_>) -> Option<Segment<'_>> {
    let (mut fields, whole) = (packet, packet.rest);
    let header_len = usize::from(fields.u8()? & 0x0f) * 4;
    let _service = fields.u8()?;
    let total_len = usize::from(fields.u16()?);
    let (_id, fragment) = (fields.u16()?, fields.u16()?);
    let (_ttl, protocol, _sum) = (fields.u8()?, fields.u8()?, fields.u16()?);
    let (from, to) = (fields.array::<4>()?, fields.array::<4>()?);
    // More fragments, or an offset.
    if fragment & 0x3fff != 0 || protocol != TCP || header_len < 20 {
        return None;
    }
    let ends = (Ipv4Addr::from(from).into(), Ipv4Addr::from(to).into());
    tcp(ends, shortened(whole, total_len).get(header_len..)?)
}

fn ipv6(packet: Cursor<'_>) -> Option<Segment<'_>> {
    let mut fields = packet;
    let _version = fields.u32()?;
    let payload_len = usize::from(fields.u16()?);
    let (mut next, _hops) = (fields.u8()?, fields.u8()?);
    let (from, to) = (fields.array::<16>()?, fields.array::<16>()?);
    let mut payload = Cursor::network(shortened(fields.rest, payload_len));
    while next != TCP {
        let (kind, mut header) = (next, payload);
        next = header.u8()?;
        let len = usize::from(header.u8()?);
        payload.take(match kind {
            // Hop-by-Hop, Routing, Destination Options.
            0 | 43 | 60 => (len + 1) * 8,
            // Fragment: only one that is the whole packet (RFC 6946).
            44 if header.u16()? & 0xfff9 == 0 => 8,
            // Authentication Header.
            51 => (len + 2) * 4,
            _ => return None,
        })?;
    }
    let ends = (Ipv6Addr::from(from).into(), Ipv6Addr::from(to).into());
    tcp(ends, payload.rest)
}

/// Returns the octets without the link's padding. Segmentation offload leaves the length 0.
fn shortened(octets: &[u8], len: usize) -> &[u8] {
    match len {
        0 => octets,
        _ => octets.get(..len).unwrap_or(octets),
    }
}

fn tcp((from, to): (IpAddr, IpAddr), octets: &[u8]) -> Option<Segment<'_>> {
    let mut fields = Cursor::network(octets);
    let (source, destination) = (fields.u16()?, fields.u16()?);
    let (sequence, _acknowledged) = (fields.u32()?, fields.u32()?);
    let (offset, flags) = (fields.u8()?, fields.u8()?);
    let header_len = usize::from(offset >> 4) * 4;
    (header_len >= 20).then_some(())?;
    Some(Segment {
        from: SocketAddr::new(from, source),
        to: SocketAddr::new(to, destination),
        sequence,
        syn: flags & SYN != 0,
        payload: octets.get(header_len..)?,
    })
}
