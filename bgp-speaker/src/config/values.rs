//! Values of a peer's configuration.

use alloc::string::String;
use core::{fmt, ops::Deref};

/// The maximum number of paths of a family that a peer may announce (RFC 4271 §6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixLimit {
    /// The maximum.
    pub max: u32,
    /// The share of the maximum, in percent, from which on a warning is issued.
    pub warn_percent: u8,
    /// The action beyond the maximum.
    pub action: LimitAction,
}

/// The action if a peer announces too many paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitAction {
    /// Only a warning is issued.
    Warn,
    /// Excess paths are rejected.
    Drop,
    /// The session is reset (Cease/Maximum Number of Prefixes Reached, RFC 4486 §4) and may be
    /// re-established after this many seconds.
    Restart {
        /// The idle hold time in seconds.
        after_s: u32,
    },
}

/// A TCP-MD5 key, which is never logged.
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
