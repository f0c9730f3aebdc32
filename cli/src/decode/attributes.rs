//! Path attributes by their names in the RFCs.

use bgp_proto::attr::{RawAttr, RawAttrs};
use bgp_proto::{AttrCode, Attributes, Fault, FaultKind};

use crate::decode::octets::to_hex;
use crate::decode::schema::{AttributeReport, UnknownReport};

/// Returns a report of a decoded set of attributes, with its faults, from `octets`. Malformed
/// attributes are among the unknown ones.
pub(crate) fn report(set: &Attributes, faults: &[Fault], octets: &[u8]) -> AttributeReport {
    // The set has a default for each of these that is missing or malformed, and for the next hop of
    // MP_REACH_NLRI.
    let good = |code: AttrCode| {
        let bad = |fault: &Fault| fault.attr == code && fault.kind != FaultKind::Duplicate;
        raw(octets).any(|attr| attr.code == code) && !faults.iter().any(bad)
    };
    let is_shown = |code: AttrCode| match code {
        AttrCode::Origin | AttrCode::AsPath | AttrCode::NextHop => good(code),
        _ => true,
    };
    let typed = set.reports().into_iter();
    let typed = typed.filter(|(code, _)| is_shown(*code));
    AttributeReport {
        typed: typed
            .filter_map(|(code, value)| Some((code.name()?, value)))
            .collect(),
        unknown: unread(set, faults, octets),
    }
}

fn raw(octets: &[u8]) -> impl Iterator<Item = RawAttr<'_>> {
    RawAttrs::new(octets, 0).map_while(Result::ok)
}

/// Returns attributes without a row of their own and attributes with faults, in the order of the
/// message.
fn unread(set: &Attributes, faults: &[Fault], octets: &[u8]) -> Vec<UnknownReport> {
    let unread = raw(octets).filter(|attr| {
        let faulty = |fault: &Fault| fault.attr == attr.code && usize::from(fault.at) == attr.at;
        set.unknown.iter().any(|unknown| unknown.code == attr.code) || faults.iter().any(faulty)
    });
    unread.map(|attr| unknown(&attr)).collect()
}

/// An attribute as code and hex.
pub(crate) fn unknown(attr: &RawAttr<'_>) -> UnknownReport {
    UnknownReport {
        code: attr.code.0,
        name: attr.code.name(),
        flags: format!("{:#04x}", attr.flags),
        value: to_hex(attr.value),
    }
}
