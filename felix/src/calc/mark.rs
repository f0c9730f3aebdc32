//! The bits of the mark of packets that Felix may use: `nftablesMarkMask`.

use calico_model::FelixConfigurationSpec;

use super::fields::at;
use crate::render::ACCEPTED;

/// Default mask of the marks of packets (as in Calico).
pub(super) const MARK_MASK: u32 = 0xffff_0000;

/// Returns the bits of the mark of packets that Felix may use. It uses one, which must be among them.
pub(super) fn mark_mask(spec: &FelixConfigurationSpec) -> Result<u32, (&'static str, String)> {
    let place = "spec.nftablesMarkMask";
    let mask = at(spec, place)?.unwrap_or(MARK_MASK);
    match mask & ACCEPTED {
        0 => Err((
            place,
            format!(
                "{mask:#010x} lacks the bit {ACCEPTED:#010x}, which Felix sets on packets that policies \
                 with preDNAT or doNotTrack allow"
            ),
        )),
        _ => Ok(mask),
    }
}
