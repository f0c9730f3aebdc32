//! RFC 2918 and RFC 7313, in both directions.

use bgp_fsm::State;
use bgp_proto::{Capability, Family, RefreshSubtype, RouteRefresh};
use bgp_speaker::{Event, NoRefresh, limits::REFRESH_MAX};
use rib::PeerId;
use testkit::fixture::{clients, open, speaker_config};
use testkit::{Keepalive, Raw, Received, Update};

use super::wire::Wire;

const V4: Family = Family::IPV4_UNICAST;

fn mark(subtype: RefreshSubtype) -> RouteRefresh {
    RouteRefresh {
        family: V4,
        subtype,
    }
}

fn begin() -> RouteRefresh {
    mark(RefreshSubtype::Begin)
}

fn end() -> RouteRefresh {
    mark(RefreshSubtype::End)
}

fn request() -> RouteRefresh {
    RouteRefresh::request(V4)
}

/// Returns a reflector with its client 2, which has announced two prefixes, and client 3 with the
/// capabilities of `edit`, which has received them.
fn reflector(edit: impl FnOnce(&mut Vec<Capability>)) -> (Wire, PeerId, PeerId) {
    let mut config = speaker_config(1);
    config.ranges.push(clients(1, 10));
    let mut wire = Wire::new(config);
    let source = wire.connect(2, &open(2));
    wire.send(source, Update::reach(["10.65.0.1/32", "10.65.0.2/32"]));
    let mut theirs = open(3);
    edit(&mut theirs.capabilities);
    let client = wire.connect(3, &theirs);
    wire.received(source);
    wire.received(client);
    (wire, source, client)
}

/// Returns the prefixes in received messages.
fn reached(received: &[Received]) -> Vec<String> {
    let nets = received.iter().filter_map(|received| match received {
        Received::Reach(nets) => Some(nets.clone()),
        _ => None,
    });
    let mut nets: Vec<String> = nets.flatten().collect();
    nets.sort();
    nets
}

const BOTH: [&str; 2] = ["10.65.0.1/32", "10.65.0.2/32"];

#[test]
fn refresh_is_answered_between_borr_and_eorr() {
    let (mut wire, _, client) = reflector(|_| {});
    wire.send(client, request());
    let received = wire.received(client);
    assert_eq!(received.first(), Some(&Received::Refresh(begin())));
    assert_eq!(received.last(), Some(&Received::Refresh(end())));
    assert_eq!(reached(&received), BOTH);
    // Changes are sent as before.
    let source = wire.connect(4, &open(4));
    wire.send(source, Update::reach(["10.65.0.3/32"]));
    assert_eq!(
        wire.received(client),
        [Received::Reach(vec!["10.65.0.3/32".into()])]
    );
}

#[test]
fn peer_without_enhanced_refresh_gets_no_borr() {
    let (mut wire, _, client) =
        reflector(|offer| offer.retain(|c| *c != Capability::EnhancedRouteRefresh));
    wire.send(client, request());
    let received = wire.received(client);
    assert!(
        received
            .iter()
            .all(|received| matches!(received, Received::Reach(_))),
        "{received:?}"
    );
    assert_eq!(reached(&received), BOTH);
}

#[test]
fn an_empty_table_is_refreshed_too() {
    let (mut wire, source, client) = reflector(|_| {});
    wire.send(source, Update::unreach(BOTH));
    wire.received(client);
    wire.send(client, request());
    assert_eq!(
        wire.received(client),
        [Received::Refresh(begin()), Received::Refresh(end())]
    );
}

/// RFC 7313 §4.1: no refresh begins before the End-of-RIB marker; and many requests count as one.
#[test]
fn requests_during_a_transfer_get_one_refresh_after_it() {
    let mut config = speaker_config(1);
    config.ranges.push(clients(1, 10));
    let mut wire = Wire::new(config);
    let source = wire.connect(2, &open(2));
    wire.send(source, Update::reach(BOTH));
    let peer = wire.dial(3).expect("admitted");
    // All of these arrive before the speaker can write.
    wire.send_only(peer, open(3));
    wire.send_only(peer, Keepalive);
    for _ in 0..5 {
        wire.send_only(peer, RouteRefresh::request(V4));
    }
    let received = wire.received(peer);
    let place = |wanted: &Received| received.iter().position(|received| received == wanted);
    let marks = received
        .iter()
        .filter(|received| matches!(received, Received::Refresh(_)));
    assert_eq!(marks.count(), 2, "{received:?}");
    assert!(
        place(&Received::EndOfRib(V4)) < place(&Received::Refresh(begin())),
        "{received:?}"
    );
    assert_eq!(reached(&received).len(), 4, "the feed and one refresh");
}

#[test]
fn path_not_refreshed_is_removed_at_eorr() {
    let (mut wire, source, client) = reflector(|_| {});
    wire.send(source, begin());
    wire.send(source, Update::reach(["10.65.0.2/32"]));
    assert_eq!(wire.prefixes(), BOTH, "not before the end");
    wire.send(source, end());
    assert_eq!(wire.prefixes(), ["10.65.0.2/32"]);
    assert_eq!(
        wire.received(client),
        [Received::Unreach(vec!["10.65.0.1/32".into()])],
        "what was sent again unchanged is no news"
    );
    let is_expected =
        |event: &Event| matches!(event, Event::Refreshed { peer, .. } if *peer == source);
    assert!(wire.events().iter().any(is_expected));
}

#[test]
fn refresh_without_eorr_ends_at_its_deadline() {
    let (mut wire, source, _) = reflector(|_| {});
    wire.send(source, begin());
    wire.send(source, Update::reach(["10.65.0.2/32"]));
    wire.pass(REFRESH_MAX.as_secs() - 1, &[source]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[source]);
    assert_eq!(wire.prefixes(), ["10.65.0.2/32"]);
    let is_expected = |event: &Event| matches!(event, Event::RefreshOverdue { .. });
    assert_eq!(
        wire.events()
            .iter()
            .filter(|event| is_expected(event))
            .count(),
        1
    );
    wire.send(source, end());
    wire.pass(REFRESH_MAX.as_secs(), &[source]);
    assert_eq!(
        wire.prefixes(),
        ["10.65.0.2/32"],
        "a late end finds nothing"
    );
}

/// The newer BoRR alone has a deadline.
#[test]
fn second_borr_extends_the_deadline() {
    let (mut wire, source, _) = reflector(|_| {});
    wire.send(source, begin());
    wire.pass(REFRESH_MAX.as_secs() - 1, &[source]);
    wire.send(source, begin());
    wire.pass(REFRESH_MAX.as_secs() - 1, &[source]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[source]);
    assert!(wire.prefixes().is_empty());
    let overdue = |event: &&Event| matches!(event, Event::RefreshOverdue { .. });
    assert_eq!(wire.events().iter().filter(overdue).count(), 1);
}

#[test]
fn second_borr_restarts_the_refresh() {
    let (mut wire, source, _) = reflector(|_| {});
    wire.send(source, begin());
    wire.send(source, Update::reach(["10.65.0.1/32"]));
    wire.send(source, begin());
    wire.send(source, Update::reach(["10.65.0.2/32"]));
    wire.send(source, end());
    assert_eq!(wire.prefixes(), ["10.65.0.2/32"]);
}

#[test]
fn unnegotiated_refresh_is_ignored() {
    let (mut wire, source, client) =
        reflector(|offer| offer.retain(|c| *c != Capability::EnhancedRouteRefresh));
    // Another family, an unknown subtype, an EoRR without BoRR.
    wire.send(source, RouteRefresh::request(Family::L2VPN_EVPN));
    wire.send(source, mark(RefreshSubtype(9)));
    wire.send(source, end());
    // Markers of a peer that has not offered the capability.
    wire.send(client, Update::reach(["10.65.0.9/32"]));
    wire.received(source);
    wire.send(client, begin());
    wire.send(client, end());
    assert_eq!(wire.prefixes().len(), 3);
    assert!(wire.received(source).is_empty() && wire.received(client).is_empty());
    assert_eq!(wire.state(source), State::Established);
    // No refresh has begun that would have to end.
    wire.pass(REFRESH_MAX.as_secs(), &[source, client]);
    assert_eq!(wire.prefixes().len(), 3);
    let ended = |event: &Event| {
        matches!(
            event,
            Event::Refreshed { .. } | Event::RefreshOverdue { .. }
        )
    };
    assert!(!wire.events().iter().any(ended), "{:?}", wire.events());
}

/// RFC 7313 §5.
#[test]
fn borr_of_wrong_length_ends_the_session() {
    let (mut wire, source, _) = reflector(|_| {});
    wire.send(source, Raw(5, &[0, 1, 1, 1, 0]));
    let received = wire.received(source);
    let Some(Received::Notification(notification)) = received.last() else {
        panic!("{received:?}");
    };
    assert_eq!(
        (
            notification.code,
            notification.subcode,
            notification.data.len()
        ),
        (7, 1, 24)
    );
}

#[test]
fn a_session_that_ends_ends_its_refreshes() {
    let (mut wire, source, client) = reflector(|_| {});
    wire.send(source, begin());
    wire.lose(source);
    let source = wire.connect(2, &open(2));
    wire.send(source, Update::reach(BOTH));
    wire.pass(REFRESH_MAX.as_secs() + 1, &[source, client]);
    assert_eq!(wire.prefixes(), BOTH);
}

#[test]
fn refresh_request_is_limited_to_negotiated_families() {
    let (mut wire, source, client) =
        reflector(|offer| offer.retain(|c| *c != Capability::RouteRefresh));
    let both = wire
        .speaker_mut()
        .request_refresh(source, None)
        .expect("asked");
    assert!(both.contains(V4) && both.contains(Family::IPV6_UNICAST));
    let asked = |family| Received::Refresh(RouteRefresh::request(family));
    assert_eq!(
        wire.received(source),
        [asked(V4), asked(Family::IPV6_UNICAST)]
    );
    wire.speaker_mut()
        .request_refresh(source, Some(V4))
        .expect("asked");
    assert_eq!(wire.received(source), [asked(V4)]);
    let refused = |wire: &mut Wire, peer, family| wire.speaker_mut().request_refresh(peer, family);
    let other = Some(Family::L2VPN_EVPN);
    assert_eq!(
        refused(&mut wire, source, other),
        Err(NoRefresh::OtherFamilies)
    );
    assert_eq!(
        refused(&mut wire, client, None),
        Err(NoRefresh::NotSupported)
    );
    assert_eq!(refused(&mut wire, PeerId(99), None), Err(NoRefresh::NotUp));
    assert!(wire.received(client).is_empty());
}
