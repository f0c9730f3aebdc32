//! Durations in the text format of Go: `"90s"`, `"1m30s"`, `"1.5h"`, `"0s"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::serde_as_text;

/// A duration, written as `1m30s`. Never negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub Duration);

serde_as_text!(
    GoDuration,
    "a duration such as \"30s\", \"1m30s\" or \"500ms\""
);

/// The text is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a duration such as 30s, 1m30s or 500ms")]
pub struct DurationError;

/// Units and their length in nanoseconds; longer names first, so that `ms` is not read as `m`.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        if rest == "0" {
            return Ok(Self::default());
        }
        let mut total_ns = 0_u64;
        loop {
            let (term_ns, tail) = term(rest)?;
            total_ns = total_ns.checked_add(term_ns).ok_or(DurationError)?;
            if tail.is_empty() {
                return Ok(Self(Duration::from_nanos(total_ns)));
            }
            rest = tail;
        }
    }
}

/// Parses one number with its unit into nanoseconds; returns the rest of the text too.
fn term(text: &str) -> Result<(u64, &str), DurationError> {
    let (whole, tail) = digits(text);
    let (fraction, tail) = match tail.strip_prefix('.') {
        Some(tail) => digits(tail),
        None => ("", tail),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError);
    }
    let (unit, unit_ns) = UNITS
        .iter()
        .find(|(unit, _)| tail.starts_with(unit))
        .ok_or(DurationError)?;
    let whole_ns = match whole {
        "" => 0,
        whole => whole.parse::<u64>().map_err(|_| DurationError)?,
    };
    let whole_ns = whole_ns.checked_mul(*unit_ns).ok_or(DurationError)?;
    let mut fraction_ns = 0;
    let mut place_ns = *unit_ns;
    for digit in fraction.bytes() {
        place_ns /= 10;
        fraction_ns += u64::from(digit - b'0') * place_ns;
    }
    let term_ns = whole_ns.checked_add(fraction_ns).ok_or(DurationError)?;
    Ok((term_ns, tail.get(unit.len()..).unwrap_or_default()))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        match ns {
            0 => return f.write_str("0s"),
            1..1_000 => return write!(f, "{ns}ns"),
            1_000..1_000_000 => return decimal(f, ns, 1_000, "µs"),
            1_000_000..1_000_000_000 => return decimal(f, ns, 1_000_000, "ms"),
            _ => {}
        }
        let minutes = ns / 60_000_000_000;
        if minutes >= 60 {
            write!(f, "{}h", minutes / 60)?;
        }
        if minutes > 0 {
            write!(f, "{}m", minutes % 60)?;
        }
        decimal(f, ns % 60_000_000_000, 1_000_000_000, "s")
    }
}

fn decimal(f: &mut fmt::Formatter<'_>, ns: u128, unit_ns: u128, unit: &str) -> fmt::Result {
    write!(f, "{}", ns / unit_ns)?;
    let mut rest = ns % unit_ns;
    if rest > 0 {
        f.write_str(".")?;
        let mut place = unit_ns / 10;
        while rest > 0 {
            write!(f, "{}", rest / place)?;
            rest %= place;
            place /= 10;
        }
    }
    f.write_str(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms() {
        for (text, ms) in [
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("0", 0),
            ("250ms", 250),
            (".5s", 500),
        ] {
            assert_eq!(
                text.parse(),
                Ok(GoDuration(Duration::from_millis(ms))),
                "{text}"
            );
        }
        for text in [
            "",
            "s",
            "30",
            "-1s",
            "1x",
            "1s2",
            "99999999999999h",
            "1.s.",
            ".",
        ] {
            assert_eq!(text.parse::<GoDuration>(), Err(DurationError), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn written_and_read_again_is_the_same(ns in 0_u64..u64::MAX / 2) {
            let duration = GoDuration(Duration::from_nanos(ns));
            proptest::prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        #[test]
        fn any_text_is_answered(text in "\\PC*") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
