//! Why a stored value is not a resource.

/// A stored value that does not read as the resource it should be.
#[derive(Debug, thiserror::Error)]
#[error("not a readable {kind}: {field}: {source}")]
pub struct ParseError {
    /// The kind it should be.
    pub kind: &'static str,
    /// Path of the field that does not read, such as `spec.bgp.asNumber`; `.` for the whole.
    pub field: String,
    /// What is wrong with it, and where in the text.
    pub source: serde_json::Error,
}
