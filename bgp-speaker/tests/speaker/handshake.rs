//! Connections that never become sessions: their effect on other peers, and their events.

use std::net::IpAddr;

use bgp_fsm::State;
use bgp_proto::{Asn, Family, Open};
use bgp_speaker::{Event, HandshakeFailure, HandshakeFailures, LimitAction, PrefixLimit, Refusal};
use rib::Role;
use testkit::fixture::{address, clients, neighbor, open, speaker_config};
use testkit::{Octets, Raw, Update};

use super::wire::Wire;

/// Returns a reflector with clients of the range 10.0.0.0/24.
fn reflector(limit: u16) -> Wire {
    let mut config = speaker_config(1);
    config.ranges.push(clients(1, limit));
    Wire::new(config)
}

fn failures(wire: &Wire) -> HandshakeFailures {
    wire.speaker().usage().ranges[0].failures
}

/// Returns the reports since the last call: the number of failures of each.
fn reports(wire: &mut Wire) -> Vec<u64> {
    let events = wire.take_events();
    let counts = events.iter().filter_map(|event| match event {
        Event::Handshakes { of, failures, .. } => {
            assert_eq!(of, "neighbor_range 10.0.0.0/24");
            Some(failures.total())
        }
        _ => None,
    });
    counts.collect()
}

#[test]
fn slow_connections_do_not_keep_honest_peer_out() {
    let mut wire = reflector(100);
    // One octet per second is no message within the handshake timeout.
    for number in 2..152 {
        wire.dial(number).expect("an older one makes room");
        assert!(wire.speaker().usage().ranges[0].peers.now <= 100);
    }
    let honest = wire.connect(200, &open(200));
    // They continue, and never evict the peer with a session.
    for number in 2..152 {
        wire.dial(number).expect("an older one makes room");
    }
    assert_eq!(wire.state(honest), State::Established);
    let evicted = failures(&wire).count(HandshakeFailure::Evicted);
    assert!(evicted >= 51, "{evicted}");
    // Without further octets they are closed after the handshake timeout.
    wire.pass(15, &[]);
    assert_eq!(wire.speaker().usage().ranges[0].peers.now, 1);
    assert!(failures(&wire).count(HandshakeFailure::Timeout) > 0);
    assert_eq!(wire.state(honest), State::Established);
}

#[test]
fn peer_with_valid_open_alone_does_not_keep_place() {
    let mut wire = reflector(2);
    let silent = Open {
        hold_time: 0,
        ..open(2)
    };
    for number in [2, 3] {
        let peer = wire.dial(number).expect("room");
        wire.send(peer, &silent);
        assert_eq!(wire.state(peer), State::OpenConfirm);
    }
    wire.connect(4, &open(4));
    assert_eq!(wire.peer(2), None, "the oldest went");
    assert!(wire.peer(3).is_some());
    wire.pass(15, &[]);
    assert_eq!(wire.peer(3), None, "and the other with its time");
}

#[test]
fn range_of_established_peers_evicts_none() {
    let mut wire = reflector(2);
    let peers = [2, 3].map(|number| wire.connect(number, &open(number)));
    let refused = wire.dial(4);
    assert!(matches!(refused, Err(Refusal::RangeFull { limit: 2, .. })));
    for peer in peers {
        assert_eq!(wire.state(peer), State::Established);
    }
    assert_eq!(failures(&wire).count(HandshakeFailure::Full), 1);
    assert_eq!(wire.speaker().usage().ranges[0].refused, 1);
}

/// Opens a connection from an IPv6 address, without sending an octet.
fn dial_v6(wire: &mut Wire, from: &str) {
    let [local, remote]: [IpAddr; 2] =
        ["fd00::1", from].map(|text| text.parse().expect("an address"));
    let dialed = wire.network.dial(remote, local);
    dialed.expect("an older one makes room");
}

#[test]
fn network_with_most_connections_loses_its_oldest() {
    let mut range = clients(1, 4);
    range.prefix = "fd00::/16".parse().expect("a prefix");
    let mut wire = Wire::new(speaker_config(1).with_range(range));
    let address = "fd00::1".parse().expect("an address");
    wire.network.add_address(1, address);
    let honest = ["fd00:1::1", "fd00:2::1"];
    dial_v6(&mut wire, honest[0]);
    for host in 1..100 {
        dial_v6(&mut wire, &format!("fd00:bad::{host:x}"));
    }
    dial_v6(&mut wire, honest[1]);
    for host in 100..200 {
        dial_v6(&mut wire, &format!("fd00:bad::{host:x}"));
    }
    let peers = wire.speaker().peers().map(|peer| peer.config.remote);
    let left: Vec<IpAddr> = peers.collect();
    assert_eq!(left.len(), 4, "{left:?}");
    for honest in honest {
        let honest = honest.parse().expect("an address");
        assert!(left.contains(&honest), "{left:?}");
    }
}

/// Opens a connection and sends octets that are not a message.
fn garbage(wire: &mut Wire, number: usize) {
    let peer = wire.dial(number).expect("room");
    wire.send(peer, Octets(b"GET / HTTP/1.1\r\n\r\n"));
    assert_eq!(wire.peer(number), None, "it leaves nothing behind");
}

#[test]
fn failed_handshakes_are_counted_and_reported_in_sum() {
    let mut wire = reflector(5);
    for round in 0..1_000 {
        garbage(&mut wire, 2 + round % 200);
    }
    assert_eq!(reports(&mut wire), [1], "the first at once");
    assert_eq!(failures(&wire).count(HandshakeFailure::Garbage), 1_000);
    wire.pass(10, &[]);
    assert_eq!(reports(&mut wire), [999], "and the others in one event");
    garbage(&mut wire, 2);
    assert!(reports(&mut wire).is_empty());
    wire.pass(10, &[]);
    assert_eq!(reports(&mut wire), [1]);
    // After a quiet period the next failure is reported at once again.
    wire.pass(20, &[]);
    assert_eq!(wire.speaker().poll_timeout(), None);
    garbage(&mut wire, 2);
    assert_eq!(reports(&mut wire), [1]);
}

#[test]
fn each_failed_handshake_has_its_reason() {
    use HandshakeFailure::{Closed, Notified, Replaced, Timeout, WrongAs};
    let mut wire = reflector(50);
    let stranger = wire.dial(2).expect("room");
    wire.send(
        stranger,
        &Open {
            asn: Asn(65_000),
            capabilities: vec![],
            ..open(2)
        },
    );
    let quitter = wire.dial(3).expect("room");
    wire.lose(quitter);
    let polite = wire.dial(4).expect("room");
    wire.send(polite, Raw(3, &[6, 2]));
    wire.dial(5).expect("room");
    wire.dial(5).expect("the newer one is taken");
    wire.pass(15, &[]);
    let counts = failures(&wire);
    for failure in [WrongAs, Closed, Notified, Replaced, Timeout] {
        assert_eq!(counts.count(failure), 1, "{failure}: {counts}");
    }
    assert_eq!(counts.total(), 5, "{counts}");
    assert_eq!(wire.speaker().peers().count(), 0);
    // Established sessions do not count, however they end.
    let peer = wire.connect(6, &open(6));
    wire.lose(peer);
    assert_eq!(failures(&wire).total(), 5);
}

/// For a configured neighbor the event of its session has the reason.
#[test]
fn rejected_connection_is_counted_for_ranges_only() {
    let mut neighbor = neighbor(1, 2, Role::Client);
    neighbor.session.passive = true;
    let mut config = speaker_config(1).with_peer(neighbor);
    config.ranges.push(clients(1, 5));
    let limit = PrefixLimit::new(1)
        .with_warning(100)
        .with_action(LimitAction::Restart { after_s: 120 });
    let ranges = config.ranges.iter_mut().map(|range| &mut range.template);
    for peer in config.peers.iter_mut().chain(ranges) {
        peer.prefix_limits.insert(Family::IPV4_UNICAST, limit);
    }
    let mut wire = Wire::new(config);
    for number in [2, 3] {
        let peer = wire.connect(number, &open(number));
        wire.send(peer, Update::reach(["10.65.0.1/32", "10.65.0.2/32"]));
        let refused = wire.dial(number);
        assert!(matches!(refused, Err(Refusal::Session(_))), "{refused:?}");
    }
    assert_eq!(wire.speaker().last_failure(address(2).into()), None);
    assert_eq!(reports(&mut wire), [1]);
    assert_eq!(failures(&wire).count(HandshakeFailure::Rejected), 1);
}

#[test]
fn failures_of_addresses_without_config_are_not_kept() {
    let mut wire = reflector(5);
    let stranger = IpAddr::from([192, 0, 2, 1]);
    let failure = HandshakeFailure::Unsigned;
    let now = wire.now();
    wire.speaker_mut().count_failure(now, stranger, failure);
    assert_eq!(wire.speaker().last_failure(stranger), None);
    wire.speaker_mut()
        .count_failure(now, address(9).into(), failure);
    assert_eq!(failures(&wire).count(failure), 1);
    // Counters of removed configuration are dropped.
    let without = speaker_config(1);
    wire.reconfigure(without).expect("the same speaker");
    wire.pass(30, &[]);
    wire.reconfigure({
        let mut config = speaker_config(1);
        config.ranges.push(clients(1, 5));
        config
    })
    .expect("the same speaker");
    assert_eq!(failures(&wire).total(), 0);
}

#[test]
fn events_of_ended_dynamic_peer_keep_its_name() {
    let mut wire = reflector(5);
    let peer = wire.connect(2, &open(2));
    wire.take_events();
    wire.lose(peer);
    assert_eq!(wire.speaker().peer_name(peer), "?", "the peer is forgotten");
    let names = wire.events().iter().filter_map(|event| match event {
        Event::Down { name, .. } | Event::State { name, .. } => Some(name.as_str()),
        _ => None,
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 2, "{names:?}");
    assert!(names.iter().all(|name| *name == "nodes-10.0.0.2"));
}
