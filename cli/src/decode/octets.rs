//! Conversion between hex digits and octets.

use std::fmt::Write;

/// Returns octets as lower-case hex digits.
pub(crate) fn to_hex(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len() * 2);
    for octet in octets {
        // Writing to a String does not fail.
        let _ = write!(text, "{octet:02x}");
    }
    text
}

/// Reads hex digits; spaces and colons between octets are skipped.
pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let mut digits = Vec::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        match letter.to_digit(16) {
            Some(digit) => digits.push(digit as u8),
            None if letter.is_whitespace() || letter == ':' => {}
            None => return Err(format!("not a hex digit at column {}: {letter:?}", at + 1)),
        }
    }
    match digits.as_chunks::<2>() {
        (pairs, []) => Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect()),
        _ => Err("an odd number of hex digits".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        assert_eq!(from_hex("00 fF:10"), Ok(vec![0, 255, 16]));
        assert_eq!(to_hex(&[0, 255, 16]), "00ff10");
        assert_eq!(from_hex("0"), Err("an odd number of hex digits".into()));
        assert_eq!(
            from_hex("0g"),
            Err("not a hex digit at column 2: 'g'".into())
        );
    }
}
