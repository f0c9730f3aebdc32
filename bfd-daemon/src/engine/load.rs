//! The limits of each user, and the sums that they are compared with.

use bfd_client::Wanted;

use crate::config::Limits;

/// Parts of a packet in a second: rates are whole numbers, so that a sum returns to its former value exactly.
const PARTS: u64 = 1_000_000;

/// The sessions of one user, with those of all its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Their number.
    pub sessions: u64,
    /// The parts of packets that they send in a second.
    rate: u64,
}

impl Load {
    /// Returns the load of one session.
    pub(super) fn of(wanted: &Wanted) -> Self {
        Self {
            sessions: 1,
            rate: 1000 * PARTS / u64::from(wanted.interval_ms.max(1)),
        }
    }

    /// Returns the load with a further session.
    pub(super) const fn with(self, one: Self) -> Self {
        Self {
            sessions: self.sessions + one.sessions,
            rate: self.rate + one.rate,
        }
    }

    /// Returns the load without a session that is in it.
    pub(super) const fn without(self, one: Self) -> Self {
        Self {
            sessions: self.sessions.saturating_sub(one.sessions),
            rate: self.rate.saturating_sub(one.rate),
        }
    }

    /// Returns the packets in a second, rounded up.
    #[must_use]
    pub const fn packets_per_second(&self) -> u64 {
        self.rate.div_ceil(PARTS)
    }

    /// Checks the limits of a user for a further or changed session, with which it has this load.
    pub(super) fn check(&self, limits: &Limits, wanted: &Wanted) -> Result<(), String> {
        if wanted.interval_ms < limits.interval_ms_min {
            return Err(format!(
                "an interval of {} ms: the least is {} ms (`interval_min_ms` of cambric-bfd)",
                wanted.interval_ms, limits.interval_ms_min
            ));
        }
        if self.sessions > u64::from(limits.sessions) {
            return Err(format!(
                "there are already {} sessions of this user (`sessions` of cambric-bfd)",
                limits.sessions
            ));
        }
        if self.packets_per_second() > u64::from(limits.packets_per_second) {
            return Err(format!(
                "the sessions of this user would send more than {} packets per second \
                 (`packets_per_second` of cambric-bfd)",
                limits.packets_per_second
            ));
        }
        Ok(())
    }
}
