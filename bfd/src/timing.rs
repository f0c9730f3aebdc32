//! Intervals, the Poll Sequence and the detection time (RFC 5880 §6.5, §6.8.2 to §6.8.4).

use core::num::NonZeroU8;

use crate::limits::{JITTER_PERCENT_MAX, JITTER_PERCENT_MIN_SINGLE, JITTER_STEPS, ROUND_TRIP_MAX};
use crate::{Duration, Instant};

/// The two intervals of the local system, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intervals {
    pub(crate) desired_min_tx_us: u32,
    pub(crate) required_min_rx_us: u32,
}

/// The Poll Sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    /// None. The next one may start.
    Idle,
    /// Packets have the P bit.
    Active {
        /// Whether one with the P bit was sent. A Final before it belongs to no poll.
        sent: bool,
    },
    /// It has ended. Every packet with the P bit was answered, so that the next one could take a late
    /// Final for its own. The next one starts with a packet without the F bit after this instant, when no
    /// Final can be on its way any more (RFC 5880 §6.8.3, the second and third choice).
    Ended { until: Instant },
}

/// The intervals of both systems, and which of the local ones are in effect.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// The intervals that the next packets may advertise after a Poll Sequence.
    pub(crate) wanted: Intervals,
    /// The intervals in sent packets.
    pub(crate) advertised: Intervals,
    /// The intervals that the local timers use.
    pub(crate) effective: Intervals,
    pub(crate) poll: Poll,
    /// Whether another Poll Sequence follows, because the current one may end without the newest packet.
    pub(crate) polls_again: bool,
    /// When the first and the last packet with the P bit were sent since the Poll Sequence was idle.
    pub(crate) polls_sent: Option<(Instant, Instant)>,
    /// bfd.RemoteMinRxInterval.
    pub(crate) remote_min_rx_us: u32,
    /// The last received Desired Min TX Interval.
    pub(crate) remote_min_tx_us: u32,
    /// The last received Detect Mult.
    pub(crate) remote_multiplier: u8,
}

/// The conditions on which a change of intervals depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// Whether the session is Up.
    pub(crate) is_up: bool,
    /// Whether the remote system can answer a poll: its discriminator is known.
    pub(crate) has_remote: bool,
}

impl Timing {
    pub(crate) const fn new(intervals: Intervals) -> Self {
        Self {
            wanted: intervals,
            advertised: intervals,
            effective: intervals,
            poll: Poll::Idle,
            polls_again: false,
            polls_sent: None,
            remote_min_rx_us: 1, // RFC 5880 §6.8.1
            remote_min_tx_us: 0,
            remote_multiplier: 0,
        }
    }

    /// Returns the same with other times.
    pub(crate) fn with_times(&self, change: impl Fn(Instant) -> Instant) -> Self {
        let mut timing = self.clone();
        if let Poll::Ended { until } = &mut timing.poll {
            *until = change(*until);
        }
        timing.polls_sent = self
            .polls_sent
            .map(|(first, last)| (change(first), change(last)));
        timing
    }

    /// Returns whether a packet of the remote system was received.
    pub(crate) const fn has_remote(&self) -> bool {
        self.remote_multiplier > 0
    }

    /// Returns the last time of a Poll Sequence.
    pub(crate) fn last_poll(&self) -> Option<Instant> {
        let until = match self.poll {
            Poll::Ended { until } => Some(until),
            _ => None,
        };
        until.max(self.polls_sent.map(|(_, last)| last))
    }

    /// Returns the least interval of the local system.
    pub(crate) fn least_interval_us(&self) -> u32 {
        let all = [self.wanted, self.advertised, self.effective];
        let least = all.map(|one| one.desired_min_tx_us.min(one.required_min_rx_us));
        least.into_iter().fold(u32::MAX, u32::min)
    }

    /// Returns the intervals in sent packets.
    pub(crate) const fn advertised(&self) -> Intervals {
        self.advertised
    }

    /// Returns whether packets have the P bit.
    pub(crate) const fn is_polling(&self) -> bool {
        matches!(self.poll, Poll::Active { .. })
    }

    /// Records that a packet with the P bit was sent.
    pub(crate) fn poll_sent(&mut self, now: Instant) {
        self.poll = Poll::Active { sent: true };
        let (first, _) = self.polls_sent.unwrap_or((now, now));
        self.polls_sent = Some((first, now));
    }

    /// Starts a Poll Sequence without a change of intervals. After one with sent packets, it starts when no
    /// Final of that one can be on its way any more: such a Final does not answer the next packet.
    pub(crate) const fn start_poll(&mut self) {
        match self.poll {
            Poll::Idle => self.poll = Poll::Active { sent: false },
            Poll::Active { sent: false } => {}
            Poll::Active { sent: true } | Poll::Ended { .. } => self.polls_again = true,
        }
    }

    /// Sets the wanted intervals. Returns whether the contents of packets change now.
    pub(crate) fn want(&mut self, wanted: Intervals, conditions: Conditions) -> bool {
        self.wanted = wanted;
        self.advance(conditions)
    }

    /// Advertises the wanted intervals as soon as RFC 5880 §6.8.3 permits it.
    fn advance(&mut self, conditions: Conditions) -> bool {
        let Conditions { is_up, has_remote } = conditions;
        if !is_up {
            self.effective = self.wanted;
        }
        let must_wait = is_up && self.poll != Poll::Idle;
        if self.wanted == self.advertised || must_wait {
            return false;
        }
        self.advertised = self.wanted;
        if is_up {
            // Other changes are applied immediately. A slower transmission and a shorter detection
            // time wait until the remote system has confirmed the change.
            let (now, wanted) = (&mut self.effective, self.wanted);
            now.desired_min_tx_us = now.desired_min_tx_us.min(wanted.desired_min_tx_us);
            now.required_min_rx_us = now.required_min_rx_us.max(wanted.required_min_rx_us);
        }
        self.poll = match has_remote {
            true => Poll::Active { sent: false },
            false => Poll::Idle,
        };
        true
    }

    /// Stores the intervals of a received packet, and ends a Poll Sequence that it answers. Returns
    /// whether the contents of packets change now.
    pub(crate) fn received(
        &mut self,
        now: Instant,
        remote: Remote,
        conditions: Conditions,
    ) -> bool {
        self.remote_min_rx_us = remote.required_min_rx_us;
        self.remote_min_tx_us = remote.desired_min_tx_us;
        self.remote_multiplier = remote.multiplier.get();
        match (self.poll, remote.is_final) {
            (Poll::Active { sent: true }, true) => {
                // The Final answers the first packet with the P bit or a later one, so that this is at
                // least the time of a round trip.
                let (first, last) = self.polls_sent.unwrap_or((now, now));
                let until = last + (now - first).min(ROUND_TRIP_MAX);
                self.poll = Poll::Ended { until };
                self.effective = self.advertised;
                false
            }
            (Poll::Ended { until }, false) if now >= until => {
                self.poll = Poll::Idle;
                self.polls_sent = None;
                let is_again = core::mem::take(&mut self.polls_again);
                if !self.advance(conditions) && is_again && conditions.is_up {
                    self.poll = Poll::Active { sent: false };
                }
                self.is_polling()
            }
            _ => false,
        }
    }

    /// Forgets the remote system (RFC 5880 §6.8.18).
    pub(crate) const fn forget(&mut self) {
        self.poll = Poll::Idle;
        self.polls_again = false;
        self.polls_sent = None;
        self.remote_min_rx_us = 1;
        self.remote_min_tx_us = 0;
        self.remote_multiplier = 0;
    }

    /// Returns the transmit interval before jitter (RFC 5880 §6.8.2); `None` if the remote system
    /// wishes to receive no periodic packets.
    pub(crate) fn transmit_interval(&self) -> Option<Duration> {
        self.interval_with(self.effective.desired_min_tx_us)
    }

    /// Returns the transmit interval with another wanted one.
    pub(crate) fn interval_with(&self, desired_min_tx_us: u32) -> Option<Duration> {
        let interval_us = desired_min_tx_us.max(self.remote_min_rx_us);
        (self.remote_min_rx_us > 0).then(|| Duration::from_micros(interval_us.into()))
    }

    /// Returns the wanted transmit interval in effect.
    pub(crate) const fn desired_min_tx_us(&self) -> u32 {
        self.effective.desired_min_tx_us
    }

    /// Returns the detection time (RFC 5880 §6.8.4); zero before the first packet.
    pub(crate) fn detection_time(&self) -> Duration {
        let interval_us = self.effective.required_min_rx_us.max(self.remote_min_tx_us);
        Duration::from_micros(interval_us.into()) * u32::from(self.remote_multiplier)
    }
}

/// The timing parameters of a received packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) desired_min_tx_us: u32,
    pub(crate) required_min_rx_us: u32,
    pub(crate) multiplier: NonZeroU8,
    pub(crate) is_final: bool,
}

/// Returns the interval less its jitter (RFC 5880 §6.8.7). `random` decides between the bounds.
pub(crate) fn jittered(interval: Duration, multiplier: NonZeroU8, random: u64) -> Duration {
    let percent_min = match multiplier.get() {
        1 => JITTER_PERCENT_MIN_SINGLE,
        _ => 0,
    };
    let range = JITTER_PERCENT_MAX - percent_min;
    let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    let percent = nanos / 100;
    // At most 2^32 µs are less than 2^42 ns, so that no product exceeds 64 bits.
    let steps = random % (JITTER_STEPS + 1);
    let spread = percent.saturating_mul(range).saturating_mul(steps) / JITTER_STEPS;
    Duration::from_nanos(nanos - percent * percent_min - spread)
}

#[cfg(test)]
mod tests;
