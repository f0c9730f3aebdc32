//! AS numbers: a JSON number, or text in asplain or asdot (RFC 5396).

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// An AS number (RFC 6793). Read from `64512`, `"64512"` or `"1.10"`; written as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct AsNumber(pub u32);

impl fmt::Display for AsNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for AsNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AsNumberVisitor)
    }
}

struct AsNumberVisitor;

impl Visitor<'_> for AsNumberVisitor {
    type Value = AsNumber;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AS number (0 to 4294967295, or \"65000.17\")")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<AsNumber, E> {
        u32::try_from(number)
            .map(AsNumber)
            .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<AsNumber, E> {
        u32::try_from(number)
            .map(AsNumber)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<AsNumber, E> {
        parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

fn parse(text: &str) -> Option<AsNumber> {
    let Some((high, low)) = text.split_once('.') else {
        return text.parse().ok().map(AsNumber);
    };
    let (high, low): (u16, u16) = (high.parse().ok()?, low.parse().ok()?);
    Some(AsNumber(u32::from(high) << 16 | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_forms_are_read_and_a_number_is_written() {
        for (json, number) in [("64512", 64512), ("\"64512\"", 64512), ("\"1.10\"", 65546)] {
            assert_eq!(
                serde_json::from_str::<AsNumber>(json).unwrap(),
                AsNumber(number)
            );
        }
        assert_eq!(serde_json::to_string(&AsNumber(65546)).unwrap(), "65546");
    }

    #[test]
    fn invalid_as_number_is_rejected() {
        for json in [
            "-1",
            "4294967296",
            "\"1.65536\"",
            "\"\"",
            "\"1.2.3\"",
            "1.5",
            "null",
        ] {
            assert!(serde_json::from_str::<AsNumber>(json).is_err(), "{json}");
        }
    }
}
