//! Helpers of the tests of attributes: one attribute through the codec.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::family::Family;
use crate::fault::{FaultKind, Remedy};
use crate::update::AttrBlock;
use crate::{Attributes, Fault, PeerKind, SessionParams};

/// Reads the attribute, received with a route of a family on an internal session.
pub(super) fn read(attribute: &[u8], family: Family) -> (Attributes, Vec<Fault>) {
    let params = SessionParams {
        as4: true,
        kind: PeerKind::Internal,
        ..SessionParams::default()
    };
    let besides: &[u8] = &[0x40, 1, 1, 0, 0x40, 2, 0];
    let octets = [besides, attribute].concat();
    AttrBlock::from_octets(&octets, family, Some(&[10, 0, 0, 1]), &params).parse()
}

/// An attribute: flags, code and value, with its length.
pub(super) fn attribute(flags: u8, code: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap();
    [&[flags, code, length], value].concat()
}

/// The set with this attribute, received on an internal session.
pub(super) fn decoded(attribute: &[u8]) -> Attributes {
    let (set, faults) = read(attribute, Family::IPV4_UNICAST);
    assert_eq!(faults, [], "{attribute:02x?}");
    set
}

/// The fault of the attribute, and its remedy.
pub(super) fn fault(attribute: &[u8]) -> (FaultKind, Remedy) {
    let (set, faults) = read(attribute, Family::IPV4_UNICAST);
    assert_eq!(faults.len(), 1, "{attribute:02x?}: {faults:?}");
    assert_eq!(encoded(&set), [], "a malformed attribute is not in the set");
    (faults[0].kind, faults[0].remedy())
}

/// The encoding of a set without ORIGIN, AS_PATH and NEXT_HOP.
pub(super) fn encoded(set: &Attributes) -> Vec<u8> {
    let mut out = Vec::new();
    set.encode(true, &mut out);
    out.split_off(14)
}

/// The report of the rare attributes.
pub(super) fn shown(set: &Attributes) -> String {
    let reports = set.rare.reports().into_iter();
    let texts = reports.map(|(code, value)| format!("{code} {value}"));
    texts.collect::<Vec<_>>().join("; ")
}
