//! The link between two addresses.

use std::time::Duration;

use crate::limits::RETRANSMIT;

/// A link between two addresses. The default delivers at once and loses nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// The least time that a segment takes.
    pub latency: Duration,
    /// How much more it may take; drawn from the network's seed.
    pub jitter: Duration,
    /// Number of lost segments per 1,000. Streams stay complete: a lost segment is sent again, and
    /// delays the segments after it.
    pub loss_per_mille: u16,
}

impl Link {
    /// Returns a link that delays every segment by the same time.
    #[must_use]
    pub const fn late(latency: Duration) -> Self {
        Self {
            latency,
            jitter: Duration::ZERO,
            loss_per_mille: 0,
        }
    }

    /// Returns the delay of a segment; a link without randomness draws nothing.
    pub(super) fn delay(&self, chance: &mut Chance) -> Duration {
        let mut delay = self.latency;
        if !self.jitter.is_zero() {
            let jitter = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
            delay += Duration::from_nanos(chance.next() % jitter.saturating_add(1).max(1));
        }
        // With a higher rate a segment would practically never arrive.
        let loss = u64::from(self.loss_per_mille.min(900));
        while loss > 0 && chance.next() % 1000 < loss {
            delay += RETRANSMIT;
        }
        delay
    }
}

/// All that is random in a network (SplitMix64).
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
