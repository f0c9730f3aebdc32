//! Expressions that count, limit, reject or change packets.

use netlink::expression::{meta, payload};
use netlink::nftables::number;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, ChecksumFlags, ChecksumType, DataAttribute, Expressions, Meta, MetaKey, Payload,
    Register,
};

use crate::render::{ACCEPTED, Family, Is, Rate, Report};

/// `NFT_PAYLOAD_NETWORK_HEADER`.
const NETWORK: u32 = 1;
/// `NFTA_LIMIT_RATE`, `NFTA_LIMIT_UNIT`, `NFTA_LIMIT_BURST`, `NFTA_LIMIT_TYPE`, `NFTA_LIMIT_FLAGS`;
/// `NFT_LIMIT_PKTS`, `NFT_LIMIT_F_INV`.
const LIMIT_RATE: u16 = 1;
const LIMIT_UNIT: u16 = 2;
const LIMIT_BURST: u16 = 3;
const LIMIT_TYPE: u16 = 4;
const LIMIT_FLAGS: u16 = 5;
const LIMIT_OF_PACKETS: u32 = 0;
const LIMIT_INVERTED: u32 = 1;
/// `NFTA_CONNLIMIT_COUNT`, `NFTA_CONNLIMIT_FLAGS`; `NFT_CONNLIMIT_F_INV`.
const CONNECTIONS_COUNT: u16 = 1;
const CONNECTIONS_FLAGS: u16 = 2;
const CONNECTIONS_OVER: u32 = 1;
/// `NFTA_REJECT_TYPE`, `NFTA_REJECT_ICMP_CODE`; `NFT_REJECT_TCP_RST`, `NFT_REJECT_ICMPX_UNREACH`,
/// `NFT_REJECT_ICMPX_PORT_UNREACH`.
const REJECT_TYPE: u16 = 1;
const REJECT_CODE: u16 = 2;
const REJECT_BY_RESET: u32 = 1;
const REJECT_BY_ERROR: u32 = 2;
const PORT_UNREACHABLE: u8 = 1;
/// `NFTA_LOG_GROUP`, `NFTA_LOG_PREFIX`.
const LOG_GROUP: u16 = 1;
const LOG_PREFIX: u16 = 2;
/// The place of the checksum in an IPv4 header.
const IPV4_CHECKSUM: u32 = 10;

/// Sets the bit of accepted packets in a packet's mark to that of a value.
pub(super) fn mark(value: u32) -> Vec<Expressions> {
    vec![
        meta(MetaKey::Mark),
        Expressions::Bitwise(vec![
            Bitwise::SourceRegister(Register::Reg1),
            Bitwise::DestinationRegister(Register::Reg1),
            Bitwise::Length(4),
            Bitwise::Mask(DataAttribute::Value((!ACCEPTED).to_ne_bytes().into())),
            Bitwise::Xor(DataAttribute::Value(value.to_ne_bytes().into())),
        ]),
        Expressions::Meta(vec![
            Meta::Key(MetaKey::Mark),
            Meta::SourceRegister(Register::Reg1),
        ]),
    ]
}

/// Sends the packet to a group of the packet log, and continues.
pub(super) fn report(report: &Report) -> Expressions {
    let prefix = [report.prefix.as_bytes(), &[0]].concat();
    Expressions::Other {
        expression_type: "log".into(),
        attributes: vec![
            DefaultNla::new(LOG_PREFIX, prefix),
            DefaultNla::new(LOG_GROUP, report.group.to_be_bytes().into()),
        ],
    }
}

/// Leaves a packet out of connection tracking.
pub(super) fn untrack() -> Expressions {
    Expressions::Other {
        expression_type: "notrack".into(),
        attributes: Vec::new(),
    }
}

/// Drops a packet and answers with an ICMP error of its family: port unreachable.
pub(super) fn reject() -> Expressions {
    let code = DefaultNla::new(REJECT_CODE, vec![PORT_UNREACHABLE]);
    Expressions::Other {
        expression_type: "reject".into(),
        attributes: vec![number(REJECT_TYPE, REJECT_BY_ERROR), code],
    }
}

/// Drops a TCP packet and resets its connection.
pub(super) fn reset_tcp() -> Expressions {
    Expressions::Other {
        expression_type: "reject".into(),
        attributes: vec![number(REJECT_TYPE, REJECT_BY_RESET)],
    }
}

/// Continues if the connections with packets that came here are more than this number.
pub(super) fn connections_over(count: u32) -> Expressions {
    Expressions::Other {
        expression_type: "connlimit".into(),
        attributes: connections(count),
    }
}

/// Returns the attributes of a limit of connections.
pub(super) fn connections(count: u32) -> Vec<DefaultNla> {
    vec![
        number(CONNECTIONS_COUNT, count),
        number(CONNECTIONS_FLAGS, CONNECTIONS_OVER),
    ]
}

/// Sets the DSCP, which is a part of the first two octets of a header (RFC 2474).
pub(super) fn dscp(family: Family, value: u8) -> Vec<Expressions> {
    let value = u16::from(value);
    let (mask, bits, checksum) = match family {
        Family::V4 => (
            [0xff, 0x03],
            value << 2,
            (ChecksumType::Inet, IPV4_CHECKSUM),
        ),
        Family::V6 => ([0xf0, 0x3f], value << 6, (ChecksumType::None, 0)),
    };
    vec![
        payload(NETWORK, 0, 2, Register::Reg1),
        Expressions::Bitwise(vec![
            Bitwise::SourceRegister(Register::Reg1),
            Bitwise::DestinationRegister(Register::Reg1),
            Bitwise::Length(2),
            Bitwise::Mask(DataAttribute::Value(mask.into())),
            Bitwise::Xor(DataAttribute::Value(bits.to_be_bytes().into())),
        ]),
        Expressions::Payload(vec![
            Payload::SourceRegister(Register::Reg1),
            Payload::Base(NETWORK),
            Payload::Offset(0),
            Payload::Len(2),
            Payload::CsumType(checksum.0),
            Payload::CsumOffset(checksum.1),
            Payload::CsumFlags(ChecksumFlags::empty()),
        ]),
    ]
}

/// Continues while packets are within a rate, or beyond it.
pub(super) fn rate(rate: Rate, is: Is) -> Expressions {
    Expressions::Other {
        expression_type: "limit".into(),
        attributes: limit(rate.packets, rate.per.seconds(), rate.burst, is),
    }
}

/// Returns the attributes of a limit of packets in so many seconds.
pub(super) fn limit(packets: u32, seconds: u64, burst: u32, is: Is) -> Vec<DefaultNla> {
    let wide = |attribute, value: u64| DefaultNla::new(attribute, value.to_be_bytes().into());
    let flags = match is {
        Is::Yes => 0,
        Is::Not => LIMIT_INVERTED,
    };
    vec![
        wide(LIMIT_RATE, packets.into()),
        wide(LIMIT_UNIT, seconds),
        number(LIMIT_BURST, burst),
        number(LIMIT_TYPE, LIMIT_OF_PACKETS),
        number(LIMIT_FLAGS, flags),
    ]
}
