//! Expressions with a state, and further properties of packets that budgets compare.

use netlink::nftables::number;
use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};
use netlink_packet_netfilter::nftables::{Expressions, Register};

use super::statement;
use crate::render::{Family, Is, Limit};

/// `NFTA_RT_DREG`, `NFTA_RT_KEY`; `NFT_RT_NEXTHOP4`, `NFT_RT_NEXTHOP6`.
const ROUTE_DESTINATION: u16 = 1;
const ROUTE_KEY: u16 = 2;
const NEXT_HOP_IPV4: u32 = 1;
const NEXT_HOP_IPV6: u32 = 2;
/// `NFTA_EXTHDR_DREG`, `NFTA_EXTHDR_TYPE`, `NFTA_EXTHDR_OFFSET`, `NFTA_EXTHDR_LEN`,
/// `NFTA_EXTHDR_FLAGS`, `NFTA_EXTHDR_OP`; `NFT_EXTHDR_F_PRESENT`, `NFT_EXTHDR_OP_IPV6`.
const EXTENSION_DESTINATION: u16 = 1;
const EXTENSION_TYPE: u16 = 2;
const EXTENSION_OFFSET: u16 = 3;
const EXTENSION_LENGTH: u16 = 4;
const EXTENSION_FLAGS: u16 = 5;
const EXTENSION_OPERATION: u16 = 6;
const EXTENSION_PRESENT: u32 = 1;
const EXTENSION_OF_IPV6: u32 = 0;
/// `IPPROTO_FRAGMENT`.
const FRAGMENT_HEADER: u8 = 44;
/// `NFTA_DYNSET_SET_NAME`, `NFTA_DYNSET_OP`, `NFTA_DYNSET_SREG_KEY`, `NFTA_DYNSET_EXPR`;
/// `NFT_DYNSET_OP_ADD`, `NFT_DYNSET_OP_UPDATE`.
const DYNAMIC_SET: u16 = 1;
const DYNAMIC_OPERATION: u16 = 3;
const DYNAMIC_KEY: u16 = 4;
const DYNAMIC_EXPRESSION: u16 = 7;
pub(super) const DYNAMIC_ADD: u32 = 0;
pub(super) const DYNAMIC_UPDATE: u32 = 1;
/// `NFTA_NG_DREG`, `NFTA_NG_MODULUS`, `NFTA_NG_TYPE`, `NFTA_NG_OFFSET`; `NFT_NG_RANDOM`.
const NUMBER_DESTINATION: u16 = 1;
const NUMBER_MODULUS: u16 = 2;
const NUMBER_TYPE: u16 = 3;
const NUMBER_OFFSET: u16 = 4;
const NUMBER_RANDOM: u32 = 1;
/// `NFTA_EXPR_NAME`, `NFTA_EXPR_DATA`.
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;

/// Loads the next hop of a packet's route. Packets of the other family do not match.
pub(super) fn next_hop(family: Family, register: Register) -> Expressions {
    let key = match family {
        Family::V4 => NEXT_HOP_IPV4,
        Family::V6 => NEXT_HOP_IPV6,
    };
    Expressions::Other {
        expression_type: "rt".into(),
        attributes: vec![
            number(ROUTE_DESTINATION, register.into()),
            number(ROUTE_KEY, key),
        ],
    }
}

/// Loads whether the packet has a fragment header.
pub(super) fn fragment_header() -> Expressions {
    Expressions::Other {
        expression_type: "exthdr".into(),
        attributes: vec![
            number(EXTENSION_DESTINATION, Register::Reg1.into()),
            DefaultNla::new(EXTENSION_TYPE, vec![FRAGMENT_HEADER]),
            number(EXTENSION_OFFSET, 0),
            number(EXTENSION_LENGTH, 1),
            number(EXTENSION_OPERATION, EXTENSION_OF_IPV6),
            number(EXTENSION_FLAGS, EXTENSION_PRESENT),
        ],
    }
}

/// Loads a random number below another one.
pub(super) fn random(below: u32) -> Expressions {
    Expressions::Other {
        expression_type: "numgen".into(),
        attributes: vec![
            number(NUMBER_DESTINATION, Register::Reg1.into()),
            number(NUMBER_MODULUS, below),
            number(NUMBER_TYPE, NUMBER_RANDOM),
            number(NUMBER_OFFSET, 0),
        ],
    }
}

/// Adds the key in register 1 to a set, with the state of a limit; the rule ends unless the packet is
/// over the limit.
pub(super) fn dynamic(operation: u32, set: &str, limit: Option<Limit>) -> Expressions {
    let mut attributes = vec![
        DefaultNla::new(DYNAMIC_SET, [set.as_bytes(), &[0]].concat()),
        number(DYNAMIC_OPERATION, operation),
        number(DYNAMIC_KEY, Register::Reg1.into()),
    ];
    attributes.extend(limit.map(of_limit));
    Expressions::Other {
        expression_type: "dynset".into(),
        attributes,
    }
}

fn of_limit(limit: Limit) -> DefaultNla {
    let rate = |packets, seconds| {
        let attributes = statement::limit(packets, seconds, packets, Is::Not);
        ("limit", attributes)
    };
    let (name, attributes) = match limit {
        Limit::PerSecond(packets) => rate(packets, 1),
        Limit::PerMinute(packets) => rate(packets, 60),
        Limit::Connections(count) => ("connlimit", statement::connections(count)),
    };
    let name = DefaultNla::new(EXPRESSION_NAME, [name.as_bytes(), &[0]].concat());
    let data = nested(EXPRESSION_DATA, &attributes);
    nested(DYNAMIC_EXPRESSION, &[name, data])
}

/// Returns an attribute that consists of others.
fn nested(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut octets = vec![0; attributes.buffer_len()];
    attributes.emit(&mut octets);
    DefaultNla::new(kind | NLA_F_NESTED, octets)
}
