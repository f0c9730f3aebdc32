//! Values of a peer's configuration.

use alloc::string::String;
use core::{fmt, ops::Deref};

/// How many paths of a family a peer may announce (RFC 4271 §6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixLimit {
    /// So many.
    pub max: u32,
    /// From this share of it on, in per cent, the operator is warned.
    pub warn_percent: u8,
    /// What happens beyond it.
    pub action: LimitAction,
}

/// What happens when a peer announces more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitAction {
    /// The operator is told.
    Warn,
    /// What is too many is refused.
    Drop,
    /// The session ends (Cease/Maximum Number of Prefixes Reached, RFC 4486 §4) and may come back
    /// after this many seconds.
    Restart {
        /// How long it rests.
        after_s: u32,
    },
}

/// A TCP-MD5 key, which no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl From<&str> for Password {
    fn from(key: &str) -> Self {
        Self(key.into())
    }
}

impl From<String> for Password {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl Deref for Password {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
}
