//! The state of the limit of the octets in all accounts.

use bgp_fsm::Instant;
use rib::PeerId;

use crate::limits::{MEMORY_CHECK_EVERY, MEMORY_STEPS};

/// The action that was taken against the peer with the most octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryAction {
    /// Its new paths are rejected from now on.
    Reject,
    /// Its session ended.
    End,
}

/// The limit, and what was done because of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) octets_max: Option<usize>,
    /// The octets that the driver holds for routes.
    pub(crate) beside: usize,
    /// The octets in all accounts at the last measurement.
    pub(crate) now: usize,
    /// The most octets that were ever measured.
    pub(crate) peak: usize,
    /// The octets of the tables and groups at the last measurement, and its time.
    measured: Option<(usize, Instant)>,
    /// The peer whose session ended last: while its paths are swept, nothing else is done.
    pub(crate) ended: Option<PeerId>,
}

impl Memory {
    /// Sets the limit. It is checked at once.
    pub(crate) fn limit(&mut self, octets_max: Option<usize>) {
        self.octets_max = octets_max;
        self.measured = None;
    }

    /// Returns whether the accounts are to be measured. `octets` are those of tables and groups.
    pub(crate) fn is_due(&self, now: Instant, octets: usize) -> bool {
        let step = self.octets_max.map_or(usize::MAX, |max| max / MEMORY_STEPS);
        self.measured.is_none_or(|(before, at)| {
            octets.abs_diff(before) >= step || now >= at + MEMORY_CHECK_EVERY
        })
    }

    /// Records a measurement of the octets of tables and groups.
    pub(crate) fn measure(&mut self, now: Instant, octets: usize) {
        self.measured = Some((octets, now));
        self.now = octets;
        self.peak = self.peak.max(self.now);
    }

    /// Returns whether the octets have reached this share of the limit.
    pub(crate) fn has_reached(&self, percent: usize) -> bool {
        self.octets_max
            .is_some_and(|max| self.now >= (max / 100).saturating_mul(percent))
    }
}
