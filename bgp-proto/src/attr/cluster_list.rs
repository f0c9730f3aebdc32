//! CLUSTER_LIST (RFC 4456 §8).

use alloc::vec::Vec;

use crate::attr::code::AttrCode;
use crate::attr::communities::chunks;
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::fault::FaultKind;
use crate::id::ClusterId;

pub(super) fn decode(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    draft.attributes.cluster_list = chunks::<4, _>(attr.value, ClusterId::from)?;
    Ok(())
}

pub(super) fn encode(set: &Attributes, _as4: bool, out: &mut Vec<u8>) {
    if !set.cluster_list.is_empty() {
        set.put(AttrCode::ClusterList, out, |out| {
            set.cluster_list
                .iter()
                .for_each(|id| out.extend_from_slice(&id.octets()));
        });
    }
}
