//! BFD: the codecs take any octets, and a session any sequence of operations.

use bfd::{
    AuthKey, AuthSection, AuthType, Authentication, ConcatenatedPath, Discriminator, Duration,
    Instant, Liveness, Packet, Secret, Seeded, Session, SessionConfig, Snapshot, State,
    limits::SNAPSHOT_OCTETS_MAX,
};

use crate::octets::Octets;

/// Decodes any octets, as a packet and as a snapshot; the result is encoded to octets that decode to the
/// same.
pub fn bfd_packet(data: &[u8]) {
    if let Ok(snapshot) = Snapshot::decode(data) {
        assert_eq!(snapshot.encode(), data);
        let mut random = Seeded::new(1);
        let config = SessionConfig::default();
        let session = Session::restore(Instant::from_secs(9), config, &snapshot, &mut random);
        let mut session = session.expect("a decoded snapshot is consistent");
        let _change = session.handle_timeout(Instant::from_secs(9));
    }
    match Packet::decode(data) {
        Ok(packet) => {
            let encoded = packet.encode();
            assert_eq!(Packet::decode(encoded.octets()), Ok(packet));
        }
        Err(invalid) => assert!(!invalid.to_string().is_empty()),
    }
}

/// Performs the operations that the octets select; checks the invariants after each.
pub fn bfd_session(data: &[u8]) {
    let mut octets = Octets(data);
    let mut random = Seeded::new(u64::from(octets.short()));
    let id = Discriminator::new(11).expect("not zero");
    let config = config(&mut octets);
    let session = Session::new(Instant::ZERO, config, id, &mut random);
    let mut rig = Rig {
        session: session.expect("a valid configuration"),
        random,
        now: Instant::ZERO,
        last: Vec::new(),
    };
    for _ in 0..1000 {
        if octets.is_empty() {
            return;
        }
        rig.operate(&mut octets);
        rig.check();
    }
}

/// Draws a configuration, with authentication in half of all cases.
pub(crate) fn config(octets: &mut Octets<'_>) -> SessionConfig {
    SessionConfig::default().with(|config| {
        config.desired_min_tx_us = 1_000 + u32::from(octets.short()) * 50;
        config.required_min_rx_us = 1_000 + u32::from(octets.short()) * 50;
        config.detect_multiplier = octets.octet().max(1).try_into().expect("not zero");
        let types = AuthType::ALL.get(usize::from(octets.octet() % 10));
        config.authentication = types.map(|auth_type| {
            let key = AuthKey::new(1, Secret::new(b"fuzz").expect("a short key"));
            Authentication::new(*auth_type, &[key]).expect("one key")
        });
    })
}

/// Returns a packet with other flags, multiplier, intervals and Your Discriminator.
pub(crate) fn changed(packet: &[u8], yours: Option<u32>, octets: &mut Octets<'_>) -> Vec<u8> {
    let mut payload = packet.to_vec();
    let changes = [
        (1, octets.octet()),
        (2, octets.octet()),
        (13, octets.octet()),
        (17, octets.octet()),
    ];
    for (at, octet) in changes {
        if let Some(place) = payload.get_mut(at) {
            *place = octet;
        }
    }
    if let Some(place) = payload.get_mut(8..12) {
        place.copy_from_slice(&yours.unwrap_or(0).to_be_bytes());
    }
    payload
}

/// Returns the packet with the authentication of the configuration, so that most are accepted.
pub(crate) fn signed(payload: Vec<u8>, config: &SessionConfig, octets: &mut Octets<'_>) -> Vec<u8> {
    let Some(authentication) = &config.authentication else {
        return payload;
    };
    let skipped = u32::from(octets.octet() % 4);
    // The header alone is decoded, with or without a section.
    let mut header = payload.get(..24).unwrap_or_default().to_vec();
    if let [_, flags, _, length, ..] = &mut *header {
        *flags &= !0x04;
        *length = 24;
    }
    let sequence = match payload.get(28..32) {
        Some(&[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    };
    let Ok(packet) = Packet::decode(&header) else {
        return payload;
    };
    let (auth_type, key) = (authentication.auth_type(), authentication.signing_key());
    let sequence = sequence.wrapping_add(skipped);
    let auth = AuthSection::unsigned(auth_type, key.id, sequence, &key.secret);
    let auth = Some(auth.expect("the key has a permitted length"));
    let packet = Packet { auth, ..packet };
    packet.encode_signed(&key.secret).octets().to_vec()
}

struct Rig {
    session: Session,
    random: Seeded,
    now: Instant,
    /// The last packet of the session.
    last: Vec<u8>,
}

impl Rig {
    fn operate(&mut self, octets: &mut Octets<'_>) {
        let now = self.now;
        match octets.octet() % 12 {
            0 => {
                let length = usize::from(octets.octet() % 64);
                let payload = octets.take(length);
                let _discarded = self.session.receive(now, payload).err();
            }
            1..=3 => self.reflect(octets),
            4 => {
                self.session.disable(now);
            }
            5 => {
                self.session.enable(now);
            }
            6 => {
                let config = config(octets);
                self.session.configure(now, config).expect("valid");
            }
            7 => self.session.hold_down(octets.flag()),
            8 => {
                let path = match octets.flag() {
                    true => ConcatenatedPath::DownForward,
                    false => ConcatenatedPath::Works,
                };
                self.session.signal(now, path);
            }
            9 => self.now += Duration::from_micros(u64::from(octets.short()) * 100),
            10 => self.upgrade(),
            _ => {
                let before = Duration::from_micros(u64::from(octets.short()) * 100);
                let arrived_at = Instant(now.0.saturating_sub(before.as_nanos() as u64));
                let payload = self.last.clone();
                let _discarded = self.session.receive_at(now, arrived_at, &payload).err();
            }
        }
        self.work();
    }

    /// Continues the session in another process.
    fn upgrade(&mut self) {
        let octets = self.session.snapshot(self.now).encode();
        assert!(octets.len() <= SNAPSHOT_OCTETS_MAX);
        let snapshot = Snapshot::decode(&octets).expect("a session has a valid snapshot");
        let config = self.session.config().clone();
        let session = Session::restore(self.now, config, &snapshot, &mut self.random);
        self.session = session.expect("a valid snapshot and configuration");
    }

    /// Passes the session its last packet with a changed header.
    fn reflect(&mut self, octets: &mut Octets<'_>) {
        let payload = changed(&self.last, Some(11), octets);
        let payload = signed(payload, self.session.config(), octets);
        let _discarded = self.session.receive(self.now, &payload).err();
    }

    /// Does all that is due.
    fn work(&mut self) {
        self.session.handle_timeout(self.now);
        for _ in 0..3 {
            let Some(packet) = self.session.transmit(self.now, &mut self.random) else {
                return;
            };
            self.last = packet.octets().to_vec();
            let packet = Packet::decode(&self.last).expect("the session sends valid packets");
            assert!(!(packet.poll && packet.is_final));
        }
        panic!("more than two packets at one instant");
    }

    fn check(&self) {
        let session = &self.session;
        if let Some(next) = session.poll_timeout() {
            assert!(next > self.now, "a deadline that is due stays due");
        }
        let state = session.state();
        assert_eq!(state == State::Up, session.liveness() == Liveness::Alive);
        if matches!(state, State::Init | State::Up) {
            assert!(session.remote_discriminator().is_some());
            assert!(session.detection_deadline().is_some());
        }
        if matches!(session.liveness(), Liveness::Failed { .. }) {
            assert!(session.was_up());
        }
    }
}
