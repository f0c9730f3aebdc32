//! Messages of up to 65,535 octets (RFC 8654): received if the speaker offered them, sent if the
//! peer did.

use bgp_proto::{AttrCode, Capability, Family, MESSAGE_OCTETS_MAX, Open, RouteRefresh};
use rib::PeerId;
use testkit::fixture::{clients, open, speaker_config};
use testkit::{OPTIONAL_TRANSITIVE, Raw, Received, Update};

use super::wire::{Wire, block};

const NET: [&str; 1] = ["10.65.0.1/32"];

/// Returns routes with some 5,000 octets of attributes.
fn heavy(nets: &[&str]) -> Update {
    let communities: Vec<u8> = (0..1_200_u32).flat_map(u32::to_be_bytes).collect();
    Update::reach(nets).with(OPTIONAL_TRANSITIVE, AttrCode::Communities, &communities)
}

fn extended(number: usize) -> Open {
    let mut open = open(number);
    open.capabilities.push(Capability::ExtendedMessage);
    open
}

/// Returns a reflector that offers long messages, a source that supports them, and two more
/// clients: one that does and one that does not.
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
        wire.send(source, block(third));
    }
    let sizes = |wire: &mut Wire, peer| -> Vec<usize> {
        wire.received(peer);
        wire.send(peer, RouteRefresh::request(Family::IPV4_UNICAST));
        wire.sizes(peer)
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

/// RFC 8654 §4: a route that cannot be sent to a peer is withdrawn from it, so that the former one
/// does not remain.
#[test]
fn a_route_too_long_for_a_peer_is_withdrawn_from_it() {
    let (mut wire, [source, long, short]) = reflector();
    wire.send(source, Update::reach(NET));
    let reach = [Received::Reach(vec![NET[0].into()])];
    assert_eq!(wire.received(long), reach);
    assert_eq!(wire.received(short), reach);
    wire.send(source, heavy(&NET));
    assert_eq!(wire.received(long), reach);
    assert_eq!(
        wire.received(short),
        [Received::Unreach(vec![NET[0].into()])]
    );
    // Also from a peer that is established later and never had it, which does no harm.
    let late = wire.connect(5, &open(5));
    assert!(!wire.received(late).contains(&reach[0]));
    wire.send(source, Update::reach(NET));
    assert_eq!(wire.received(short), reach, "advertised again when it fits");
}

/// RFC 8654 §4: the capability advertises what its sender can receive.
#[test]
fn extended_update_is_accepted_from_a_peer_without_offer() {
    let (mut wire, [_, _, short]) = reflector();
    wire.send(short, heavy(&NET));
    assert_eq!(wire.prefixes(), NET);
    assert!(wire.received(short).is_empty(), "the session stays up");
}

#[test]
fn extended_update_is_refused_where_it_was_not_offered() {
    let mut config = speaker_config(1);
    config.ranges.push(clients(1, 10));
    let mut wire = Wire::new(config);
    let peer = wire.connect(2, &extended(2));
    wire.send(peer, heavy(&NET));
    let received = wire.received(peer);
    let Some(Received::Notification(sent)) = received.last() else {
        panic!("{received:?}");
    };
    // RFC 4271 §6.1: the data is the length.
    assert_eq!((sent.code, sent.subcode, sent.data.len()), (1, 2, 2));
}

#[test]
fn keepalive_never_has_more_octets_than_its_header() {
    let (mut wire, [source, ..]) = reflector();
    // RFC 8654 §4: a KEEPALIVE is never extended.
    wire.send(source, Raw(4, &[0; 5000]));
    let received = wire.received(source);
    assert!(
        matches!(received.last(), Some(Received::Notification(n)) if (n.code, n.subcode) == (1, 2))
    );
}
