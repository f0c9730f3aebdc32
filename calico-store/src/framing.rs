//! Encoding of numbers and length-prefixed octets, as used in files.

use bytes::Bytes;

use crate::kv::{KeyValue, LeaseId, Revision};

/// Appends a number.
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends octets with a length prefix.
pub fn put_field(out: &mut Vec<u8>, octets: &[u8]) {
    put_number(out, octets.len() as u64);
    out.extend_from_slice(octets);
}

/// Appends a key with its value and revisions.
pub fn put_item(out: &mut Vec<u8>, item: &KeyValue) {
    put_field(out, &item.key);
    put_field(out, &item.value);
    put_number(out, item.create_revision.0.cast_unsigned());
    put_number(out, item.mod_revision.0.cast_unsigned());
    put_number(out, item.version.cast_unsigned());
    put_number(out, item.lease.0.cast_unsigned());
}

/// Decodes encoded fields from the front; each method returns `None` when its field is incomplete.
#[derive(Debug)]
pub struct Taker {
    octets: Bytes,
    all: usize,
}

impl Taker {
    /// Creates a decoder of these octets.
    pub const fn new(octets: Bytes) -> Self {
        let all = octets.len();
        Self { octets, all }
    }

    /// Returns how many octets were decoded.
    pub const fn at(&self) -> usize {
        self.all - self.octets.len()
    }

    /// Returns whether everything was decoded.
    pub const fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Decodes this many octets.
    pub fn octets(&mut self, count: usize) -> Option<Bytes> {
        (count <= self.octets.len()).then(|| self.octets.split_to(count))
    }

    /// Decodes one octet.
    pub fn tag(&mut self) -> Option<u8> {
        self.octets(1)?.first().copied()
    }

    /// Decodes a number.
    pub fn number(&mut self) -> Option<u64> {
        let octets = self.octets(8)?;
        Some(u64::from_le_bytes(octets.as_ref().try_into().ok()?))
    }

    /// Decodes a signed number.
    pub fn signed(&mut self) -> Option<i64> {
        self.number().map(u64::cast_signed)
    }

    /// Decodes octets with a length prefix.
    pub fn field(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        self.octets(length)
    }

    /// Decodes a key with its value and revisions.
    pub fn item(&mut self) -> Option<KeyValue> {
        Some(KeyValue {
            key: self.field()?,
            value: self.field()?,
            create_revision: Revision(self.signed()?),
            mod_revision: Revision(self.signed()?),
            version: self.signed()?,
            lease: LeaseId(self.signed()?),
        })
    }
}
