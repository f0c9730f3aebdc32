//! Metadata of a resource at its creation.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use calico_model::{rfc3339_utc, uid_from_random};
use serde_json::{Value, json};

/// Adds the metadata that a resource gets at creation, or keeps the stored one, and the status that
/// other programs report.
pub fn complete(mut value: Value, stored: &Value) -> Value {
    for (field, made) in [
        ("uid", new_uid as fn() -> String),
        ("creationTimestamp", now),
    ] {
        let given = value["metadata"].get(field).is_some();
        if !given {
            let kept = stored["metadata"].get(field).cloned();
            value["metadata"][field] = kept.unwrap_or_else(|| json!(made()));
        }
    }
    if let (None, Some(status)) = (value.get("status"), stored.get("status")) {
        value["status"] = status.clone();
    }
    value
}

/// Returns a random UUID.
pub(super) fn new_uid() -> String {
    // Without randomness the id is the time: unique enough for a store that a single process fills.
    let octets = crate::random::octets().unwrap_or_else(|_| since_epoch().as_nanos().to_be_bytes());
    uid_from_random(octets)
}

fn now() -> String {
    rfc3339_utc(since_epoch().as_secs())
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
