//! The configuration of one session by the operator.

use alloc::vec::Vec;
use core::num::NonZeroU8;

use crate::auth::AuthType;
use crate::limits::{DETECT_MULTIPLIER, INTERVAL_US, INTERVAL_US_MIN, KEYS_MAX, SLOW_INTERVAL_US};
use crate::secret::{Secret, SecretLength};

/// The role of a system in the start of a session (RFC 5880 §6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Sends packets before it has received one.
    #[default]
    Active,
    /// Sends no packet before it has received one.
    Passive,
}

/// The configuration of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionConfig {
    /// The wanted transmit interval while the session is Up, in microseconds.
    pub desired_min_tx_us: u32,
    /// The wanted transmit interval in the other states, in microseconds. A shorter one than
    /// `desired_min_tx_us` or [`SLOW_INTERVAL_US`] counts as that (RFC 5880 §6.8.3).
    pub idle_tx_us: u32,
    /// The shortest supported receive interval, in microseconds.
    pub required_min_rx_us: u32,
    /// The packets that the remote system may miss before it declares the session down.
    pub detect_multiplier: NonZeroU8,
    /// The role in the start of the session.
    pub role: Role,
    /// The C bit of sent packets: whether BFD continues while the control plane restarts (RFC 5882
    /// §4.3.2).
    pub control_plane_independent: bool,
    /// The authentication of all packets, if any.
    pub authentication: Option<Authentication>,
}

impl SessionConfig {
    /// Returns the configuration after `change`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Checks the intervals.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for interval_us in [self.desired_min_tx_us, self.required_min_rx_us] {
            if interval_us < INTERVAL_US_MIN {
                return Err(ConfigError::Interval(interval_us));
            }
        }
        Ok(())
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            desired_min_tx_us: INTERVAL_US,
            idle_tx_us: SLOW_INTERVAL_US,
            required_min_rx_us: INTERVAL_US,
            detect_multiplier: NonZeroU8::new(DETECT_MULTIPLIER).unwrap_or(NonZeroU8::MIN),
            role: Role::Active,
            control_plane_independent: false,
            authentication: None,
        }
    }
}

/// A reason to reject a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An interval is too short.
    #[error("an interval of {0} µs: the least is {INTERVAL_US_MIN} µs")]
    Interval(u32),
    /// An authentication has no key, or more than [`KEYS_MAX`].
    #[error("{0} keys: an authentication has 1 to {KEYS_MAX}")]
    Keys(usize),
    /// Two keys have the same number.
    #[error("two keys have the number {0}")]
    KeyId(u8),
    /// A key is too long for its type of authentication.
    #[error("key {key_id}: {length}")]
    KeyLength {
        /// The number of the key.
        key_id: u8,
        /// Its length.
        length: SecretLength,
    },
    /// A single-hop session is passive, but RFC 5881 §3 requires both systems to be active.
    #[error("a session of a single hop cannot be passive")]
    PassiveSingleHop,
}

/// A key with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthKey {
    /// The number in the field Auth Key ID.
    pub id: u8,
    /// The password or key.
    pub secret: Secret,
}

impl AuthKey {
    /// Makes a key.
    #[must_use]
    pub const fn new(id: u8, secret: Secret) -> Self {
        Self { id, secret }
    }
}

/// The authentication of a session: the first key signs, and all keys are accepted.
///
/// To change keys without a loss: add the new key at the end on both systems, then move it to the
/// front on both, then remove the old one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    auth_type: AuthType,
    first: AuthKey,
    others: Vec<AuthKey>,
}

impl Authentication {
    /// Makes an authentication.
    ///
    /// # Errors
    ///
    /// There are no keys or too many, two have the same number, or one is too long.
    pub fn new(auth_type: AuthType, keys: &[AuthKey]) -> Result<Self, ConfigError> {
        let Some((first, others)) = keys.split_first() else {
            return Err(ConfigError::Keys(0));
        };
        if keys.len() > KEYS_MAX {
            return Err(ConfigError::Keys(keys.len()));
        }
        for (index, key) in keys.iter().enumerate() {
            if keys.iter().skip(index + 1).any(|other| other.id == key.id) {
                return Err(ConfigError::KeyId(key.id));
            }
            auth_type
                .check(&key.secret)
                .map_err(|length| ConfigError::KeyLength {
                    key_id: key.id,
                    length,
                })?;
        }
        Ok(Self {
            auth_type,
            first: *first,
            others: others.to_vec(),
        })
    }

    /// Returns the type.
    #[must_use]
    pub const fn auth_type(&self) -> AuthType {
        self.auth_type
    }

    /// Returns the key that signs.
    #[must_use]
    pub const fn signing_key(&self) -> &AuthKey {
        &self.first
    }

    /// Returns an accepted key by its number.
    #[must_use]
    pub fn key(&self, id: u8) -> Option<&AuthKey> {
        self.keys().find(|key| key.id == id)
    }

    /// Returns all keys: first the one that signs.
    pub fn keys(&self) -> impl Iterator<Item = &AuthKey> {
        core::iter::once(&self.first).chain(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn key(id: u8, octets: usize) -> AuthKey {
        AuthKey::new(id, Secret::new(&[7; 20][..octets]).expect("a short secret"))
    }

    #[test]
    fn keys_are_bounded_distinct_and_short_enough() {
        let make = |keys: &[AuthKey]| Authentication::new(AuthType::KeyedMd5, keys);
        assert_eq!(make(&[]), Err(ConfigError::Keys(0)));
        let many: Vec<_> = (0..=KEYS_MAX).map(|id| key(id as u8, 4)).collect();
        assert_eq!(make(&many), Err(ConfigError::Keys(KEYS_MAX + 1)));
        assert!(make(&many[1..]).is_ok());
        assert_eq!(make(&[key(1, 4), key(1, 5)]), Err(ConfigError::KeyId(1)));
        assert!(make(&[key(1, 16)]).is_ok());
        assert!(matches!(
            make(&[key(1, 16), key(9, 17)]),
            Err(ConfigError::KeyLength { key_id: 9, .. })
        ));
        assert!(Authentication::new(AuthType::KeyedSha1, &[key(9, 17)]).is_ok());
    }

    #[test]
    fn interval_of_zero_is_rejected() {
        let config = SessionConfig::default();
        assert!(config.check().is_ok());
        let config = config.with(|config| config.required_min_rx_us = 0);
        assert_eq!(config.check(), Err(ConfigError::Interval(0)));
    }
}
