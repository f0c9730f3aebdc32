//! Seeded chance: all that is random in a run comes from here.

use std::ops::RangeInclusive;

/// SplitMix64: small, and good enough to draw faults by.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Chance from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another chance, independent of what this one goes on to draw.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number of a range.
    pub const fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = range.end().saturating_sub(*range.start()).saturating_add(1);
        *range.start() + self.next() % span
    }

    /// An index below `len`; 0 if there is none.
    pub const fn below(&mut self, len: usize) -> usize {
        match len {
            0 => 0,
            _ => (self.next() % len as u64) as usize,
        }
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// True in so many of a thousand cases; draws nothing when there are none.
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
