//! Authentication sections (RFC 5880 §4.2 to §4.4) and their digests (§6.7).

use core::fmt;

use md5::{Digest, Md5};
use sha1::Sha1;

use crate::encoded::Encoded;
use crate::invalid::Invalid;
use crate::limits::{DIGEST_AT, HEADER_OCTETS, PASSWORD_AT, SECRET_OCTETS_MAX};
use crate::secret::{Secret, SecretLength};

/// The types of authentication (RFC 5880 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuthType {
    /// A password in clear text.
    SimplePassword,
    /// A digest of MD5; the sequence number may repeat.
    KeyedMd5,
    /// A digest of MD5; each packet has another sequence number.
    MeticulousKeyedMd5,
    /// A digest of SHA1; the sequence number may repeat.
    KeyedSha1,
    /// A digest of SHA1; each packet has another sequence number.
    MeticulousKeyedSha1,
}

impl AuthType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 5] = [
        Self::SimplePassword,
        Self::KeyedMd5,
        Self::MeticulousKeyedMd5,
        Self::KeyedSha1,
        Self::MeticulousKeyedSha1,
    ];

    /// Returns the code of the field Auth Type.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// Returns the type with this code, if it is defined.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.code() == code)
    }

    /// Returns whether each packet must have another sequence number.
    #[must_use]
    pub const fn is_meticulous(self) -> bool {
        matches!(self, Self::MeticulousKeyedMd5 | Self::MeticulousKeyedSha1)
    }

    /// Returns whether the section has a sequence number.
    #[must_use]
    pub const fn has_sequence(self) -> bool {
        !matches!(self, Self::SimplePassword)
    }

    /// Returns the longest password or key, in octets. A digest always has this length.
    #[must_use]
    pub const fn secret_octets_max(self) -> usize {
        match self {
            Self::SimplePassword | Self::KeyedMd5 | Self::MeticulousKeyedMd5 => 16,
            Self::KeyedSha1 | Self::MeticulousKeyedSha1 => 20,
        }
    }

    /// Returns the octets of the section before its password or digest.
    const fn value_at(self) -> usize {
        match self {
            Self::SimplePassword => PASSWORD_AT,
            _ => DIGEST_AT,
        }
    }

    /// Checks the length of a password or key.
    pub(crate) fn check(self, secret: &Secret) -> Result<(), SecretLength> {
        let (octets, octets_max) = (secret.octets().len(), self.secret_octets_max());
        if octets > octets_max {
            return Err(SecretLength { octets, octets_max });
        }
        Ok(())
    }
}

impl fmt::Display for AuthType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SimplePassword => "simple password",
            Self::KeyedMd5 => "keyed MD5",
            Self::MeticulousKeyedMd5 => "meticulous keyed MD5",
            Self::KeyedSha1 => "keyed SHA1",
            Self::MeticulousKeyedSha1 => "meticulous keyed SHA1",
        })
    }
}

/// An authentication section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthSection {
    auth_type: AuthType,
    key_id: u8,
    sequence: u32,
    value: Secret,
}

impl AuthSection {
    /// Makes a section. The sequence number is left out of one with a password.
    ///
    /// # Errors
    ///
    /// The password is too long, or the digest has another length than that of its type.
    pub fn new(
        auth_type: AuthType,
        key_id: u8,
        sequence: u32,
        value: Secret,
    ) -> Result<Self, SecretLength> {
        auth_type.check(&value)?;
        let octets_max = auth_type.secret_octets_max();
        if auth_type.has_sequence() && value.octets().len() != octets_max {
            return Err(SecretLength {
                octets: value.octets().len(),
                octets_max,
            });
        }
        Ok(Self {
            auth_type,
            key_id,
            sequence: if auth_type.has_sequence() {
                sequence
            } else {
                0
            },
            value,
        })
    }

    /// Makes the section of a packet that [`crate::Packet::encode_signed`] completes: zeros are in the place
    /// of the digest. A password is stored.
    ///
    /// # Errors
    ///
    /// The password or key is too long for its type.
    pub fn unsigned(
        auth_type: AuthType,
        key_id: u8,
        sequence: u32,
        key: &Secret,
    ) -> Result<Self, SecretLength> {
        auth_type.check(key)?;
        let value = match auth_type {
            AuthType::SimplePassword => *key,
            _ => Secret::new(ZEROS.get(..auth_type.secret_octets_max()).unwrap_or(&ZEROS))?,
        };
        Self::new(auth_type, key_id, sequence, value)
    }

    /// Returns the type.
    #[must_use]
    pub const fn auth_type(&self) -> AuthType {
        self.auth_type
    }

    /// Returns the number of the key.
    #[must_use]
    pub const fn key_id(&self) -> u8 {
        self.key_id
    }

    /// Returns the sequence number; 0 in a section with a password.
    #[must_use]
    pub const fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Returns the password or digest.
    #[must_use]
    pub const fn value(&self) -> &Secret {
        &self.value
    }

    /// Returns the octets of the section.
    #[must_use]
    pub fn length(&self) -> usize {
        self.auth_type.value_at() + self.value.octets().len()
    }

    /// Decodes the section at the start of `octets`; the rest is ignored.
    pub(crate) fn decode(octets: &[u8]) -> Result<Self, Invalid> {
        let &[code, length, key_id, ..] = octets else {
            return Err(Invalid::AuthLength(octets.get(1).copied().unwrap_or(0)));
        };
        let auth_type = AuthType::from_code(code).ok_or(Invalid::AuthType(code))?;
        let wrong = Invalid::AuthLength(length);
        // RFC 5880 §6.7.2 to §6.7.4: the length must be that of the type.
        let section = octets.get(..usize::from(length)).ok_or(wrong)?;
        let value = section.get(auth_type.value_at()..).ok_or(wrong)?;
        let value = Secret::new(value).map_err(|_| wrong)?;
        let sequence = match section.get(4..DIGEST_AT) {
            Some(&[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
            _ => 0,
        };
        Self::new(auth_type, key_id, sequence, value).map_err(|_| wrong)
    }

    /// Appends the section to a packet.
    pub(crate) fn encode(&self, out: &mut Encoded) {
        let length = u8::try_from(self.length()).unwrap_or(u8::MAX);
        out.push(&[self.auth_type.code(), length, self.key_id]);
        if self.auth_type.has_sequence() {
            out.push(&[0]);
            out.push(&self.sequence.to_be_bytes());
        }
        out.push(self.value.octets());
    }

    /// Replaces the digest of an encoded packet by that of `key`; a password stays.
    pub(crate) fn sign(&self, packet: &mut Encoded, key: &Secret) {
        let Some(digest) = digest(self.auth_type, packet.octets(), key) else {
            return;
        };
        packet.overwrite(VALUE_AT, digest.octets());
    }

    /// Returns whether `key` has made this section of the packet that was decoded from these octets. There
    /// must be none after the packet.
    #[must_use]
    pub fn is_made_by(&self, packet: &[u8], key: &Secret) -> bool {
        match self.auth_type {
            AuthType::SimplePassword => self.value == *key,
            _ => digest(self.auth_type, packet, key) == Some(self.value),
        }
    }
}

/// The octets in the place of a digest that is not yet made.
const ZEROS: [u8; SECRET_OCTETS_MAX] = [0; SECRET_OCTETS_MAX];

/// The place of a digest in a packet.
const VALUE_AT: usize = HEADER_OCTETS + DIGEST_AT;

/// Returns the digest of a packet with the key in the place of the digest (RFC 5880 §6.7.3, §6.7.4);
/// `None` for a password.
fn digest(auth_type: AuthType, packet: &[u8], key: &Secret) -> Option<Secret> {
    match auth_type {
        AuthType::SimplePassword => None,
        AuthType::KeyedMd5 | AuthType::MeticulousKeyedMd5 => {
            keyed::<Md5>(auth_type.secret_octets_max(), packet, key)
        }
        AuthType::KeyedSha1 | AuthType::MeticulousKeyedSha1 => {
            keyed::<Sha1>(auth_type.secret_octets_max(), packet, key)
        }
    }
}

fn keyed<D: Digest>(octets: usize, packet: &[u8], key: &Secret) -> Option<Secret> {
    let before = packet.get(..VALUE_AT)?;
    let after = packet.get(VALUE_AT + octets..)?;
    let digest = D::new()
        .chain_update(before)
        .chain_update(key.padded(octets))
        .chain_update(after)
        .finalize();
    Secret::new(&digest).ok()
}

#[cfg(test)]
mod tests;
