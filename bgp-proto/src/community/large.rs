//! Communities of twelve octets (RFC 8092).

use core::fmt;

/// A large community (RFC 8092 §3). Prints as "global:local1:local2".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeCommunity {
    /// Global administrator, usually an AS number.
    pub global: u32,
    /// First operator-defined part.
    pub local1: u32,
    /// Second operator-defined part.
    pub local2: u32,
}

impl LargeCommunity {
    /// Returns the community "global:local1:local2".
    pub const fn new(global: u32, local1: u32, local2: u32) -> Self {
        Self {
            global,
            local1,
            local2,
        }
    }

    /// Reads the wire form.
    pub const fn from_octets(octets: [u8; 12]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = octets;
        Self {
            global: u32::from_be_bytes([a, b, c, d]),
            local1: u32::from_be_bytes([e, f, g, h]),
            local2: u32::from_be_bytes([i, j, k, l]),
        }
    }

    /// Returns the wire form.
    pub const fn octets(&self) -> [u8; 12] {
        let [a, b, c, d] = self.global.to_be_bytes();
        let [e, f, g, h] = self.local1.to_be_bytes();
        let [i, j, k, l] = self.local2.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.global, self.local1, self.local2)
    }
}
