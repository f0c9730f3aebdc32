//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use super::serde_as_text;

/// An Ethernet (EUI-48) address, written as `aa:bb:cc:00:11:22`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

serde_as_text!(Mac, "an Ethernet address such as \"aa:bb:cc:00:11:22\"");

/// The text is not an Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an Ethernet address such as aa:bb:cc:00:11:22")]
pub struct MacError;

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next().ok_or(MacError)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(MacError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| MacError)?;
        }
        match parts.next() {
            None => Ok(Self(octets)),
            Some(_) => Err(MacError),
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms() {
        let mac = Mac([0xaa, 0xbb, 0xcc, 0, 0x11, 0x22]);
        assert_eq!("AA:bb:cc:00:11:22".parse(), Ok(mac));
        assert_eq!("aa-bb-cc-00-11-22".parse(), Ok(mac));
        assert_eq!(mac.to_string(), "aa:bb:cc:00:11:22");
        for text in [
            "",
            "aa:bb:cc:00:11",
            "aa:bb:cc:00:11:22:33",
            "a:bb:cc:00:11:22",
            "+a:bb:cc:00:11:22",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(MacError), "{text}");
        }
    }
}
