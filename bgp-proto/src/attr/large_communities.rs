//! LARGE_COMMUNITIES (RFC 8092).

use alloc::vec::Vec;

use crate::attr::code::AttrCode;
use crate::attr::communities::chunks;
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::community::LargeCommunity;
use crate::fault::FaultKind;

pub(super) fn decode(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    draft.attributes.large_communities = chunks(attr.value, LargeCommunity::from_octets)?;
    Ok(())
}

pub(super) fn encode(set: &Attributes, _as4: bool, out: &mut Vec<u8>) {
    if !set.large_communities.is_empty() {
        set.put(AttrCode::LargeCommunities, out, |out| {
            set.large_communities
                .iter()
                .for_each(|one| out.extend_from_slice(&one.octets()));
        });
    }
}
