//! Messages of up to 65,535 octets (RFC 8654): received where we offered them, sent where the peer did.

use alloc::{vec, vec::Vec};

use bgp_proto::{Capability, Family, MESSAGE_OCTETS_MAX, Open, RouteRefresh};
use rib::PeerId;

use super::fabric::{clients, speaker_config};
use super::wire::{Heard, Say, Wire, open};

const NET: [&str; 1] = ["10.65.0.1/32"];

fn extended(number: usize) -> Open {
    let mut open = open(number);
    open.capabilities.push(Capability::ExtendedMessage);
    open
}

/// A reflector that offers long messages, a source that takes the offer, and two more clients: one
/// that does and one that does not.
fn reflector() -> (Wire, [PeerId; 3]) {
    let mut config = speaker_config(1);
    let mut range = clients(1, 10);
    range.template.session.extended_messages = true;
    config.ranges.push(range);
    let mut wire = Wire::new(config);
    let source = wire.connect(2, &extended(2));
    let long = wire.connect(3, &extended(3));
    let short = wire.connect(4, &open(4));
    (wire, [source, long, short])
}

#[test]
fn many_routes_are_sent_in_as_few_messages_as_each_may_have() {
    let (mut wire, [source, long, short]) = reflector();
    for third in 0..8 {
        wire.say(source, Say::Block(third));
    }
    let sizes = |wire: &mut Wire, peer| -> Vec<usize> {
        wire.hear(peer);
        wire.say(
            peer,
            Say::Refresh(RouteRefresh::request(Family::IPV4_UNICAST)),
        );
        wire.hear_sizes(peer)
    };
    let (long, short) = (sizes(&mut wire, long), sizes(&mut wire, short));
    assert!(
        long.iter().any(|octets| *octets > MESSAGE_OCTETS_MAX),
        "{long:?}"
    );
    assert!(
        short.iter().all(|octets| *octets <= MESSAGE_OCTETS_MAX),
        "{short:?}"
    );
    assert!(long.len() < short.len());
}

/// RFC 8654 §4: what cannot be told to a peer is withdrawn from it rather than left as it was.
#[test]
fn a_route_too_long_for_a_peer_is_withdrawn_from_it() {
    let (mut wire, [source, long, short]) = reflector();
    wire.say(source, Say::Reach(&NET));
    let reach = [Heard::Reach(vec![NET[0].into()])];
    assert_eq!(wire.hear(long), reach);
    assert_eq!(wire.hear(short), reach);
    wire.say(source, Say::Heavy(&NET));
    assert_eq!(wire.hear(long), reach);
    assert_eq!(wire.hear(short), [Heard::Unreach(vec![NET[0].into()])]);
    // Also from one that comes later and so never had it, which does no harm.
    let late = wire.connect(5, &open(5));
    assert!(!wire.hear(late).contains(&reach[0]));
    wire.say(source, Say::Reach(&NET));
    assert_eq!(wire.hear(short), reach, "and told again when it fits");
}

/// RFC 8654 §4: the capability advertises what its sender can receive.
#[test]
fn extended_update_is_accepted_from_a_peer_without_offer() {
    let (mut wire, [_, _, short]) = reflector();
    wire.say(short, Say::Heavy(&NET));
    assert_eq!(wire.prefixes(), NET);
    assert!(wire.hear(short).is_empty(), "the session stays up");
}

#[test]
fn extended_update_is_refused_where_it_was_not_offered() {
    let mut config = speaker_config(1);
    config.ranges.push(clients(1, 10));
    let mut wire = Wire::new(config);
    let peer = wire.connect(2, &extended(2));
    wire.say(peer, Say::Heavy(&NET));
    let heard = wire.hear(peer);
    let Some(Heard::Notification(sent)) = heard.last() else {
        panic!("{heard:?}");
    };
    // RFC 4271 §6.1: the data is the length.
    assert_eq!((sent.code, sent.subcode, sent.data.len()), (1, 2, 2));
}

#[test]
fn keepalive_never_has_more_octets_than_its_header() {
    let (mut wire, [source, ..]) = reflector();
    // RFC 8654 §4: a KEEPALIVE never grows.
    wire.say(source, Say::Raw(4, &[0; 5000]));
    let heard = wire.hear(source);
    assert!(matches!(heard.last(), Some(Heard::Notification(n)) if (n.code, n.subcode) == (1, 2)));
}
