//! Random durations.

use std::time::Duration;

/// Spreads the attempts of many mirrors (SplitMix64).
#[derive(Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a duration between half the given one and all of it.
    pub(super) fn half_to_whole(&mut self, length: Duration) -> Duration {
        length / 2 + self.up_to(length / 2)
    }

    /// Returns a duration up to the given one.
    pub(super) fn up_to(&mut self, length: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let parts = (mixed >> 54) as u32;
        length / 1024 * parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simultaneous_starts_are_spread() {
        let whole = Duration::from_secs(3);
        let mut tenths = [0; 10];
        for seed in 0..1000 {
            let length = Jitter::new(seed).up_to(whole);
            assert!(length < whole);
            tenths[(length.as_millis() / 300) as usize] += 1;
        }
        assert!(
            tenths.iter().all(|tenth| (50..=200).contains(tenth)),
            "{tenths:?}"
        );
        let half = (0..1000).map(|seed| Jitter::new(seed).half_to_whole(whole));
        assert!(
            half.into_iter()
                .all(|length| length >= whole / 2 && length < whole)
        );
    }
}
