//! The offload of connections: `nftablesFlowTableOffload` and `nftablesFlowTableDataIfacePattern`.

use calico_model::FelixConfigurationSpec;

use super::fields::{at, choice};
use super::pattern::Pattern;

/// The connections that are offloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The interfaces besides those of workloads; `None`: none of them.
    pub uplinks: Option<Pattern>,
}

/// Returns the connections that are offloaded, if any.
pub(super) fn offload(
    spec: &FelixConfigurationSpec,
) -> Result<Option<Offload>, (&'static str, String)> {
    let place = "spec.nftablesFlowTableDataIfacePattern";
    let text: Option<String> = at(spec, place)?;
    let text = text.filter(|text| !text.is_empty());
    let uplinks = text.map(|text| text.parse::<Pattern>()).transpose();
    let uplinks = uplinks.map_err(|reason| (place, reason))?;
    let is_enabled = choice(spec, "nftablesFlowTableOffload", ["Disabled", "All"])
        .map_err(|reason| ("spec.nftablesFlowTableOffload", reason))?;
    Ok(is_enabled.then_some(Offload { uplinks }))
}
