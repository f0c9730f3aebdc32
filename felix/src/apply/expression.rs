//! Rules as expressions of the nftables virtual machine. Each match loads into register 1 and
//! compares; the forms are those that `nft` itself makes, so that `nft list` prints them back.

use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, Expressions, Immediate, Lookup, Meta, MetaKey, Operator, Payload,
    Register, Verdict as Code, VerdictAttribute,
};

use super::encode::number;
use crate::render::{Action, ConnectionStates, Match, Rule, Side, Verdict};

const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const IPPROTO_ICMPV6: u8 = 58;
/// `NFT_PAYLOAD_NETWORK_HEADER` and `NFT_PAYLOAD_TRANSPORT_HEADER`.
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;
/// `NFTA_CT_DREG`, `NFTA_CT_KEY`, `NFT_CT_STATE`.
const CT_DESTINATION: u16 = 1;
const CT_KEY: u16 = 2;
const CT_STATE: u32 = 0;
/// Bits of the connection tracking state.
const ESTABLISHED: u32 = 2;
const RELATED: u32 = 4;

/// All expressions of a rule, in order.
pub(super) fn of_rule(rule: &Rule) -> Vec<Expressions> {
    let mut expressions: Vec<Expressions> = rule.matches.iter().flat_map(of_match).collect();
    if rule.counter {
        expressions.push(Expressions::Other {
            expression_type: "counter".into(),
            attributes: Vec::new(),
        });
    }
    match &rule.action {
        Action::Verdict(verdict) => expressions.push(immediate(verdict)),
        Action::Lookup(side, map) => {
            expressions.push(interface(*side));
            expressions.push(lookup(map, Some(Register::Verdict)));
        }
    }
    expressions
}

/// The attributes of a verdict.
pub(super) fn verdict(verdict: &Verdict) -> Vec<VerdictAttribute> {
    let (code, chain) = match verdict {
        Verdict::Accept => (Code::Other(NF_ACCEPT), None),
        Verdict::Drop => (Code::Other(NF_DROP), None),
        Verdict::Return => (Code::Return, None),
        Verdict::Jump(chain) => (Code::Jump, Some(chain)),
        Verdict::Goto(chain) => (Code::Goto, Some(chain)),
    };
    let mut attributes = vec![VerdictAttribute::Code(code)];
    attributes.extend(chain.map(|chain| VerdictAttribute::Chain(chain.clone())));
    attributes
}

fn of_match(condition: &Match) -> Vec<Expressions> {
    match condition {
        Match::InterfacePrefix(side, prefix) => vec![interface(*side), equal(prefix.as_bytes())],
        Match::InterfaceIn(side, set) => vec![interface(*side), lookup(set, None)],
        Match::SourceIpv4In(set) => source_in(NFPROTO_IPV4, (12, 4), set),
        Match::SourceIpv6In(set) => source_in(NFPROTO_IPV6, (8, 16), set),
        Match::SourceLinkLocal => {
            let (mut mask, mut value) = ([0; 16], [0; 16]);
            [mask[0], mask[1]] = [0xff, 0xc0];
            [value[0], value[1]] = [0xfe, 0x80];
            let mut expressions = family(NFPROTO_IPV6);
            expressions.extend([
                payload(NETWORK, 8, 16, Register::Reg1),
                masked(&mask),
                equal(&value),
            ]);
            expressions
        }
        Match::SourceUnspecified => {
            let mut expressions = family(NFPROTO_IPV6);
            expressions.extend([payload(NETWORK, 8, 16, Register::Reg1), equal(&[0; 16])]);
            expressions
        }
        Match::DestinationLinkLocalMulticast => {
            let mut expressions = family(NFPROTO_IPV6);
            expressions.extend([
                payload(NETWORK, 24, 2, Register::Reg1),
                equal(&[0xff, 0x02]),
            ]);
            expressions
        }
        Match::Icmpv6TypeIn(set) => vec![
            meta(MetaKey::L4Proto),
            equal(&[IPPROTO_ICMPV6]),
            payload(TRANSPORT, 0, 1, Register::Reg1),
            lookup(set, None),
        ],
        Match::Connection(ConnectionStates::EstablishedOrRelated) => {
            let states = ESTABLISHED | RELATED;
            vec![
                connection_state(),
                masked(&states.to_ne_bytes()),
                differs(&[0; 4]),
            ]
        }
    }
}

/// The input interface's name and the source address, side by side, looked up in a set.
fn source_in(protocol: u8, (offset, octets): (u32, u32), set: &str) -> Vec<Expressions> {
    let mut expressions = family(protocol);
    expressions.extend([
        interface(Side::Input),
        payload(NETWORK, offset, octets, Register::Reg2),
        lookup(set, None),
    ]);
    expressions
}

fn family(protocol: u8) -> Vec<Expressions> {
    vec![meta(MetaKey::Nfproto), equal(&[protocol])]
}

fn interface(side: Side) -> Expressions {
    meta(match side {
        Side::Input => MetaKey::Iifname,
        Side::Output => MetaKey::Oifname,
    })
}

fn meta(key: MetaKey) -> Expressions {
    Expressions::Meta(vec![
        Meta::Key(key),
        Meta::DestinationRegister(Register::Reg1),
    ])
}

fn payload(base: u32, offset: u32, octets: u32, register: Register) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(register),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(octets),
    ])
}

fn compare(operator: Operator, value: &[u8]) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(value.into())),
    ])
}

fn equal(value: &[u8]) -> Expressions {
    compare(Operator::Equal, value)
}

fn differs(value: &[u8]) -> Expressions {
    compare(Operator::NotEqual, value)
}

fn masked(mask: &[u8]) -> Expressions {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(u32::try_from(mask.len()).unwrap_or(0)),
        Bitwise::Mask(DataAttribute::Value(mask.into())),
        Bitwise::Xor(DataAttribute::Value(vec![0; mask.len()])),
    ])
}

fn connection_state() -> Expressions {
    let register = u32::from(Register::Reg1);
    Expressions::Other {
        expression_type: "ct".into(),
        attributes: vec![number(CT_KEY, CT_STATE), number(CT_DESTINATION, register)],
    }
}

fn lookup(set: &str, into: Option<Register>) -> Expressions {
    let mut attributes = vec![
        Lookup::Set(set.into()),
        Lookup::SourceRegister(Register::Reg1),
    ];
    attributes.extend(into.map(Lookup::DestinationRegister));
    Expressions::Lookup(attributes)
}

fn immediate(fate: &Verdict) -> Expressions {
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(verdict(fate))),
    ])
}
