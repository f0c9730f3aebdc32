//! The reception of a packet (RFC 5880 §6.8.6).

use crate::Instant;
use crate::client::Change;
use crate::discard::Discard;
use crate::packet::Packet;
use crate::session::Session;
use crate::table::{Event, State};
use crate::timing::Remote;

impl Session {
    /// Handles a UDP payload that was read at `now`. The time of its arrival is not known, so that a gap
    /// before it may be a delay of the caller, and is no failure.
    ///
    /// # Errors
    ///
    /// The packet is discarded, and only its counter has changed.
    pub fn receive(&mut self, now: Instant, payload: &[u8]) -> Result<Option<Change>, Discard> {
        self.receive_octets(now, None, payload)
    }

    /// Handles a UDP payload that arrived at `arrived_at`, as the kernel has measured it. If the detection
    /// time has expired before, the session is declared down first, and the packet starts no other
    /// transition. An instant after `now` is treated as `now`.
    ///
    /// # Errors
    ///
    /// The packet is discarded, and only its counter has changed.
    pub fn receive_at(
        &mut self,
        now: Instant,
        arrived_at: Instant,
        payload: &[u8],
    ) -> Result<Option<Change>, Discard> {
        self.receive_octets(now, Some(arrived_at), payload)
    }

    fn receive_octets(
        &mut self,
        now: Instant,
        arrived_at: Option<Instant>,
        payload: &[u8],
    ) -> Result<Option<Change>, Discard> {
        let result = match Packet::decode(payload) {
            Ok(packet) => return self.receive_packet(now, arrived_at, &packet, payload),
            Err(invalid) => Err(invalid.into()),
        };
        self.stats.discarded += 1;
        result
    }

    /// Handles a decoded packet with the octets that it was decoded from.
    pub(crate) fn receive_packet(
        &mut self,
        now: Instant,
        arrived_at: Option<Instant>,
        packet: &Packet,
        payload: &[u8],
    ) -> Result<Option<Change>, Discard> {
        if let Err(discard) = self.accept(now, packet, payload) {
            self.stats.discarded += 1;
            return Err(discard);
        }
        self.stats.received += 1;
        let arrived_at = arrived_at.map(|at| at.min(now));
        let deadline = self.detection_deadline();
        let is_late = arrived_at.is_some_and(|at| deadline.is_some_and(|deadline| deadline <= at));
        let failure = match is_late {
            true => self.apply(now, Event::DetectionTimeExpires),
            false => None,
        };
        let change = self.update(now, arrived_at.unwrap_or(now), packet, is_late);
        Ok(match (failure, change) {
            (Some(Change { from, .. }), Some(change)) => Some(Change { from, ..change }),
            (failure, change) => change.or(failure),
        })
    }

    /// Counts a packet that is discarded because of its arrival.
    pub(crate) const fn count_discarded(&mut self) {
        self.stats.discarded += 1;
    }

    /// Checks the discriminator and the authentication.
    fn accept(&mut self, now: Instant, packet: &Packet, payload: &[u8]) -> Result<(), Discard> {
        if let Some(yours) = packet.your_discriminator.filter(|id| *id != self.local) {
            return Err(Discard::YourDiscriminator(yours.get()));
        }
        let (authentication, section) = match (&self.config.authentication, &packet.auth) {
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err(Discard::AuthUnexpected),
            (Some(_), None) => return Err(Discard::AuthMissing),
            (Some(authentication), Some(section)) => (authentication, section),
        };
        // RFC 5880 §6.7.2 to §6.7.4. The number is stored only if the digest is right: otherwise
        // a forged packet could exclude the remote system.
        let auth_type = section.auth_type();
        if auth_type != authentication.auth_type() {
            return Err(Discard::AuthType(auth_type));
        }
        let Some(key) = authentication.key(section.key_id()) else {
            return Err(Discard::AuthKeyId(section.key_id()));
        };
        let (number, multiplier) = (section.sequence(), packet.detect_multiplier.get());
        let window = &mut self.sequence_received;
        if !window.accepts(now, auth_type, number, multiplier) {
            return Err(Discard::AuthSequence(number));
        }
        let length = payload.get(3).copied().map_or(0, usize::from);
        let octets = payload.get(..length).unwrap_or_default();
        if !section.is_made_by(octets, &key.secret) {
            return Err(Discard::AuthValue);
        }
        window.store(number);
        Ok(())
    }

    /// Updates the variables in the order of RFC 5880 §6.8.6.
    fn update(
        &mut self,
        now: Instant,
        arrived_at: Instant,
        packet: &Packet,
        is_late: bool,
    ) -> Option<Change> {
        self.remote = Some(packet.my_discriminator);
        self.remote_state = packet.state;
        if packet.state != State::Up {
            self.repeat = None;
        }
        let signals = packet.diagnostic != self.remote_diagnostic;
        self.remote_diagnostic = packet.diagnostic;
        self.remote_demand = packet.demand;
        self.remote_independent = packet.control_plane_independent;
        let remote = Remote {
            desired_min_tx_us: packet.desired_min_tx_us,
            required_min_rx_us: packet.required_min_rx_us,
            multiplier: packet.detect_multiplier,
            is_final: packet.is_final,
        };
        let conditions = self.conditions();
        if self.timing.received(now, remote, conditions) {
            self.send(now);
        }
        // A time after `now` is a mistake of the caller, and must not last.
        let last = self.last_received.filter(|last| *last <= now);
        self.last_received = last.max(Some(arrived_at));
        // In AdminDown the packet is discarded here: a poll is not answered.
        if self.state == State::AdminDown {
            return self.enable_if_noticed(now);
        }
        if packet.poll {
            self.answer_at.get_or_insert(now);
        }
        let event = Event::received(packet.state);
        // RFC 5880 §6.8.18: a session that is held down stays Down. One that has failed before this packet
        // starts with the next one, so that an input has one change.
        let starts = matches!(event, Event::ReceivedDown | Event::ReceivedInit);
        if (self.held || is_late) && self.state == State::Down && starts {
            return self.stay_down(event);
        }
        let was_up = self.state == State::Up;
        let change = self.apply(now, event);
        // RFC 5880 §6.8.17: a path behind the remote system has failed, or works again.
        change.or_else(|| (was_up && signals).then(|| self.change_from(State::Up)))
    }
}
