//! The transmission of packets (RFC 5880 §6.8.7).

use crate::auth::AuthSection;
use crate::config::Role;
use crate::encoded::Encoded;
use crate::packet::Packet;
use crate::random::Random;
use crate::session::Session;
use crate::table::State;
use crate::timing::jittered;
use crate::{Duration, Instant};

impl Session {
    /// Returns the packet that is due at `now`, if any. Call it until it returns `None`; a call
    /// returns at most two packets at the same instant.
    pub fn transmit(&mut self, now: Instant, random: &mut impl Random) -> Option<Encoded> {
        if self.answer_at.is_some_and(|at| at <= now) {
            self.answer_at = None;
            self.answered(now);
            return Some(self.packet(now, true));
        }
        if self.next_regular()? > now {
            return None;
        }
        if self.send_at.take().is_some() {
            self.urgent.count(now);
        }
        self.limit_repeat(now);
        self.last_sent = Some(now);
        self.jitter = random.next_u64();
        Some(self.packet(now, false))
    }

    /// Records an answer: it has the new contents, so that no other packet is due for them. Only the P bit
    /// needs a packet of its own.
    fn answered(&mut self, now: Instant) {
        if !self.timing.is_polling() && self.send_at.take().is_some() {
            self.limit_repeat(now);
            self.last_sent.get_or_insert(now);
        }
    }

    /// Sets the end of the repetition of AdminDown at its first packet: the remote system declares the
    /// session down at the latest then.
    fn limit_repeat(&mut self, now: Instant) {
        if let Some(repeat) = self.repeat.as_mut().filter(|one| one.until.is_none()) {
            let desired_us = repeat.desired_min_tx_us;
            let interval = self.timing.interval_with(desired_us);
            let interval = interval.unwrap_or_else(|| Duration::from_micros(desired_us.into()));
            let multiplier = u32::from(self.config.detect_multiplier.get());
            repeat.until = Some(now + interval * multiplier);
        }
    }

    /// Returns whether a packet with the current state was sent, or none can be.
    pub(crate) fn has_sent_state(&self) -> bool {
        self.send_at.is_none() || self.next_regular().is_none()
    }

    /// Returns when the next packet is due, if any.
    #[must_use]
    pub fn next_transmit(&self) -> Option<Instant> {
        let times = [self.answer_at, self.next_regular()];
        times.into_iter().flatten().min()
    }

    /// Returns when the next packet without the F bit is due.
    fn next_regular(&self) -> Option<Instant> {
        // RFC 5880 §6.1, §6.8.7: a passive system waits for the first packet.
        if self.config.role == Role::Passive && self.remote.is_none() {
            return None;
        }
        let urgent = self.send_at.map(|at| match self.state {
            State::Up | State::AdminDown => at,
            State::Down | State::Init => at.max(self.urgent.permits_at()),
        });
        [urgent, self.next_periodic()].into_iter().flatten().min()
    }

    /// Returns when the next periodic packet is due.
    fn next_periodic(&self) -> Option<Instant> {
        let interval = self.timing.transmit_interval()?;
        let is_up = self.state == State::Up && self.remote_state == State::Up;
        if self.remote_demand && is_up && !self.timing.is_polling() {
            return None;
        }
        let last = self.last_sent?;
        let after =
            |interval| last + jittered(interval, self.config.detect_multiplier, self.jitter);
        let repeated = self
            .repeat
            .filter(|_| self.state == State::AdminDown)
            .and_then(|repeat| {
                let interval = self.timing.interval_with(repeat.desired_min_tx_us)?;
                let until = repeat.until?;
                Some(after(interval)).filter(|at| *at <= until)
            });
        Some(repeated.unwrap_or_else(|| after(interval)))
    }

    /// Makes a packet. One with the F bit never has the P bit (RFC 5880 §6.5).
    fn packet(&mut self, now: Instant, is_final: bool) -> Encoded {
        let poll = !is_final && self.timing.is_polling();
        if poll {
            self.timing.poll_sent(now);
        }
        self.stats.sent += 1;
        let intervals = self.timing.advertised();
        let packet = Packet {
            diagnostic: self.diagnostic,
            state: self.state,
            poll,
            is_final,
            control_plane_independent: self.config.control_plane_independent,
            demand: false,
            detect_multiplier: self.config.detect_multiplier,
            my_discriminator: self.local,
            your_discriminator: self.remote,
            desired_min_tx_us: intervals.desired_min_tx_us,
            required_min_rx_us: intervals.required_min_rx_us,
            required_min_echo_rx_us: 0,
            auth: None,
        };
        let contents = packet.encode();
        let Some(authentication) = &self.config.authentication else {
            return contents;
        };
        let (auth_type, key) = (authentication.auth_type(), authentication.signing_key());
        let number = self.sequence_sent.take(auth_type, contents);
        // Each key of the configuration has a permitted length.
        let auth = AuthSection::unsigned(auth_type, key.id, number, &key.secret).ok();
        Packet { auth, ..packet }.encode_signed(&key.secret)
    }
}
