//! COMMUNITIES (RFC 1997).

use alloc::vec::Vec;

use crate::attr::code::AttrCode;
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::community::Community;
use crate::fault::FaultKind;

pub(super) fn decode(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    draft.attributes.communities =
        chunks(attr.value, |octets| Community(u32::from_be_bytes(octets)))?;
    Ok(())
}

/// Cuts a value into pieces of `N` octets; there must be at least one (RFC 7606 §7.8).
pub(super) fn chunks<const N: usize, T>(
    value: &[u8],
    make: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, FaultKind> {
    match value.as_chunks::<N>() {
        ([], _) => Err(FaultKind::Length),
        (pieces, []) => Ok(pieces.iter().map(|piece| make(*piece)).collect()),
        _ => Err(FaultKind::Length),
    }
}

pub(super) fn encode(set: &Attributes, _as4: bool, out: &mut Vec<u8>) {
    if !set.communities.is_empty() {
        set.put(AttrCode::Communities, out, |out| {
            set.communities
                .iter()
                .for_each(|one| out.extend_from_slice(&one.0.to_be_bytes()));
        });
    }
}
