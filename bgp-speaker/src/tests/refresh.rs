//! RFC 2918 and RFC 7313, in both directions.

use alloc::{string::String, vec, vec::Vec};

use bgp_fsm::State;
use bgp_proto::{Capability, Family, RefreshSubtype, RouteRefresh};
use rib::PeerId;

use super::fabric::{clients, speaker_config};
use super::wire::{Heard, Say, Wire, open};
use crate::{Event, NoRefresh, limits::REFRESH_MAX};

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

fn request() -> Say {
    Say::Refresh(RouteRefresh::request(V4))
}

/// A reflector with its client 2, which announced two prefixes, and client 3 with the capabilities
/// of `edit`, which holds them.
fn reflector(edit: impl FnOnce(&mut Vec<Capability>)) -> (Wire, PeerId, PeerId) {
    let mut config = speaker_config(1);
    config.ranges.push(clients(1, 10));
    let mut wire = Wire::new(config);
    let source = wire.connect(2, &open(2));
    wire.say(source, Say::Reach(&["10.65.0.1/32", "10.65.0.2/32"]));
    let mut theirs = open(3);
    edit(&mut theirs.capabilities);
    let client = wire.connect(3, &theirs);
    wire.hear(source);
    wire.hear(client);
    (wire, source, client)
}

/// Prefixes in what was heard.
fn reached(heard: &[Heard]) -> Vec<String> {
    let nets = heard.iter().filter_map(|heard| match heard {
        Heard::Reach(nets) => Some(nets.clone()),
        _ => None,
    });
    let mut nets: Vec<String> = nets.flatten().collect();
    nets.sort();
    nets
}

const BOTH: [&str; 2] = ["10.65.0.1/32", "10.65.0.2/32"];

#[test]
fn a_request_is_answered_between_borders() {
    let (mut wire, _, client) = reflector(|_| {});
    wire.say(client, request());
    let heard = wire.hear(client);
    assert_eq!(heard.first(), Some(&Heard::Refresh(begin())));
    assert_eq!(heard.last(), Some(&Heard::Refresh(end())));
    assert_eq!(reached(&heard), BOTH);
    // And changes come as before.
    let source = wire.connect(4, &open(4));
    wire.say(source, Say::Reach(&["10.65.0.3/32"]));
    assert_eq!(
        wire.hear(client),
        [Heard::Reach(vec!["10.65.0.3/32".into()])]
    );
}

#[test]
fn who_knows_no_borders_is_sent_none() {
    let (mut wire, _, client) =
        reflector(|offer| offer.retain(|c| *c != Capability::EnhancedRouteRefresh));
    wire.say(client, request());
    let heard = wire.hear(client);
    assert!(
        heard.iter().all(|heard| matches!(heard, Heard::Reach(_))),
        "{heard:?}"
    );
    assert_eq!(reached(&heard), BOTH);
}

#[test]
fn an_empty_table_is_refreshed_too() {
    let (mut wire, source, client) = reflector(|_| {});
    wire.say(source, Say::Unreach(&BOTH));
    wire.hear(client);
    wire.say(client, request());
    assert_eq!(
        wire.hear(client),
        [Heard::Refresh(begin()), Heard::Refresh(end())]
    );
}

/// RFC 7313 §4.1: no refresh begins before the End-of-RIB marker; and many requests are one.
#[test]
fn requests_during_a_walk_are_answered_once_after_it() {
    let mut config = speaker_config(1);
    config.ranges.push(clients(1, 10));
    let mut wire = Wire::new(config);
    let source = wire.connect(2, &open(2));
    wire.say(source, Say::Reach(&BOTH));
    let peer = wire.dial(3).expect("admitted");
    let mut message = bytes::BytesMut::new();
    open(3).encode(&mut message);
    let frames = [&message[..], &{
        let mut more = bytes::BytesMut::new();
        bgp_proto::UpdateWriter::keepalive(&mut more);
        for _ in 0..5 {
            RouteRefresh::request(V4).encode(&mut more);
        }
        more
    }]
    .concat();
    // All arrives before the speaker gets to write anything.
    let mut octets = bytes::BytesMut::from(&frames[..]);
    while let Some(frame) = bgp_proto::next_frame(&mut octets, 4096).expect("messages") {
        let conn = bgp_fsm::Conn::Inbound;
        let input = bgp_fsm::Input::Received { conn, frame };
        wire.speaker
            .handle(wire.now, crate::Input::Session(peer, input));
    }
    let heard = wire.hear(peer);
    let place = |wanted: &Heard| heard.iter().position(|heard| heard == wanted);
    let marks = heard
        .iter()
        .filter(|heard| matches!(heard, Heard::Refresh(_)));
    assert_eq!(marks.count(), 2, "{heard:?}");
    assert!(
        place(&Heard::EndOfRib(V4)) < place(&Heard::Refresh(begin())),
        "{heard:?}"
    );
    assert_eq!(reached(&heard).len(), 4, "the feed and one refresh");
}

#[test]
fn what_is_not_sent_again_goes_at_the_end() {
    let (mut wire, source, client) = reflector(|_| {});
    wire.say(source, Say::Refresh(begin()));
    wire.say(source, Say::Reach(&["10.65.0.2/32"]));
    assert_eq!(wire.prefixes(), BOTH, "not before the end");
    wire.say(source, Say::Refresh(end()));
    assert_eq!(wire.prefixes(), ["10.65.0.2/32"]);
    assert_eq!(
        wire.hear(client),
        [Heard::Unreach(vec!["10.65.0.1/32".into()])],
        "what was sent again unchanged is no news"
    );
    let told = |event: &Event| matches!(event, Event::Refreshed { peer, .. } if *peer == source);
    assert!(wire.events.iter().any(told));
}

#[test]
fn an_end_that_never_comes_is_not_waited_for_for_ever() {
    let (mut wire, source, _) = reflector(|_| {});
    wire.say(source, Say::Refresh(begin()));
    wire.say(source, Say::Reach(&["10.65.0.2/32"]));
    wire.pass(REFRESH_MAX.as_secs() - 1, &[source]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[source]);
    assert_eq!(wire.prefixes(), ["10.65.0.2/32"]);
    let told = |event: &Event| matches!(event, Event::RefreshOverdue { .. });
    assert_eq!(wire.events.iter().filter(|event| told(event)).count(), 1);
    wire.say(source, Say::Refresh(end()));
    wire.pass(REFRESH_MAX.as_secs(), &[source]);
    assert_eq!(
        wire.prefixes(),
        ["10.65.0.2/32"],
        "a late end finds nothing"
    );
}

#[test]
fn a_refresh_begun_anew_counts_from_then() {
    let (mut wire, source, _) = reflector(|_| {});
    wire.say(source, Say::Refresh(begin()));
    wire.say(source, Say::Reach(&["10.65.0.1/32"]));
    wire.say(source, Say::Refresh(begin()));
    wire.say(source, Say::Reach(&["10.65.0.2/32"]));
    wire.say(source, Say::Refresh(end()));
    assert_eq!(wire.prefixes(), ["10.65.0.2/32"]);
}

#[test]
fn what_was_not_negotiated_is_ignored() {
    let (mut wire, source, client) =
        reflector(|offer| offer.retain(|c| *c != Capability::EnhancedRouteRefresh));
    // Another family, a subtype that nobody knows, an end without a beginning.
    wire.say(
        source,
        Say::Refresh(RouteRefresh::request(Family::L2VPN_EVPN)),
    );
    wire.say(source, Say::Refresh(mark(RefreshSubtype(9))));
    wire.say(source, Say::Refresh(end()));
    // Marks of a peer that has not offered them.
    wire.say(client, Say::Reach(&["10.65.0.9/32"]));
    wire.hear(source);
    wire.say(client, Say::Refresh(begin()));
    wire.say(client, Say::Refresh(end()));
    assert_eq!(wire.prefixes().len(), 3);
    assert!(wire.hear(source).is_empty() && wire.hear(client).is_empty());
    assert_eq!(wire.state(source), State::Established);
}

/// RFC 7313 §5.
#[test]
fn a_border_of_the_wrong_length_ends_the_session() {
    let (mut wire, source, _) = reflector(|_| {});
    wire.say(source, Say::Raw(5, &[0, 1, 1, 1, 0]));
    let heard = wire.hear(source);
    let Some(Heard::Notification(told)) = heard.last() else {
        panic!("{heard:?}");
    };
    assert_eq!((told.code, told.subcode, told.data.len()), (7, 1, 24));
}

#[test]
fn a_session_that_ends_ends_its_refreshes() {
    let (mut wire, source, client) = reflector(|_| {});
    wire.say(source, Say::Refresh(begin()));
    wire.lose(source);
    let source = wire.connect(2, &open(2));
    wire.say(source, Say::Reach(&BOTH));
    wire.pass(REFRESH_MAX.as_secs() + 1, &[source, client]);
    assert_eq!(wire.prefixes(), BOTH);
}

#[test]
fn the_operator_asks_for_what_the_peer_can_send() {
    let (mut wire, source, client) =
        reflector(|offer| offer.retain(|c| *c != Capability::RouteRefresh));
    let both = wire.speaker.ask_refresh(source, None).expect("asked");
    assert!(both.contains(V4) && both.contains(Family::IPV6_UNICAST));
    let asked = |family| Heard::Refresh(RouteRefresh::request(family));
    assert_eq!(wire.hear(source), [asked(V4), asked(Family::IPV6_UNICAST)]);
    wire.speaker.ask_refresh(source, Some(V4)).expect("asked");
    assert_eq!(wire.hear(source), [asked(V4)]);
    let refused = |wire: &mut Wire, peer, family| wire.speaker.ask_refresh(peer, family);
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
    assert!(wire.hear(client).is_empty());
}
