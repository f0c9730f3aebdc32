//! Ports of rules.

use serde_json::Value;

/// Maximum length of the name of a port, in octets.
const NAME_OCTETS_MAX: usize = 128;

/// An entry in a list of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// The ports from the first to the last one.
    Range(u16, u16),
    /// The name of a port of endpoints.
    Name(String),
}

impl Port {
    /// Reads a number, a number in quotes, a range `first:last`, or a name; `None` if it is neither.
    pub fn parse(value: &Value) -> Option<Self> {
        if value.is_number() {
            let number = u16::try_from(value.as_u64()?).ok()?;
            return Some(Self::Range(number, number));
        }
        let text = value.as_str()?;
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        let is_number = |text: &str| text.bytes().all(|octet| octet.is_ascii_digit());
        if is_number(first) && is_number(last) {
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            return (first <= last).then_some(Self::Range(first, last));
        }
        let is_part = |octet: u8| octet.is_ascii_alphanumeric() || b"_.-".contains(&octet);
        let is_name = text.len() <= NAME_OCTETS_MAX && text.bytes().all(is_part);
        is_name.then(|| Self::Name(text.to_owned()))
    }
}
