//! Faults of values in the datastore.

use std::fmt;

/// A value in the datastore that is invalid or not applied, and its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The key.
    pub key: String,
    /// Path of the field within the value, such as `spec.bgp.asNumber`; empty for the whole.
    pub field: String,
    /// The reason.
    pub reason: String,
}

impl Fault {
    pub(crate) fn new(
        key: impl Into<String>,
        field: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            key: key.into(),
            field: field.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, field, reason } = self;
        write!(f, "{key}: ")?;
        if !field.is_empty() {
            write!(f, "{field}: ")?;
        }
        f.write_str(reason)
    }
}
