//! EXTENDED_COMMUNITIES (RFC 4360).

use alloc::vec::Vec;

use crate::attr::code::AttrCode;
use crate::attr::communities::chunks;
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::community::ExtendedCommunity;
use crate::fault::FaultKind;

pub(super) fn decode(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    draft.attributes.extended_communities = chunks(attr.value, ExtendedCommunity)?;
    Ok(())
}

pub(super) fn encode(set: &Attributes, _as4: bool, out: &mut Vec<u8>) {
    if !set.extended_communities.is_empty() {
        set.put(AttrCode::ExtendedCommunities, out, |out| {
            set.extended_communities
                .iter()
                .for_each(|one| out.extend_from_slice(&one.0));
        });
    }
}
