//! BFD: the codec takes any octets, and a session any sequence of operations.

use bfd::{
    AuthKey, AuthType, Authentication, ConcatenatedPath, Discriminator, Duration, Instant,
    Liveness, Packet, Secret, Seeded, Session, SessionConfig, State,
};

use crate::octets::Octets;

/// Decodes any octets; a packet is encoded to octets that decode to the same packet.
pub fn bfd_packet(data: &[u8]) {
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
fn config(octets: &mut Octets<'_>) -> SessionConfig {
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
        match octets.octet() % 10 {
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
            _ => self.now += Duration::from_micros(u64::from(octets.short()) * 100),
        }
        self.work();
    }

    /// Passes the session its last packet with a changed header: most are accepted without
    /// authentication.
    fn reflect(&mut self, octets: &mut Octets<'_>) {
        let mut payload = self.last.clone();
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
        if let Some(yours) = payload.get_mut(8..12) {
            yours.copy_from_slice(&11_u32.to_be_bytes());
        }
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
