//! Two sessions against each other: start, failure, parameter changes and authentication.

mod support;

use bfd::{
    AuthKey, AuthType, Authentication, Diagnostic, Duration, Liveness, Secret, SessionConfig, Side,
    State,
};
use proptest::prelude::*;
use support::{Pair, config};

const SECOND: Duration = Duration::from_secs(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn pair() -> Pair {
    let mut pair = Pair::new(
        [config(50_000, 20_000, 3), config(30_000, 60_000, 4)],
        millis(5),
        1,
    );
    pair.run(5 * SECOND);
    pair.assert_converged();
    pair
}

#[test]
fn sessions_come_up_within_two_slow_intervals() {
    let mut pair = Pair::new(
        [config(50_000, 50_000, 3), config(50_000, 50_000, 3)],
        millis(5),
        1,
    );
    pair.run(2 * SECOND + millis(20));
    assert!(pair.is_up());
    assert_eq!(pair.failures(), 0);
}

#[test]
fn cut_link_is_detected_at_both_ends_within_the_time() {
    let mut pair = pair();
    pair.link.cut = [true; 2];
    // 4 × max(20 ms, 30 ms), and 3 × max(60 ms, 50 ms), after the packets on the link.
    pair.run(millis(180 + 5));
    assert_eq!(pair.states(), [State::Down; 2]);
    for (_, change) in &pair.changes[pair.changes.len() - 2..] {
        assert_eq!(change.diagnostic, Diagnostic::DETECTION_TIME_EXPIRED);
    }
    pair.link.cut = [false; 2];
    pair.run(5 * SECOND);
    pair.assert_converged();
    assert_eq!(pair.failures(), 2);
}

#[test]
fn failure_of_one_direction_is_signaled_in_the_other() {
    let mut pair = pair();
    pair.link.cut = [true, false];
    pair.run(millis(400));
    assert_eq!(pair.failures(), 2);
    let diagnostics = pair.ends.each_ref().map(|end| end.session.diagnostic());
    let signaled = Diagnostic::NEIGHBOR_SIGNALED_DOWN;
    assert_eq!(diagnostics, [signaled, Diagnostic::DETECTION_TIME_EXPIRED]);
    pair.link.cut = [false; 2];
    pair.run(10 * SECOND);
    pair.assert_converged();
}

#[test]
fn disabled_session_is_no_failure_for_the_other_end() {
    let mut pair = pair();
    let now = pair.now;
    pair.session(0).disable(now).expect("a change");
    pair.run(30 * SECOND);
    let other = pair.session(1);
    assert_eq!(other.state(), State::Down);
    assert_eq!(other.liveness(), Liveness::Disabled(Side::Remote));
    let now = pair.now;
    pair.session(0).enable(now).expect("a change");
    pair.run(5 * SECOND);
    pair.assert_converged();
}

/// Returns whether the clients of an end were notified of a failure.
fn has_failed(pair: &Pair, end: usize) -> bool {
    let mut changes = pair.changes.iter().filter(|(index, _)| *index == end);
    changes.any(|(_, change)| matches!(change.liveness, Liveness::Failed { .. }))
}

#[test]
fn disabled_session_is_noticed_although_packets_are_lost() {
    for seed in 0..50 {
        let intervals = || config(50_000, 50_000, 3);
        let mut pair = Pair::new([intervals(), intervals()], millis(5), seed);
        pair.run(5 * SECOND);
        pair.assert_converged();
        // The first packet with AdminDown is lost.
        let now = pair.now;
        pair.session(0).disable(now).expect("a change");
        pair.link.cut = [true, false];
        pair.run(millis(30));
        pair.link.cut = [false; 2];
        pair.run(3 * SECOND);
        let liveness = pair.session(1).liveness();
        assert_eq!(liveness, Liveness::Disabled(Side::Remote));
        assert!(!has_failed(&pair, 1), "{:?}", pair.changes);
    }
}

#[test]
fn session_enabled_at_once_is_no_failure_for_the_other_end() {
    let mut pair = pair();
    for _ in 0..2 {
        let now = pair.now;
        pair.session(0).disable(now).expect("a change");
        assert_eq!(pair.session(0).enable(now), None);
        assert_eq!(pair.session(0).state(), State::AdminDown);
        pair.run(5 * SECOND);
        pair.assert_converged();
        assert!(!has_failed(&pair, 1), "{:?}", pair.changes);
    }
    // A remote system that receives nothing delays it for its detection time.
    pair.link.cut = [true, false];
    let now = pair.now;
    pair.session(0).disable(now).expect("a change");
    pair.session(0).enable(now);
    pair.run(millis(100));
    assert_eq!(pair.session(0).state(), State::AdminDown);
    pair.run(millis(80));
    assert_ne!(pair.session(0).state(), State::AdminDown);
}

#[test]
fn disabled_session_slows_when_remote_has_left_up() {
    let mut pair = pair();
    let now = pair.now;
    pair.session(0).disable(now).expect("a change");
    let sent = pair.session(0).stats().sent;
    pair.run(2 * SECOND);
    let packets = pair.session(0).stats().sent - sent;
    assert!(packets <= 4, "{packets} packets");
    // A silent remote system has the former interval for one detection time only.
    let mut pair = self::pair();
    pair.link.cut = [true; 2];
    let now = pair.now;
    pair.session(0).disable(now).expect("a change");
    let sent = pair.session(0).stats().sent;
    pair.run(2 * SECOND);
    let packets = pair.session(0).stats().sent - sent;
    assert!((3..=8).contains(&packets), "{packets} packets");
}

#[test]
fn restarted_end_is_noticed_and_both_reach_up() {
    let mut pair = pair();
    let mut fresh = Pair::new(
        [config(50_000, 20_000, 3), config(1_000_000, 1_000_000, 3)],
        millis(5),
        77,
    );
    std::mem::swap(&mut pair.ends[0], &mut fresh.ends[0]);
    pair.run(10 * SECOND);
    pair.assert_converged();
    assert_eq!(pair.failures(), 1, "only the end that was not restarted");
}

/// The configuration with these keys.
fn keys(auth_type: AuthType, keys: &[u8]) -> SessionConfig {
    let keys: Vec<_> = keys
        .iter()
        .map(|id| AuthKey::new(*id, Secret::new(&[*id; 9]).expect("a short key")))
        .collect();
    config(50_000, 50_000, 3).with(|config| {
        config.authentication = Some(Authentication::new(auth_type, &keys).expect("valid keys"));
    })
}

#[test]
fn sessions_of_each_authentication_come_up_and_stay_up() {
    for auth_type in AuthType::ALL {
        let config = || keys(auth_type, &[7]);
        let mut pair = Pair::new([config(), config()], millis(5), 1);
        pair.run(60 * SECOND);
        pair.assert_converged();
        assert_eq!(pair.failures(), 0);
        let discarded = pair
            .ends
            .each_ref()
            .map(|end| end.session.stats().discarded);
        assert_eq!(discarded, [0, 0]);
    }
}

#[test]
fn session_with_another_key_stays_down() {
    for auth_type in AuthType::ALL {
        let mut pair = Pair::new([keys(auth_type, &[7]), keys(auth_type, &[8])], millis(5), 1);
        pair.run(10 * SECOND);
        assert_eq!(pair.states(), [State::Down; 2]);
    }
}

#[test]
fn keys_are_changed_without_a_loss() {
    for auth_type in AuthType::ALL {
        let mut pair = Pair::new([keys(auth_type, &[1]), keys(auth_type, &[1])], millis(5), 1);
        pair.run(5 * SECOND);
        for list in [[1, 2].as_slice(), &[2, 1], &[2]] {
            for index in 0..2 {
                let now = pair.now;
                let changed = pair.session(index).configure(now, keys(auth_type, list));
                changed.expect("valid keys");
                pair.run(SECOND);
            }
        }
        pair.assert_converged();
        assert_eq!(pair.failures(), 0);
        let discarded = pair
            .ends
            .each_ref()
            .map(|end| end.session.stats().discarded);
        assert_eq!(discarded, [0, 0]);
    }
}

#[test]
fn sequence_of_a_restarted_end_is_accepted_after_its_time() {
    let config = || keys(AuthType::MeticulousKeyedSha1, &[1]);
    let mut pair = Pair::new([config(), config()], millis(5), 1);
    pair.run(5 * SECOND);
    let mut fresh = Pair::new([config(), config()], millis(5), 99);
    std::mem::swap(&mut pair.ends[0], &mut fresh.ends[0]);
    pair.run(20 * SECOND);
    pair.assert_converged();
}

fn interval_us() -> impl Strategy<Value = u32> {
    prop_oneof![
        5_000..50_000_u32,
        50_000..1_000_000_u32,
        1_000_000..2_000_000_u32
    ]
}

fn configs() -> impl Strategy<Value = SessionConfig> {
    let parts = (interval_us(), interval_us(), 1_u8..6);
    parts.prop_map(|(desired, required, multiplier)| config(desired, required, multiplier))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_parameters_lose_no_session(
        start in [configs(), configs()],
        changes in prop::collection::vec((0_usize..2, configs(), 0_u64..3000), 1..8),
        delay in 0_u64..100,
        seed in any::<u64>(),
    ) {
        let mut pair = Pair::new(start, millis(delay), seed);
        pair.is_constant = false;
        pair.run(10 * SECOND);
        prop_assert!(pair.is_up());
        for (index, config, pause) in changes {
            let now = pair.now;
            pair.session(index).configure(now, config).expect("a valid configuration");
            pair.run(millis(pause));
        }
        pair.run(60 * SECOND);
        prop_assert_eq!(pair.failures(), 0);
        pair.assert_converged();
    }

    #[test]
    fn upgraded_session_is_not_noticed(
        configs in [configs(), configs()],
        auth_type in prop::option::of(prop::sample::select(AuthType::ALL.to_vec())),
        upgrades in prop::collection::vec((0_usize..2, 0_u64..4000, 0_u64..3), 1..12),
        delay in 0_u64..100,
        seed in any::<u64>(),
    ) {
        let configs = configs.map(|config| config.with(|config| {
            config.authentication = auth_type.and_then(|auth_type| keys(auth_type, &[7]).authentication);
        }));
        let mut pair = Pair::new(configs.clone(), millis(delay), seed);
        pair.is_constant = false;
        pair.run(15 * SECOND);
        prop_assert!(pair.is_up());
        for (index, pause, change) in upgrades {
            pair.changes.clear();
            if change == 0 {
                // The upgrade may come in the middle of a change of intervals.
                let now = pair.now;
                let other = configs[index].clone().with(|config| config.desired_min_tx_us += pause as u32 * 100);
                pair.session(index).configure(now, other).expect("a valid configuration");
                pair.run(millis(pause / 10));
            }
            pair.upgrade(index);
            pair.run(millis(pause));
            prop_assert!(pair.changes.is_empty(), "{:?}", pair.changes);
            let discarded = pair.ends.each_ref().map(|end| end.session.stats().discarded);
            prop_assert_eq!(discarded, [0, 0]);
        }
        pair.run(60 * SECOND);
        pair.assert_converged();
    }

    #[test]
    fn down_means_silence_for_the_detection_time(
        configs in [configs(), configs()],
        loss_percent in 0_u64..60,
        delay in 0_u64..100,
        seed in any::<u64>(),
    ) {
        let mut pair = Pair::new(configs, millis(delay), seed);
        pair.link.loss_percent = loss_percent;
        // Each timeout is compared with the last arrived packet.
        pair.run(30 * SECOND);
        pair.link.loss_percent = 0;
        pair.run(40 * SECOND);
        pair.assert_converged();
        pair.link.cut = [true; 2];
        pair.run(15 * SECOND);
        prop_assert_eq!(pair.states(), [State::Down; 2]);
    }
}
