//! Limits of paths per peer and family (RFC 4271 §6.7, RFC 4486 §4), and of neighbors per range.

use bgp_fsm::State;
use bgp_proto::{
    Capability, Family, Notification, RefreshSubtype, RouteRefresh, notification::cease,
};
use bgp_speaker::limits::LIMIT_CHECK_EVERY;
use bgp_speaker::{Event, LimitAction, LimitLevel, NoRefresh, PeerView, PrefixLimit, Refusal};
use rib::PeerId;
use testkit::fixture::{clients, graceful_open, open, speaker_config};
use testkit::{Received, Update};

use super::wire::Wire;

const V4: Family = Family::IPV4_UNICAST;
const FOUR: [&str; 4] = [
    "10.65.0.1/32",
    "10.65.0.2/32",
    "10.65.0.3/32",
    "10.65.0.4/32",
];

/// Returns a reflector that accepts three prefixes from each client of a range, and its client 2.
fn reflector(action: LimitAction) -> (Wire, PeerId) {
    let mut config = speaker_config(1);
    let mut range = clients(1, 2);
    let limit = PrefixLimit::new(3).with_warning(67).with_action(action);
    range.template.prefix_limits.insert(V4, limit);
    range.template.session.graceful_restart = Some(bgp_fsm::GracefulRestartConfig::default());
    config.ranges.push(range);
    let mut wire = Wire::new(config);
    let client = wire.connect(2, &open(2));
    (wire, client)
}

fn levels(wire: &Wire) -> Vec<LimitLevel> {
    let levels = wire.events().iter().filter_map(|event| match event {
        Event::PrefixLimit { level, .. } => Some(*level),
        _ => None,
    });
    levels.collect()
}

fn limited(wire: &Wire, peer: PeerId) -> u64 {
    wire.speaker().rib().counters(peer, V4).limited
}

#[test]
fn limit_with_warning_accepts_all_paths() {
    let (mut wire, client) = reflector(LimitAction::Warn);
    wire.send(client, Update::reach(&FOUR[..1]));
    assert_eq!(levels(&wire), []);
    wire.send(client, Update::reach(&FOUR[..3]));
    assert_eq!(levels(&wire), [LimitLevel::Near], "two thirds, or more");
    wire.send(client, Update::reach(FOUR));
    assert_eq!(levels(&wire), [LimitLevel::Near, LimitLevel::Passed]);
    assert_eq!(wire.prefixes(), FOUR);
    // Reported once, until the number has been below the warning share.
    wire.send(client, Update::unreach(&FOUR[3..]));
    wire.send(client, Update::reach(FOUR));
    assert_eq!(levels(&wire).len(), 2);
    wire.send(client, Update::unreach(&FOUR[1..]));
    wire.send(client, Update::reach(FOUR));
    assert_eq!(levels(&wire).len(), 3);
}

#[test]
fn path_over_the_limit_is_rejected_and_counted() {
    let (mut wire, client) = reflector(LimitAction::Drop);
    wire.send(client, Update::reach(FOUR));
    assert_eq!(wire.prefixes(), FOUR[..3]);
    assert_eq!(limited(&wire, client), 1);
    assert_eq!(levels(&wire), [LimitLevel::Passed]);
    wire.send(client, Update::unreach(&FOUR[..1]));
    wire.send(client, Update::reach(&FOUR[3..]));
    assert_eq!(wire.prefixes(), FOUR[1..], "what goes makes room");
    wire.send(client, Update::unreach(&FOUR[2..]));
    let peak = |view: PeerView<'_>| view.path_peaks.get(&V4).copied();
    let view = wire.speaker().peers().find(|view| view.id == client);
    assert_eq!(view.and_then(peak), Some(3), "what was there at most");
    wire.send(client, Update::reach(&FOUR[2..]));
    assert_eq!(wire.state(client), State::Established);
    let other = wire.connect(3, &open(3));
    wire.send(other, Update::reach(["10.66.0.1/32"]));
    assert_eq!(wire.prefixes().len(), 4, "each has its own");
}

/// Returns the number of ROUTE-REFRESH messages that a peer receives within three checks.
fn requests(wire: &mut Wire, peer: PeerId) -> usize {
    wire.pass(3 * LIMIT_CHECK_EVERY.as_secs(), &[peer]);
    let request = Received::Refresh(RouteRefresh::request(V4));
    let received = wire.received(peer);
    received.iter().filter(|each| **each == request).count()
}

fn cleared(wire: &Wire) -> Vec<Result<(), NoRefresh>> {
    let cleared = wire.events().iter().filter_map(|event| match event {
        Event::PrefixLimitCleared { refresh, .. } => Some(*refresh),
        _ => None,
    });
    cleared.collect()
}

#[test]
fn rejected_paths_are_requested_once_there_is_room() {
    let (mut wire, client) = reflector(LimitAction::Drop);
    wire.send(client, Update::reach(&FOUR[..2]));
    assert_eq!(requests(&mut wire, client), 0, "nothing was rejected");
    wire.send(client, Update::reach(FOUR));
    assert_eq!(requests(&mut wire, client), 0, "it stays at its limit");
    for times in 1..=2 {
        wire.send(client, Update::unreach(&FOUR[..1]));
        assert_eq!(requests(&mut wire, client), 1);
        assert_eq!(cleared(&wire), vec![Ok(()); times]);
        assert_eq!(levels(&wire).last(), Some(&LimitLevel::Passed));
        // The peer sends what it has: more than the limit again.
        wire.send(client, Update::reach(FOUR));
        assert_eq!(wire.prefixes().len(), 3);
        assert_eq!(requests(&mut wire, client), 0);
    }
    let passed = levels(&wire);
    let passed = passed.iter().filter(|level| **level == LimitLevel::Passed);
    assert_eq!(passed.count(), 3, "each time");
}

/// A peer that withdraws and advertises without end is asked once in each interval.
#[test]
fn limited_peer_that_flaps_is_asked_at_an_interval() {
    let (mut wire, client) = reflector(LimitAction::Drop);
    let seconds = 10 * LIMIT_CHECK_EVERY.as_secs();
    for _ in 0..seconds / 2 {
        wire.send(client, Update::reach(FOUR));
        wire.send(client, Update::unreach(&FOUR[..2]));
        wire.pass(2, &[client]);
    }
    let asked = cleared(&wire).len();
    assert!((5..=10).contains(&asked), "{asked}");
}

#[test]
fn rejected_paths_are_requested_after_a_sweep() {
    let (mut wire, client) = reflector(LimitAction::Drop);
    wire.send(client, Update::reach(FOUR));
    let mark = |subtype| RouteRefresh {
        family: V4,
        subtype,
    };
    wire.send(client, mark(RefreshSubtype::Begin));
    wire.send(client, Update::reach(&FOUR[..1]));
    wire.send(client, mark(RefreshSubtype::End));
    assert_eq!(wire.prefixes(), FOUR[..1]);
    assert_eq!(requests(&mut wire, client), 1);
}

#[test]
fn missing_route_refresh_is_reported_at_a_limit() {
    let (mut wire, _) = reflector(LimitAction::Drop);
    let mut open = open(3);
    open.capabilities.retain(|capability| {
        !matches!(
            capability,
            Capability::RouteRefresh | Capability::EnhancedRouteRefresh
        )
    });
    let client = wire.connect(3, &open);
    wire.send(client, Update::reach(FOUR));
    wire.send(client, Update::unreach(&FOUR[..1]));
    assert_eq!(requests(&mut wire, client), 0);
    assert_eq!(cleared(&wire), [Err(NoRefresh::NotSupported)]);
    // The next session has all paths.
    wire.send(client, Update::reach(FOUR));
    wire.lose(client);
    let client = wire.connect(3, &open);
    assert_eq!(requests(&mut wire, client), 0);
    assert_eq!(cleared(&wire).len(), 1);
}

/// A dynamic client that is removed would lose its idle hold, and could send too many routes again
/// at once.
#[test]
fn session_over_its_limit_is_held_and_peer_remembered() {
    let (mut wire, client) = reflector(LimitAction::Restart { after_s: 120 });
    wire.send(client, Update::reach(&FOUR[..3]));
    assert_eq!(wire.state(client), State::Established);
    wire.send(client, Update::reach(&FOUR[3..]));
    let expected = Received::Notification(Notification::prefix_limit(V4, 3));
    assert_eq!(wire.received(client).last(), Some(&expected));
    assert!(wire.prefixes().is_empty());
    wire.pass(119, &[]);
    let rejected = Notification::cease(cease::CONNECTION_REJECTED);
    assert_eq!(wire.dial(2), Err(Refusal::Session(rejected)));
    assert_eq!(wire.speaker().peers().count(), 1);
    wire.pass(1, &[]);
    assert_eq!(
        wire.speaker().peers().count(),
        0,
        "nothing is left to remember"
    );
    let client = wire.connect(2, &open(2));
    wire.send(client, Update::reach(&FOUR[..3]));
    assert_eq!(wire.prefixes(), FOUR[..3]);
}

/// RFC 8538 §4: it is a hard reset, so neither side retains routes.
#[test]
fn a_limit_is_a_hard_reset() {
    let (mut wire, client) = reflector(LimitAction::Restart { after_s: 120 });
    wire.lose(client);
    let client = wire.connect(
        2,
        &graceful_open(2, |graceful| graceful.notification = true),
    );
    wire.send(client, Update::reach(FOUR));
    let hard = Notification::hard_reset(&Notification::prefix_limit(V4, 3));
    assert_eq!(
        wire.received(client).last(),
        Some(&Received::Notification(hard))
    );
    assert!(wire.prefixes().is_empty());
}

#[test]
fn returning_client_has_its_whole_prefix_limit() {
    let (mut wire, client) = reflector(LimitAction::Drop);
    wire.send(client, Update::reach(&FOUR[..3]));
    wire.lose(client);
    let client = wire.connect(2, &open(2));
    wire.send(
        client,
        Update::reach(["10.67.0.1/32", "10.67.0.2/32", "10.67.0.3/32"]),
    );
    assert_eq!((wire.prefixes().len(), limited(&wire, client)), (3, 0));
}

/// The number contains them for a moment only.
#[test]
fn paths_to_be_swept_give_no_warning() {
    let (mut wire, client) = reflector(LimitAction::Warn);
    wire.send(client, Update::reach(&FOUR[..1]));
    for subtype in [RefreshSubtype::Begin, RefreshSubtype::End] {
        let family = V4;
        wire.send_only(client, RouteRefresh { family, subtype });
    }
    // Before the sweep.
    wire.send_only(client, Update::reach(&FOUR[1..2]));
    assert_eq!(wire.speaker().rib().counters(client, V4).paths, 2);
    assert_eq!(levels(&wire), []);
    assert_eq!(wire.prefixes(), FOUR[1..2]);
    wire.send(client, Update::reach(&FOUR[2..3]));
    assert_eq!(levels(&wire), [LimitLevel::Near], "two that stay");
}

#[test]
fn neighbor_over_the_limit_gets_a_text() {
    let (mut wire, _) = reflector(LimitAction::Warn);
    wire.connect(3, &open(3));
    let refusal = wire.dial(4).expect_err("full");
    let notification = refusal.notification();
    assert_eq!(
        (notification.code, notification.subcode),
        (6, cease::OUT_OF_RESOURCES)
    );
    let text = notification.shutdown_text().expect("a text");
    assert!(text.starts_with("neighbor_range "), "{text}");
    assert!(text.ends_with(" is full: limit = 2"), "{text}");
}
