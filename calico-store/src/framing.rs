//! Numbers, and octets with their length, one after the other: what files are made of.

use bytes::Bytes;

use crate::kv::{KeyValue, LeaseId, Revision};

/// Appends a number.
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends octets with their length.
pub fn put_field(out: &mut Vec<u8>, octets: &[u8]) {
    put_number(out, octets.len() as u64);
    out.extend_from_slice(octets);
}

/// Appends a key with all that is known of it.
pub fn put_item(out: &mut Vec<u8>, item: &KeyValue) {
    put_field(out, &item.key);
    put_field(out, &item.value);
    put_number(out, item.create_revision.0.cast_unsigned());
    put_number(out, item.mod_revision.0.cast_unsigned());
    put_number(out, item.version.cast_unsigned());
    put_number(out, item.lease.0.cast_unsigned());
}

/// Takes from the front what was put there; `None` when it is not all there.
#[derive(Debug)]
pub struct Taker {
    octets: Bytes,
    all: usize,
}

impl Taker {
    /// Takes from these octets.
    pub const fn new(octets: Bytes) -> Self {
        let all = octets.len();
        Self { octets, all }
    }

    /// How much was taken.
    pub const fn at(&self) -> usize {
        self.all - self.octets.len()
    }

    /// Whether everything was taken.
    pub const fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Takes so many octets.
    pub fn octets(&mut self, count: usize) -> Option<Bytes> {
        (count <= self.octets.len()).then(|| self.octets.split_to(count))
    }

    /// Takes one octet.
    pub fn tag(&mut self) -> Option<u8> {
        self.octets(1)?.first().copied()
    }

    /// Takes a number.
    pub fn number(&mut self) -> Option<u64> {
        let octets = self.octets(8)?;
        Some(u64::from_le_bytes(octets.as_ref().try_into().ok()?))
    }

    /// Takes a number with a sign.
    pub fn signed(&mut self) -> Option<i64> {
        self.number().map(u64::cast_signed)
    }

    /// Takes octets with their length.
    pub fn field(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        self.octets(length)
    }

    /// Takes a key with all that is known of it.
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
