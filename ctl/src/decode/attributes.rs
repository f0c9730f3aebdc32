//! Path attributes by the names RFCs give them.

use bgp_proto::attr::{RawAttr, RawAttrs};
use bgp_proto::{AttrCode, Attributes, Fault, FaultKind};

use crate::decode::octets::to_hex;
use crate::decode::schema::{AggregatorReport, AttributeReport, UnknownReport};

/// Reports a set that was decoded, with the faults found, from `octets`. What could not be
/// read is among the unknown ones.
pub(crate) fn report(set: &Attributes, faults: &[Fault], octets: &[u8]) -> AttributeReport {
    // A default in the set where the attribute is not there, or bad.
    let good = |code: AttrCode| {
        let bad = |fault: &Fault| fault.attr == code && fault.kind != FaultKind::Duplicate;
        raw(octets).any(|attr| attr.code == code) && !faults.iter().any(bad)
    };
    AttributeReport {
        origin: good(AttrCode::Origin).then(|| set.origin.name()),
        as_path: good(AttrCode::AsPath).then(|| set.as_path.to_string()),
        next_hop: match &set.next_hop {
            Some(next_hop) if good(AttrCode::NextHop) => Some(next_hop.to_string()),
            _ => None,
        },
        multi_exit_disc: set.med,
        local_pref: set.local_pref,
        atomic_aggregate: set.atomic_aggregate,
        aggregator: set.aggregator.map(|aggregator| AggregatorReport {
            asn: aggregator.asn.0,
            id: aggregator.id,
        }),
        communities: texts(&set.communities),
        originator_id: set.originator_id.map(|id| id.to_string()),
        cluster_list: texts(&set.cluster_list),
        extended_communities: texts(&set.extended_communities),
        large_communities: texts(&set.large_communities),
        unknown: unread(set, faults, octets),
    }
}

fn texts(items: &[impl ToString]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn raw(octets: &[u8]) -> impl Iterator<Item = RawAttr<'_>> {
    RawAttrs::new(octets, 0).map_while(Result::ok)
}

/// Attributes without a row of their own, and those with faults, in the order they came.
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
