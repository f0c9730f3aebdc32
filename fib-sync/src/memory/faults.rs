//! Faults of the simulated kernel, and the seeded generator that decides when they occur.

/// Chances of faults, each in parts per thousand. The default is a kernel without faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// A write is refused with an error number that a real kernel uses.
    pub refuse: u16,
    /// A write is carried out, but its answer is lost (`ENOBUFS`).
    pub lose_answer: u16,
    /// A notification is lost without an overrun; no real kernel does that.
    pub lose_notification: u16,
    /// The notifications queued for an attachment are lost, and an overrun is reported to it.
    pub overrun: u16,
    /// A dump ends early and reports that it is incomplete.
    pub cut_dump: u16,
}

impl Faults {
    /// Returns every fault that a real kernel may have, at this chance.
    pub fn all(per_mille: u16) -> Self {
        Self {
            refuse: per_mille,
            lose_answer: per_mille,
            lose_notification: 0,
            overrun: per_mille,
            cut_dump: per_mille,
        }
    }
}

/// PCG XSH-RR 32: small, seeded, and good enough to choose faults by.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Self(seed.wrapping_add(0x9E37_79B9_7F4A_7C15));
        chance.next();
        chance
    }

    pub(super) fn next(&mut self) -> u32 {
        let state = self.0;
        self.0 = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mixed = (((state >> 18) ^ state) >> 27) as u32;
        mixed.rotate_right((state >> 59) as u32)
    }

    /// Returns true in `per_mille` of a thousand cases; draws no number when the chance is zero.
    pub(super) fn strikes(&mut self, per_mille: u16) -> bool {
        per_mille > 0 && self.next() % 1000 < u32::from(per_mille)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }
}
