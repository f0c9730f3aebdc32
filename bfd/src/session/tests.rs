use std::vec::Vec;

use super::*;
use crate::auth::AuthType;
use crate::config::{AuthKey, Authentication, Role};
use crate::discard::Discard;
use crate::invalid::Invalid;
use crate::packet::Packet;
use crate::random::Seeded;
use crate::secret::Secret;

fn id(number: u32) -> Discriminator {
    Discriminator::new(number).expect("not zero")
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A session with discriminator 1, and packets of a remote system with discriminator 2.
struct Rig {
    session: Session,
    random: Seeded,
    now: Instant,
}

impl Rig {
    fn new(config: SessionConfig) -> Self {
        let mut random = Seeded::new(1);
        let session = Session::new(Instant::ZERO, config, id(1), &mut random);
        Self {
            session: session.expect("a valid configuration"),
            random,
            now: Instant::ZERO,
        }
    }

    /// A session that is Up, at the instant zero, with all packets sent.
    fn up() -> Self {
        let mut rig = Self::new(SessionConfig::default());
        rig.receive(State::Down);
        assert_eq!(rig.session.state(), State::Init);
        let change = rig.receive(State::Init).expect("a change");
        assert_eq!((change.from, change.to), (State::Init, State::Up));
        rig.sent();
        rig
    }

    fn receive(&mut self, state: State) -> Option<Change> {
        self.receive_with(state, |_| {})
    }

    fn receive_with(&mut self, state: State, change: impl FnOnce(&mut Packet)) -> Option<Change> {
        let mut packet = remote(state);
        change(&mut packet);
        let payload = packet.encode();
        let result = self.session.receive(self.now, payload.octets());
        result.expect("an accepted packet")
    }

    /// Returns all packets that are due.
    fn sent(&mut self) -> Vec<Packet> {
        let mut packets = Vec::new();
        while let Some(octets) = self.session.transmit(self.now, &mut self.random) {
            packets.push(Packet::decode(octets.octets()).expect("a valid packet"));
        }
        packets
    }

    fn pass(&mut self, millis: u64) -> Option<Change> {
        self.now += Duration::from_millis(millis);
        self.session.handle_timeout(self.now)
    }
}

/// A packet of the remote system: 100 ms both ways.
fn remote(state: State) -> Packet {
    Packet {
        diagnostic: Diagnostic::NONE,
        state,
        poll: false,
        is_final: false,
        control_plane_independent: false,
        demand: false,
        detect_multiplier: NonZeroU8::new(5).expect("five"),
        my_discriminator: id(2),
        your_discriminator: Some(id(1)),
        desired_min_tx_us: 100_000,
        required_min_rx_us: 100_000,
        required_min_echo_rx_us: 0,
        auth: None,
    }
}

#[test]
fn first_packet_is_sent_at_once_and_next_within_a_second() {
    let mut rig = Rig::new(SessionConfig::default());
    let packets = rig.sent();
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0].state, State::Down);
    assert_eq!(packets[0].your_discriminator, None);
    assert_eq!(packets[0].desired_min_tx_us, 1_000_000);
    assert_eq!(packets[0].required_min_rx_us, 300_000);
    let next = rig.session.poll_timeout().expect("another packet");
    assert!((at(750)..=at(1000)).contains(&next), "{next}");
}

#[test]
fn passive_session_waits_for_the_first_packet() {
    let passive = SessionConfig::default().with(|config| config.role = Role::Passive);
    let mut rig = Rig::new(passive);
    assert_eq!(rig.session.poll_timeout(), None);
    assert!(rig.sent().is_empty());
    rig.receive_with(State::Down, |packet| packet.your_discriminator = None);
    let packets = rig.sent();
    assert_eq!(packets[0].state, State::Init);
    assert_eq!(packets[0].your_discriminator, Some(id(2)));
}

#[test]
fn transition_to_up_accelerates_by_a_poll() {
    let mut rig = Rig::new(SessionConfig::default());
    rig.receive(State::Init);
    let packets = rig.sent();
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0].state, State::Up);
    assert_eq!(packets[0].desired_min_tx_us, 300_000);
    assert!(packets[0].poll);
    let next = rig.session.next_transmit().expect("another packet");
    assert!((at(225)..=at(300)).contains(&next), "{next}");
    rig.receive_with(State::Up, |packet| packet.is_final = true);
    rig.now = at(300);
    assert!(!rig.sent()[0].poll);
}

#[test]
fn detection_time_is_that_of_the_remote_multiplier() {
    let mut rig = Rig::up();
    assert_eq!(rig.session.detection_time(), Duration::from_millis(1500));
    assert_eq!(rig.pass(1499), None);
    assert_eq!(rig.session.state(), State::Up);
    let change = rig.pass(1).expect("the detection time is over");
    assert_eq!((change.from, change.to), (State::Up, State::Down));
    let diagnostic = Diagnostic::DETECTION_TIME_EXPIRED;
    let control_plane_independent = false;
    let failed = Liveness::Failed {
        diagnostic,
        control_plane_independent,
    };
    assert_eq!(change.liveness, failed);
    assert!(change.was_up);
    let packet = rig.sent()[0];
    assert_eq!(packet.diagnostic, diagnostic);
    assert_eq!(packet.your_discriminator, None);
    assert_eq!(packet.desired_min_tx_us, 1_000_000);
    assert!(!packet.poll);
}

#[test]
fn packet_within_the_detection_time_keeps_the_session_up() {
    let mut rig = Rig::up();
    for _ in 0..20 {
        assert_eq!(rig.pass(1499), None);
        assert_eq!(rig.receive(State::Up), None);
    }
    assert_eq!(rig.session.state(), State::Up);
}

#[test]
fn packet_before_a_late_timeout_keeps_the_session_up() {
    let mut rig = Rig::up();
    rig.now = at(4000);
    assert_eq!(rig.receive(State::Up), None);
    assert_eq!(rig.pass(0), None);
    assert_eq!(rig.session.state(), State::Up);
}

#[test]
fn gap_before_a_time_of_arrival_is_a_failure() {
    let receive_at = |rig: &mut Rig, state, millis| {
        let packet = remote(state).encode();
        let result = rig.session.receive_at(rig.now, at(millis), packet.octets());
        result.expect("an accepted packet")
    };
    let mut rig = Rig::up();
    rig.now = at(4000);
    assert_eq!(receive_at(&mut rig, State::Up, 1499), None);
    assert_eq!(rig.session.detection_deadline(), Some(at(2999)));
    let change = receive_at(&mut rig, State::Down, 2999).expect("a failure");
    assert_eq!((change.from, change.to), (State::Up, State::Down));
    assert_eq!(change.diagnostic, Diagnostic::DETECTION_TIME_EXPIRED);
    assert!(matches!(change.liveness, Liveness::Failed { .. }));
    assert_eq!(rig.session.remote_discriminator(), Some(id(2)));
    let change = receive_at(&mut rig, State::Down, 3000).expect("a start");
    assert_eq!((change.from, change.to), (State::Down, State::Init));
    // AdminDown after the gap is the result, and no failure.
    let mut rig = Rig::up();
    rig.now = at(4000);
    let change = receive_at(&mut rig, State::AdminDown, 4000).expect("one change");
    assert_eq!((change.from, change.to), (State::Up, State::Down));
    assert_eq!(change.liveness, Liveness::Disabled(Side::Remote));
}

#[test]
fn time_in_the_future_does_not_outlast_its_packet() {
    let packet = remote(State::Up).encode();
    let mut rig = Rig::up();
    rig.now = at(100);
    let result = rig
        .session
        .receive_at(at(100), at(900_000), packet.octets());
    assert_eq!(result, Ok(None));
    assert_eq!(rig.session.detection_deadline(), Some(at(1600)));
    let result = rig.session.receive(at(900_000), packet.octets());
    assert_eq!(result, Ok(None));
    rig.now = at(200);
    rig.receive(State::Up);
    assert_eq!(rig.session.detection_deadline(), Some(at(1700)));
}

#[test]
fn signaled_failure_has_its_own_diagnostic_and_the_c_bit() {
    let mut rig = Rig::up();
    let change = rig.receive_with(State::Down, |packet| {
        packet.control_plane_independent = true;
        packet.diagnostic = Diagnostic::DETECTION_TIME_EXPIRED;
    });
    let change = change.expect("the session is down");
    let failed = Liveness::Failed {
        diagnostic: Diagnostic::NEIGHBOR_SIGNALED_DOWN,
        control_plane_independent: true,
    };
    assert_eq!(change.liveness, failed);
    let remote = Diagnostic::DETECTION_TIME_EXPIRED;
    assert_eq!(change.remote_diagnostic, remote);
}

#[test]
fn remote_admin_down_is_no_failure() {
    let mut rig = Rig::up();
    let change = rig.receive(State::AdminDown).expect("the session is down");
    assert_eq!(change.to, State::Down);
    assert_eq!(change.liveness, Liveness::Disabled(Side::Remote));
    // The remote system is switched off afterwards.
    assert_eq!(rig.pass(60_000), None);
    let liveness = Liveness::Disabled(Side::Remote);
    assert_eq!(rig.session.liveness(), liveness);
    let change = rig.receive(State::Down).expect("it is enabled again");
    assert_eq!(change.liveness, Liveness::Unknown);
    assert_eq!(change.to, State::Init);
}

#[test]
fn remote_admin_down_after_a_failure_is_reported() {
    let mut rig = Rig::up();
    rig.receive(State::Down);
    let change = rig.receive(State::AdminDown).expect("another result");
    assert_eq!((change.from, change.to), (State::Down, State::Down));
    assert_eq!(change.liveness, Liveness::Disabled(Side::Remote));
}

#[test]
fn session_that_was_never_up_has_not_failed() {
    let mut rig = Rig::new(SessionConfig::default());
    rig.receive(State::Down);
    let change = rig.pass(10_000).expect("Init has a detection time");
    assert_eq!((change.from, change.to), (State::Init, State::Down));
    assert_eq!(change.liveness, Liveness::Unknown);
    assert!(!change.was_up);
    assert!(!rig.session.was_up());
}

#[test]
fn disabled_session_sends_and_ignores_until_enabled() {
    let mut rig = Rig::up();
    let change = rig.session.disable(rig.now).expect("a change");
    assert_eq!(change.to, State::AdminDown);
    assert_eq!(change.liveness, Liveness::Disabled(Side::Local));
    assert_eq!(rig.session.disable(rig.now), None);
    let packet = rig.sent()[0];
    assert_eq!(packet.state, State::AdminDown);
    assert_eq!(packet.diagnostic, Diagnostic::ADMINISTRATIVELY_DOWN);
    for state in State::ALL {
        assert_eq!(rig.receive_with(state, |packet| packet.poll = true), None);
        rig.now += Duration::from_secs(1);
        let packets = rig.sent();
        assert_eq!(packets.len(), 1, "periodic packets continue");
        assert!(!packets[0].is_final);
    }
    let change = rig.session.enable(rig.now).expect("a change");
    assert_eq!((change.from, change.to), (State::AdminDown, State::Down));
    assert_eq!(change.liveness, Liveness::Unknown);
    assert!(change.was_up);
    assert_eq!(rig.sent()[0].state, State::Down);
}

#[test]
fn poll_is_answered_at_once_with_the_final_bit() {
    let mut rig = Rig::up();
    rig.receive_with(State::Up, |packet| packet.poll = true);
    rig.receive_with(State::Up, |packet| packet.poll = true);
    assert_eq!(rig.session.poll_timeout(), Some(rig.now));
    let packets = rig.sent();
    assert_eq!(packets.len(), 1, "polls at one instant have one answer");
    assert!(packets[0].is_final && !packets[0].poll);
    let next = rig.session.next_transmit().expect("periodic packets");
    assert!(next >= at(225), "the answer does not replace a packet");
}

#[test]
fn forged_packets_cause_one_answer_each_and_few_others() {
    for is_polling in [false, true] {
        let mut rig = Rig::new(SessionConfig::default());
        rig.sent();
        if is_polling {
            let changed = SessionConfig::default().with(|config| config.required_min_rx_us *= 2);
            rig.receive(State::AdminDown);
            rig.session.configure(rig.now, changed).expect("valid");
            rig.sent();
            assert!(rig.session.is_polling());
        }
        let (mut finals, mut others) = (0, 0);
        for number in 0..1000_u32 {
            rig.now += Duration::from_millis(1);
            let state = [State::Down, State::AdminDown][number as usize % 2];
            rig.receive_with(state, |packet| packet.poll = true);
            let packets = rig.sent();
            let answers = packets.iter().filter(|packet| packet.is_final).count();
            finals += answers;
            others += packets.len() - answers;
        }
        assert_eq!(finals, 1000);
        // The limit holds for each second, and a periodic packet may be due.
        assert!(
            others <= 2 * crate::limits::URGENT_MAX as usize + 2,
            "{others}"
        );
        assert_eq!(others > 3, is_polling, "{others}");
    }
}

#[test]
fn answer_with_the_new_contents_is_the_only_packet() {
    let mut rig = Rig::new(SessionConfig::default());
    rig.sent();
    rig.receive_with(State::Down, |packet| packet.poll = true);
    let packets = rig.sent();
    assert_eq!(packets.len(), 1);
    assert!(packets[0].is_final);
    assert_eq!(packets[0].state, State::Init);
    let next = rig.session.next_transmit().expect("periodic packets");
    assert!((at(750)..=at(1000)).contains(&next), "{next}");
}

#[test]
fn demand_of_the_remote_system_stops_periodic_packets() {
    let mut rig = Rig::up();
    rig.receive_with(State::Up, |packet| packet.is_final = true);
    rig.receive_with(State::Up, |packet| packet.demand = true);
    assert_eq!(rig.session.next_transmit(), None);
    assert!(rig.session.signal(rig.now, ConcatenatedPath::DownForward));
    let packet = rig.sent()[0];
    assert!(packet.poll, "RFC 5880 §6.8.17");
    assert_eq!(packet.diagnostic, Diagnostic::CONCATENATED_PATH_DOWN);
    assert!(
        rig.session.next_transmit().is_some(),
        "the poll is repeated"
    );
    rig.receive_with(State::Up, |packet| {
        packet.demand = true;
        packet.is_final = true;
    });
    assert_eq!(rig.session.next_transmit(), None);
    rig.receive(State::Up);
    assert!(rig.session.next_transmit().is_some());
}

#[test]
fn signal_during_a_poll_is_polled_after_it() {
    let mut rig = Rig::up();
    let demand = |packet: &mut Packet| packet.demand = true;
    rig.receive_with(State::Up, demand);
    // The poll of the transition to Up is sent, but not answered.
    assert!(rig.session.is_polling());
    assert!(rig.session.signal(rig.now, ConcatenatedPath::DownForward));
    assert_eq!(rig.sent().len(), 1, "this packet is lost");
    // The Final answers the poll before the signal.
    rig.receive_with(State::Up, |packet| {
        packet.demand = true;
        packet.is_final = true;
    });
    assert_eq!(rig.session.next_transmit(), None);
    rig.pass(100);
    rig.receive_with(State::Up, demand);
    let packet = rig.sent()[0];
    assert!(packet.poll);
    assert_eq!(packet.diagnostic, Diagnostic::CONCATENATED_PATH_DOWN);
    assert!(
        rig.session.next_transmit().is_some(),
        "the poll is repeated"
    );
    rig.receive_with(State::Up, |packet| {
        packet.demand = true;
        packet.is_final = true;
    });
    rig.pass(100);
    rig.receive_with(State::Up, demand);
    assert_eq!(rig.session.next_transmit(), None, "no third poll");
}

#[test]
fn periodic_packets_are_spread_over_the_jitter() {
    let mut rig = Rig::up();
    rig.receive_with(State::Up, |packet| packet.is_final = true);
    let mut gaps = Vec::new();
    for _ in 0..100 {
        let next = rig.session.next_transmit().expect("periodic packets");
        gaps.push(next - rig.now);
        rig.now = next;
        assert_eq!(rig.sent().len(), 1);
    }
    gaps.sort_unstable();
    let (least, most) = (gaps[0], gaps[99]);
    assert!(least >= Duration::from_millis(225) && most <= Duration::from_millis(300));
    let spread = Duration::from_millis(300) * 15 / 100;
    assert!(most - least >= spread, "{least:?} to {most:?}");
    gaps.dedup();
    assert!(gaps.len() >= 10, "{} distinct gaps", gaps.len());
}

#[test]
fn zero_receive_interval_stops_periodic_packets() {
    let mut rig = Rig::up();
    rig.receive_with(State::Up, |packet| packet.required_min_rx_us = 0);
    assert_eq!(rig.session.next_transmit(), None);
    // A changed state is sent nevertheless, and a silent remote system is forgotten.
    assert!(rig.pass(1500).is_some());
    assert_eq!(rig.sent().len(), 1);
    assert!(rig.session.next_transmit().is_some());
}

#[test]
fn shorter_interval_of_the_remote_system_is_effective_at_once() {
    let mut rig = Rig::up();
    rig.receive_with(State::Up, |packet| packet.required_min_rx_us = 2_000_000);
    let interval = rig.session.transmit_interval();
    assert_eq!(interval, Some(Duration::from_secs(2)));
    rig.now = at(1000);
    rig.receive(State::Up);
    let next = rig.session.next_transmit().expect("periodic packets");
    assert!(next <= at(300), "it is overdue");
}

#[test]
fn held_session_stays_down_but_maintains_its_variables() {
    let mut rig = Rig::new(SessionConfig::default());
    rig.session.hold_down(true);
    for state in [State::Down, State::Init] {
        assert_eq!(rig.receive(state), None);
        assert_eq!(rig.session.state(), State::Down);
    }
    assert_eq!(rig.session.remote_discriminator(), Some(id(2)));
    rig.session.hold_down(false);
    assert!(rig.receive(State::Init).is_some());
    rig.session.hold_down(true);
    assert_eq!(rig.session.state(), State::Up);
}

#[test]
fn held_session_notices_that_the_remote_system_is_enabled() {
    let mut rig = Rig::up();
    rig.receive(State::AdminDown);
    rig.session.hold_down(true);
    let change = rig.receive(State::Down).expect("another result");
    assert_eq!((change.from, change.to), (State::Down, State::Down));
    assert_eq!(change.liveness, Liveness::Unknown);
    assert_eq!(rig.receive(State::Down), None);
}

#[test]
fn forgotten_remote_system_is_not_answered() {
    let mut rig = Rig::up();
    rig.receive_with(State::Up, |packet| packet.poll = true);
    assert!(rig.pass(1500).is_some());
    let packets = rig.sent();
    assert_eq!(packets.len(), 1);
    assert!(!packets[0].is_final);
}

#[test]
fn signal_is_sent_only_while_up() {
    let mut rig = Rig::new(SessionConfig::default());
    assert!(!rig.session.signal(rig.now, ConcatenatedPath::DownForward));
    let mut rig = Rig::up();
    assert!(rig.session.signal(rig.now, ConcatenatedPath::DownReverse));
    let expected = Diagnostic::REVERSE_CONCATENATED_PATH_DOWN;
    assert_eq!(rig.sent()[0].diagnostic, expected);
    assert!(rig.session.signal(rig.now, ConcatenatedPath::Works));
    assert_eq!(rig.sent()[0].diagnostic, Diagnostic::NONE);
}

#[test]
fn signal_of_the_remote_system_is_a_change() {
    let mut rig = Rig::up();
    for diagnostic in [Diagnostic::CONCATENATED_PATH_DOWN, Diagnostic::NONE] {
        let mut receive = || rig.receive_with(State::Up, |packet| packet.diagnostic = diagnostic);
        let change = receive().expect("a change");
        assert_eq!((change.from, change.to), (State::Up, State::Up));
        assert_eq!(change.liveness, Liveness::Alive);
        assert_eq!(change.remote_diagnostic, diagnostic);
        assert_eq!(receive(), None);
    }
}

#[test]
fn multiplier_is_changed_without_a_poll() {
    let mut rig = Rig::up();
    rig.receive_with(State::Up, |packet| packet.is_final = true);
    rig.receive(State::Up);
    let changed = SessionConfig::default().with(|config| {
        config.detect_multiplier = NonZeroU8::new(9).expect("nine");
    });
    rig.session.configure(rig.now, changed).expect("valid");
    let packet = rig.sent()[0];
    assert_eq!(packet.detect_multiplier.get(), 9);
    assert!(!packet.poll);
}

#[test]
fn invalid_configuration_is_rejected_and_the_former_one_stays() {
    let mut rig = Rig::up();
    let invalid = SessionConfig::default().with(|config| config.desired_min_tx_us = 999);
    let result = rig.session.configure(rig.now, invalid.clone());
    assert_eq!(result, Err(ConfigError::Interval(999)));
    assert_eq!(rig.session.config(), &SessionConfig::default());
    let made = Session::new(Instant::ZERO, invalid, id(1), &mut Seeded::new(1));
    assert!(made.is_err());
}

fn authentication(auth_type: AuthType, keys: &[(u8, &[u8])]) -> SessionConfig {
    let keys: Vec<_> = keys
        .iter()
        .map(|(id, key)| AuthKey::new(*id, Secret::new(key).expect("a short key")))
        .collect();
    SessionConfig::default().with(|config| {
        config.authentication = Some(Authentication::new(auth_type, &keys).expect("keys"));
    })
}

#[test]
fn packets_without_the_right_authentication_are_discarded() {
    for auth_type in AuthType::ALL {
        let config = |keys: &[(u8, &[u8])]| authentication(auth_type, keys);
        let mut sender = Rig::new(config(&[(4, b"one")]));
        let octets = sender.session.transmit(at(0), &mut sender.random);
        let mut octets = Vec::from(octets.expect("the first packet").octets());
        octets[8..12].copy_from_slice(&[0; 4]);
        let receive = |config: SessionConfig| {
            let mut rig = Rig::new(config);
            rig.session.local = id(9);
            let result = rig.session.receive(rig.now, &octets);
            assert_eq!(rig.session.stats().discarded, u64::from(result.is_err()));
            result.map(|_| ())
        };
        assert_eq!(receive(config(&[(3, b"two"), (4, b"one")])), Ok(()));
        assert_eq!(
            receive(SessionConfig::default()),
            Err(Discard::AuthUnexpected)
        );
        assert_eq!(receive(config(&[(5, b"one")])), Err(Discard::AuthKeyId(4)));
        assert_eq!(receive(config(&[(4, b"onf")])), Err(Discard::AuthValue));
        for other in AuthType::ALL
            .into_iter()
            .filter(|other| *other != auth_type)
        {
            let result = receive(authentication(other, &[(4, b"one")]));
            assert_eq!(result, Err(Discard::AuthType(auth_type)));
        }
        let mut rig = Rig::new(config(&[(4, b"one")]));
        let plain = remote(State::Down).encode();
        let result = rig.session.receive(rig.now, plain.octets());
        assert_eq!(result, Err(Discard::AuthMissing));
        assert_eq!(rig.session.remote_discriminator(), None);
    }
}

#[test]
fn replayed_packet_is_discarded_until_the_number_is_forgotten() {
    let config = authentication(AuthType::MeticulousKeyedSha1, &[(4, b"one")]);
    let mut sender = Rig::new(config.clone());
    let first = sender.session.transmit(at(0), &mut sender.random);
    let first = first.expect("the first packet");
    sender.now = at(1000);
    let second = sender.session.transmit(at(1000), &mut sender.random);
    let second = second.expect("the second packet");
    let mut rig = Rig::new(config);
    rig.session.local = id(9);
    let receive = |rig: &mut Rig, octets: &[u8]| rig.session.receive(rig.now, octets);
    assert!(receive(&mut rig, second.octets()).is_ok());
    for octets in [first, second] {
        let result = receive(&mut rig, octets.octets());
        assert!(
            matches!(result, Err(Discard::AuthSequence(_))),
            "{result:?}"
        );
    }
    // The detection time is 3 s; the number is forgotten after 6 s (RFC 5880 §6.8.1).
    rig.pass(3000);
    assert!(receive(&mut rig, first.octets()).is_err());
    rig.pass(2999);
    assert!(receive(&mut rig, first.octets()).is_err());
    rig.pass(1);
    assert!(receive(&mut rig, first.octets()).is_ok());
}

#[test]
fn forged_packet_does_not_move_the_window() {
    let config = authentication(AuthType::KeyedMd5, &[(4, b"one")]);
    let mut sender = Rig::new(config.clone());
    let honest = sender.session.transmit(at(0), &mut sender.random);
    let honest = honest.expect("the first packet");
    let mut forged = Vec::from(honest.octets());
    forged[28] ^= 0x80;
    let mut rig = Rig::new(config);
    rig.session.local = id(9);
    let result = rig.session.receive(rig.now, &forged);
    assert_eq!(result, Err(Discard::AuthValue));
    assert!(rig.session.receive(rig.now, honest.octets()).is_ok());
}

#[test]
fn packet_of_another_session_or_of_no_protocol_is_discarded() {
    let mut rig = Rig::up();
    let mut packet = remote(State::Down);
    packet.your_discriminator = Some(id(7));
    let result = rig.session.receive(rig.now, packet.encode().octets());
    assert_eq!(result, Err(Discard::YourDiscriminator(7)));
    let result = rig.session.receive(rig.now, b"BFD");
    assert_eq!(result, Err(Discard::Invalid(Invalid::Truncated(3))));
    assert_eq!(rig.session.state(), State::Up);
    assert_eq!(rig.session.stats().discarded, 2);
}

#[test]
fn single_packet_of_detection_arrives_before_it_expires() {
    let config = SessionConfig::default().with(|config| config.detect_multiplier = NonZeroU8::MIN);
    for seed in 0..200 {
        let mut random = Seeded::new(seed);
        let mut session = Session::new(at(0), config.clone(), id(1), &mut random).expect("valid");
        assert!(session.transmit(at(0), &mut random).is_some());
        let next = session.next_transmit().expect("periodic packets");
        assert!((at(750)..=at(900)).contains(&next), "{next}");
    }
}
