//! The export of a session to another process, for an upgrade without a failure.

use alloc::vec::Vec;
use core::num::NonZeroU8;

use crate::client::{Liveness, Side};
use crate::config::{ConfigError, SessionConfig};
use crate::diagnostic::Diagnostic;
use crate::limits::{INTERVAL_US_MIN, ROUND_TRIP_MAX, SNAPSHOT_VERSION};
use crate::packet::Discriminator;
use crate::random::Random;
use crate::sequence;
use crate::session::{Repeat, Session};
use crate::table::State;
use crate::timing::{Intervals, Poll, Timing};
use crate::{Duration, Instant};

/// The variables of a session without its configuration, its keys and its counters. Its times are relative
/// to the instant of [`Session::snapshot`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// Times are relative to [`EPOCH`].
    variables: Variables,
    /// The time since the snapshot.
    age: Duration,
}

/// The variables of a session that another process continues.
#[derive(Clone, Debug)]
struct Variables {
    local: Discriminator,
    remote: Option<Discriminator>,
    state: State,
    remote_state: State,
    diagnostic: Diagnostic,
    remote_diagnostic: Diagnostic,
    remote_demand: bool,
    remote_independent: bool,
    /// The code of the type of authentication; 0 for none.
    auth_type: u8,
    held: bool,
    was_up: bool,
    enables: bool,
    liveness: Liveness,
    repeat: Option<Repeat>,
    last_received: Option<Instant>,
    last_sent: Option<Instant>,
    answer_at: Option<Instant>,
    timing: Timing,
    sequence_received: sequence::Received,
    /// The last sent sequence number.
    sequence_sent: u32,
}

/// The instant of a snapshot in its own times: the middle of all instants.
const EPOCH: Instant = Instant(1 << 63);

/// The longest repetition of AdminDown: the greatest interval and multiplier.
const REPEAT_MAX: Duration = Duration::from_micros((u32::MAX as u64) * (u8::MAX as u64));

/// A reason to reject a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It was encoded by a version of the crate with another format.
    #[error("a snapshot of the format {0}: this version reads {SNAPSHOT_VERSION}")]
    Version(u8),
    /// It is too short or too long.
    #[error("a snapshot is truncated, or has octets after its end")]
    Length,
    /// A field has a value that is not defined.
    #[error("a snapshot has an undefined value in the field {0}")]
    Value(&'static str),
    /// Two fields contradict each other.
    #[error("a snapshot has a contradiction: {0}")]
    Contradiction(&'static str),
}

/// A reason not to continue a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The snapshot is invalid.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

impl Session {
    /// Returns the variables of the session, for [`Session::restore`] in another process. Take it after
    /// all packets that are due were sent.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let shifted = |at| shift(at, now, EPOCH);
        Snapshot {
            variables: Variables {
                local: self.local,
                remote: self.remote,
                state: self.state,
                remote_state: self.remote_state,
                diagnostic: self.diagnostic,
                remote_diagnostic: self.remote_diagnostic,
                remote_demand: self.remote_demand,
                remote_independent: self.remote_independent,
                auth_type: code_of(self.config()),
                held: self.held,
                was_up: self.was_up,
                enables: self.enables,
                liveness: self.liveness,
                repeat: self.repeat.map(|repeat| Repeat {
                    until: repeat.until.map(shifted),
                    ..repeat
                }),
                last_received: self.last_received.map(shifted),
                last_sent: self.last_sent.map(shifted),
                answer_at: self.answer_at.map(shifted),
                timing: self.timing.with_times(shifted),
                sequence_received: self.sequence_received.with_times(shifted),
                sequence_sent: self.sequence_sent.last(),
            },
            age: Duration::ZERO,
        }
    }

    /// Continues a session of another process, as it was at its [`Session::snapshot`]. The origin of `now`
    /// must be earlier than the detection time, such as the start of the system: times before it are lost.
    ///
    /// A packet is sent at once. Sequence numbers skip as many as the detection multiplier, for packets
    /// that were sent after the snapshot. A changed configuration is applied as by
    /// [`Session::configure`]. Counters start at zero.
    ///
    /// # Errors
    ///
    /// The configuration or the snapshot is invalid.
    pub fn restore(
        now: Instant,
        config: SessionConfig,
        snapshot: &Snapshot,
        random: &mut impl Random,
    ) -> Result<Self, RestoreError> {
        let from = &snapshot.variables;
        from.check()?;
        let mut session = Self::new(now, config, from.local, random)?;
        let taken_at = EPOCH + snapshot.age;
        let shifted = |at| shift(at, taken_at, now);
        session.remote = from.remote;
        session.state = from.state;
        session.remote_state = from.remote_state;
        session.diagnostic = from.diagnostic;
        session.remote_diagnostic = from.remote_diagnostic;
        session.remote_demand = from.remote_demand;
        session.remote_independent = from.remote_independent;
        session.held = from.held;
        session.enables = from.enables;
        session.was_up = from.was_up;
        session.liveness = from.liveness;
        session.repeat = from.repeat.map(|repeat| Repeat {
            until: repeat.until.map(shifted),
            ..repeat
        });
        session.last_received = from.last_received.map(shifted);
        session.last_sent = from.last_sent.map(shifted);
        session.answer_at = from.answer_at.map(|at| shifted(at).min(now));
        session.timing = from.timing.with_times(shifted);
        // The numbers of another type are not comparable.
        if from.auth_type == code_of(session.config()) {
            session.sequence_received = from.sequence_received.with_times(shifted);
        }
        let skipped = u32::from(session.detect_multiplier().get());
        session.sequence_sent = sequence::Sent::new(from.sequence_sent.wrapping_add(skipped));
        session.adjust();
        Ok(session)
    }
}

/// Returns the code of the type of authentication; 0 for none.
fn code_of(config: &SessionConfig) -> u8 {
    let authentication = config.authentication.as_ref();
    authentication.map_or(0, |authentication| authentication.auth_type().code())
}

/// Moves an instant from one origin to another; one before the origin of all instants is that origin.
fn shift(at: Instant, from: Instant, to: Instant) -> Instant {
    match at >= from {
        true => to + (at - from),
        false => Instant(to.0.saturating_sub(from.0 - at.0)),
    }
}

impl Variables {
    /// Checks what holds in every session.
    fn check(&self) -> Result<(), SnapshotError> {
        let has_remote = self.remote.is_some();
        let is_up = self.state == State::Up;
        let is_disabled = self.state == State::AdminDown;
        let starts = matches!(self.state, State::Init | State::Up);
        let failed = matches!(self.liveness, Liveness::Failed { .. });
        let is_past = |at: Option<Instant>| at.is_none_or(|at| at <= EPOCH);
        let rules = [
            (starts && !has_remote, "a state without a remote system"),
            (
                has_remote != self.last_received.is_some(),
                "no time of the last packet",
            ),
            (
                has_remote != self.timing.has_remote(),
                "no intervals of the remote system",
            ),
            (
                is_up != (self.liveness == Liveness::Alive),
                "liveness and state",
            ),
            (
                is_disabled != (self.liveness == Liveness::Disabled(Side::Local)),
                "a disabled session",
            ),
            (
                (is_up || failed) && !self.was_up,
                "a session that was never up",
            ),
            (
                self.repeat.is_some() && !(is_disabled && has_remote),
                "a repetition of AdminDown",
            ),
            (
                self.enables && self.repeat.is_none(),
                "no repetition to wait for",
            ),
            (
                !is_past(self.last_received) || !is_past(self.last_sent),
                "a packet of the future",
            ),
            (
                self.timing.is_polling() && !has_remote,
                "a poll without a remote system",
            ),
            (
                self.timing
                    .last_poll()
                    .is_some_and(|at| at > EPOCH + ROUND_TRIP_MAX),
                "a poll of the future",
            ),
            (
                self.repeat.and_then(|repeat| repeat.until) > Some(EPOCH + REPEAT_MAX),
                "a long repetition",
            ),
            (
                self.least_interval_us() < INTERVAL_US_MIN,
                "a too short interval",
            ),
        ];
        match rules.iter().find(|(is_broken, _)| *is_broken) {
            Some((_, rule)) => Err(SnapshotError::Contradiction(rule)),
            None => Ok(()),
        }
    }

    fn least_interval_us(&self) -> u32 {
        let repeated_us = self
            .repeat
            .map_or(u32::MAX, |repeat| repeat.desired_min_tx_us);
        self.timing.least_interval_us().min(repeated_us)
    }
}

impl Snapshot {
    /// Returns the snapshot after this time, so that detection does not take longer. Without it, no time
    /// passes between [`Session::snapshot`] and [`Session::restore`].
    #[must_use]
    pub fn aged(mut self, time: Duration) -> Self {
        self.age = self.age.saturating_add(time);
        self
    }

    /// Returns the local discriminator.
    #[must_use]
    pub const fn local_discriminator(&self) -> Discriminator {
        self.variables.local
    }

    /// Returns the state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.variables.state
    }

    /// Encodes the snapshot for [`Snapshot::decode`] of any version with the same
    /// [`SNAPSHOT_VERSION`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let from = &self.variables;
        let mut out = Writer(Vec::from([SNAPSHOT_VERSION]));
        out.word(from.local.get());
        out.word(from.remote.map_or(0, Discriminator::get));
        out.octet(from.state.bits());
        out.octet(from.remote_state.bits());
        out.octet(from.diagnostic.code());
        out.octet(from.remote_diagnostic.code());
        let flags = [
            from.remote_demand,
            from.remote_independent,
            from.held,
            from.was_up,
            from.enables,
        ];
        out.octet(from.auth_type);
        for flag in flags {
            out.octet(flag.into());
        }
        out.liveness(from.liveness);
        out.octet(from.repeat.is_some().into());
        if let Some(repeat) = from.repeat {
            out.word(repeat.desired_min_tx_us);
            out.time(repeat.until);
        }
        out.time(from.last_received);
        out.time(from.last_sent);
        out.time(from.answer_at);
        out.timing(&from.timing);
        let (last, known_until) = from.sequence_received.parts();
        out.octet(last.is_some().into());
        out.word(last.unwrap_or(0));
        out.time(known_until);
        out.word(from.sequence_sent);
        let age_ns = u64::try_from(self.age.as_nanos()).unwrap_or(u64::MAX);
        out.0.extend(age_ns.to_be_bytes());
        out.0
    }

    /// Decodes a snapshot.
    ///
    /// # Errors
    ///
    /// The octets have another format, are truncated, or have an invalid value.
    pub fn decode(octets: &[u8]) -> Result<Self, SnapshotError> {
        let mut from = Reader(octets);
        let version = from.octet()?;
        if version != SNAPSHOT_VERSION {
            return Err(SnapshotError::Version(version));
        }
        let local = from.word()?;
        let variables = Variables {
            local: Discriminator::new(local).ok_or(SnapshotError::Value("local discriminator"))?,
            remote: Discriminator::new(from.word()?),
            state: from.state("state")?,
            remote_state: from.state("remote state")?,
            diagnostic: from.diagnostic("diagnostic")?,
            remote_diagnostic: from.diagnostic("remote diagnostic")?,
            auth_type: from.octet()?,
            remote_demand: from.flag("demand")?,
            remote_independent: from.flag("control plane independent")?,
            held: from.flag("held")?,
            was_up: from.flag("was up")?,
            enables: from.flag("enables")?,
            liveness: from.liveness()?,
            repeat: match from.flag("repeat")? {
                true => Some(Repeat {
                    desired_min_tx_us: from.word()?,
                    until: from.time()?,
                }),
                false => None,
            },
            last_received: from.time()?,
            last_sent: from.time()?,
            answer_at: from.time()?,
            timing: from.timing()?,
            sequence_received: from.sequence_received()?,
            sequence_sent: from.word()?,
        };
        let age = Duration::from_nanos(u64::from_be_bytes(from.take()?));
        if !from.0.is_empty() {
            return Err(SnapshotError::Length);
        }
        variables.check()?;
        Ok(Self { variables, age })
    }
}

/// The octets of a snapshot: at most [`crate::limits::SNAPSHOT_OCTETS_MAX`].
struct Writer(Vec<u8>);

impl Writer {
    fn octet(&mut self, octet: u8) {
        self.0.push(octet);
    }

    fn word(&mut self, word: u32) {
        self.0.extend(word.to_be_bytes());
    }

    fn time(&mut self, at: Option<Instant>) {
        self.octet(at.is_some().into());
        self.0.extend(at.unwrap_or_default().0.to_be_bytes());
    }

    fn liveness(&mut self, liveness: Liveness) {
        let octets = match liveness {
            Liveness::Unknown => [0, 0, 0],
            Liveness::Alive => [1, 0, 0],
            Liveness::Failed {
                diagnostic,
                control_plane_independent,
            } => [2, diagnostic.code(), control_plane_independent.into()],
            Liveness::Disabled(Side::Local) => [3, 0, 0],
            Liveness::Disabled(Side::Remote) => [4, 0, 0],
        };
        self.0.extend(octets);
    }

    fn timing(&mut self, timing: &Timing) {
        for intervals in [timing.wanted, timing.advertised, timing.effective] {
            self.word(intervals.desired_min_tx_us);
            self.word(intervals.required_min_rx_us);
        }
        let (code, until) = match timing.poll {
            Poll::Idle => (0, None),
            Poll::Active { sent } => (1 + u8::from(sent), None),
            Poll::Ended { until } => (3, Some(until)),
        };
        self.octet(code);
        self.octet(timing.polls_again.into());
        self.time(until);
        self.time(timing.polls_sent.map(|(first, _)| first));
        self.time(timing.polls_sent.map(|(_, last)| last));
        self.word(timing.remote_min_rx_us);
        self.word(timing.remote_min_tx_us);
        self.octet(timing.remote_multiplier);
    }
}

/// The rest of an encoded snapshot.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let (octets, rest) = self.0.split_first_chunk().ok_or(SnapshotError::Length)?;
        self.0 = rest;
        Ok(*octets)
    }

    fn octet(&mut self) -> Result<u8, SnapshotError> {
        self.take().map(|[octet]| octet)
    }

    fn word(&mut self) -> Result<u32, SnapshotError> {
        self.take().map(u32::from_be_bytes)
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, SnapshotError> {
        match self.octet()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(SnapshotError::Value(field)),
        }
    }

    fn time(&mut self) -> Result<Option<Instant>, SnapshotError> {
        let is_some = self.flag("time")?;
        let at = Instant(u64::from_be_bytes(self.take()?));
        match is_some || at == Instant::ZERO {
            true => Ok(is_some.then_some(at)),
            false => Err(SnapshotError::Value("time")),
        }
    }

    fn state(&mut self, field: &'static str) -> Result<State, SnapshotError> {
        match self.octet()? {
            bits @ 0..4 => Ok(State::from_bits(bits)),
            _ => Err(SnapshotError::Value(field)),
        }
    }

    fn diagnostic(&mut self, field: &'static str) -> Result<Diagnostic, SnapshotError> {
        Diagnostic::from_code(self.octet()?).ok_or(SnapshotError::Value(field))
    }

    fn liveness(&mut self) -> Result<Liveness, SnapshotError> {
        let code = self.octet()?;
        let diagnostic = self.diagnostic("liveness")?;
        let control_plane_independent = self.flag("liveness")?;
        let has_none = diagnostic == Diagnostic::NONE && !control_plane_independent;
        match code {
            2 => Ok(Liveness::Failed {
                diagnostic,
                control_plane_independent,
            }),
            0 if has_none => Ok(Liveness::Unknown),
            1 if has_none => Ok(Liveness::Alive),
            3 if has_none => Ok(Liveness::Disabled(Side::Local)),
            4 if has_none => Ok(Liveness::Disabled(Side::Remote)),
            _ => Err(SnapshotError::Value("liveness")),
        }
    }

    fn intervals(&mut self) -> Result<Intervals, SnapshotError> {
        Ok(Intervals {
            desired_min_tx_us: self.word()?,
            required_min_rx_us: self.word()?,
        })
    }

    fn timing(&mut self) -> Result<Timing, SnapshotError> {
        let (wanted, advertised, effective) =
            (self.intervals()?, self.intervals()?, self.intervals()?);
        let code = self.octet()?;
        let polls_again = self.flag("another poll")?;
        let poll = match (code, self.time()?) {
            (0, None) => Poll::Idle,
            (1, None) => Poll::Active { sent: false },
            (2, None) => Poll::Active { sent: true },
            (3, Some(until)) => Poll::Ended { until },
            _ => return Err(SnapshotError::Value("poll")),
        };
        let polls_sent = match (self.time()?, self.time()?) {
            (None, None) => None,
            (Some(first), Some(last)) if first <= last => Some((first, last)),
            _ => return Err(SnapshotError::Value("sent polls")),
        };
        Ok(Timing {
            wanted,
            advertised,
            effective,
            poll,
            polls_again,
            polls_sent,
            remote_min_rx_us: self.word()?,
            remote_min_tx_us: self.word()?,
            remote_multiplier: NonZeroU8::new(self.octet()?).map_or(0, NonZeroU8::get),
        })
    }

    fn sequence_received(&mut self) -> Result<sequence::Received, SnapshotError> {
        let is_known = self.flag("received sequence number")?;
        let last = self.word()?;
        let known_until = self.time()?;
        if !is_known && last != 0 {
            return Err(SnapshotError::Value("received sequence number"));
        }
        Ok(sequence::Received::from_parts(
            is_known.then_some(last),
            known_until,
        ))
    }
}

#[cfg(test)]
mod tests;
