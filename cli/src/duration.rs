//! Durations on the command line.

use std::time::Duration;

/// Parses `90s`, `10m`, `2h` or `1d`.
///
/// # Errors
///
/// A sentence for the command line.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration such as 90s, 10m, 2h or 1d");
    let unit_at = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(unit_at.ok_or_else(wrong)?);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let seconds = number.checked_mul(seconds).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86_400)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in [
            "",
            "10",
            "m",
            "-1s",
            "1w",
            "1h30m",
            "99999999999999999999d",
            "184467440737095516d",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
