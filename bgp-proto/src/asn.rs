//! Autonomous system numbers (RFC 4271, RFC 6793, text form RFC 5396).

use core::fmt;
use core::str::FromStr;

/// An autonomous system number of four octets (RFC 6793). Prints as `asplain` (RFC 5396).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Asn(pub u32);

impl Asn {
    /// The reserved number 0, which no AS may use (RFC 7607).
    pub const ZERO: Self = Self(0);
    /// Replaces numbers in two-octet fields that do not fit there (RFC 6793 §9).
    pub const TRANS: Self = Self(23_456);

    /// Returns whether the number fits a two-octet field.
    pub const fn is_two_octet(self) -> bool {
        self.0 <= 0xffff
    }

    /// Returns the number in a two-octet field: itself, or [`Asn::TRANS`].
    pub const fn two_octet(self) -> u16 {
        if self.is_two_octet() {
            self.0 as u16
        } else {
            Self::TRANS.0 as u16
        }
    }

    /// Returns whether the number is reserved for private use (RFC 6996 §5).
    pub const fn is_private(self) -> bool {
        matches!(self.0, 64_512..=65_534 | 4_200_000_000..=4_294_967_294)
    }
}

impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<u32> for Asn {
    fn from(value: u32) -> Self {
        Self(value)
    }
}

impl From<Asn> for u32 {
    fn from(value: Asn) -> Self {
        value.0
    }
}

impl FromStr for Asn {
    type Err = AsnError;

    /// Reads `asplain` ("4200000000") and `asdot` ("64086.59904"), with or without "AS" ahead.
    fn from_str(text: &str) -> Result<Self, AsnError> {
        let digits = match text.get(..2) {
            Some(lead) if lead.eq_ignore_ascii_case("as") => text.get(2..).unwrap_or_default(),
            _ => text,
        };
        if let Some((high, low)) = digits.split_once('.') {
            let high: u16 = digits_only(high)?.parse().map_err(|_| AsnError)?;
            let low: u16 = digits_only(low)?.parse().map_err(|_| AsnError)?;
            return Ok(Self(u32::from(high) << 16 | u32::from(low)));
        }
        digits_only(digits)?.parse().map(Self).map_err(|_| AsnError)
    }
}

/// Refuses signs and empty parts, which the standard library would take.
fn digits_only(part: &str) -> Result<&str, AsnError> {
    let plain = !part.is_empty() && part.bytes().all(|octet| octet.is_ascii_digit());
    plain.then_some(part).ok_or(AsnError)
}

/// The text is not an autonomous system number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsnError;

impl fmt::Display for AsnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an AS number: write 1 to 4294967295, or the dotted form 1.10")
    }
}

impl core::error::Error for AsnError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn reads_both_notations() {
        assert_eq!("64512".parse(), Ok(Asn(64_512)));
        assert_eq!("AS64512".parse(), Ok(Asn(64_512)));
        assert_eq!("1.10".parse(), Ok(Asn(65_546)));
        assert_eq!("4294967295".parse(), Ok(Asn(u32::MAX)));
        for bad in ["", "AS", "-1", "+1", "4294967296", "1.65536", "1.2.3", "x"] {
            assert_eq!(bad.parse::<Asn>(), Err(AsnError), "{bad}");
        }
    }

    #[test]
    fn prints_asplain() {
        assert_eq!(Asn(65_546).to_string(), "65546");
        assert_eq!(Asn(65_546).two_octet(), 23_456);
        assert_eq!(Asn(65_535).two_octet(), 65_535);
    }
}
