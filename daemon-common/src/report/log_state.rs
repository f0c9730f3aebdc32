//! The level of the log at run time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The state of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogState {
    /// The level or the directives of the file, or of the environment.
    pub configured: String,
    /// The level in its place for a while.
    pub temporary: Option<String>,
    /// For how many seconds more.
    pub temporary_for_s: Option<u64>,
    /// Neighbors that are debugged, and for how many seconds more.
    pub debugged: BTreeMap<String, u64>,
}
