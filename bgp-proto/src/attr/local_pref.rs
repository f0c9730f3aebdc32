//! LOCAL_PREF (RFC 4271 §5.1.5).

use alloc::vec::Vec;

use crate::attr::code::AttrCode;
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::fault::FaultKind;

pub(super) fn decode(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    let value = attr.value.try_into().map_err(|_| FaultKind::Length)?;
    draft.attributes.local_pref = Some(u32::from_be_bytes(value));
    Ok(())
}

pub(super) fn encode(set: &Attributes, _as4: bool, out: &mut Vec<u8>) {
    if let Some(preference) = set.local_pref {
        set.put(AttrCode::LocalPref, out, |out| {
            out.extend_from_slice(&preference.to_be_bytes());
        });
    }
}
