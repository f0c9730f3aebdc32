//! Expressions of the nftables virtual machine. A match loads into a register and compares; the
//! encodings are those of `nft` itself, so that `nft list` can print them.

use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, Expressions, Immediate, Lookup, Meta, MetaKey, Operator, Payload,
    Register,
};

/// Loads a constant.
pub fn load(register: Register, octets: &[u8]) -> Expressions {
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(register),
        Immediate::Data(DataAttribute::Value(octets.into())),
    ])
}

/// Loads a property of the packet into register 1.
pub fn meta(key: MetaKey) -> Expressions {
    Expressions::Meta(vec![
        Meta::Key(key),
        Meta::DestinationRegister(Register::Reg1),
    ])
}

/// Loads octets of a header.
pub fn payload(base: u32, offset: u32, octets: u32, register: Register) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(register),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(octets),
    ])
}

/// Compares register 1 with a value.
pub fn compare(operator: Operator, value: &[u8]) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(value.into())),
    ])
}

/// Continues if register 1 holds the value.
pub fn equal(value: &[u8]) -> Expressions {
    compare(Operator::Equal, value)
}

/// Continues if register 1 holds another value.
pub fn differs(value: &[u8]) -> Expressions {
    compare(Operator::NotEqual, value)
}

/// Keeps the bits of register 1 that are in the mask.
pub fn masked(mask: &[u8]) -> Expressions {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(u32::try_from(mask.len()).unwrap_or(0)),
        Bitwise::Mask(DataAttribute::Value(mask.into())),
        Bitwise::Xor(DataAttribute::Value(vec![0; mask.len()])),
    ])
}

/// Looks register 1 up in a set, or in a map with values that are loaded into a register.
pub fn lookup(set: &str, into: Option<Register>) -> Expressions {
    let mut attributes = vec![
        Lookup::Set(set.into()),
        Lookup::SourceRegister(Register::Reg1),
    ];
    attributes.extend(into.map(Lookup::DestinationRegister));
    Expressions::Lookup(attributes)
}
