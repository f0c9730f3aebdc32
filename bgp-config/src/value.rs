//! Values with more than one written form.

use std::fmt;

use bgp_proto::Asn;
use bgp_speaker::keys::usable;
use bgp_speaker::limits::MEMORY_OCTETS_MIN;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// An AS number: `64512`, `"64512"`, or `"1.10"` (RFC 5396).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsNumber(pub Asn);

/// A user of the host: a name or a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserKey(pub String);

/// A number of bytes: `1073741824`, or with a power of 1024 as `"1G"`; `"none"` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryMax(pub Option<usize>);

/// The units of [`MemoryMax`], with their powers of 1024.
const UNITS: [(char, u32); 4] = [('K', 1), ('M', 2), ('G', 3), ('T', 4)];

impl MemoryMax {
    fn of(octets: u64) -> Option<Self> {
        let octets = usize::try_from(octets).ok();
        let octets = octets.filter(|octets| *octets >= MEMORY_OCTETS_MIN);
        octets.map(|octets| Self(Some(octets)))
    }

    fn read(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self(None));
        }
        let (number, power) = UNITS
            .iter()
            .find_map(|(unit, power)| Some((text.strip_suffix(*unit)?, *power)))
            .unwrap_or((text, 0));
        let number: u64 = number.parse().ok()?;
        Self::of(number.checked_mul(1024_u64.pow(power))?)
    }
}

impl<'de> Deserialize<'de> for MemoryMax {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = MemoryMax;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a number of bytes, at least 1048576, as 1073741824, \"1G\" or \"512M\"; or \
                     \"none\"",
                )
            }

            fn visit_i64<E: Error>(self, octets: i64) -> Result<MemoryMax, E> {
                let read = u64::try_from(octets).ok().and_then(MemoryMax::of);
                read.ok_or_else(|| E::invalid_value(Unexpected::Signed(octets), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<MemoryMax, E> {
                let read = MemoryMax::read(text);
                read.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Bytes)
    }
}

impl<'de> Deserialize<'de> for UserKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct User;
        impl Visitor<'_> for User {
            type Value = UserKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a user name or a numeric user id")
            }

            fn visit_i64<E: Error>(self, id: i64) -> Result<UserKey, E> {
                match u32::try_from(id) {
                    // The greatest number is never a user's.
                    Ok(id) if id != u32::MAX => Ok(UserKey(id.to_string())),
                    _ => Err(E::invalid_value(Unexpected::Signed(id), &self)),
                }
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<UserKey, E> {
                Ok(UserKey(name.to_owned()))
            }
        }
        deserializer.deserialize_any(User)
    }
}

impl<'de> Deserialize<'de> for AsNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AsnVisitor).map(Self)
    }
}

struct AsnVisitor;

impl Visitor<'_> for AsnVisitor {
    type Value = Asn;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AS number from 1 to 4294967294, as 64512 or \"1.10\"")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Asn, E> {
        let number = u32::try_from(value).ok().map(Asn);
        usable(number).ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Asn, E> {
        let number = u32::try_from(value).ok().map(Asn);
        usable(number).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Asn, E> {
        let number = usable(value.parse().ok());
        number.ok_or_else(|| E::invalid_value(Unexpected::Str(value), &self))
    }
}
