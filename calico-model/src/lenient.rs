//! Helpers for lenient parsing: a field that other writers omit, write as `null` or write as `""`
//! gets its default, so that one odd field does not make a resource unreadable.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Unknown fields of an object; they are kept, and written back unchanged.
pub(crate) type Unknown = BTreeMap<String, Value>;

/// Parses `null` as the default.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Returns whether a flag is left out when it is written.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde calls"
)]
pub(crate) const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Parses `null` and `""` as `None`.
pub(crate) fn empty_as_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: std::fmt::Display,
{
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|error| serde::de::Error::custom(format_args!("\"{text}\": {error}"))),
    }
}
