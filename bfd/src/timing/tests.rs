use super::*;

const NOW: Instant = Instant::ZERO;

const UP: Conditions = Conditions {
    is_up: true,
    has_remote: true,
};
const DOWN: Conditions = Conditions {
    is_up: false,
    has_remote: true,
};

fn intervals(desired_min_tx_us: u32, required_min_rx_us: u32) -> Intervals {
    Intervals {
        desired_min_tx_us,
        required_min_rx_us,
    }
}

fn remote(is_final: bool) -> Remote {
    Remote {
        desired_min_tx_us: 50_000,
        required_min_rx_us: 20_000,
        multiplier: NonZeroU8::new(3).expect("three"),
        is_final,
    }
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Timing with 100 ms both ways and a remote system.
fn timing() -> Timing {
    let mut timing = Timing::new(intervals(100_000, 100_000));
    timing.received(NOW, remote(false), UP);
    timing
}

#[test]
fn longer_transmit_interval_waits_for_the_final() {
    let mut timing = timing();
    assert_eq!(timing.transmit_interval(), Some(micros(100_000)));
    assert!(timing.want(intervals(400_000, 100_000), UP));
    assert_eq!(timing.advertised().desired_min_tx_us, 400_000);
    assert_eq!(timing.transmit_interval(), Some(micros(100_000)));
    timing.received(NOW, remote(true), UP);
    assert!(timing.is_polling(), "no P bit was sent before this Final");
    timing.poll_sent(NOW);
    timing.received(NOW, remote(false), UP);
    assert_eq!(timing.transmit_interval(), Some(micros(100_000)));
    timing.received(NOW, remote(true), UP);
    assert!(!timing.is_polling());
    assert_eq!(timing.transmit_interval(), Some(micros(400_000)));
}

#[test]
fn shorter_transmit_interval_is_applied_at_once() {
    let mut timing = timing();
    assert!(timing.want(intervals(30_000, 100_000), UP));
    assert!(timing.is_polling());
    assert_eq!(timing.transmit_interval(), Some(micros(30_000)));
}

#[test]
fn shorter_detection_time_waits_for_the_final() {
    let mut timing = timing();
    assert_eq!(timing.detection_time(), micros(300_000));
    timing.want(intervals(100_000, 60_000), UP);
    assert_eq!(timing.detection_time(), micros(300_000));
    timing.poll_sent(NOW);
    timing.received(NOW, remote(true), UP);
    assert_eq!(timing.detection_time(), micros(180_000));
    assert_eq!(timing.advertised().required_min_rx_us, 60_000);
}

#[test]
fn longer_detection_time_is_applied_at_once() {
    let mut timing = timing();
    timing.want(intervals(100_000, 200_000), UP);
    assert_eq!(timing.detection_time(), micros(600_000));
}

#[test]
fn second_change_waits_for_a_packet_after_the_final() {
    let mut timing = timing();
    timing.want(intervals(400_000, 100_000), UP);
    timing.poll_sent(NOW);
    assert!(!timing.want(intervals(500_000, 100_000), UP));
    assert_eq!(timing.advertised().desired_min_tx_us, 400_000);
    assert!(!timing.received(NOW, remote(true), UP));
    assert!(!timing.is_polling());
    assert!(timing.received(NOW, remote(false), UP));
    assert!(timing.is_polling());
    assert_eq!(timing.advertised().desired_min_tx_us, 500_000);
    assert_eq!(timing.transmit_interval(), Some(micros(400_000)));
}

#[test]
fn second_change_waits_until_no_final_is_on_its_way() {
    let at = |millis| Instant::ZERO + Duration::from_millis(millis);
    let mut timing = timing();
    timing.want(intervals(400_000, 100_000), UP);
    // Three packets with the P bit are sent before the first Final; a round trip takes 200 ms.
    for millis in [0, 90, 180] {
        timing.poll_sent(at(millis));
    }
    timing.received(at(200), remote(true), UP);
    timing.want(intervals(500_000, 100_000), UP);
    for millis in [210, 290, 300, 379] {
        let is_final = millis == 290;
        assert!(!timing.received(at(millis), remote(is_final), UP));
        assert_eq!(timing.advertised().desired_min_tx_us, 400_000);
    }
    assert!(!timing.received(at(380), remote(true), UP));
    assert!(timing.received(at(381), remote(false), UP));
    assert!(timing.is_polling());
    assert_eq!(timing.advertised().desired_min_tx_us, 500_000);
}

#[test]
fn intervals_are_applied_at_once_while_not_up() {
    let mut timing = timing();
    timing.want(intervals(400_000, 60_000), UP);
    assert!(timing.want(intervals(1_000_000, 50_000), DOWN));
    assert_eq!(timing.transmit_interval(), Some(micros(1_000_000)));
    assert_eq!(timing.detection_time(), micros(150_000));
}

#[test]
fn forgotten_system_is_polled_no_longer() {
    let mut timing = timing();
    timing.want(intervals(400_000, 60_000), DOWN);
    assert!(timing.is_polling());
    timing.forget();
    assert!(!timing.is_polling());
    assert_eq!(timing.detection_time(), Duration::ZERO);
    assert_eq!(timing.transmit_interval(), Some(micros(400_000)));
    let alone = Conditions {
        is_up: false,
        has_remote: false,
    };
    assert!(timing.want(intervals(300_000, 60_000), alone));
    assert!(!timing.is_polling());
}

#[test]
fn remote_system_can_stop_periodic_packets() {
    let mut timing = timing();
    let silent = Remote {
        required_min_rx_us: 0,
        ..remote(false)
    };
    timing.received(NOW, silent, UP);
    assert_eq!(timing.transmit_interval(), None);
}

#[test]
fn jitter_has_the_bounds_of_the_rfc() {
    let (one, two) = (NonZeroU8::MIN, NonZeroU8::new(2).expect("two"));
    for interval in [micros(1_000), micros(u32::MAX.into())] {
        let of = |multiplier, random| jittered(interval, multiplier, random).as_nanos();
        let percent = interval.as_nanos() / 100;
        assert_eq!(of(two, 0), percent * 100);
        assert_eq!(of(one, 0), percent * 90);
        for multiplier in [one, two] {
            let shortest = of(multiplier, JITTER_STEPS);
            assert_eq!(shortest, percent * 75);
            for random in [1, 1000, u64::MAX, u64::MAX / 3] {
                let drawn = of(multiplier, random);
                assert!((shortest..=of(multiplier, 0)).contains(&drawn));
            }
        }
    }
}
