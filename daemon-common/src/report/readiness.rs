//! Whether a host is programmed.

use serde::{Deserialize, Serialize};

/// The conditions that a daemon of a host lacks for being ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Readiness {
    /// Each missing condition in one line; empty if the daemon is ready. In a BGP daemon it begins with
    /// the name of the criterion and a colon.
    pub missing: Vec<String>,
    /// The names of the met criteria, in a BGP daemon.
    pub met: Vec<String>,
}
