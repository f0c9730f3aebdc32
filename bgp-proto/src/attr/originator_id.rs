//! ORIGINATOR_ID (RFC 4456 §8).

use alloc::vec::Vec;

use crate::attr::code::AttrCode;
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::fault::FaultKind;
use crate::id::RouterId;

pub(super) fn decode(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    let value: [u8; 4] = attr.value.try_into().map_err(|_| FaultKind::Length)?;
    draft.attributes.originator_id = Some(RouterId::from(value));
    Ok(())
}

pub(super) fn encode(set: &Attributes, _as4: bool, out: &mut Vec<u8>) {
    if let Some(id) = set.originator_id {
        set.put(AttrCode::OriginatorId, out, |out| {
            out.extend_from_slice(&id.octets())
        });
    }
}
