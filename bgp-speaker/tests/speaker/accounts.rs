//! The octets of received routes in the accounts of peers.

use std::net::Ipv4Addr;

use bgp_proto::Ipv4Prefix;
use rib::PeerId;
use rib::limits::{PATH_OCTETS, SET_OCTETS};
use testkit::Update;
use testkit::fixture::{address, clients, open, speaker_config};

use super::wire::Wire;

/// Returns an announcement of a host route by way of a peer.
fn route(host: u8, via: usize) -> Update {
    Update::via(address(via)).announcing(Ipv4Prefix::host(Ipv4Addr::new(10, 65, 0, host)))
}

fn octets(wire: &Wire, peer: PeerId) -> usize {
    wire.speaker().peer(peer).expect("a peer").octets.received
}

#[test]
fn reused_peer_number_has_an_account_of_its_own() {
    let mut config = speaker_config(1);
    config.ranges.push(clients(1, 4));
    let mut wire = Wire::new(config);
    let keeper = wire.connect(2, &open(2));
    let former = [3, 4].map(|number| wire.connect(number, &open(number)));
    for (number, peer) in [3, 4].into_iter().zip(former) {
        wire.send(peer, route(number, number.into()));
        wire.send(keeper, route(number + 10, number.into()));
        assert!(octets(&wire, peer) > PATH_OCTETS + SET_OCTETS);
    }
    assert_eq!(octets(&wire, keeper), 2 * PATH_OCTETS);
    for peer in former {
        wire.lose(peer);
    }
    wire.settle();
    assert_eq!(wire.speaker().rib().stats().attribute_sets, 2);
    let mut reused = 0;
    for number in 5..100 {
        let peer = wire.connect(number, &open(number));
        assert_eq!(octets(&wire, peer), 0, "{peer:?}");
        reused += usize::from(former.contains(&peer));
        wire.lose(peer);
        wire.settle();
    }
    assert!(reused >= 2, "both numbers are used again");
    // The sets are removed from the account that they are in.
    wire.lose(keeper);
    wire.settle();
    assert_eq!(wire.speaker().rib().stats().attribute_sets, 0);
}
