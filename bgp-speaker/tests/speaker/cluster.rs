//! Clusters of a reflector's clients (RFC 4456 §7): each client may be in another one.

use std::net::Ipv4Addr;

use bgp_proto::{ClusterId, Family};
use bgp_speaker::{Reconfigured, SpeakerConfig};
use rib::{Ineligible, PeerId, Role};
use testkit::fixture::{neighbor, open, prefix, speaker_config};
use testkit::{Received, Update};

use super::wire::Wire;

const V4: Family = Family::IPV4_UNICAST;

fn cluster(last: u8) -> ClusterId {
    ClusterId(Ipv4Addr::new(10, 9, 9, last))
}

/// Returns a reflector of cluster 1 with client 2, client 3 of cluster `third`, and a non-client
/// peer 4.
fn config(third: u8) -> SpeakerConfig {
    let mut config = speaker_config(1);
    config.cluster_id = Some(cluster(1));
    for number in 2..=4 {
        let role = if number == 4 {
            Role::Internal
        } else {
            Role::Client
        };
        let mut peer = neighbor(1, number, role);
        peer.session.passive = true;
        peer.cluster_id = (number == 3).then(|| cluster(third));
        config.peers.push(peer);
    }
    config
}

fn connected(third: u8) -> (Wire, [PeerId; 3]) {
    let mut wire = Wire::new(config(third));
    let peers = [2, 3, 4].map(|number| wire.connect(number, &open(number)));
    (wire, peers)
}

#[test]
fn reflected_route_has_source_and_target_clusters() {
    let (mut wire, [two, three, four]) = connected(3);
    wire.send(two, Update::reach(["10.65.0.2/32"]));
    assert_eq!(wire.cluster_lists(three), [vec![cluster(3), cluster(1)]]);
    assert_eq!(wire.cluster_lists(four), [vec![cluster(1)]]);
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    assert_eq!(wire.cluster_lists(two), [vec![cluster(1), cluster(3)]]);
    assert_eq!(wire.cluster_lists(four), [vec![cluster(3)]]);
    wire.send(four, Update::reach(["10.65.0.4/32"]));
    assert_eq!(wire.cluster_lists(two), [vec![cluster(1)]]);
    assert_eq!(wire.cluster_lists(three), [vec![cluster(3)]]);
}

/// RFC 4456 §8, for every local cluster.
#[test]
fn route_with_a_local_cluster_id_is_ineligible() {
    for (list, used) in [
        (vec![cluster(1)], false),
        (vec![cluster(7), cluster(3)], false),
        (vec![cluster(7)], true),
    ] {
        let (mut wire, [_, _, four]) = connected(3);
        wire.send(four, Update::reach(["10.65.0.4/32"]).clusters(&list));
        let nets = wire.prefixes();
        assert_eq!(nets.len(), usize::from(used), "{list:?}");
        let view = wire.speaker().rib().lookup(V4, prefix("10.65.0.4/32"));
        let reason = view.expect("kept").paths[0].ineligible;
        assert_eq!(reason, (!used).then_some(Ineligible::ClusterLoop));
    }
}

#[test]
fn a_cluster_that_is_joined_later_counts_from_then_on() {
    let (mut wire, [two, _, four]) = connected(3);
    wire.send(
        four,
        Update::reach(["10.65.0.4/32"]).clusters(&[cluster(7)]),
    );
    assert_eq!(wire.prefixes().len(), 1);
    wire.received(two);
    wire.received(four);
    let done = wire.reconfigure(config(7)).expect("taken");
    assert_eq!(done, Reconfigured::default());
    assert!(wire.prefixes().is_empty());
    assert_eq!(
        wire.received(two),
        [Received::Unreach(vec!["10.65.0.4/32".into()])]
    );
}

#[test]
fn changed_clusters_apply_to_advertised_routes() {
    let (mut wire, [two, three, four]) = connected(3);
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    wire.received(two);
    wire.received(four);
    let mut new = config(8);
    new.cluster_id = Some(cluster(9));
    let done = wire.reconfigure(new.clone()).expect("taken");
    assert_eq!(done, Reconfigured::default(), "all sessions stay");
    // By the new group, and as received from another cluster.
    let last = |wire: &mut Wire, peer| wire.cluster_lists(peer).pop();
    assert_eq!(last(&mut wire, two), Some(vec![cluster(9), cluster(8)]));
    assert_eq!(last(&mut wire, four), Some(vec![cluster(8)]));
    // No longer a client: its routes are advertised to clients only.
    new.peers[1].role = Role::Internal;
    new.peers[1].cluster_id = None;
    let done = wire.reconfigure(new).expect("taken");
    assert_eq!(done, Reconfigured::default());
    assert_eq!(
        wire.received(four),
        [Received::Unreach(vec!["10.65.0.3/32".into()])]
    );
    assert_eq!(last(&mut wire, two), Some(vec![cluster(9)]));
    wire.received(three);
    wire.send(four, Update::reach(["10.65.0.4/32"]));
    let is_route = |message: &Received| matches!(message, Received::Reach(_));
    assert!(!wire.received(three).iter().any(is_route));
}
