//! How log lines are written.

use serde::{Deserialize, Serialize};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How lines reach the queue of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) format: LogFormat,
    /// Whether the fields for the journal are before each line, as by [`super::journal::entry`]. A
    /// text then lacks time, level and target: the journal has these as fields.
    pub(crate) with_fields: bool,
}
