//! Pages of the history of events.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A page of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventPage {
    /// The events, the oldest first.
    pub events: Vec<EventRecord>,
    /// Requested events before these that are no longer kept.
    pub lost: u64,
    /// The value of `after` in the request for later events.
    pub next: u64,
    /// There are more events already.
    pub more: bool,
    /// The watch of this reader, for its next request. Its events have numbers of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<u64>,
    /// Why requested events are missing in the answer.
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
    /// Its meaning, in the words of the log.
    pub message: String,
    /// Its fields.
    pub fields: Map<String, Value>,
}
