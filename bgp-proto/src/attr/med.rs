//! MULTI_EXIT_DISC (RFC 4271 §5.1.4).

use alloc::vec::Vec;

use crate::attr::code::AttrCode;
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::fault::FaultKind;

pub(super) fn decode(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    let value = attr.value.try_into().map_err(|_| FaultKind::Length)?;
    draft.attributes.med = Some(u32::from_be_bytes(value));
    Ok(())
}

pub(super) fn encode(set: &Attributes, _as4: bool, out: &mut Vec<u8>) {
    if let Some(med) = set.med {
        set.put(AttrCode::Med, out, |out| {
            out.extend_from_slice(&med.to_be_bytes())
        });
    }
}
