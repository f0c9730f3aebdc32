//! Why a stored value is not a resource.

/// A stored value that cannot be parsed as the expected resource.
#[derive(Debug, thiserror::Error)]
#[error("not a readable {kind}: {field}: {source}")]
pub struct ParseError {
    /// The expected kind.
    pub kind: &'static str,
    /// Path of the invalid field, such as `spec.bgp.asNumber`; `.` for the whole.
    pub field: String,
    /// The error, and its position in the text.
    pub source: serde_json::Error,
}
