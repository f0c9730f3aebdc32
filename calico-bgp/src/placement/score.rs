//! The score of a reflector for a client, in integers, so that it is equal on every machine.

use std::cmp::Ordering;

/// The score of a reflector for a client; the lowest is the best. It is −log₂(u) / weight, where u
/// is uniformly distributed between 0 and 1; so the probability of the lowest score is proportional
/// to the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Score {
    /// −log₂(u) with 32 fractional bits.
    distance: u64,
    weight: u32,
}

impl Score {
    /// Returns the score of a pair. `weight` is not 0.
    pub(super) fn of(client: &str, reflector: &str, weight: u32) -> Self {
        let hash = mix(fnv1a(&[client.as_bytes(), &[0], reflector.as_bytes()]));
        Self {
            distance: (64 << POINT) - log2(hash.max(1)),
            weight,
        }
    }
}

impl Ord for Score {
    /// Compares the quotients without dividing.
    fn cmp(&self, other: &Self) -> Ordering {
        let one = u128::from(self.distance) * u128::from(other.weight);
        one.cmp(&(u128::from(other.distance) * u128::from(self.weight)))
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Fractional bits of [`log2`].
const POINT: u32 = 32;

/// Returns the binary logarithm of a number that is not 0, with [`POINT`] fractional bits, rounded
/// down: each squaring of the mantissa yields one bit.
pub(super) fn log2(number: u64) -> u64 {
    let mut mantissa = u128::from(number) << number.leading_zeros(); // 1 ≤ m < 2, times 2⁶³
    let mut log = u64::from(63 - number.leading_zeros());
    for _ in 0..POINT {
        mantissa = (mantissa * mantissa) >> 63;
        log <<= 1;
        if mantissa >> 64 != 0 {
            mantissa >>= 1;
            log |= 1;
        }
    }
    log
}

/// Returns the 64-bit FNV-1a hash.
pub(super) fn fnv1a(parts: &[&[u8]]) -> u64 {
    let octets = parts.iter().copied().flatten();
    octets.fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Applies the finalizer of SplitMix64: every bit of the input changes half of the output bits.
pub(super) const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
