//! Graceful restart as a helper (RFC 4724 §4.2, RFC 8538 §3): the peer disconnects and comes back.

use bgp_fsm::GracefulRestartConfig;
use bgp_proto::notification::cease;
use bgp_proto::{Family, GracefulRestart, Notification};
use bgp_speaker::{Refusal, SpeakerConfig, limits::STALE_TIME_S};
use rib::PeerId;
use testkit::fixture::{clients, graceful_open, open, speaker_config};
use testkit::{EndOfRib, Received, Update};

use super::wire::Wire;

const V4: Family = Family::IPV4_UNICAST;
const BOTH: [&str; 2] = ["10.65.0.1/32", "10.65.0.2/32"];

/// Returns a reflector with a range for two clients, with graceful restart on both sides.
fn config() -> SpeakerConfig {
    let mut config = speaker_config(1);
    let mut range = clients(1, 2);
    range.template.session.graceful_restart = Some(GracefulRestartConfig::default());
    config.ranges.push(range);
    config
}

/// Returns a reflector with client 2, which restarts gracefully as `edit` configures, and has
/// announced two prefixes.
fn reflector(edit: impl FnOnce(&mut GracefulRestart)) -> (Wire, PeerId) {
    let mut wire = Wire::new(config());
    let client = wire.connect(2, &graceful_open(2, edit));
    wire.send(client, Update::reach(BOTH));
    wire.send(client, EndOfRib(V4));
    assert_eq!(wire.prefixes(), BOTH);
    (wire, client)
}

fn back(wire: &mut Wire) -> PeerId {
    wire.connect(
        2,
        &graceful_open(2, |graceful| graceful.restart_state = true),
    )
}

#[test]
fn returning_dynamic_client_causes_no_updates() {
    let (mut wire, client) = reflector(|_| {});
    let other = wire.connect(3, &open(3));
    wire.received(other);
    wire.lose(client);
    wire.pass(30, &[other]);
    assert_eq!(wire.prefixes(), BOTH, "stale, and used");
    let client = back(&mut wire);
    wire.send(client, Update::reach(BOTH));
    wire.send(client, EndOfRib(V4));
    assert_eq!(wire.prefixes(), BOTH);
    assert!(wire.received(other).is_empty(), "no route changed");
}

#[test]
fn stale_path_is_removed_at_end_of_rib() {
    let (mut wire, client) = reflector(|_| {});
    wire.lose(client);
    let client = back(&mut wire);
    wire.send(client, Update::reach(&BOTH[..1]));
    assert_eq!(wire.prefixes(), BOTH);
    wire.send(client, EndOfRib(V4));
    assert_eq!(wire.prefixes(), BOTH[..1]);
}

#[test]
fn absent_peer_is_forgotten_after_the_restart_time() {
    let (mut wire, client) = reflector(|_| {});
    wire.lose(client);
    wire.pass(59, &[]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[]);
    assert!(wire.prefixes().is_empty());
    assert_eq!(wire.speaker().peers().count(), 0, "and its place is free");
}

#[test]
fn stale_paths_are_removed_without_an_end_of_rib() {
    let (mut wire, client) = reflector(|_| {});
    wire.lose(client);
    let client = back(&mut wire);
    wire.send(client, Update::reach(&BOTH[..1]));
    wire.pass(u64::from(STALE_TIME_S) - 1, &[client]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[client]);
    assert_eq!(wire.prefixes(), BOTH[..1]);
}

/// RFC 4724 §4.2: paths that were stale before the second restart are not retained over it.
#[test]
fn a_second_restart_drops_what_was_stale_already() {
    let (mut wire, client) = reflector(|_| {});
    wire.lose(client);
    let client = back(&mut wire);
    wire.send(client, Update::reach(&BOTH[..1]));
    wire.lose(client);
    assert_eq!(wire.prefixes(), BOTH[..1]);
    wire.pass(60, &[]);
    assert!(wire.prefixes().is_empty());
}

/// A connection that is not established is not a restart.
#[test]
fn a_dial_that_fails_half_way_changes_nothing() {
    let (mut wire, client) = reflector(|_| {});
    wire.lose(client);
    wire.pass(10, &[]);
    let client = wire.dial(2).expect("admitted");
    wire.lose(client);
    wire.pass(10, &[]);
    assert_eq!(wire.prefixes(), BOTH);
}

#[test]
fn families_without_kept_forwarding_go_when_the_session_is_back() {
    let (mut wire, client) = reflector(|_| {});
    wire.lose(client);
    wire.connect(
        2,
        &graceful_open(2, |graceful| graceful.families[0].1 = false),
    );
    assert!(wire.prefixes().is_empty());

    let (mut wire, client) = reflector(|_| {});
    wire.lose(client);
    wire.connect(2, &open(2));
    assert!(wire.prefixes().is_empty(), "it restarts gracefully no more");
}

#[test]
fn routes_are_removed_at_once_without_graceful_restart() {
    let mut wire = Wire::new(config());
    let client = wire.connect(2, &open(2));
    wire.send(client, Update::reach(BOTH));
    wire.lose(client);
    assert!(wire.prefixes().is_empty());
}

/// RFC 8538 §3: with the N bit a NOTIFICATION is like a lost connection, except for a hard reset.
#[test]
fn notification_keeps_routes_if_both_set_the_n_bit() {
    let reset = Notification::cease(cease::ADMINISTRATIVE_RESET);
    let hard = Notification::cease(cease::HARD_RESET);
    for (n_bit, notification, kept) in [
        (false, reset.clone(), false),
        (true, reset, true),
        (true, hard, false),
    ] {
        let (mut wire, client) = reflector(|graceful| graceful.notification = n_bit);
        wire.send(client, notification.clone());
        let expected = if kept { &BOTH[..] } else { &[] };
        assert_eq!(wire.prefixes(), expected, "{n_bit} {notification}");
    }
}

/// RFC 8538 §3.1: this also applies to NOTIFICATIONs of this speaker, such as that of the hold
/// timer.
#[test]
fn expired_hold_timer_keeps_routes_if_both_set_the_n_bit() {
    for n_bit in [false, true] {
        let (mut wire, client) = reflector(|graceful| graceful.notification = n_bit);
        wire.pass(91, &[]);
        let received = wire.received(client);
        let expired = Notification::hold_timer_expired();
        assert_eq!(received.last(), Some(&Received::Notification(expired)));
        let expected = if n_bit { &BOTH[..] } else { &[] };
        assert_eq!(wire.prefixes(), expected);
    }
}

#[test]
fn range_limit_counts_peers_with_retained_routes() {
    let (mut wire, client) = reflector(|_| {});
    wire.connect(3, &open(3));
    wire.lose(client);
    let refused = wire.dial(4);
    assert!(
        matches!(refused, Err(Refusal::RangeFull { limit: 2, .. })),
        "{refused:?}"
    );
    assert_eq!(wire.dial(2), Ok(client), "its place is kept, too");
    wire.lose(client);
    wire.pass(60, &[]);
    wire.dial(4).expect("the place is free");
}
