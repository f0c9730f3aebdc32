//! Several paths of a prefix (RFC 7911), from clients through a reflector to a client.

use std::net::IpAddr;
use std::time::Duration;

use bgp_fsm::GracefulRestartConfig;
use bgp_proto::{Family, FamilySet};
use bgp_speaker::{RangeConfig, Reconfigured, SpeakerConfig};
use rib::{PeerId, Policy, Role, SendPaths};
use testkit::Network;
use testkit::fixture::{address, clients, neighbor, prefix, speaker_config};

use super::network;

const SOON: Duration = Duration::from_secs(30);
const FAMILY: Family = Family::IPV4_UNICAST;

/// Clients 2 and 3 receive one path per prefix, 4 and 5 several.
const PLAIN: [usize; 2] = [2, 3];
const MANY: [usize; 2] = [4, 5];

fn range(send: SendPaths) -> RangeConfig {
    let mut range = clients(1, 10);
    range.template.session.add_path_send = FamilySet::UNICAST;
    range.template.session.graceful_restart = Some(GracefulRestartConfig::default());
    range.template.send_paths = [(FAMILY, send)].into_iter().collect();
    range
}

fn client(number: usize) -> SpeakerConfig {
    let mut config = speaker_config(number);
    let mut peer = neighbor(number, 1, Role::Internal);
    if MANY.contains(&number) {
        peer.session.add_path_receive = FamilySet::UNICAST;
    }
    peer.session.graceful_restart =
        Some(GracefulRestartConfig::default().with_forwarding(FamilySet::UNICAST));
    config.peers.push(peer);
    config
}

/// Returns a network in which speaker 1 reflects between its clients 2 to 5.
fn fabric(send: SendPaths) -> Network {
    let mut reflector = speaker_config(1);
    reflector.ranges.push(range(send));
    let mut configs = vec![(1, reflector)];
    configs.extend((2..=5).map(|number| (number, client(number))));
    let mut fabric = network(configs);
    fabric.advance(SOON);
    assert_eq!(fabric.established(1).len(), 4);
    fabric
}

/// Returns the speakers with paths to a prefix that were sent to a speaker.
fn sources(fabric: &Network, number: usize, net: &str) -> Vec<usize> {
    let speaker = fabric.speaker(number);
    let view = speaker.rib().lookup(FAMILY, prefix(net));
    let mut paths = view.map(|view| view.paths).unwrap_or_default();
    paths.retain(|path| path.peer != PeerId::LOCAL);
    let mut ids: Vec<_> = paths.iter().map(|path| path.path_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), paths.len(), "each path has an id of its own");
    let hops = paths
        .iter()
        .filter_map(|path| path.received.next_hop_address());
    let source = |hop| (1..=9).find(|&number| IpAddr::V4(address(number)) == hop);
    let mut sources: Vec<_> = hops.filter_map(source).collect();
    sources.sort_unstable();
    sources
}

const NET: &str = "10.65.0.0/32";

#[test]
fn a_client_is_sent_the_paths_of_all_others() {
    let mut fabric = fabric(SendPaths::All);
    for number in 2..=4 {
        fabric.announce(number, NET);
    }
    fabric.advance(SOON);
    assert_eq!(sources(&fabric, 5, NET), [2, 3, 4]);
    assert_eq!(sources(&fabric, 4, NET), [2, 3], "not its own");
    assert_eq!(sources(&fabric, 3, NET), [2], "the best alone");
    assert_eq!(sources(&fabric, 2, NET), [], "the best is its own");
    fabric.withdraw(2, NET);
    fabric.advance(SOON);
    assert_eq!(sources(&fabric, 5, NET), [3, 4]);
    assert_eq!(sources(&fabric, 4, NET), [3]);
    assert_eq!(sources(&fabric, 2, NET), [3]);
    fabric.withdraw(3, NET);
    fabric.withdraw(4, NET);
    fabric.advance(SOON);
    for number in 2..=5 {
        assert_eq!(sources(&fabric, number, NET), [], "at {number}");
    }
    assert_eq!(fabric.speaker(1).rib().stats().sent_ids, 0);
}

#[test]
fn no_more_paths_than_asked_for() {
    for (send, at_5) in [
        (SendPaths::Best(1), &[2_usize][..]),
        (SendPaths::Best(2), &[2, 3]),
        (SendPaths::EqualCost, &[2, 3, 4]),
    ] {
        let mut fabric = fabric(send);
        for number in 2..=4 {
            fabric.announce(number, NET);
        }
        fabric.advance(SOON);
        assert_eq!(sources(&fabric, 5, NET), at_5, "{send:?}");
        fabric.withdraw(2, NET);
        fabric.advance(SOON);
        let next: Vec<usize> = [3, 4].into_iter().take(at_5.len()).collect();
        assert_eq!(sources(&fabric, 5, NET), next, "{send:?}");
    }
}

#[test]
fn a_late_client_and_one_that_does_not_read_end_with_the_same() {
    let mut fabric = fabric(SendPaths::All);
    let nets: Vec<String> = (0..12_000_u32)
        .map(|host| format!("10.70.{}.{}/32", host >> 8, host & 255))
        .collect();
    fabric.stall(5, true);
    for net in &nets {
        fabric.announce(2, net);
        fabric.announce(3, net);
    }
    fabric.advance(Duration::from_secs(20));
    assert_eq!(sources(&fabric, 4, &nets[7]), [2, 3]);
    for net in &nets[1..] {
        fabric.withdraw(2, net);
    }
    for net in &nets[2..] {
        fabric.withdraw(3, net);
    }
    fabric.advance(Duration::from_secs(20));
    assert_eq!(fabric.loc_rib(4, FAMILY).len(), 2);
    fabric.stall(5, false);
    fabric.advance(SOON);
    fabric.remove(4);
    fabric.advance(SOON);
    fabric.start(4, address(4).into(), client(4));
    fabric.advance(Duration::from_secs(200));
    for number in MANY {
        assert_eq!(sources(&fabric, number, &nets[0]), [2, 3]);
        assert_eq!(sources(&fabric, number, &nets[1]), [3]);
        assert_eq!(fabric.loc_rib(number, FAMILY).len(), 2, "at {number}");
    }
}

#[test]
fn stale_path_is_sent_until_its_client_is_back_without() {
    let mut fabric = fabric(SendPaths::All);
    for number in PLAIN {
        fabric.announce(number, NET);
        fabric.announce(number, "10.65.0.1/32");
    }
    fabric.advance(SOON);
    fabric.remove(2);
    fabric.advance(Duration::from_secs(10));
    assert_eq!(sources(&fabric, 5, NET), [2, 3], "kept as stale");
    fabric.start(2, address(2).into(), client(2));
    fabric.announce(2, NET);
    fabric.advance(SOON);
    assert_eq!(sources(&fabric, 5, NET), [2, 3]);
    assert_eq!(sources(&fabric, 5, "10.65.0.1/32"), [3]);
    fabric.remove(2);
    fabric.advance(Duration::from_secs(200));
    assert_eq!(sources(&fabric, 5, NET), [3]);
}

#[test]
fn other_paths_and_other_rules_under_a_living_session() {
    let mut fabric = fabric(SendPaths::Best(2));
    for number in 2..=4 {
        fabric.announce(number, NET);
    }
    fabric.advance(SOON);
    assert_eq!(sources(&fabric, 5, NET), [2, 3]);
    let reconfigure = |fabric: &mut Network, edit: &dyn Fn(&mut RangeConfig)| {
        let mut config = speaker_config(1);
        config.ranges.push(range(SendPaths::Best(2)));
        edit(&mut config.ranges[0]);
        let now = fabric.now();
        let done = fabric
            .speaker_mut(1)
            .reconfigure(now, config)
            .expect("taken");
        assert_eq!(done, Reconfigured::default());
        fabric.advance(SOON);
    };
    let paths = |range: &mut RangeConfig, send| {
        range.template.send_paths = [(FAMILY, send)].into_iter().collect();
    };
    reconfigure(&mut fabric, &|range| paths(range, SendPaths::All));
    assert_eq!(sources(&fabric, 5, NET), [2, 3, 4]);
    reconfigure(&mut fabric, &|range| paths(range, SendPaths::Best(1)));
    assert_eq!(sources(&fabric, 5, NET), [2]);
    reconfigure(&mut fabric, &|range| {
        paths(range, SendPaths::All);
        range.template.export = Policy::RejectAll;
    });
    assert_eq!(sources(&fabric, 5, NET), []);
    assert_eq!(sources(&fabric, 3, NET), []);
    fabric.withdraw(3, NET);
    reconfigure(&mut fabric, &|_| {});
    assert_eq!(sources(&fabric, 5, NET), [2, 4]);
    for number in 2..=4 {
        fabric.withdraw(number, NET);
    }
    fabric.advance(SOON);
    assert_eq!(sources(&fabric, 5, NET), []);
    assert_eq!(fabric.speaker(1).rib().stats().sent_ids, 0);
}
