//! Types of key values, with their checks.

use core::fmt;

use bgp_proto::Asn;

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Number {
        /// Whether 0 is valid in addition to `least` to `most`.
        or_zero: bool,
        /// The least.
        least: u32,
        /// The greatest.
        most: u32,
        /// The unit, if it has a name.
        unit: &'static str,
    },
    /// A whole number, `true` for the default one, or `false` for none. 0 is equivalent to `false`
    /// if it is in the range.
    Switch {
        /// The number for `true`.
        on: u32,
        /// The least.
        least: u32,
        /// The greatest.
        most: u32,
        /// The unit.
        unit: &'static str,
    },
    /// A text of at most this many octets, all of them printable.
    Text(usize),
    /// A text of at most this many octets that reports never show.
    Secret(usize),
    /// An IPv4 or IPv6 address.
    Address,
    /// Four octets, written like an IPv4 address.
    DottedQuad,
    /// A prefix.
    Prefix,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An AS number, `internal` or `external`.
    Asn,
    /// A list of names of families.
    Families,
    /// The paths that are sent with ADD-PATH (RFC 7911).
    Paths,
    /// A table of families with a number of seconds each, from 1 to this many.
    FamilyTimes(u32),
    /// A limit of paths in every family, 0 for none; or a list of limits by family.
    PathLimits,
    /// The same for the paths that are sent, without an action.
    SentLimits,
    /// `true` for a session of BFD with the default values, `false` for none, or a table with the
    /// values.
    Bfd,
    /// Without a written form: set in code, or derived.
    InCode,
}

/// A number of at least 1 in this unit.
pub(crate) const fn from_one(most: u32, unit: &'static str) -> Kind {
    Kind::Number {
        or_zero: false,
        least: 1,
        most,
        unit,
    }
}

impl fmt::Display for Kind {
    /// Describes the expected value, to follow "is".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Flag => f.write_str("true or false"),
            Self::Number { or_zero, least, most, unit } => {
                f.write_str(if or_zero { "a number, 0 or " } else { "a number, " })?;
                range(f, least, most, unit)
            }
            Self::Switch { least, most, unit, .. } => {
                f.write_str("true, false, or ")?;
                range(f, least, most, unit)
            }
            Self::Text(most) => write!(f, "a text of 1 to {most} printable bytes"),
            Self::Secret(most) => write!(f, "a text of 1 to {most} bytes"),
            Self::Address => f.write_str("an IPv4 or IPv6 address"),
            Self::DottedQuad => f.write_str("four octets like an IPv4 address, not all of them 0"),
            Self::Prefix => f.write_str("an IPv4 or IPv6 prefix"),
            Self::Word(words) => {
                for (at, word) in words.iter().enumerate() {
                    let comma = match words.len().checked_sub(at + 1) {
                        _ if at == 0 => "",
                        Some(0) => " or ",
                        _ => ", ",
                    };
                    write!(f, "{comma}\"{word}\"")?;
                }
                Ok(())
            }
            Self::Asn => f.write_str(
                "an AS number from 1 to 4294967294, as 64512 or \"1.10\", or \"internal\" or \"external\"",
            ),
            Self::Families => f.write_str("a list of families"),
            Self::Paths => write!(
                f,
                "\"all\", \"equal-cost\", or how many of the best paths, from 1 to {}, or a table of \
                 families with one of these each",
                rib::limits::BEST_PATHS_MAX
            ),
            Self::FamilyTimes(most) => {
                write!(f, "a table of families with 1 to {most} seconds each")
            }
            Self::PathLimits | Self::SentLimits => f.write_str("a number of paths, 0 for no limit, or a list of tables"),
            Self::Bfd => f.write_str("true or false, or a table with interval_ms, multiplier and mode"),
            Self::InCode => f.write_str("not set in a file"),
        }
    }
}

fn range(f: &mut fmt::Formatter<'_>, least: u32, most: u32, unit: &str) -> fmt::Result {
    let space = if unit.is_empty() { "" } else { " " };
    let one = unit.trim_end_matches('s');
    match (least, most) {
        (1, u32::MAX | 65_535) if !unit.is_empty() => write!(f, "at least 1{space}{one}"),
        (0, most) => write!(f, "at most {most}{space}{unit}"),
        (least, u32::MAX | 65_535) if !unit.is_empty() => {
            write!(f, "at least {least}{space}{unit}")
        }
        (least, most) => write!(f, "from {least} to {most}{space}{unit}"),
    }
}

/// Returns an AS number if a speaker may use it: not 0 (RFC 7607), AS_TRANS (RFC 6793) or the last
/// one (RFC 7300).
#[must_use]
pub fn usable(asn: Option<Asn>) -> Option<Asn> {
    asn.filter(|asn| asn.0 != 0 && *asn != Asn::TRANS && asn.0 != u32::MAX)
}
