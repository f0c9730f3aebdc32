//! Fields of FelixConfiguration that the data model leaves unparsed.

use calico_model::FelixConfigurationSpec;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses a field that the data model leaves unparsed; `None` if it is not set.
pub(super) fn field<T: DeserializeOwned>(
    spec: &FelixConfigurationSpec,
    name: &str,
) -> Result<Option<T>, String> {
    match spec.unknown.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => T::deserialize(value)
            .map(Some)
            .map_err(|error| error.to_string()),
    }
}

/// Parses a field by its place such as `spec.vxlanEnabled`, which an error has, too.
pub(super) fn at<T: DeserializeOwned>(
    spec: &FelixConfigurationSpec,
    place: &'static str,
) -> Result<Option<T>, (&'static str, String)> {
    let name = place.trim_start_matches("spec.");
    field(spec, name).map_err(|reason| (place, reason))
}

/// Returns whether a field has the second of two values, in any case. The first one is the default.
pub(super) fn choice(
    spec: &FelixConfigurationSpec,
    name: &str,
    values: [&str; 2],
) -> Result<bool, String> {
    let [first, second] = values;
    let text: String = field(spec, name)?.unwrap_or_default();
    if text.is_empty() || text.eq_ignore_ascii_case(first) {
        return Ok(false);
    }
    match text.eq_ignore_ascii_case(second) {
        true => Ok(true),
        false => Err(format!("'{text}' is neither {first} nor {second}")),
    }
}
