//! The applied configuration of a BGP daemon, from all its sources.

use serde::{Deserialize, Serialize};

use super::Fact;

/// The applied configuration, from any source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Its source: a file, or the datastore with how current that is.
    pub from: String,
    /// The speaker's own keys, by the names that the file has for them.
    pub keys: Vec<Fact>,
    /// The neighbors.
    pub neighbors: Vec<NeighborSettings>,
    /// Ranges of neighbors.
    pub ranges: Vec<NeighborSettings>,
    /// The parts of it that are not applied, with the reasons.
    pub notes: Vec<String>,
}

/// The configuration of one neighbor, or of the neighbors in a range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NeighborSettings {
    /// Its name.
    pub name: String,
    /// Where it comes from: the resource, or the rule of the fabric.
    pub from: String,
    /// Its keys, by their names in the file; keys with the default value are left out.
    pub keys: Vec<Fact>,
    /// The import policy, rule by rule.
    pub import: Vec<String>,
    /// The export policy, rule by rule.
    pub export: Vec<String>,
}
