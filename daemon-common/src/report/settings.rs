//! What a BGP daemon was told to do, put together.

use serde::{Deserialize, Serialize};

use super::Fact;

/// The configuration in force, whatever it was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// What it was made from: a file, or the store and how current that is.
    pub from: String,
    /// The speaker's own keys, by the names that the file has for them.
    pub keys: Vec<Fact>,
    /// The neighbors.
    pub neighbors: Vec<NeighborSettings>,
    /// Ranges of neighbors.
    pub ranges: Vec<NeighborSettings>,
    /// What of it is not done, and why.
    pub notes: Vec<String>,
}

/// The configuration of one neighbor, or of those of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NeighborSettings {
    /// Its name.
    pub name: String,
    /// Where it comes from: the resource, or the rule of the fabric.
    pub from: String,
    /// Its keys, by the names that the file has for them; those that are as by default are left out.
    pub keys: Vec<Fact>,
    /// What is accepted of it, rule by rule.
    pub import: Vec<String>,
    /// What it is told, rule by rule.
    pub export: Vec<String>,
}
