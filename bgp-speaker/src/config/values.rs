//! Values of a peer's configuration.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use core::{fmt, ops::Deref};

use bgp_proto::Family;

use crate::limits::{
    BFD_INTERVAL_MS, BFD_KEYS_MAX, BFD_MULTIPLIER, LIMIT_WARN_PERCENT, PREFIXES_MAX,
    ROUTE_TARGETS_MAX,
};

/// The session of BFD with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bfd {
    /// The interval of sent and of expected packets, in milliseconds.
    pub interval_ms: u32,
    /// How many packets may be missing.
    pub multiplier: u8,
    /// Whether the path to the peer crosses routers.
    pub mode: BfdMode,
}

impl Bfd {
    /// Returns the session over a path of this kind.
    #[must_use]
    pub const fn over(self, mode: BfdMode) -> Self {
        Self { mode, ..self }
    }
}

impl Default for Bfd {
    fn default() -> Self {
        Self {
            interval_ms: BFD_INTERVAL_MS,
            multiplier: BFD_MULTIPLIER,
            mode: BfdMode::Auto,
        }
    }
}

/// Whether the path of a session of BFD crosses routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BfdMode {
    /// It does not if the peer is in a subnet of the local interface.
    #[default]
    Auto,
    /// It does not (RFC 5881).
    SingleHop,
    /// It does (RFC 5883).
    Multihop,
}

/// The type of the authentication of a session of BFD (RFC 5880 §4.2 to §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BfdAuth {
    /// A password in clear text.
    Simple,
    /// A digest of MD5.
    KeyedMd5,
    /// A digest of MD5; each packet has another sequence number.
    MeticulousKeyedMd5,
    /// A digest of SHA1.
    KeyedSha1,
    /// A digest of SHA1; each packet has another sequence number.
    MeticulousKeyedSha1,
}

impl BfdAuth {
    /// The words for the types.
    pub(crate) const WORDS: [&str; 5] = [
        "simple",
        "keyed-md5",
        "meticulous-keyed-md5",
        "keyed-sha1",
        "meticulous-keyed-sha1",
    ];

    /// All types, in the order of their codes.
    pub const ALL: [Self; 5] = [
        Self::Simple,
        Self::KeyedMd5,
        Self::MeticulousKeyedMd5,
        Self::KeyedSha1,
        Self::MeticulousKeyedSha1,
    ];

    /// Returns the word for the type.
    #[must_use]
    pub fn word(self) -> &'static str {
        let mut all = Self::ALL.into_iter().zip(Self::WORDS);
        let found = all.find(|(one, _)| *one == self);
        found.map_or("", |(_, word)| word)
    }

    /// Returns the type with this word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// Returns the longest key, in octets.
    #[must_use]
    pub const fn key_octets_max(self) -> usize {
        match self {
            Self::Simple | Self::KeyedMd5 | Self::MeticulousKeyedMd5 => 16,
            Self::KeyedSha1 | Self::MeticulousKeyedSha1 => 20,
        }
    }

    /// Returns the keys of a text, each with its number: a line is `NUMBER KEY`. The first one signs.
    ///
    /// # Errors
    ///
    /// The text has another form, or a key is too long. The reason quotes no key.
    pub fn keys(self, text: &str) -> Result<Vec<(u8, &str)>, BfdKeysError> {
        let mut keys: Vec<(u8, &str)> = Vec::new();
        let lines = text.lines().enumerate();
        for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let line_number = at + 1;
            let wrong = |reason: String| Err(BfdKeysError(format!("line {line_number}: {reason}")));
            let Some((number, key)) = line.split_once(' ') else {
                return wrong("a line has a number, a space and a key".into());
            };
            let Ok(number) = number.parse::<u8>() else {
                return wrong("the number of a key is from 0 to 255".into());
            };
            let (octets, most) = (key.len(), self.key_octets_max());
            if !(1..=most).contains(&octets) {
                return wrong(format!("a key of {octets} bytes: it has 1 to {most}"));
            }
            if keys.iter().any(|(other, _)| *other == number) {
                return wrong(format!("the number {number} is there twice"));
            }
            keys.push((number, key));
        }
        match keys.len() {
            1..=BFD_KEYS_MAX => Ok(keys),
            count => {
                let reason = format!("{count} keys: there are 1 to {BFD_KEYS_MAX}");
                Err(BfdKeysError(reason))
            }
        }
    }
}

/// Why a text has no keys of BFD. It quotes no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BfdKeysError(String);

impl fmt::Display for BfdKeysError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl core::error::Error for BfdKeysError {}

/// Whether a failed path counts as a restart of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BfdGraceful {
    /// By the C bit, and by the order of events (RFC 5882 §4.3).
    #[default]
    Auto,
    /// Always: stale routes are retained.
    Always,
    /// Never: stale routes are removed.
    Never,
}

/// The limits of the paths that a peer may announce, family by family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixLimits {
    by_family: BTreeMap<Family, PrefixLimit>,
    /// The limit of every other family; `None` is the default, which depends on the family.
    max: Option<u32>,
}

impl PrefixLimits {
    /// Returns limits of this many paths in every family, beyond which paths are rejected; 0 means
    /// no limit.
    #[must_use]
    pub const fn of_all(max: u32) -> Self {
        Self {
            by_family: BTreeMap::new(),
            max: Some(max),
        }
    }

    /// Returns these limits, and in every other family the default one.
    #[must_use]
    pub const fn of(by_family: BTreeMap<Family, PrefixLimit>) -> Self {
        Self {
            by_family,
            max: None,
        }
    }

    /// Sets the limit of one family.
    pub fn insert(&mut self, family: Family, limit: PrefixLimit) {
        self.by_family.insert(family, limit);
    }

    /// Returns the limit that applies to a family; `None` if there is none.
    #[must_use]
    pub fn get(&self, family: Family) -> Option<PrefixLimit> {
        let given = self.by_family.get(&family).copied();
        let max = self.max.unwrap_or(match family {
            Family::ROUTE_TARGET => ROUTE_TARGETS_MAX,
            _ => PREFIXES_MAX,
        });
        given.or_else(|| (max > 0).then_some(PrefixLimit::new(max)))
    }

    /// Returns whether the limits of families that were not given are the default ones.
    pub(crate) const fn is_default(&self) -> bool {
        self.max.is_none()
    }

    /// Returns the limits that were given for single families.
    #[must_use]
    pub const fn by_family(&self) -> &BTreeMap<Family, PrefixLimit> {
        &self.by_family
    }

    /// Returns the limit of every other family; 0 means no limit. The default one is lower in the
    /// family `route-target`: see [`get`](Self::get).
    #[must_use]
    pub const fn max(&self) -> u32 {
        match self.max {
            Some(max) => max,
            None => PREFIXES_MAX,
        }
    }
}

/// The maximum number of paths of a family that a peer may announce (RFC 4271 §6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefixLimit {
    /// The maximum.
    pub max: u32,
    /// The share of the maximum, in percent, from which on a warning is issued.
    pub warn_percent: u8,
    /// The action beyond the maximum.
    pub action: LimitAction,
}

impl PrefixLimit {
    /// Returns a limit beyond which paths are rejected, with the default share for a warning.
    #[must_use]
    pub const fn new(max: u32) -> Self {
        Self {
            max,
            warn_percent: LIMIT_WARN_PERCENT,
            action: LimitAction::Drop,
        }
    }

    /// Returns the limit with a warning from this share of the maximum on, in percent.
    #[must_use]
    pub const fn with_warning(mut self, percent: u8) -> Self {
        self.warn_percent = percent;
        self
    }

    /// Returns the limit with another action.
    #[must_use]
    pub const fn with_action(mut self, action: LimitAction) -> Self {
        self.action = action;
        self
    }
}

/// The limits of the paths that a peer is sent, family by family. Without one, all are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrefixLimitsOut {
    by_family: BTreeMap<Family, PrefixLimitOut>,
    max: u32,
}

impl PrefixLimitsOut {
    /// Returns limits of this many paths in every family; 0 means no limit.
    #[must_use]
    pub const fn of_all(max: u32) -> Self {
        Self {
            by_family: BTreeMap::new(),
            max,
        }
    }

    /// Returns these limits, and none in other families.
    #[must_use]
    pub const fn of(by_family: BTreeMap<Family, PrefixLimitOut>) -> Self {
        Self { by_family, max: 0 }
    }

    /// Returns the limit of a family, if there is one.
    #[must_use]
    pub fn get(&self, family: Family) -> Option<PrefixLimitOut> {
        let given = self.by_family.get(&family).copied();
        given.or_else(|| (self.max > 0).then_some(PrefixLimitOut::new(self.max)))
    }

    /// Returns the limits that were given for single families.
    #[must_use]
    pub const fn by_family(&self) -> &BTreeMap<Family, PrefixLimitOut> {
        &self.by_family
    }

    /// Returns the limit of every other family; 0 means no limit.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max
    }
}

/// The maximum number of paths of a family that a peer is sent. Further paths are suppressed until
/// a withdrawal makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct PrefixLimitOut {
    /// The maximum, at least 1.
    pub max: u32,
    /// The share of the maximum, in percent, from which on a warning is issued.
    pub warn_percent: u8,
}

impl PrefixLimitOut {
    /// Returns a limit with the default share for a warning.
    #[must_use]
    pub const fn new(max: u32) -> Self {
        Self {
            max,
            warn_percent: LIMIT_WARN_PERCENT,
        }
    }

    /// Returns the limit with a warning from this share of the maximum on, in percent.
    #[must_use]
    pub const fn with_warning(mut self, percent: u8) -> Self {
        self.warn_percent = percent;
        self
    }
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
