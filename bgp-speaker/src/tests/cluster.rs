//! Clusters of a reflector's clients (RFC 4456 §7): each client may be in another.

use alloc::vec;
use core::net::Ipv4Addr;

use bgp_proto::{ClusterId, Family};
use rib::{Ineligible, PeerId, Role};

use super::fabric::{neighbor, prefix, speaker_config};
use super::wire::{Heard, Say, Wire, open};
use crate::{Reconfigured, SpeakerConfig};

const V4: Family = Family::IPV4_UNICAST;

fn cluster(last: u8) -> ClusterId {
    ClusterId(Ipv4Addr::new(10, 9, 9, last))
}

/// A reflector of cluster 1 with client 2, client 3 of cluster `third`, and a plain peer 4.
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
fn a_reflected_route_names_the_cluster_it_comes_from_and_the_one_it_goes_to() {
    let (mut wire, [two, three, four]) = connected(3);
    wire.say(two, Say::Reach(&["10.65.0.2/32"]));
    assert_eq!(wire.hear_clusters(three), [vec![cluster(3), cluster(1)]]);
    assert_eq!(wire.hear_clusters(four), [vec![cluster(1)]]);
    wire.say(three, Say::Reach(&["10.65.0.3/32"]));
    assert_eq!(wire.hear_clusters(two), [vec![cluster(1), cluster(3)]]);
    assert_eq!(wire.hear_clusters(four), [vec![cluster(3)]]);
    wire.say(four, Say::Reach(&["10.65.0.4/32"]));
    assert_eq!(wire.hear_clusters(two), [vec![cluster(1)]]);
    assert_eq!(wire.hear_clusters(three), [vec![cluster(3)]]);
}

/// RFC 4456 §8, for every cluster that is ours.
#[test]
fn a_route_that_has_been_in_any_cluster_of_ours_is_no_use() {
    for (list, used) in [
        (vec![cluster(1)], false),
        (vec![cluster(7), cluster(3)], false),
        (vec![cluster(7)], true),
    ] {
        let (mut wire, [_, _, four]) = connected(3);
        wire.say(four, Say::ReachVia(&["10.65.0.4/32"], list.clone()));
        let nets = wire.prefixes();
        assert_eq!(nets.len(), usize::from(used), "{list:?}");
        let view = wire.speaker.rib().lookup(V4, prefix("10.65.0.4/32"));
        let reason = view.expect("kept").paths[0].ineligible;
        assert_eq!(reason, (!used).then_some(Ineligible::ClusterLoop));
    }
}

#[test]
fn a_cluster_that_is_joined_later_counts_from_then_on() {
    let (mut wire, [two, _, four]) = connected(3);
    wire.say(four, Say::ReachVia(&["10.65.0.4/32"], vec![cluster(7)]));
    assert_eq!(wire.prefixes().len(), 1);
    wire.hear(two);
    wire.hear(four);
    let now = wire.now;
    let done = wire.speaker.reconfigure(now, config(7)).expect("taken");
    assert_eq!(done, Reconfigured::default());
    assert!(wire.prefixes().is_empty());
    assert_eq!(
        wire.hear(two),
        [Heard::Unreach(vec!["10.65.0.4/32".into()])]
    );
}

#[test]
fn routes_are_told_by_the_clusters_of_now() {
    let (mut wire, [two, three, four]) = connected(3);
    wire.say(three, Say::Reach(&["10.65.0.3/32"]));
    wire.hear(two);
    wire.hear(four);
    let now = wire.now;
    let mut new = config(8);
    new.cluster_id = Some(cluster(9));
    let done = wire.speaker.reconfigure(now, new.clone()).expect("taken");
    assert_eq!(done, Reconfigured::default(), "all sessions stay");
    // By the new group, and as what has come from another cluster.
    let last = |wire: &mut Wire, peer| wire.hear_clusters(peer).pop();
    assert_eq!(last(&mut wire, two), Some(vec![cluster(9), cluster(8)]));
    assert_eq!(last(&mut wire, four), Some(vec![cluster(8)]));
    // A client no more: what it says goes to clients alone.
    new.peers[1].role = Role::Internal;
    new.peers[1].cluster_id = None;
    let done = wire.speaker.reconfigure(now, new).expect("taken");
    assert_eq!(done, Reconfigured::default());
    assert_eq!(
        wire.hear(four),
        [Heard::Unreach(vec!["10.65.0.3/32".into()])]
    );
    assert_eq!(last(&mut wire, two), Some(vec![cluster(9)]));
    wire.hear(three);
    wire.say(four, Say::Reach(&["10.65.0.4/32"]));
    let told = |heard: &Heard| matches!(heard, Heard::Reach(_));
    assert!(!wire.hear(three).iter().any(told));
}
