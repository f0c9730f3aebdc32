//! What is wrong with something in the store.

use std::fmt;

/// Something in the store that cannot be taken, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The key.
    pub key: String,
    /// Path of the field within the value, such as `spec.bgp.asNumber`; empty for the whole.
    pub field: String,
    /// What is wrong with it.
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
