//! Decodes the messages of the kernel: packets of the packet log, and connections that end.

use std::net::IpAddr;

use netlink::Notification;
use netlink::attributes::{address, find, number_16, number_32, number_64, text};

use super::packet::{self, Tuple};

/// `NFNL_SUBSYS_ULOG` with `NFULNL_MSG_PACKET`, `NFNL_SUBSYS_CTNETLINK` with `IPCTNL_MSG_CT_DELETE`.
const PACKET: u16 = 4 << 8;
const CONNECTION_ENDS: u16 = 1 << 8 | 2;
/// Octets of `nfgenmsg`.
const HEADER_OCTETS: usize = 4;
/// `NFULA_PAYLOAD`, `NFULA_PREFIX`, `NFULA_SEQ`.
const PAYLOAD: u16 = 9;
const PREFIX: u16 = 10;
const SEQUENCE: u16 = 12;
/// `CTA_TUPLE_ORIG`, `CTA_TUPLE_REPLY`, `CTA_COUNTERS_ORIG`, `CTA_COUNTERS_REPLY`.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const COUNTERS: [u16; 2] = [9, 10];
/// `CTA_TUPLE_IP`, `CTA_TUPLE_PROTO`.
const TUPLE_ADDRESSES: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
/// `CTA_IP_V4_SRC`, `CTA_IP_V6_SRC`.
const IPV4_SOURCE: u16 = 1;
const IPV6_SOURCE: u16 = 3;
/// `CTA_PROTO_NUM`, `CTA_PROTO_SRC_PORT`, `CTA_PROTO_ICMP_ID`, `CTA_PROTO_ICMPV6_ID`.
const NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const IDENTIFIERS: [u16; 2] = [4, 7];
/// `CTA_COUNTERS_PACKETS`, `CTA_COUNTERS_BYTES`.
const PACKETS: u16 = 1;
const OCTETS: u16 = 2;

/// The first packet of a connection, or another one that rules decided about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its number among the records of the group, for finding lost ones.
    pub(super) sequence: Option<u32>,
    pub(super) tuple: Tuple,
    /// Octets of the packet.
    pub(super) octets: u64,
    /// The prefix of the rule.
    pub(super) prefix: String,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) tuple: Tuple,
    /// Packets and octets of both directions, if the kernel counts them.
    pub(super) counts: Option<(u64, u64)>,
}

/// Decodes a message of the packet log; `None` for another one, or without a packet of IP.
pub(super) fn record(message: Notification<'_>) -> Option<Record> {
    let attributes = attributes(message, PACKET)?;
    let (tuple, octets) = packet::parse(find(attributes, PAYLOAD)?)?;
    Some(Record {
        sequence: find(attributes, SEQUENCE).and_then(number_32),
        tuple,
        octets,
        prefix: find(attributes, PREFIX).map(text).unwrap_or_default(),
    })
}

/// Decodes the end of a connection; `None` for another message.
pub(super) fn ended(message: Notification<'_>) -> Option<Ended> {
    let attributes = attributes(message, CONNECTION_ENDS)?;
    let (original, reply) = (find(attributes, ORIGINAL)?, find(attributes, REPLY)?);
    let (protocol, source_port) = protocol(original)?;
    let (_, answering_port) = self::protocol(reply)?;
    let is_echo = find(find(original, TUPLE_PROTOCOL)?, SOURCE_PORT).is_none();
    let tuple = Tuple {
        protocol,
        source: source(original)?,
        // The source of answers is the destination after its translation.
        destination: source(reply)?,
        source_port,
        port: if is_echo { 0 } else { answering_port },
    };
    let of = |kind| {
        let counters = find(attributes, kind)?;
        let read = |kind| number_64(find(counters, kind)?);
        Some((read(PACKETS)?, read(OCTETS)?))
    };
    let [there, back] = COUNTERS.map(of);
    let counts = there.zip(back).map(|(there, back)| {
        let packets = there.0.saturating_add(back.0);
        (packets, there.1.saturating_add(back.1))
    });
    Some(Ended { tuple, counts })
}

fn attributes(message: Notification<'_>, kind: u16) -> Option<&[u8]> {
    let payload = message.payload.get(HEADER_OCTETS..)?;
    (message.kind == kind).then_some(payload)
}

fn source(tuple: &[u8]) -> Option<IpAddr> {
    let addresses = find(tuple, TUPLE_ADDRESSES)?;
    let mut found = [IPV4_SOURCE, IPV6_SOURCE].into_iter();
    found.find_map(|kind| address(find(addresses, kind)?))
}

/// Returns the protocol of a tuple, and its source port or the identifier of an echo.
fn protocol(tuple: &[u8]) -> Option<(u8, u16)> {
    let protocol = find(tuple, TUPLE_PROTOCOL)?;
    let kinds = [SOURCE_PORT].into_iter().chain(IDENTIFIERS);
    let mut ports = kinds.filter_map(|kind| number_16(find(protocol, kind)?));
    let number = *find(protocol, NUMBER)?.first()?;
    Some((number, ports.next().unwrap_or_default()))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        let header = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        [&header, value, &padding].concat()
    }

    fn tuple(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
        let addresses = [attribute(1, &source), attribute(2, &destination)].concat();
        let protocol = [
            attribute(NUMBER, &[6]),
            attribute(SOURCE_PORT, &ports[0].to_be_bytes()),
            attribute(3, &ports[1].to_be_bytes()),
        ];
        [
            attribute(TUPLE_ADDRESSES, &addresses),
            attribute(TUPLE_PROTOCOL, &protocol.concat()),
        ]
        .concat()
    }

    fn message(attributes: &[Vec<u8>]) -> Vec<u8> {
        [&[2, 0, 0, 0][..], &attributes.concat()].concat()
    }

    #[test]
    fn end_has_the_translated_destination_and_both_counts() {
        let counters = |packets: u64, octets: u64| {
            let both = [
                attribute(PACKETS, &packets.to_be_bytes()),
                attribute(OCTETS, &octets.to_be_bytes()),
            ];
            both.concat()
        };
        let client = [10, 0, 0, 1];
        let parts = [
            attribute(ORIGINAL, &tuple(client, [10, 96, 0, 1], [4000, 80])),
            attribute(REPLY, &tuple([10, 0, 0, 2], client, [8080, 4000])),
            attribute(9, &counters(3, 300)),
            attribute(10, &counters(2, 200)),
        ];
        let octets = message(&parts);
        let found = ended(Notification::new(CONNECTION_ENDS, 0, &octets)).unwrap();
        let wanted = Tuple {
            protocol: 6,
            source: client.into(),
            destination: [10, 0, 0, 2].into(),
            source_port: 4000,
            port: 8080,
        };
        assert_eq!((found.tuple, found.counts), (wanted, Some((5, 500))));
        let octets = message(&parts[..3]);
        let found = ended(Notification::new(CONNECTION_ENDS, 0, &octets)).unwrap();
        assert_eq!(found.counts, None);
        let octets = message(&parts[..1]);
        assert_eq!(ended(Notification::new(CONNECTION_ENDS, 0, &octets)), None);
    }

    #[test]
    fn record_has_prefix_sequence_and_ends_of_its_packet() {
        let packet = [
            &[
                0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
            ][..],
            &[0x30, 0x39, 0, 53, 0, 8, 0, 0],
        ];
        let parts = [
            attribute(PREFIX, b"A I end profile open\0"),
            attribute(PAYLOAD, &packet.concat()),
            attribute(SEQUENCE, &7_u32.to_be_bytes()),
        ];
        let octets = message(&parts);
        let found = record(Notification::new(PACKET, 0, &octets)).unwrap();
        assert_eq!((found.sequence, found.octets), (Some(7), 28));
        assert_eq!(found.prefix, "A I end profile open");
        assert_eq!((found.tuple.source_port, found.tuple.port), (12345, 53));
        assert_eq!(record(Notification::new(CONNECTION_ENDS, 0, &octets)), None);
        for end in 0..octets.len() {
            // A cut message loses parts, or is no record.
            let _ = record(Notification::new(PACKET, 0, &octets[..end]));
        }
    }

    proptest! {
        #[test]
        fn any_message_is_decoded_without_panic(
            octets in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = record(Notification::new(PACKET, 0, &octets));
            let _ = ended(Notification::new(CONNECTION_ENDS, 0, &octets));
        }

        #[test]
        fn any_attributes_are_decoded_without_panic(
            parts in prop::collection::vec(
                (0_u16..16, prop::collection::vec(any::<u8>(), 0..80)), 0..8),
        ) {
            let parts = parts.iter().map(|(kind, value)| attribute(*kind, value));
            let inner: Vec<u8> = parts.collect::<Vec<_>>().concat();
            let outer = [attribute(ORIGINAL, &inner), attribute(REPLY, &inner), inner];
            let octets = message(&outer);
            let _ = record(Notification::new(PACKET, 0, &octets));
            let _ = ended(Notification::new(CONNECTION_ENDS, 0, &octets));
        }
    }
}
