//! BGP communities as text: `64512:300` (RFC 1997) or `64512:4:9` (RFC 8092).

use std::fmt;
use std::str::FromStr;

use super::serde_as_text;

/// A community, standard or large by its number of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommunityValue {
    /// Two parts of 16 bits (RFC 1997).
    Standard(u16, u16),
    /// Three parts of 32 bits (RFC 8092).
    Large(u32, u32, u32),
}

serde_as_text!(
    CommunityValue,
    "a community such as \"64512:300\" or \"64512:4:9\""
);

/// The text is not a community.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a community such as 64512:300 (16 bits each) or 64512:4:9 (32 bits each)")]
pub struct CommunityError;

impl FromStr for CommunityValue {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, CommunityError> {
        let mut parts = text.split(':');
        let community = match (parts.next(), parts.next(), parts.next()) {
            (Some(high), Some(low), None) => Self::Standard(number(high)?, number(low)?),
            (Some(global), Some(first), Some(second)) => {
                Self::Large(number(global)?, number(first)?, number(second)?)
            }
            _ => return Err(CommunityError),
        };
        match parts.next() {
            None => Ok(community),
            Some(_) => Err(CommunityError),
        }
    }
}

fn number<N: FromStr>(digits: &str) -> Result<N, CommunityError> {
    // `parse` would accept a sign.
    if !digits.bytes().all(|c| c.is_ascii_digit()) {
        return Err(CommunityError);
    }
    digits.parse().map_err(|_| CommunityError)
}

impl fmt::Display for CommunityValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(high, low) => write!(f, "{high}:{low}"),
            Self::Large(global, first, second) => write!(f, "{global}:{first}:{second}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_parts_selects_the_community_type() {
        assert_eq!(
            "64512:300".parse(),
            Ok(CommunityValue::Standard(64512, 300))
        );
        assert_eq!(
            "4200000000:4:9".parse(),
            Ok(CommunityValue::Large(4_200_000_000, 4, 9))
        );
        for text in [
            "",
            "1",
            ":",
            "1:",
            "65536:1",
            "1:65536",
            "1:2:3:4",
            "+1:2",
            "1:-2",
            "1:2:4294967296",
            "no-out",
            "1 :2",
        ] {
            assert_eq!(
                text.parse::<CommunityValue>(),
                Err(CommunityError),
                "{text}"
            );
        }
    }
}
