//! The end of waiting for peers after a restart of the speaker.

use std::collections::BTreeSet;
use std::{net::IpAddr, time::Duration};

use bgp_proto::{Notification, notification::cease};
use bgp_speaker::{Restart, SpeakerConfig};
use testkit::fixture::address;
use testkit::{Received, Update};

use super::restarter::{V4, V6, WAIT, client, config, restarted, whole};
use super::wire::Wire;

const MARKERS: [Received; 2] = [Received::EndOfRib(V4), Received::EndOfRib(V6)];

/// Returns [`config`] with a range whose peers are not awaited.
fn unawaited() -> SpeakerConfig {
    let mut config = config();
    config.ranges[0].awaited = false;
    config
}

fn waits_for(wire: &Wire) -> BTreeSet<IpAddr> {
    wire.speaker().awaited().into_iter().flatten().collect()
}

// Promise (Route reflectors): A reflector that restarts waits only for the clients that will
// connect.
/// As if the datastore shows that they have chosen other reflectors.
#[test]
fn unexpected_peer_is_awaited_only_after_it_connects() {
    let mut wire =
        Wire::prepared(unawaited(), |speaker| {
            speaker.restarted(Restart::new(Duration::from_secs(WAIT)).with_dynamic(
                BTreeSet::from([3, 4].map(|number| IpAddr::V4(address(number)))),
            ));
        });
    assert_eq!(waits_for(&wire), [IpAddr::V4(address(2))].into());
    let three = wire.connect(3, &client(3));
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    let two = wire.connect(2, &client(2));
    whole(&mut wire, two);
    assert_eq!(waits_for(&wire), [IpAddr::V4(address(3))].into());
    assert_eq!(wire.received(two), []);
    whole(&mut wire, three);
    let expected = [
        Received::Reach(vec!["10.65.0.3/32".into()]),
        Received::EndOfRib(V4),
        Received::EndOfRib(V6),
    ];
    assert_eq!(wire.received(two), expected, "client 4 is not awaited");
}

#[test]
fn peer_no_longer_expected_is_not_awaited() {
    let mut gone = config();
    gone.ranges.clear();
    for config in [unawaited(), gone] {
        let mut wire = restarted(false);
        let two = wire.connect(2, &client(2));
        whole(&mut wire, two);
        assert_eq!(waits_for(&wire), [IpAddr::V4(address(3))].into());
        wire.reconfigure(config).expect("taken");
        assert_eq!(wire.received(two), MARKERS);
        assert!(wire.speaker().deferred().is_empty());
    }
}

/// It has connected, and its OPEN determines which markers are awaited.
#[test]
fn connected_peer_is_awaited_in_any_case() {
    let mut wire = restarted(false);
    let two = wire.connect(2, &client(2));
    whole(&mut wire, two);
    let three = wire.connect(3, &client(3));
    wire.reconfigure(unawaited()).expect("taken");
    assert_eq!(wire.received(two), []);
    assert_eq!(waits_for(&wire), [IpAddr::V4(address(3))].into());
    // Its connection breaks: it did not shut down for good.
    wire.lose(three);
    assert_eq!(waits_for(&wire), [IpAddr::V4(address(3))].into());
    let three = wire.connect(3, &client(3));
    whole(&mut wire, three);
    assert_eq!(wire.received(two), MARKERS);
}

#[test]
fn peer_that_leaves_for_good_is_not_awaited() {
    let for_good = [
        (cease::PEER_DECONFIGURED, true),
        (cease::ADMINISTRATIVE_SHUTDOWN, true),
        (cease::HARD_RESET, true),
        (cease::OTHER_CONFIGURATION_CHANGE, false),
        (cease::CONNECTION_COLLISION_RESOLUTION, false),
    ];
    for (subcode, leaves) in for_good {
        let mut wire = restarted(false);
        let two = wire.connect(2, &client(2));
        whole(&mut wire, two);
        let three = wire.connect(3, &client(3));
        wire.send(three, Notification::cease(subcode));
        let expected = if leaves { &MARKERS[..] } else { &[] };
        assert_eq!(wire.received(two), expected, "Cease/{subcode}");
    }
}
