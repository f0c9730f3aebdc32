//! Unique ids of resources.

/// Returns the text of a random UUID (RFC 9562 §5.4, version 4) made of 16 random octets.
pub fn uid_from_random(octets: [u8; 16]) -> String {
    let mut bits = u128::from_be_bytes(octets);
    bits = bits & !(0xf << 76) | 4 << 76; // version
    bits = bits & !(0b11 << 62) | 0b10 << 62; // variant
    let hex = format!("{bits:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    [
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32),
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_variant_are_set() {
        assert_eq!(
            uid_from_random([0xff; 16]),
            "ffffffff-ffff-4fff-bfff-ffffffffffff"
        );
        assert_eq!(
            uid_from_random([0; 16]),
            "00000000-0000-4000-8000-000000000000"
        );
    }
}
