//! Values with more than one written form.

use std::fmt;

use bgp_proto::Asn;
use bgp_speaker::keys::usable;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// An AS number: `64512`, `"64512"`, or `"1.10"` (RFC 5396).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsNumber(pub Asn);

/// A user of the host: a name or a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserKey(pub String);

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
