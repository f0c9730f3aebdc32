//! Whether a host is programmed.

use serde::{Deserialize, Serialize};

/// The conditions that a daemon of a host lacks for being ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Readiness {
    /// Each missing condition in one line; empty if the daemon is ready.
    pub missing: Vec<String>,
}
