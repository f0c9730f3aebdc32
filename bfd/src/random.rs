//! The random source that the caller provides.

/// A source of random numbers: for jitter, discriminators and sequence numbers.
///
/// A program passes one that is seeded by its system, so that discriminators cannot be predicted. A
/// simulation passes a [`Seeded`] one, so that a run can be repeated.
pub trait Random {
    /// Returns the next 64 bits.
    fn next_u64(&mut self) -> u64;
}

impl<R: Random + ?Sized> Random for &mut R {
    fn next_u64(&mut self) -> u64 {
        (**self).next_u64()
    }
}

/// SplitMix64, for simulations and tests: the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// Makes a source that depends on `seed` alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Random for Seeded {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
