//! The limits of a daemon, and the malformed messages that it keeps.

use serde::{Deserialize, Serialize};

/// The limits of a running daemon that an operator can meet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// The limits.
    pub limits: Vec<Limit>,
}

/// One limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limit {
    /// The limited quantity, with its unit: `neighbors`, `ring octets`.
    pub name: String,
    /// Of which neighbor, range or family, where there is one limit for each.
    pub of: Option<String>,
    /// How much there may be.
    pub limit: u64,
    /// How much there is now, where that is counted.
    pub used: Option<u64>,
    /// The most there ever was, where that is kept.
    pub peak: Option<u64>,
    /// How often it was met, where that is counted.
    pub met: Option<u64>,
    /// The key of the configuration that changes it; absent for built-in limits.
    pub key: Option<String>,
    /// The effect when it is reached.
    pub then: String,
}

impl Limit {
    /// A limit of which only its value is known.
    pub fn new(name: &str, limit: u64, then: &str) -> Self {
        Self {
            name: name.to_owned(),
            limit,
            then: then.to_owned(),
            ..Self::default()
        }
    }

    /// Adds the current usage.
    #[must_use]
    pub fn used(self, used: u64) -> Self {
        Self {
            used: Some(used),
            ..self
        }
    }

    /// Adds the current and the maximum usage.
    #[must_use]
    pub fn level(self, used: u64, peak: u64) -> Self {
        Self {
            peak: Some(peak),
            ..self.used(used)
        }
    }

    /// With the key that changes it.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        Self {
            key: Some(key.to_owned()),
            ..self
        }
    }
}

/// The last malformed messages, oldest first (RFC 7606).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Malformed {
    /// The messages.
    pub messages: Vec<MalformedMessage>,
}

/// One malformed message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MalformedMessage {
    /// When it came, in seconds of Unix time.
    pub time_s: u64,
    /// The name of the neighbor that sent it.
    pub neighbor: String,
    /// The worst of its faults, a fixed word: `length`, `value`, `missing`, …
    pub fault: String,
    /// The attribute that has the fault, if it is one.
    pub attribute: Option<String>,
    /// Octet of the message's body where the fault is, from 0. The header's 19 octets do not count.
    pub at: u16,
    /// Fault and place in words.
    pub text: String,
    /// The remedy: `attribute discard`, `treat-as-withdraw`, `AFI/SAFI disable`, `session reset`.
    pub remedy: String,
    /// The body of the UPDATE in hex, as far as it was kept.
    pub octets: String,
    /// How many octets the body had.
    pub octets_total: u64,
}

/// A ROUTE-REFRESH was sent to a neighbor (RFC 2918).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refreshed {
    /// Its name.
    pub neighbor: String,
    /// The requested families.
    pub families: Vec<String>,
}

/// The session with a neighbor was reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cleared {
    /// Its name.
    pub neighbor: String,
}

/// The whole configuration file is in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reloaded {
    /// Its path.
    pub config: String,
}
