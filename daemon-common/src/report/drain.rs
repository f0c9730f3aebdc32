//! The drain of a node.

use serde::{Deserialize, Serialize};

/// The progress of a drained node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainFigures {
    /// `services`: routes of services are advertised as the least preferred ones; `all`: all routes are;
    /// `drained`: this has been sent to all neighbors.
    pub stage: String,
    /// Where the request is from: `datastore`, `control socket`, or both.
    pub source: String,
    /// Time of the request.
    pub since: String,
    /// Established neighbors.
    pub neighbors: u64,
    /// Number of established neighbors that have not been sent all in this stage.
    pub behind: u64,
}

/// The drain of a node, if one is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drain {
    /// Its progress.
    pub drain: Option<DrainFigures>,
}

impl DrainFigures {
    /// Returns whether all routes have been sent as the least preferred ones.
    pub fn is_drained(&self) -> bool {
        self.stage == "drained"
    }

    /// Returns the operator's note.
    pub fn note(&self) -> String {
        let Self {
            source,
            since,
            neighbors,
            behind,
            ..
        } = self;
        let of = format!("{behind} of {neighbors} neighbors have not been sent all of them");
        match self.stage.as_str() {
            "services" => format!(
                "draining since {since} ({source}): routes of services are advertised as the least \
                 preferred ones; {of}"
            ),
            "drained" if *behind == 0 => format!(
                "drained since {since} ({source}): all routes are advertised as the least preferred \
                 ones; sessions stay up until the daemon is stopped"
            ),
            "drained" => format!(
                "drained since {since} ({source}): all routes are advertised as the least preferred \
                 ones; {of}"
            ),
            _ => format!(
                "draining since {since} ({source}): all routes are advertised as the least preferred \
                 ones; {of}"
            ),
        }
    }
}
