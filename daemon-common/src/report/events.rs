//! Pages of the history of events.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A page of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventPage {
    /// The events, the oldest first.
    pub events: Vec<EventRecord>,
    /// Events before these that were asked for and are no longer kept.
    pub lost: u64,
    /// Ask again with this as `after` for later events.
    pub next: u64,
    /// There are more events already.
    pub more: bool,
    /// The watch of this reader, to name in its next request. The numbers of its events are its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<u64>,
    /// What the answer cannot have although it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventRecord {
    /// Its number, which grows by one with each event of the daemon, or of the watch.
    pub number: u64,
    /// When it happened, in milliseconds of Unix time.
    pub time_ms: u64,
    /// Its stable name.
    pub event: String,
    /// Its level: `error`, `warn`, `info` or `debug`.
    pub level: String,
    /// What it means, in the words of the log.
    pub message: String,
    /// Its fields.
    pub fields: Map<String, Value>,
}
