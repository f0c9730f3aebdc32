//! One session: its variables (RFC 5880 §6.8.1) and its commands.

use core::num::NonZeroU8;

use crate::client::{Change, Liveness, Side};
use crate::config::{ConfigError, SessionConfig};
use crate::diagnostic::Diagnostic;
use crate::limits::{SEQUENCE_KNOWN_TIMES, SLOW_INTERVAL_US};
use crate::packet::Discriminator;
use crate::random::Random;
use crate::sequence;
use crate::table::{Action, Event, State, row};
use crate::timing::{Conditions, Intervals, Timing};
use crate::urgent::Urgent;
use crate::{Duration, Instant};

/// The state of a path that continues the monitored one (RFC 5880 §6.8.17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcatenatedPath {
    /// It works.
    Works,
    /// It is down in the direction away from the remote system.
    DownForward,
    /// It is down in the direction towards the remote system.
    DownReverse,
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Sent packets.
    pub sent: u64,
    /// Received packets that were accepted.
    pub received: u64,
    /// Received packets that were discarded.
    pub discarded: u64,
    /// Transitions to Up.
    pub ups: u64,
    /// Transitions from Up to another state.
    pub downs: u64,
}

/// The repetition of AdminDown at the former transmit interval, so that a lost packet does not make a
/// planned shutdown a failure. It ends when a packet shows that the remote system has left Up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeat {
    /// The wanted transmit interval in effect before.
    pub(crate) desired_min_tx_us: u32,
    /// One detection time of the remote system after the first packet; `None` before it.
    pub(crate) until: Option<Instant>,
}

/// A session with one remote system, in asynchronous mode.
///
/// Each input returns the change that it causes, if any. The caller sends each packet that
/// [`Session::transmit`] returns, and calls [`Session::handle_timeout`] and then `transmit` at
/// [`Session::poll_timeout`].
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) config: SessionConfig,
    pub(crate) local: Discriminator,
    /// bfd.RemoteDiscr; `None` is zero.
    pub(crate) remote: Option<Discriminator>,
    pub(crate) state: State,
    pub(crate) diagnostic: Diagnostic,
    pub(crate) remote_state: State,
    pub(crate) remote_diagnostic: Diagnostic,
    pub(crate) remote_demand: bool,
    pub(crate) remote_independent: bool,
    pub(crate) timing: Timing,
    pub(crate) repeat: Option<Repeat>,
    /// Whether the session is enabled as soon as AdminDown is repeated no longer.
    pub(crate) enables: bool,
    /// Whether the session is kept down (RFC 5880 §6.8.18).
    pub(crate) held: bool,
    pub(crate) liveness: Liveness,
    pub(crate) was_up: bool,
    pub(crate) last_received: Option<Instant>,
    /// When the last packet without the F bit was sent.
    pub(crate) last_sent: Option<Instant>,
    /// Decides about the jitter of the next packet.
    pub(crate) jitter: u64,
    /// Since when a packet is due because its contents have changed.
    pub(crate) send_at: Option<Instant>,
    pub(crate) urgent: Urgent,
    /// Since when a packet with the F bit is due.
    pub(crate) answer_at: Option<Instant>,
    pub(crate) sequence_received: sequence::Received,
    pub(crate) sequence_sent: sequence::Sent,
    pub(crate) stats: Stats,
}

impl Session {
    /// Makes a session in the state Down. An active one sends its first packet at once.
    ///
    /// # Errors
    ///
    /// The configuration is invalid.
    pub fn new(
        now: Instant,
        config: SessionConfig,
        local: Discriminator,
        random: &mut impl Random,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let timing = Timing::new(intervals(&config, State::Down));
        Ok(Self {
            config,
            local,
            remote: None,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            remote_state: State::Down,
            remote_diagnostic: Diagnostic::NONE,
            remote_demand: false,
            remote_independent: false,
            timing,
            repeat: None,
            enables: false,
            held: false,
            liveness: Liveness::Unknown,
            was_up: false,
            last_received: None,
            last_sent: None,
            jitter: random.next_u64(),
            send_at: Some(now),
            urgent: Urgent::default(),
            answer_at: None,
            sequence_received: sequence::Received::default(),
            sequence_sent: sequence::Sent::new(random.next_u64() as u32),
            stats: Stats::default(),
        })
    }

    /// Applies another configuration. A session that is Up stays Up: intervals change by a Poll
    /// Sequence (RFC 5880 §6.8.3). Keys are changed without a loss if both systems accept the key
    /// that signs.
    ///
    /// # Errors
    ///
    /// The configuration is invalid. The former one stays in effect.
    pub fn configure(&mut self, now: Instant, config: SessionConfig) -> Result<(), ConfigError> {
        config.check()?;
        let auth_type = |config: &SessionConfig| {
            let authentication = config.authentication.as_ref();
            authentication.map(crate::config::Authentication::auth_type)
        };
        if auth_type(&config) != auth_type(&self.config) {
            // The numbers of another type are not comparable.
            self.sequence_received = sequence::Received::default();
        }
        let contents =
            |config: &SessionConfig| (config.detect_multiplier, config.control_plane_independent);
        let changes = contents(&config) != contents(&self.config);
        self.config = config;
        if self.adjust() || changes {
            self.send(now);
        }
        Ok(())
    }

    /// Disables the session (RFC 5880 §6.8.16). Packets continue, so that the remote system is
    /// notified even if some of them are lost: at the former interval until the remote system has left Up,
    /// or for its detection time; then as in all states but Up.
    pub fn disable(&mut self, now: Instant) -> Option<Change> {
        self.enables = false;
        self.apply(now, Event::Disable)
    }

    /// Enables a disabled session. While the remote system has not noticed AdminDown, the session stays
    /// in this state, at most for the detection time of the remote system: a packet with Down would be a
    /// failure. The change then follows from [`Session::receive`] or [`Session::handle_timeout`].
    pub fn enable(&mut self, now: Instant) -> Option<Change> {
        self.enables = true;
        self.enable_if_noticed(now)
    }

    /// Enables the session that waits for it, if AdminDown is repeated no longer.
    pub(crate) fn enable_if_noticed(&mut self, now: Instant) -> Option<Change> {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let must_wait = self.repeat.is_some_and(|repeat| !is_over(repeat.until));
        let is_disabled = self.state == State::AdminDown;
        if !self.enables || (is_disabled && must_wait) {
            return None;
        }
        self.enables = false;
        self.repeat = None;
        self.apply(now, Event::Enable)
    }

    /// Continues a removed session as one that was just made: with the same discriminator and sequence
    /// numbers, so that the remote system accepts its packets.
    pub(crate) fn revive(
        &mut self,
        now: Instant,
        config: SessionConfig,
    ) -> Result<(), ConfigError> {
        self.configure(now, config)?;
        self.held = false;
        self.stats = Stats::default();
        self.was_up = false;
        self.enable(now);
        Ok(())
    }

    /// Keeps a session that is Down in this state, or permits it to come Up (RFC 5880 §6.8.18). A
    /// session in another state is kept down after its next failure.
    pub const fn hold_down(&mut self, held: bool) {
        self.held = held;
    }

    /// Signals the state of a concatenated path (RFC 5880 §6.8.17). Returns `false` if the session
    /// is not Up: then signal it again when it is.
    pub fn signal(&mut self, now: Instant, path: ConcatenatedPath) -> bool {
        if self.state != State::Up {
            return false;
        }
        self.diagnostic = match path {
            ConcatenatedPath::Works => Diagnostic::NONE,
            ConcatenatedPath::DownForward => Diagnostic::CONCATENATED_PATH_DOWN,
            ConcatenatedPath::DownReverse => Diagnostic::REVERSE_CONCATENATED_PATH_DOWN,
        };
        if self.remote_demand {
            self.timing.start_poll();
        }
        self.send(now);
        true
    }

    /// Declares the session down if its detection time has expired.
    ///
    /// Pass all packets that were received before this call, so that a program that was stopped for
    /// a while does not take its own delay for a failure of the path.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Change> {
        let is_expired = self.detection_deadline().is_some_and(|at| at <= now);
        let change = match is_expired {
            true => self.apply(now, Event::DetectionTimeExpires),
            false => None,
        };
        change.or_else(|| self.enable_if_noticed(now))
    }

    /// Returns when [`Session::handle_timeout`] and [`Session::transmit`] must be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let enables = self.repeat.filter(|_| self.enables);
        let times = [
            self.detection_deadline(),
            self.next_transmit(),
            enables.and_then(|repeat| repeat.until),
        ];
        times.into_iter().flatten().min()
    }

    /// Returns when the detection time expires unless a packet is received.
    #[must_use]
    pub fn detection_deadline(&self) -> Option<Instant> {
        Some(self.last_received? + self.timing.detection_time())
    }

    /// Performs the row of the table. Returns a change that clients are notified of.
    pub(crate) fn apply(&mut self, now: Instant, event: Event) -> Option<Change> {
        let (from, liveness) = (self.state, self.liveness);
        let row = row(from, event);
        self.state = row.to;
        for action in row.actions {
            match action {
                Action::DiagnoseExpired => self.diagnostic = Diagnostic::DETECTION_TIME_EXPIRED,
                Action::DiagnoseNeighbor => self.diagnostic = Diagnostic::NEIGHBOR_SIGNALED_DOWN,
                Action::DiagnoseAdministrative => {
                    self.diagnostic = Diagnostic::ADMINISTRATIVELY_DOWN;
                }
                Action::Forget => self.forget(),
                Action::Repeat => self.repeat(),
                Action::Accelerate | Action::Slow => {
                    self.adjust();
                }
                Action::Send => self.send(now),
            }
        }
        self.reflect(from, event);
        self.stats.ups += u64::from(from != State::Up && self.state == State::Up);
        self.stats.downs += u64::from(from == State::Up && self.state != State::Up);
        self.was_up |= self.state == State::Up;
        let changed = (from, liveness) != (self.state, self.liveness);
        changed.then(|| self.change_from(from))
    }

    /// Handles an event that starts a session, in one that stays Down: the remote system is enabled.
    pub(crate) fn stay_down(&mut self, event: Event) -> Option<Change> {
        let liveness = self.liveness;
        self.reflect(State::Down, event);
        (liveness != self.liveness).then(|| self.change_from(State::Down))
    }

    /// Returns the change from a state to the current one.
    pub(crate) const fn change_from(&self, from: State) -> Change {
        Change {
            from,
            to: self.state,
            liveness: self.liveness,
            was_up: self.was_up,
            diagnostic: self.diagnostic,
            remote_diagnostic: self.remote_diagnostic,
        }
    }

    /// Sets the result for clients after a transition (RFC 5882 §3.2, §4.2, §4.3.2).
    fn reflect(&mut self, from: State, event: Event) {
        self.liveness = match (from, event, self.state) {
            (_, _, State::Up) => Liveness::Alive,
            (_, _, State::AdminDown) => Liveness::Disabled(Side::Local),
            (State::AdminDown, ..) => Liveness::Unknown,
            (_, Event::ReceivedAdminDown, _) => Liveness::Disabled(Side::Remote),
            (State::Up, ..) => Liveness::Failed {
                diagnostic: self.diagnostic,
                control_plane_independent: self.remote_independent,
            },
            (_, Event::ReceivedDown | Event::ReceivedInit, _)
                if self.liveness == Liveness::Disabled(Side::Remote) =>
            {
                Liveness::Unknown
            }
            _ => self.liveness,
        };
    }

    /// Forgets the remote system: no packet was received for the detection time (RFC 5880 §6.8.1,
    /// §6.8.18).
    fn forget(&mut self) {
        if let Some(last) = self.last_received.take() {
            // RFC 5880 §6.8.1, bfd.AuthSeqKnown: after at least twice the detection time.
            let known = self.timing.detection_time() * SEQUENCE_KNOWN_TIMES;
            self.sequence_received.forget_at(last + known);
        }
        self.remote = None;
        self.remote_state = State::Down;
        self.remote_demand = false;
        self.answer_at = None;
        self.repeat = None;
        self.timing.forget();
    }

    /// Keeps the transmit interval in effect.
    const fn repeat(&mut self) {
        self.repeat = Some(Repeat {
            desired_min_tx_us: self.timing.desired_min_tx_us(),
            until: None,
        });
    }

    /// Uses the intervals of the configuration and of the state. Returns whether packets change now.
    pub(crate) fn adjust(&mut self) -> bool {
        let wanted = intervals(&self.config, self.state);
        self.timing.want(wanted, self.conditions())
    }

    pub(crate) fn conditions(&self) -> Conditions {
        Conditions {
            is_up: self.state == State::Up,
            has_remote: self.remote.is_some(),
        }
    }

    /// Sends a packet at once.
    pub(crate) fn send(&mut self, now: Instant) {
        self.send_at.get_or_insert(now);
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Returns the state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the state in the last received packet; Down before it, and after the detection time.
    #[must_use]
    pub const fn remote_state(&self) -> State {
        self.remote_state
    }

    /// Returns the result for clients.
    #[must_use]
    pub const fn liveness(&self) -> Liveness {
        self.liveness
    }

    /// Returns whether the session was Up at any time since it was made.
    #[must_use]
    pub const fn was_up(&self) -> bool {
        self.was_up
    }

    /// Returns the reason for the last failure, or a signal of [`Session::signal`].
    #[must_use]
    pub const fn diagnostic(&self) -> Diagnostic {
        self.diagnostic
    }

    /// Returns the diagnostic in the last received packet.
    #[must_use]
    pub const fn remote_diagnostic(&self) -> Diagnostic {
        self.remote_diagnostic
    }

    /// Returns the C bit of the last received packet.
    #[must_use]
    pub const fn is_remote_control_plane_independent(&self) -> bool {
        self.remote_independent
    }

    /// Returns the local discriminator.
    #[must_use]
    pub const fn local_discriminator(&self) -> Discriminator {
        self.local
    }

    /// Returns the discriminator of the remote system, if it is known.
    #[must_use]
    pub const fn remote_discriminator(&self) -> Option<Discriminator> {
        self.remote
    }

    /// Returns the detection multiplier in sent packets.
    #[must_use]
    pub const fn detect_multiplier(&self) -> NonZeroU8 {
        self.config.detect_multiplier
    }

    /// Returns the transmit interval before jitter; `None` if the remote system wishes to receive no
    /// periodic packets. [`Session::disable`] does not lengthen it at once.
    #[must_use]
    pub fn transmit_interval(&self) -> Option<Duration> {
        self.timing.transmit_interval()
    }

    /// Returns the detection time; zero while the remote system is unknown.
    #[must_use]
    pub fn detection_time(&self) -> Duration {
        self.timing.detection_time()
    }

    /// Returns whether a Poll Sequence is active.
    #[must_use]
    pub const fn is_polling(&self) -> bool {
        self.timing.is_polling()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }
}

/// Returns the intervals of a session in `state` (RFC 5880 §6.8.3).
fn intervals(config: &SessionConfig, state: State) -> Intervals {
    let desired_min_tx_us = match state {
        State::Up => config.desired_min_tx_us,
        _ => {
            let least = config.desired_min_tx_us.max(SLOW_INTERVAL_US);
            config.idle_tx_us.max(least)
        }
    };
    Intervals {
        desired_min_tx_us,
        required_min_rx_us: config.required_min_rx_us,
    }
}

#[cfg(test)]
mod tests;
