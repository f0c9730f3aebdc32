//! Expressions about the connection of a packet.

use netlink::nftables::number;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{Expressions, Register};

use crate::render::{Family, TupleDirection};

/// `NFTA_CT_DREG`, `NFTA_CT_KEY`, `NFT_CT_STATE`.
const CT_DESTINATION: u16 = 1;
const CT_KEY: u16 = 2;
pub(super) const CT_STATE: u32 = 0;
/// `NFTA_CT_DIRECTION`: that of an address.
const CT_OF_DIRECTION: u16 = 3;
/// `NFT_CT_SRC_IP`, `NFT_CT_SRC_IP6`.
const CT_SOURCE_IPV4: u32 = 19;
const CT_SOURCE_IPV6: u32 = 21;
/// `NFT_CT_DIRECTION`, `IP_CT_DIR_ORIGINAL`, `IP_CT_DIR_REPLY`.
pub(super) const CT_DIRECTION: u32 = 1;
const DIRECTION_ORIGINAL: u8 = 0;
pub(super) const DIRECTION_REPLY: u8 = 1;

/// `NFT_CT_MARK`.
pub(super) const CT_MARK: u32 = 3;

/// The place of the flags in a TCP header, and SYN alone of FIN, SYN, RST and ACK (RFC 9293 §3.1).
pub(super) const TCP_FLAGS_AT: u32 = 13;
pub(super) const TCP_FLAGS: u8 = 0x17;
pub(super) const TCP_SYN: u8 = 0x02;

/// `NFT_CT_STATUS`, `IPS_DST_NAT`.
pub(super) const CT_STATUS: u32 = 2;
pub(super) const STATUS_DNAT: u32 = 1 << 5;

/// Loads a connection tracking property of a packet.
pub(super) fn connection(key: u32) -> Expressions {
    let register = u32::from(Register::Reg1);
    Expressions::Other {
        expression_type: "ct".into(),
        attributes: vec![number(CT_KEY, key), number(CT_DESTINATION, register)],
    }
}

/// Loads the source address of a packet's connection into the second register.
pub(super) fn tuple_source(direction: TupleDirection, family: Family) -> Expressions {
    let key = match family {
        Family::V4 => CT_SOURCE_IPV4,
        Family::V6 => CT_SOURCE_IPV6,
    };
    let direction = match direction {
        TupleDirection::Original => DIRECTION_ORIGINAL,
        TupleDirection::Reply => DIRECTION_REPLY,
    };
    Expressions::Other {
        expression_type: "ct".into(),
        attributes: vec![
            number(CT_KEY, key),
            number(CT_DESTINATION, Register::Reg2.into()),
            DefaultNla::new(CT_OF_DIRECTION, vec![direction]),
        ],
    }
}
