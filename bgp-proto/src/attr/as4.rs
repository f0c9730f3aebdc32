//! AS4_PATH and AS4_AGGREGATOR: four-octet AS numbers on a two-octet session (RFC 6793).

use alloc::vec::Vec;

use crate::asn::Asn;
use crate::attr::aggregator;
use crate::attr::as_path::AsPath;
use crate::attr::code::{AttrCode, FLAG_OPTIONAL, FLAG_PARTIAL, FLAG_TRANSITIVE};
use crate::attr::decode::{Context, Draft};
use crate::attr::encode::put_attribute;
use crate::attr::raw::RawAttr;
use crate::attr::table::{Attributes, Codec};
use crate::fault::FaultKind;

pub(super) const PATH: Codec = Codec {
    decode: decode_path,
    encode: encode_path,
};

pub(super) const AGGREGATOR: Codec = Codec {
    decode: decode_aggregator,
    encode: encode_aggregator,
};

fn decode_path(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    // RFC 6793 §6: confederation segments are dropped, the rest is taken.
    let path = AsPath::read(attr.value, true)?;
    draft.as4_path = Some(path.without_confederations());
    Ok(())
}

fn decode_aggregator(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    draft.as4_aggregator = Some(aggregator::read(attr.value, true)?);
    Ok(())
}

/// Replaces AS_TRANS by the four-octet numbers (RFC 6793 §4.2.3).
pub(super) fn merge(draft: &mut Draft) {
    let attributes = &mut draft.attributes;
    if let Some(aggregator) = &mut attributes.aggregator {
        match draft.as4_aggregator {
            // The AGGREGATOR of a speaker that does not support AS4_AGGREGATOR: both attributes are
            // older than the path.
            Some(_) if aggregator.asn != Asn::TRANS => return,
            Some(four_octet) => *aggregator = four_octet,
            None => {}
        }
    }
    if let Some(as4_path) = &draft.as4_path
        && let Some(merged) = attributes.as_path.merged(as4_path)
    {
        attributes.as_path = merged;
    }
}

fn encode_path(set: &Attributes, as4: bool, out: &mut Vec<u8>) {
    // RFC 6793 §4.2.2: only where AS_PATH loses something, and without confederations.
    if as4 || set.as_path.asns().all(Asn::is_two_octet) {
        return;
    }
    let path = set.as_path.without_confederations();
    if !path.is_empty() {
        let flags = FLAG_OPTIONAL | FLAG_TRANSITIVE;
        set.put(AttrCode::As4Path, flags, out, |out| {
            path.encode_value(true, out)
        });
    }
}

fn encode_aggregator(set: &Attributes, as4: bool, out: &mut Vec<u8>) {
    let Some(aggregator) = set.aggregator else {
        return;
    };
    if as4 || aggregator.asn.is_two_octet() {
        return;
    }
    let partial = if set.is_partial(AttrCode::Aggregator) {
        FLAG_PARTIAL
    } else {
        0
    };
    let flags = FLAG_OPTIONAL | FLAG_TRANSITIVE | partial;
    put_attribute(flags, AttrCode::As4Aggregator, out, |out| {
        out.extend_from_slice(&aggregator.asn.0.to_be_bytes());
        out.extend_from_slice(&aggregator.id.octets());
    });
}
