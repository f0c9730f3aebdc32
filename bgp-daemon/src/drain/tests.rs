use std::time::Duration;

use super::*;
use crate::make_before_break::tests::network::Network;
use crate::make_before_break::tests::{NODES, config, node, peer, reflector};

const ELEVEN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 11);
const TWELVE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 12);
const SECOND: Duration = Duration::from_secs(1);

/// A reflector whose clients are statically configured.
fn by_hand(number: u8, clients: impl IntoIterator<Item = u8>) -> SpeakerConfig {
    let mut of = reflector(number);
    of.ranges.clear();
    let clients = clients.into_iter().map(|client| {
        let mut client = peer(number, client, Role::Client);
        client.session.passive = true;
        client
    });
    of.peers.extend(clients);
    of
}

/// Four nodes that are permanent clients of the reflectors 11 and 12 and announce one route each.
/// The nodes in `alone` are clients of 11 only.
fn transition(of: impl Fn(u8) -> SpeakerConfig, alone: &[u8]) -> Network {
    let mut network = Network::default();
    for number in [11, 12] {
        network.add(number, of(number));
    }
    for number in NODES {
        let with: &[u8] = match alone.contains(&number) {
            true => &[11],
            false => &[11, 12],
        };
        network.add(number, node(number, with));
        network.announce(number);
    }
    network.advance(SECOND * 20);
    assert_eq!(network.lost(), [0_u8; 0]);
    network
}

// Promise (Route reflectors): Within its time limit, a drain closes no session that is the only
// source of a route.
#[test]
fn static_clients_with_another_reflector_are_closed_later() {
    let mut network = transition(|number| by_hand(number, NODES), &[]);
    network.drain(11, &[(12, TWELVE)]);
    network.advance(DRAIN_SETTLE - SECOND);
    assert_eq!(network.sessions(11), [1, 2, 3, 4, 12]);
    network.advance(SECOND * 4);
    assert!(network.is_drained(11));
    assert_eq!(network.sessions(11), [0_u8; 0]);
    assert_eq!(
        network.sessions(1),
        [12],
        "and no route was lost: it is looked all the time"
    );
}

#[test]
fn client_that_may_move_itself_gets_more_time() {
    let mut network = transition(reflector, &[]);
    network.drain(11, &[(12, TWELVE)]);
    network.advance(DRAIN_SETTLE_UNSEEN - SECOND);
    assert_eq!(network.sessions(11), [1, 2, 3, 4, 12]);
    network.advance(SECOND * 4);
    assert!(network.is_drained(11));
}

// Promise: as bgp-daemon static_clients_with_another_reflector_are_closed_later
#[test]
fn drain_waits_for_sole_client_until_timeout() {
    let mut network = transition(|number| by_hand(number, NODES), &[3]);
    network.drain(11, &[(12, TWELVE)]);
    network.advance(DRAIN_MAX - SECOND);
    assert_eq!(network.sessions(11), [1, 2, 3, 4, 12]);
    network.forgive(3);
    network.forgive_to(3);
    network.advance(SECOND * 2);
    assert!(network.is_drained(11));
    assert_eq!(network.sessions(3), [0_u8; 0]);
}

#[test]
fn client_with_a_new_reflector_is_closed_then() {
    let mut network = transition(|number| by_hand(number, NODES), &[3]);
    network.drain(11, &[(12, TWELVE)]);
    network.advance(SECOND * 60);
    assert!(!network.is_drained(11));
    network.rewire(3, node(3, &[11, 12]));
    network.advance(SECOND * 20);
    assert!(network.is_drained(11));
    assert_eq!(network.sessions(3), [12]);
}

/// Reflectors of one cluster reject each other's reflected routes, so none can witness that a
/// client's routes arrive through the other.
#[test]
fn settled_client_is_enough_in_a_cluster_of_several() {
    let shared = |number| {
        let mut of = by_hand(number, NODES);
        of.cluster_id = Some(bgp_proto::ClusterId(ELEVEN));
        of
    };
    let mut network = transition(shared, &[]);
    network.drain(11, &[(12, ELEVEN)]);
    network.advance(DRAIN_SETTLE_UNSEEN - SECOND);
    assert_eq!(network.sessions(11), [1, 2, 3, 4, 12]);
    network.advance(SECOND * 4);
    assert!(network.is_drained(11));
}

#[test]
fn reflector_without_clients_is_drained_at_once() {
    let mut network = Network::default();
    network.add(11, by_hand(11, [13]));
    network.add(13, config(13, vec![peer(13, 11, Role::Client)], vec![]));
    network.advance(SECOND * 20);
    assert_eq!(network.sessions(11), [13]);
    network.drain(11, &[(12, TWELVE), (13, Ipv4Addr::new(10, 0, 0, 13))]);
    network.advance(SECOND);
    assert!(network.is_drained(11));
    assert_eq!(network.sessions(13), [0_u8; 0]);
}

/// At that instant the routes with the new policy are not in the queues yet.
#[test]
fn no_client_has_all_routes_when_the_drain_begins() {
    let network = transition(|number| by_hand(number, NODES), &[]);
    let (now, speaker) = (network.now(), network.speaker(11));
    let mut drain = Drain::default();
    drain.want(
        now,
        true,
        &BTreeMap::from([(Ipv4Addr::from([10, 0, 0, 12]).into(), TWELVE)]),
    );
    assert_eq!(drain.look(now, speaker), (false, Progress::Done));
    assert_eq!(drain.up_to_date.len(), 0);
    let next = drain.poll_timeout().expect("the drain waits");
    assert_eq!(drain.look(next, speaker), (false, Progress::Done));
    assert_eq!(drain.up_to_date.len(), NODES.count());
}
