//! What the store asks for and is not done: told, so that nobody looks for it in vain.

use model::{EncapsulationMode, FelixConfigurationSpec, IpPoolSpec};
use serde_json::Value;

use super::types::Problem;

/// The fields of FelixConfiguration that are followed.
pub(crate) const FOLLOWED: [&str; 17] = [
    "allowIPIPPacketsFromWorkloads",
    "allowVXLANPacketsFromWorkloads",
    "defaultEndpointToHostAction",
    "endpointReportingDelay",
    "endpointReportingEnabled",
    "externalNodesList",
    "floatingIPs",
    "interfacePrefix",
    "ipv6Support",
    "metadataAddr",
    "metadataPort",
    "natOutgoingAddress",
    "natPortRange",
    "openstackRegion",
    "reportingInterval",
    "reportingTTL",
    "vxlanPort",
];

/// Words that ask for nothing, or for what there is anyway.
const NOTHING: [&str; 5] = ["", "Disabled", "Info", "None", "IPPoolsOnly"];

/// The fields of a FelixConfiguration that are set and not followed.
pub(super) fn settings(key: &str, spec: &FelixConfigurationSpec) -> Option<Problem> {
    let fields = serde_json::to_value(spec).ok()?;
    let fields = fields.as_object()?.iter();
    let set = fields.filter(|(field, value)| {
        let asks = match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !NOTHING.contains(&text.as_str()),
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            Value::Bool(true) | Value::Number(_) => true,
        };
        asks && !FOLLOWED.contains(&field.as_str())
    });
    let mut set: Vec<&str> = set.map(|(field, _)| field.as_str()).collect();
    set.sort_unstable();
    let reason = format!("set and not followed: {}", set.join(", "));
    (!set.is_empty()).then(|| Problem::new(key, "spec", reason))
}

/// That no tunnel leads to a pool's addresses on other hosts.
pub(super) fn pool(key: &str, spec: &IpPoolSpec) -> Option<Problem> {
    let reason = "no tunnels are made: nothing leads to the pool's addresses on other hosts";
    let is_asked = spec.vxlan_mode != EncapsulationMode::Never;
    is_asked.then(|| Problem::new(key, "spec.vxlanMode", reason))
}
