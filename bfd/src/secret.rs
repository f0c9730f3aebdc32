//! Octets that no text of this crate shows.

use core::fmt;

use crate::limits::SECRET_OCTETS_MAX;

/// A password, a key, or a digest that a key has made: 1 to [`SECRET_OCTETS_MAX`] octets.
///
/// Its `Debug` has no octets. Comparison takes the same time for all values of the same length.
#[derive(Clone, Copy, Eq)]
pub struct Secret {
    octets: [u8; SECRET_OCTETS_MAX],
    length: usize,
}

/// A secret is empty, or longer than its type of authentication permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret of {octets} octets: it must have 1 to {octets_max}")]
#[non_exhaustive]
pub struct SecretLength {
    /// Its octets.
    pub octets: usize,
    /// The greatest permitted number.
    pub octets_max: usize,
}

impl Secret {
    /// Copies the octets.
    ///
    /// # Errors
    ///
    /// There are none, or more than [`SECRET_OCTETS_MAX`].
    pub fn new(octets: &[u8]) -> Result<Self, SecretLength> {
        let mut secret = Self {
            octets: [0; SECRET_OCTETS_MAX],
            length: octets.len(),
        };
        match secret.octets.get_mut(..octets.len()) {
            Some(room) if !octets.is_empty() => room.copy_from_slice(octets),
            _ => {
                return Err(SecretLength {
                    octets: octets.len(),
                    octets_max: SECRET_OCTETS_MAX,
                });
            }
        }
        Ok(secret)
    }

    /// Returns the octets.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        self.padded(self.length)
    }

    /// Returns the first `octets` octets, with zeros after the end of the secret (RFC 5880 §6.7.3).
    pub(crate) fn padded(&self, octets: usize) -> &[u8] {
        self.octets.get(..octets).unwrap_or(&self.octets)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.octets.iter().zip(&other.octets);
        let differences = pairs.fold(0, |all, (one, other)| all | (one ^ other));
        (core::hint::black_box(differences) == 0) & (self.length == other.length)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn secrets_have_bounds_and_compare_by_octets() {
        assert!(Secret::new(&[]).is_err());
        assert!(Secret::new(&[1; SECRET_OCTETS_MAX + 1]).is_err());
        let secret = Secret::new(b"key").expect("a short secret");
        assert_eq!(secret.octets(), b"key");
        assert_eq!(secret, Secret::new(b"key").expect("a short secret"));
        assert_ne!(secret, Secret::new(b"key\0").expect("a short secret"));
        assert_ne!(secret, Secret::new(b"kez").expect("a short secret"));
    }

    #[test]
    fn debug_text_of_a_secret_has_no_octets() {
        let secret = Secret::new(b"hunter2").expect("a short secret");
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
