//! ATOMIC_AGGREGATE (RFC 4271 §5.1.6).

use alloc::vec::Vec;

use crate::attr::code::AttrCode;
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::fault::FaultKind;

pub(super) fn decode(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    if !attr.value.is_empty() {
        return Err(FaultKind::Length);
    }
    draft.attributes.atomic_aggregate = true;
    Ok(())
}

pub(super) fn encode(set: &Attributes, _as4: bool, out: &mut Vec<u8>) {
    if set.atomic_aggregate {
        set.put(AttrCode::AtomicAggregate, out, |_| {});
    }
}
