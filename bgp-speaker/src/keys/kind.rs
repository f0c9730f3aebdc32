//! How the value of a key is written, and its check.

use alloc::{format, string::ToString, vec::Vec};
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use bgp_proto::{Asn, FamilySet, Prefix};

use super::{
    composite,
    value::{At, Invalid, Value},
};

/// How the value of a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Number {
        /// Whether 0 is one beside those from `least` to `most`.
        or_zero: bool,
        /// The least.
        least: u32,
        /// The greatest.
        most: u32,
        /// What is counted, if it has a name.
        unit: &'static str,
    },
    /// A whole number, `true` for the usual one, or `false` for none. 0 is `false` if it is one of
    /// them.
    Switch {
        /// What `true` is.
        on: u32,
        /// The least.
        least: u32,
        /// The greatest.
        most: u32,
        /// What is counted.
        unit: &'static str,
    },
    /// A text of at most this many octets, all of them printable.
    Text(usize),
    /// A text of at most this many octets, which no report shows.
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
    /// Which paths are sent where several may be (RFC 7911).
    Paths,
    /// A list of limits of paths.
    PathLimits,
    /// Not written in a file: it is set in code, or by what is around it.
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
    /// What is expected, to follow "is".
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
            Self::Text(most) => write!(f, "a text of 1 to {most} printable octets"),
            Self::Secret(most) => write!(f, "a text of 1 to {most} octets"),
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
            Self::PathLimits => f.write_str("a list of tables"),
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

/// Reads the value of one key.
pub(crate) struct Reader<'r> {
    /// The key.
    pub(crate) key: &'static str,
    /// What to do about any mistake in it.
    pub(crate) help: &'static str,
    /// The families that there are to name.
    pub(crate) families: FamilySet,
    /// The mistakes.
    pub(crate) faults: &'r mut Vec<Invalid>,
}

impl Reader<'_> {
    /// Returns the value as it is stored: [`Value::Flag`] `false` for none. `None` if it is wrong.
    pub(crate) fn read(&mut self, kind: Kind, given: &At<Value>) -> Option<Value> {
        let read = match (kind, &given.value) {
            (Kind::Flag, Value::Flag(_)) => Some(given.value.clone()),
            (
                Kind::Number {
                    or_zero,
                    least,
                    most,
                    ..
                },
                Value::Number(number),
            ) => number_in(*number, or_zero, least, most),
            (Kind::Switch { on, .. }, Value::Flag(true)) => Some(on.into()),
            (Kind::Switch { .. }, Value::Flag(false)) => Some(Value::Flag(false)),
            (Kind::Switch { least: 0, .. }, Value::Number(0)) => Some(Value::Flag(false)),
            (Kind::Switch { least, most, .. }, Value::Number(number)) => {
                number_in(*number, false, least, most)
            }
            (Kind::Text(most), Value::Text(text)) => {
                let printable = text.chars().all(|c| !c.is_control());
                let fits = !text.trim().is_empty() && text.len() <= most && printable;
                fits.then(|| given.value.clone())
            }
            (Kind::Secret(most), Value::Text(text)) => (1..=most)
                .contains(&text.len())
                .then(|| given.value.clone()),
            (Kind::Address, Value::Text(text)) => return self.address(text, given),
            (Kind::DottedQuad, Value::Text(text)) => {
                let quad = text.parse::<Ipv4Addr>().ok();
                quad.filter(|quad| !quad.is_unspecified())
                    .map(|_| given.value.clone())
            }
            (Kind::Prefix, Value::Text(text)) => return self.prefix(text, given),
            (Kind::Word(words), Value::Text(text)) => match words.contains(&text.as_str()) {
                true => Some(given.value.clone()),
                false => {
                    let unknown = Invalid::unknown(&given.place, text, "values", words.to_vec());
                    self.faults.push(unknown);
                    return None;
                }
            },
            (Kind::Asn, Value::Number(number)) => {
                let asn = usable(u32::try_from(*number).ok().map(Asn));
                asn.map(|asn| asn.0.into())
            }
            (Kind::Asn, Value::Text(text)) => match text.as_str() {
                "internal" | "external" => Some(given.value.clone()),
                text => usable(text.parse().ok()).map(|asn| asn.0.into()),
            },
            (Kind::Families, Value::List(names)) => return composite::families(self, names, given),
            (Kind::Paths, value) => return composite::paths(self, value, given),
            (Kind::PathLimits, Value::List(entries)) => {
                return composite::path_limits(self, entries);
            }
            _ => None,
        };
        if read.is_none() {
            self.expected(kind, given);
        }
        read
    }

    /// Reports a value that is not of a kind.
    pub(crate) fn expected(&mut self, kind: Kind, given: &At<Value>) {
        let message = match kind {
            Kind::Text(most) => format!("{} has 1 to {most} printable octets", self.key),
            Kind::Secret(most) => format!("{} has 1 to {most} octets", self.key),
            kind => format!("{} is {kind}", self.key),
        };
        self.faults
            .push(Invalid::at(&given.place, message).help(self.help));
    }

    fn address(&mut self, text: &str, given: &At<Value>) -> Option<Value> {
        let Ok(address) = text.parse::<IpAddr>() else {
            self.expected(Kind::Address, given);
            return None;
        };
        if address.is_unspecified() || address.is_multicast() {
            let message = format!("{address} is not a unicast address");
            self.faults.push(Invalid::at(&given.place, message));
            return None;
        }
        Some(Value::Text(address.to_string()))
    }

    fn prefix(&mut self, text: &str, given: &At<Value>) -> Option<Value> {
        let (Ok(prefix), Some((address, _))) = (text.parse::<Prefix>(), text.split_once('/'))
        else {
            self.expected(Kind::Prefix, given);
            return None;
        };
        if address.parse() != Ok(prefix.addr()) {
            let invalid = Invalid::at(&given.place, format!("{text} has host bits set"));
            self.faults
                .push(invalid.label(format!("did you mean {prefix}?")));
        }
        Some(Value::Text(prefix.to_string()))
    }
}

fn number_in(number: i64, or_zero: bool, least: u32, most: u32) -> Option<Value> {
    let number = u32::try_from(number).ok()?;
    let fits = (least..=most).contains(&number) || or_zero && number == 0;
    fits.then(|| number.into())
}

/// Returns an AS number that a speaker may use: not 0 (RFC 7607), AS_TRANS (RFC 6793) or the last
/// (RFC 7300).
#[must_use]
pub fn usable(asn: Option<Asn>) -> Option<Asn> {
    asn.filter(|asn| asn.0 != 0 && *asn != Asn::TRANS && asn.0 != u32::MAX)
}
