use super::*;
use crate::auth::AuthType;
use crate::config::{AuthKey, Authentication};
use crate::limits::SNAPSHOT_OCTETS_MAX;
use crate::packet::Packet;
use crate::random::Seeded;
use crate::secret::Secret;

fn id(number: u32) -> Discriminator {
    Discriminator::new(number).expect("not zero")
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn config() -> SessionConfig {
    let key = AuthKey::new(1, Secret::new(b"cambric").expect("a short key"));
    SessionConfig::default().with(|config| {
        config.authentication =
            Some(Authentication::new(AuthType::MeticulousKeyedSha1, &[key]).expect("a key"));
    })
}

/// Two sessions that are Up at 3 s, and the last packet of the second one.
fn pair() -> ([Session; 2], Seeded) {
    let mut random = Seeded::new(3);
    let mut make = |number| Session::new(at(0), config(), id(number), &mut random).expect("valid");
    let mut ends = [make(1), make(2)];
    for millis in (0..=3000).step_by(100) {
        for (from, to) in [(0, 1), (1, 0)] {
            while let Some(packet) = ends[from].transmit(at(millis), &mut random) {
                ends[to]
                    .receive(at(millis), packet.octets())
                    .expect("a valid packet");
            }
        }
    }
    assert!(ends.iter().all(|end| end.state() == State::Up));
    (ends, random)
}

#[test]
fn restored_session_continues_its_times_on_another_clock() {
    let ([session, _], mut random) = pair();
    let deadline = session.detection_deadline().expect("a detection time");
    let snapshot = session.snapshot(at(3050)).aged(Duration::from_millis(20));
    let now = at(1_000_000);
    let restored = Session::restore(now, config(), &snapshot, &mut random).expect("valid");
    let rest = deadline - at(3070);
    assert_eq!(restored.detection_deadline(), Some(now + rest));
    assert_eq!(restored.local_discriminator(), id(1));
    assert_eq!(restored.remote_discriminator(), Some(id(2)));
    assert_eq!(
        (restored.state(), restored.liveness()),
        (State::Up, Liveness::Alive)
    );
    assert!(restored.was_up());
    assert_eq!(restored.next_transmit(), Some(now));
}

#[test]
fn sequence_numbers_skip_forward_within_the_window() {
    let ([mut session, mut other], mut random) = pair();
    let snapshot = session.snapshot(at(3000));
    let number = |packet: crate::Encoded| {
        let packet = Packet::decode(packet.octets()).expect("a valid packet");
        packet.auth.expect("a section").sequence()
    };
    // The old process sends two packets more.
    let sent = [3400, 3800].map(|millis| {
        let packet = session.transmit(at(millis), &mut random).expect("a packet");
        other
            .receive(at(millis), packet.octets())
            .expect("accepted");
        number(packet)
    });
    let mut restored = Session::restore(at(3900), config(), &snapshot, &mut random).expect("valid");
    let packet = restored
        .transmit(at(3900), &mut random)
        .expect("a packet at once");
    assert!(other.receive(at(3900), packet.octets()).is_ok());
    assert_eq!(number(packet).wrapping_sub(sent[1]), 1);
    // A packet that the old process has received is not accepted again.
    let replayed = other.transmit(at(4200), &mut random).expect("a packet");
    assert!(restored.receive(at(4200), replayed.octets()).is_ok());
    let snapshot = restored.snapshot(at(4200));
    let mut again = Session::restore(at(4200), config(), &snapshot, &mut random).expect("valid");
    assert!(again.receive(at(4200), replayed.octets()).is_err());
}

#[test]
fn snapshot_has_the_greatest_length_or_less_and_no_key() {
    let ([mut session, _], _) = pair();
    session.disable(at(3000));
    let octets = session.snapshot(at(3000)).encode();
    assert_eq!(octets.len(), SNAPSHOT_OCTETS_MAX);
    assert!(!octets.windows(7).any(|window| window == b"cambric"));
}

#[test]
fn invalid_snapshot_is_rejected_with_its_reason() {
    let ([session, _], mut random) = pair();
    let octets = session.snapshot(at(3000)).encode();
    let error = |octets: &[u8]| Snapshot::decode(octets).err();
    assert_eq!(error(&octets), None);
    assert_eq!(error(&[]), Some(SnapshotError::Length));
    assert_eq!(error(&[2]), Some(SnapshotError::Version(2)));
    for length in 1..octets.len() {
        assert_eq!(
            error(&octets[..length]),
            Some(SnapshotError::Length),
            "{length}"
        );
    }
    let with = |place: usize, octet: u8| {
        let mut changed = octets.clone();
        changed[place] = octet;
        error(&changed)
    };
    assert_eq!(with(9, 4), Some(SnapshotError::Value("state")));
    let contradiction = SnapshotError::Contradiction("liveness and state");
    assert_eq!(with(9, State::Init.bits()), Some(contradiction));
    assert_eq!(with(11, 32), Some(SnapshotError::Value("diagnostic")));
    // A decoded snapshot is restored without a panic, whatever octet differs.
    for place in 0..octets.len() {
        for bit in 0..8 {
            let mut changed = octets.clone();
            changed[place] ^= 1 << bit;
            if let Ok(snapshot) = Snapshot::decode(&changed) {
                assert_eq!(snapshot.encode(), changed);
                let restored = Session::restore(at(9000), config(), &snapshot, &mut random);
                let mut restored = restored.expect("a checked snapshot");
                assert!(restored.transmit(at(9000), &mut random).is_some());
            }
        }
    }
}
