//! Random numbers from a seed: the only source of randomness in a run.

use std::ops::RangeInclusive;

/// SplitMix64: small, and sufficient to draw faults.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Makes the generator of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a generator that is independent of the further numbers of this one.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Returns 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number within a range.
    pub const fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = range.end().saturating_sub(*range.start()).saturating_add(1);
        *range.start() + self.next() % span
    }

    /// Returns an index below `len`; 0 if `len` is 0.
    pub const fn below(&mut self, len: usize) -> usize {
        match len {
            0 => 0,
            _ => (self.next() % len as u64) as usize,
        }
    }

    /// Returns one of these items.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// Returns true with this probability in thousandths; draws nothing if it is 0.
    pub const fn strikes(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.next() % 1000 < per_mille
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let (mut one, mut other) = (Chance::new(7), Chance::new(7));
        assert!((0..100).all(|_| one.next() == other.next()));
        assert!((0..1000).all(|_| (3..=5).contains(&one.within(3..=5))));
        assert!(!Chance::new(1).strikes(0) && Chance::new(1).strikes(1000));
    }
}
