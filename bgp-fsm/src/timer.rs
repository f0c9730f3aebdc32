//! The session's timers and a table of the states in which each may run and whether it has jitter.

use core::num::NonZeroU64;

use crate::chance::Chance;
use crate::limits::{JITTER_MAX, JITTER_MIN};
use crate::{Duration, Instant, State};

/// The timers of RFC 4271 §8.1.3 and RFC 9687 §3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timer {
    /// How long a dial may take, and the wait before the next one.
    ConnectRetry,
    /// How long the peer may be silent.
    Hold,
    /// The time of the next KEEPALIVE.
    Keepalive,
    /// How long to wait for the peer's OPEN before the local one is sent.
    DelayOpen,
    /// How long the peer may refuse to read.
    SendHold,
    /// How long a connection may take from its transport to Established.
    Handshake,
    /// How long the session stays idle after an error. A timer of the session, not of a connection.
    IdleHold,
    /// How long a new connection is held while the older one is in use.
    Held,
    /// The time of the probe's next step.
    Probe,
}

/// One row of [`TIMERS`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TimerRow {
    /// The timer.
    pub timer: Timer,
    /// Whether its time has random jitter (RFC 4271 §10).
    pub jitter: bool,
    /// The states in which it may run: of its connection, or of the session for those of the held one.
    pub states: &'static [State],
    /// The defining document.
    pub cite: &'static str,
}

/// The number of timers.
pub const TIMERS_COUNT: usize = 9;

/// The timer table, in the order of [`Timer`].
pub const TIMERS: [TimerRow; TIMERS_COUNT] = {
    use State::{Active, Connect, Established, Idle, OpenConfirm, OpenSent};
    [
        TimerRow {
            timer: Timer::ConnectRetry,
            jitter: true,
            states: &[Connect, Active],
            cite: "RFC 4271 §8.2.2, §10",
        },
        TimerRow {
            timer: Timer::Hold,
            jitter: false,
            states: &[OpenSent, OpenConfirm, Established],
            cite: "RFC 4271 §8.2.2",
        },
        TimerRow {
            timer: Timer::Keepalive,
            jitter: true,
            states: &[OpenConfirm, Established],
            cite: "RFC 4271 §4.4, §10",
        },
        TimerRow {
            timer: Timer::DelayOpen,
            jitter: true,
            states: &[Connect, Active],
            cite: "RFC 4271 §8.1.1",
        },
        TimerRow {
            timer: Timer::SendHold,
            jitter: false,
            states: &[Established],
            cite: "RFC 9687 §3",
        },
        TimerRow {
            timer: Timer::Handshake,
            jitter: false,
            states: &[Connect, Active, OpenSent, OpenConfirm],
            cite: "RFC 4271 §8.2.2, with less than its large value",
        },
        TimerRow {
            timer: Timer::IdleHold,
            jitter: true,
            states: &[Idle],
            cite: "RFC 4271 §8.1.1",
        },
        TimerRow {
            timer: Timer::Held,
            jitter: false,
            states: &[OpenConfirm, Established],
            cite: "RFC 4271 §6.8",
        },
        TimerRow {
            timer: Timer::Probe,
            jitter: false,
            states: &[Established],
            cite: "RFC 4724 §5",
        },
    ]
};

/// The deadlines of running timers, by [`Timer`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers([Option<Deadline>; TIMERS_COUNT]);

/// An optional instant in eight octets: a session has four sets of timers. The last nanosecond of
/// time counts as the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Deadline(NonZeroU64);

impl Deadline {
    const fn at(instant: Instant) -> Self {
        Self(NonZeroU64::MIN.saturating_add(instant.0))
    }

    const fn instant(self) -> Instant {
        Instant(self.0.get() - 1)
    }
}

impl Timers {
    /// Starts or restarts `timer` with `time`, with jitter if its row has it. A time of zero leaves
    /// it stopped.
    pub(crate) fn start(
        &mut self,
        timer: Timer,
        now: Instant,
        time: Duration,
        chance: &mut Chance,
    ) {
        let time = if jitters(timer) {
            jittered(time, chance)
        } else {
            time
        };
        self.set(timer, (!time.is_zero()).then(|| now + time));
    }

    /// Stops `timer`.
    pub(crate) fn stop(&mut self, timer: Timer) {
        self.set(timer, None);
    }

    /// Stops all timers.
    pub(crate) fn clear(&mut self) {
        self.0 = [None; TIMERS_COUNT];
    }

    /// Returns when `timer` fires, if it runs.
    pub(crate) fn deadline(&self, timer: Timer) -> Option<Instant> {
        let slot = self.0.get(timer as usize).copied().flatten();
        slot.map(Deadline::instant)
    }

    /// Returns when the first timer fires.
    pub(crate) fn next(&self) -> Option<Instant> {
        let first = self.0.iter().flatten().min();
        first.map(|deadline| deadline.instant())
    }

    /// Stops and returns the timer that is due first.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        let due = self.next().filter(|at| *at <= now)?;
        let (slot, row) = self
            .0
            .iter_mut()
            .zip(TIMERS)
            .find(|(slot, _)| **slot == Some(Deadline::at(due)))?;
        *slot = None;
        Some(row.timer)
    }

    /// Sets the deadline itself.
    pub(crate) fn set(&mut self, timer: Timer, at: Option<Instant>) {
        if let Some(slot) = self.0.get_mut(timer as usize) {
            *slot = at.map(Deadline::at);
        }
    }

    /// Returns the running timers.
    pub(crate) fn running(&self) -> impl Iterator<Item = Timer> + '_ {
        self.0
            .iter()
            .zip(TIMERS)
            .filter(|(slot, _)| slot.is_some())
            .map(|(_, row)| row.timer)
    }
}

/// Returns whether a timer's row has jitter.
fn jitters(timer: Timer) -> bool {
    TIMERS.get(timer as usize).is_some_and(|row| row.jitter)
}

/// Returns `time` shortened to between 75 and 100 percent. RFC 4271 §10
fn jittered(time: Duration, chance: &mut Chance) -> Duration {
    let factor = JITTER_MIN + chance.below(JITTER_MAX - JITTER_MIN + 1);
    let nanos = time.as_nanos().saturating_mul(u128::from(factor)) / u128::from(JITTER_MAX);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_rows_are_in_the_order_of_the_enum() {
        for (index, row) in TIMERS.iter().enumerate() {
            assert_eq!(row.timer as usize, index);
            assert!(row.cite.starts_with("RFC "));
        }
    }

    #[test]
    fn jitter_stays_within_the_bounds() {
        let mut chance = Chance::new(1);
        let (mut least, mut most) = (Duration::MAX, Duration::ZERO);
        for _ in 0..2_000 {
            let time = jittered(Duration::from_secs(100), &mut chance);
            least = least.min(time);
            most = most.max(time);
        }
        assert!(least >= Duration::from_secs(75) && most <= Duration::from_secs(100));
        assert!(
            most - least > Duration::from_secs(20),
            "jitter spreads: {least:?}..{most:?}"
        );
    }

    #[test]
    fn deadline_is_the_instant_that_was_set() {
        let mut timers = Timers::default();
        for at in [0, 1, u64::MAX - 1] {
            timers.set(Timer::Hold, Some(Instant(at)));
            assert_eq!(timers.deadline(Timer::Hold), Some(Instant(at)));
            assert_eq!(timers.next(), Some(Instant(at)));
        }
        assert_eq!(timers.take_due(Instant(u64::MAX)), Some(Timer::Hold));
        assert_eq!(size_of::<Timers>(), 8 * TIMERS_COUNT);
    }

    #[test]
    fn the_earliest_timer_is_due_first_and_fires_once() {
        let (mut timers, mut chance) = (Timers::default(), Chance::new(1));
        timers.start(
            Timer::Hold,
            Instant::ZERO,
            Duration::from_secs(9),
            &mut chance,
        );
        timers.start(
            Timer::SendHold,
            Instant::ZERO,
            Duration::from_secs(3),
            &mut chance,
        );
        timers.start(Timer::DelayOpen, Instant::ZERO, Duration::ZERO, &mut chance);
        assert_eq!(timers.running().count(), 2);
        assert_eq!(timers.take_due(Instant::from_secs(2)), None);
        assert_eq!(
            timers.take_due(Instant::from_secs(10)),
            Some(Timer::SendHold)
        );
        assert_eq!(timers.take_due(Instant::from_secs(10)), Some(Timer::Hold));
        assert_eq!(timers.take_due(Instant::from_secs(10)), None);
    }
}
