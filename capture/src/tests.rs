//! Captures made of octets, against what was put into them.

use std::net::SocketAddr;

use bgp_proto::{AddPathMode, Asn, Capability, Family, FamilySet, Open, PeerKind, RouterId};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use crate::headers::segment;
use crate::limits::{DIRECTIONS_MAX, PACKET_OCTETS_MAX, WAITING_SEGMENTS_MAX};
use crate::{Content, Packet, ReadError, Reader, Sessions};

const RAW: u16 = 101;
const KEEPALIVE: [u8; 19] = message_of_type(4);

const fn message_of_type(kind: u8) -> [u8; 19] {
    let mut message = [0xff; 19];
    message[16] = 0;
    message[17] = 19;
    message[18] = kind;
    message
}

fn side(number: u8) -> SocketAddr {
    let port = if number == 1 { 179 } else { 40_000 };
    SocketAddr::new([192, 0, 2, number].into(), port)
}

/// Returns an IPv4 packet with a TCP segment from one side to the other one.
fn tcp(from: SocketAddr, to: SocketAddr, sequence: u32, flags: u8, payload: &[u8]) -> Packet {
    let len = u16::try_from(40 + payload.len()).unwrap().to_be_bytes();
    let mut octets = vec![0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, 6, 0, 0];
    for end in [from, to] {
        let SocketAddr::V4(end) = end else {
            unreachable!()
        };
        octets.extend(end.ip().octets());
    }
    octets.extend(from.port().to_be_bytes());
    octets.extend(to.port().to_be_bytes());
    octets.extend(sequence.to_be_bytes());
    octets.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    octets.extend(payload);
    Packet {
        at: 0,
        time: None,
        link: RAW,
        octets,
    }
}

fn syn(number: u8, sequence: u32) -> Packet {
    tcp(side(number), side(3 - number), sequence, 0x02, &[])
}

fn data(number: u8, sequence: u32, payload: &[u8]) -> Packet {
    tcp(side(number), side(3 - number), sequence, 0x18, payload)
}

/// Returns the contents that are read from packets.
fn read<'a>(packets: impl IntoIterator<Item = &'a Packet>) -> Vec<Content> {
    let mut sessions = Sessions::new(179);
    let mut items = Vec::new();
    for packet in packets {
        items.extend(sessions.push(packet));
    }
    items.extend(sessions.finish());
    items.into_iter().map(|item| item.content).collect()
}

fn messages(contents: &[Content]) -> Vec<Bytes> {
    let octets = contents.iter().filter_map(|content| match content {
        Content::Message { octets, .. } => Some(octets.clone()),
        _ => None,
    });
    octets.collect()
}

/// Returns a message of any octets but those of a marker.
fn update(number: u8, len: usize) -> Vec<u8> {
    let total = u16::try_from(23 + len).unwrap().to_be_bytes();
    [&[0xff; 16][..], &total, &[2], &vec![number; 4 + len]].concat()
}

#[test]
fn segments_of_every_link_type_are_found() {
    let packet = data(1, 7, &[1, 2, 3]);
    let ip = &packet.octets[..];
    let wanted = segment(RAW, ip).expect("a segment");
    assert_eq!((wanted.from, wanted.to), (side(1), side(2)));
    assert_eq!((wanted.sequence, wanted.payload), (7, &[1, 2, 3][..]));
    let padded = [ip, &[0; 6]].concat();
    for (link, header) in [
        (0, vec![2, 0, 0, 0]),
        (1, [&[0; 12][..], &[8, 0]].concat()),
        (
            1,
            [&[0; 12][..], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 1, 8, 0]].concat(),
        ),
        (104, vec![0x0f, 0, 8, 0]),
        (
            104,
            vec![0x0f, 0, 0x88, 0x47, 0, 1, 0x20, 64, 0, 1, 0x31, 64],
        ),
        (108, vec![0, 0, 0, 2]),
        (113, [&[0; 14][..], &[8, 0]].concat()),
        (228, vec![]),
        (276, [&[8, 0][..], &[0; 18]].concat()),
    ] {
        let framed = [&header, &padded[..]].concat();
        assert_eq!(segment(link, &framed), Some(wanted), "link type {link}");
    }
    assert_eq!(segment(147, ip), None, "an unsupported link type");
    let mut fragment = ip.to_vec();
    fragment[6] = 0x20;
    assert_eq!(segment(RAW, &fragment), None, "a fragment");
}

#[test]
fn ipv6_segments_behind_extension_headers_are_found() {
    let tcp = &data(1, 7, &[1, 2, 3]).octets[20..];
    // Hop-by-Hop Options of 16 octets, then a Fragment header of the whole packet.
    let hop = [&[44, 1][..], &[0; 14]].concat();
    let fragment = [6, 0, 0, 0, 0, 0, 0, 1];
    let payload = [&hop, &fragment[..], tcp].concat();
    let len = u8::try_from(payload.len()).unwrap();
    let mut packet = vec![0x60, 0, 0, 0, 0, len, 0, 64];
    packet.extend(
        "2001:db8::1"
            .parse::<std::net::Ipv6Addr>()
            .unwrap()
            .octets(),
    );
    packet.extend(
        "2001:db8::2"
            .parse::<std::net::Ipv6Addr>()
            .unwrap()
            .octets(),
    );
    packet.extend(payload);
    let found = segment(229, &packet).expect("a segment");
    assert_eq!(found.from.to_string(), "[2001:db8::1]:179");
    assert_eq!(found.payload, [1, 2, 3]);
    // More fragments follow.
    packet[40 + 16 + 3] = 1;
    assert_eq!(segment(229, &packet), None);
}

#[test]
fn loss_is_reported_and_next_marker_is_found() {
    let stream = [&KEEPALIVE[..], &update(5, 40), &KEEPALIVE].concat();
    // The capture lacks 20 octets of the UPDATE.
    let packets = [
        syn(1, 99),
        data(1, 100, &stream[..30]),
        data(1, 100 + 50, &stream[50..]),
    ];
    let contents = read(&packets);
    let Content::Malformed(ref start) = contents[1] else {
        panic!("{contents:?}");
    };
    assert_eq!(start, &stream[19..30]);
    let skipped = (19 + 63 - 50) as u64;
    assert_eq!(
        contents[2..4],
        [Content::Lost(20), Content::Skipped(skipped)]
    );
    assert_eq!(messages(&contents), [&KEEPALIVE[..]; 2]);
    assert_eq!(contents.len(), 5);
}

#[test]
fn capture_that_begins_within_a_message_starts_at_the_next_one() {
    let stream = [&update(5, 40)[30..], &KEEPALIVE].concat();
    let contents = read(&[data(1, 5000, &stream)]);
    assert_eq!(contents[0], Content::Skipped(33));
    assert_eq!(messages(&contents), [&KEEPALIVE[..]]);
}

#[test]
fn octets_that_are_no_bgp_are_malformed() {
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let contents = read(&[syn(2, 0), data(2, 1, http)]);
    let header = Bytes::copy_from_slice(&http[..19]);
    assert_eq!(
        contents,
        [
            Content::Malformed(header),
            Content::Skipped(http.len() as u64)
        ]
    );
}

#[test]
fn segments_without_end_of_a_gap_are_bounded() {
    let mut sessions = Sessions::new(179);
    sessions.push(&syn(1, 0));
    let mut lost = 0;
    for at in 0..3 * WAITING_SEGMENTS_MAX as u32 {
        // Each one after a missing octet.
        for item in sessions.push(&data(1, 2 + at * 20, &KEEPALIVE)) {
            if let Content::Lost(octets) = item.content {
                lost += octets;
            }
        }
    }
    assert_eq!(lost, 2 * WAITING_SEGMENTS_MAX as u32);
}

#[test]
fn connections_beyond_the_limit_end_the_oldest_one() {
    let mut sessions = Sessions::new(179);
    let from = |port: usize| SocketAddr::new([192, 0, 2, 9].into(), 1000 + port as u16);
    for port in 0..=DIRECTIONS_MAX {
        let half = &KEEPALIVE[..9];
        let items = sessions.push(&tcp(from(port), side(1), 0, 0x02, half));
        let ended: Vec<_> = items.iter().map(|item| item.from).collect();
        let expected: &[_] = if port < DIRECTIONS_MAX {
            &[]
        } else {
            &[from(0)]
        };
        assert_eq!(ended, expected, "{port}");
    }
}

fn open(asn: u32, as4: bool, mode: AddPathMode) -> BytesMut {
    let mut capabilities = vec![Capability::AddPath(vec![(Family::IPV4_UNICAST, mode)])];
    capabilities.extend(as4.then_some(Capability::FourOctetAsn(Asn(asn))));
    let open = Open {
        asn: Asn(asn),
        hold_time: 90,
        id: RouterId([192, 0, 2, 1].into()),
        capabilities,
    };
    let mut out = BytesMut::new();
    open.encode(&mut out);
    out
}

/// Returns the encoding of the last message that the first side sends, after these OPENs.
fn encoding(opens: [Option<&[u8]>; 2]) -> crate::Encoding {
    let mut packets = Vec::new();
    let mut next = 1;
    for (number, open) in (1..).zip(opens) {
        packets.push(syn(number, 0));
        packets.extend(open.map(|open| data(number, 1, open)));
    }
    next += opens[0].map_or(0, |open| open.len() as u32);
    packets.push(data(1, next, &KEEPALIVE));
    let contents = read(&packets);
    let last = contents.last().expect("the KEEPALIVE");
    let Content::Message { encoding, .. } = last else {
        panic!("{last:?}");
    };
    *encoding
}

#[test]
fn encoding_is_that_of_both_opens() {
    let (send, receive) = (AddPathMode::Send, AddPathMode::Receive);
    let ours = open(64_512, true, send);
    let both = encoding([Some(&ours), Some(&open(64_513, true, receive))]);
    assert!(both.as4 && both.kind == PeerKind::External);
    assert!(both.add_path.contains(Family::IPV4_UNICAST));
    let old = encoding([Some(&ours), Some(&open(64_512, false, send))]);
    assert!(!old.as4 && old.kind == PeerKind::Internal);
    assert_eq!(old.add_path, FamilySet::EMPTY, "both only send");
    let one = encoding([Some(&ours), None]);
    assert!(one.as4 && one.add_path == FamilySet::EMPTY);
    assert!(!encoding([None, Some(&open(64_512, false, send))]).as4);
    assert!(encoding([None, None]).as4);
}

proptest! {
    #[test]
    fn exactly_the_whole_messages_are_read(
        sizes in prop::collection::vec(0_usize..80, 1..12),
        cuts in prop::collection::vec((0_usize..600, 1_usize..120), 1..40),
        first in prop_oneof![Just(u32::MAX - 100), any::<u32>()],
    ) {
        let sent: Vec<_> = (1..).zip(sizes).map(|(number, len)| update(number, len)).collect();
        let stream = sent.concat();
        let mut captured = vec![false; stream.len()];
        let mut packets = vec![syn(1, first.wrapping_sub(1))];
        for (start, len) in cuts {
            let start = start % stream.len();
            let end = (start + len).min(stream.len());
            captured[start..end].fill(true);
            packets.push(data(1, first.wrapping_add(start as u32), &stream[start..end]));
        }
        let contents = read(&packets);
        let mut at = 0;
        let mut whole = Vec::new();
        for message in &sent {
            if captured[at..at + message.len()].iter().all(|captured| *captured) {
                whole.push(Bytes::copy_from_slice(message));
            }
            at += message.len();
        }
        prop_assert_eq!(messages(&contents), whole);
        // The octets after the last captured one are not known to exist.
        let end = captured.iter().rposition(|captured| *captured).unwrap_or(0);
        let missing = captured[..end].iter().filter(|captured| !**captured).count();
        let lost = contents.iter().map(|content| match content {
            Content::Lost(octets) => *octets as usize,
            _ => 0,
        });
        prop_assert_eq!(lost.sum::<usize>(), missing);
    }

    #[test]
    fn any_octets_are_read_without_a_panic(
        damage in prop::collection::vec((0_usize..700, any::<u8>()), 0..20),
        is_ng in any::<bool>(),
        big in any::<bool>(),
    ) {
        let mut file = if is_ng { pcapng(big) } else { pcap(big, 0xa1b2_c3d4) };
        for (at, octet) in damage {
            let at = at % file.len();
            file[at] = octet;
        }
        let mut sessions = Sessions::new(179);
        for packet in Reader::new(&file[..]).map_while(Result::ok) {
            let _items = sessions.push(&packet);
        }
        let _items = sessions.finish();
    }
}

/// Writes fields in either byte order.
struct File {
    octets: Vec<u8>,
    big: bool,
}

impl File {
    fn u16(&mut self, value: u16) -> &mut Self {
        let octets = if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        };
        self.octets.extend(octets);
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        let octets = if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        };
        self.octets.extend(octets);
        self
    }

    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Self)) {
        self.u32(kind).u32(0);
        let start = self.octets.len();
        body(self);
        let padded = (self.octets.len() - start).next_multiple_of(4);
        self.octets.resize(start + padded, 0);
        let len = u32::try_from(padded + 12).unwrap();
        let octets = if self.big {
            len.to_be_bytes()
        } else {
            len.to_le_bytes()
        };
        self.octets[start - 4..start].copy_from_slice(&octets);
        self.u32(len);
    }
}

fn packets() -> [Packet; 3] {
    [
        syn(1, 0),
        data(1, 1, &KEEPALIVE),
        data(1, 20, &update(1, 9)),
    ]
}

/// Returns a pcap file with these packets, at 7.000009 s.
fn pcap(big: bool, magic: u32) -> Vec<u8> {
    let mut file = File {
        octets: Vec::new(),
        big,
    };
    file.u32(magic)
        .u16(2)
        .u16(4)
        .u32(0)
        .u32(0)
        .u32(262_144)
        .u32(u32::from(RAW));
    let fraction = if magic == 0xa1b2_c3d4 { 9 } else { 9999 };
    for packet in packets() {
        let len = u32::try_from(packet.octets.len()).unwrap();
        file.u32(7).u32(fraction).u32(len).u32(len);
        file.octets.extend(packet.octets);
    }
    file.octets
}

/// Returns a pcapng file with a packet of each block type. Two have the time 7.000009 s, in units of
/// 10^-9 s, with an offset of 5 s.
fn pcapng(big: bool) -> Vec<u8> {
    let mut file = File {
        octets: Vec::new(),
        big,
    };
    file.block(0x0a0d_0d0a, |file| {
        file.u32(0x1a2b_3c4d)
            .u16(1)
            .u16(0)
            .u32(u32::MAX)
            .u32(u32::MAX);
    });
    file.block(1, |file| {
        file.u16(RAW).u16(0).u32(0);
        file.u16(9).u16(1).octets.extend([9, 0, 0, 0]);
        file.u16(14).u16(8);
        let (high, low) = if big { (0, 5) } else { (5, 0) };
        file.u32(high).u32(low).u16(0).u16(0);
    });
    file.block(5, |file| file.octets.extend([1; 8]));
    let [one, two, three] = packets();
    let time = 2_000_009_000;
    let len = |packet: &Packet| u32::try_from(packet.octets.len()).unwrap();
    file.block(6, |file| {
        file.u32(0).u32(0).u32(time).u32(len(&one)).u32(len(&one));
        file.octets.extend(&one.octets);
    });
    file.block(2, |file| {
        file.u16(0)
            .u16(0)
            .u32(0)
            .u32(time)
            .u32(len(&two))
            .u32(len(&two));
        file.octets.extend(&two.octets);
    });
    file.block(3, |file| {
        file.u32(len(&three)).octets.extend(&three.octets);
    });
    file.octets
}

#[test]
fn both_formats_are_read_in_either_byte_order() {
    for big in [false, true] {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            let found: Vec<_> = Reader::new(&pcap(big, magic)[..])
                .map(Result::unwrap)
                .collect();
            let octets: Vec<_> = found.iter().map(|packet| &packet.octets).collect();
            assert_eq!(octets, packets().each_ref().map(|packet| &packet.octets));
            assert!(
                found.iter().all(|packet| packet.time == Some((7, 9))),
                "{found:?}"
            );
            assert_eq!((found[0].at, found[0].link), (24, RAW));
        }
        let found: Vec<_> = Reader::new(&pcapng(big)[..]).map(Result::unwrap).collect();
        let octets: Vec<_> = found.iter().map(|packet| &packet.octets).collect();
        assert_eq!(octets, packets().each_ref().map(|packet| &packet.octets));
        let times = found.iter().map(|packet| packet.time);
        assert!(times.eq([Some((7, 9)), Some((7, 9)), None]), "{found:?}");
    }
}

#[test]
fn file_that_is_cut_returns_the_packets_before() {
    for file in [pcap(false, 0xa1b2_c3d4), pcapng(true)] {
        let whole = Reader::new(&file[..]).count();
        assert_eq!(whole, 3);
        for cut in 1..file.len() {
            let read: Vec<_> = Reader::new(&file[..cut]).collect();
            let packets = read.iter().filter(|packet| packet.is_ok()).count();
            let error = read.last().and_then(|last| last.as_ref().err());
            assert!(packets < 3, "{cut}");
            if let Some(error) = error {
                let is_cut = matches!(error, ReadError::Truncated { .. } | ReadError::NoCapture);
                assert!(is_cut && error.at() < cut as u64, "{cut}: {error}");
            }
        }
    }
}

#[test]
fn lengths_beyond_the_limit_are_damage() {
    let mut file = pcap(false, 0xa1b2_c3d4);
    let len = u32::try_from(PACKET_OCTETS_MAX + 1).unwrap();
    file[24 + 8..24 + 12].copy_from_slice(&len.to_le_bytes());
    let error = Reader::new(&file[..]).next().unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            ReadError::Damaged {
                at: 24,
                field: "length"
            }
        ),
        "{error}"
    );
    let error = Reader::new(&b"not a capture"[..])
        .next()
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, ReadError::NoCapture));
}
