use std::net::Ipv4Addr;
use std::time::Duration;

use bgp_io::bgp_fsm::GracefulRestartConfig;
use bgp_io::bgp_proto::{Asn, RouterId};
use bgp_io::bgp_speaker::RangeConfig;
use bgp_io::rib::{Policy, Role};

use super::*;

pub(crate) mod network;
use network::Network;

/// Nodes are 1 to 4, reflectors 11 and 12.
pub(crate) const NODES: std::ops::RangeInclusive<u8> = 1..=4;

pub(crate) fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

pub(crate) fn config(
    number: u8,
    peers: Vec<PeerConfig>,
    ranges: Vec<RangeConfig>,
) -> SpeakerConfig {
    let mut config = SpeakerConfig::new(Asn(64512), RouterId(Ipv4Addr::new(10, 0, 0, number)));
    (config.peers, config.ranges) = (peers, ranges);
    config
}

pub(crate) fn peer(us: u8, them: u8, role: Role) -> PeerConfig {
    let mut peer = config(us, vec![], vec![]).neighbor(address(them), role);
    peer.name = format!("n{them}");
    peer.session.passive = us < them && them < 10;
    peer
}

pub(crate) fn reflector(number: u8) -> SpeakerConfig {
    let other = if number == 11 { 12 } else { 11 };
    let prefix = "10.0.0.0/28".parse().expect("a prefix");
    let mut clients = RangeConfig::new(prefix, 8, peer(number, 0, Role::Client));
    clients.name = "clients".into();
    config(
        number,
        vec![peer(number, other, Role::Internal)],
        vec![clients],
    )
}

/// A node's configuration with the peers of a choice: the mesh, or reflectors.
pub(crate) fn node(number: u8, with: &[u8]) -> SpeakerConfig {
    let peers = with.iter().filter(|them| **them != number);
    config(
        number,
        peers
            .map(|them| peer(number, *them, Role::Internal))
            .collect(),
        vec![],
    )
}

const MESH: &[u8] = &[1, 2, 3, 4];
const REFLECTORS: &[u8] = &[11, 12];

/// A choice with all hosts except for the removed ones.
fn choice(with: &[u8], gone: &[u8]) -> Chosen {
    let hosts = (1..=12).filter(|host| !gone.contains(host));
    Chosen {
        peers: with.iter().copied().map(address).collect(),
        hosts: hosts.map(address).collect(),
        ..Chosen::default()
    }
}

/// Four nodes in a mesh, each with its own route, and two reflectors without sessions.
fn mesh() -> Network {
    let mut network = Network::default();
    for number in NODES {
        network.add(number, node(number, MESH));
    }
    for number in REFLECTORS {
        network.add(*number, reflector(*number));
    }
    for number in NODES {
        network.want(number, node(number, MESH), &choice(MESH, &[]));
        network.announce(number);
    }
    network.advance(Duration::from_secs(20));
    assert_eq!(network.lost(), [0_u8; 0]);
    assert_eq!(network.sessions(1), [2, 3, 4]);
    network
}

// Promise (Route reflectors): No node loses a route while its peers change: mesh, reflectors and
// nodes that a BGPPeer selects replace each other make-before-break. A killed member of the
// datastore or of the cluster has no effect.
#[test]
fn change_from_mesh_to_reflectors_and_back_loses_no_route() {
    let mut network = mesh();
    for (to, sessions) in [(REFLECTORS, vec![11, 12]), (MESH, vec![2, 3, 4])] {
        // The nodes receive it at different times.
        for number in NODES {
            network.want(number, node(number, to), &choice(to, &[]));
            network.advance(Duration::from_millis(700));
        }
        assert_eq!(network.sessions(1).len(), 5, "make before break");
        network.advance(Duration::from_secs(20));
        assert_eq!(network.sessions(1), sessions);
        assert!(network.leaving(1).is_empty());
    }
    assert!(network.checks > 100, "routes were looked at all the time");
}

#[test]
fn mesh_session_is_kept_until_both_nodes_have_moved() {
    let mut network = mesh();
    for number in 1..=3 {
        network.want(number, node(number, REFLECTORS), &choice(REFLECTORS, &[]));
    }
    network.advance(Duration::from_secs(60));
    // Its own routes arrive over the mesh only; the others' routes arrive through the reflectors.
    assert_eq!(network.leaving(1), [address(4)]);
    assert_eq!(network.sessions(1), [4, 11, 12]);
    network.want(4, node(4, REFLECTORS), &choice(REFLECTORS, &[]));
    network.advance(Duration::from_secs(20));
    assert_eq!(network.sessions(1), [11, 12]);
}

#[test]
fn handover_to_a_missing_peer_times_out() {
    let mut network = mesh();
    network.kill(12);
    for number in NODES {
        network.want(number, node(number, REFLECTORS), &choice(REFLECTORS, &[]));
    }
    network.advance(MAKE_BEFORE_BREAK_MAX - Duration::from_secs(5));
    assert_eq!(network.sessions(1), [2, 3, 4, 11]);
    network.advance(Duration::from_secs(10));
    assert_eq!(network.sessions(1), [11]);
}

#[test]
fn mesh_is_kept_while_no_reflector_is_reachable() {
    let mut network = mesh();
    network.kill(11);
    network.kill(12);
    for number in NODES {
        network.want(number, node(number, REFLECTORS), &choice(REFLECTORS, &[]));
    }
    network.advance(MAKE_BEFORE_BREAK_MAX * 3);
    assert_eq!(network.sessions(1), [2, 3, 4]);
    // The operator configures no peers: no leaving peer is kept then.
    network.want(1, node(1, &[]), &choice(&[], &[]));
    assert!(network.leaving(1).is_empty());
}

#[test]
fn peer_wanted_again_stays_and_deleted_host_is_closed() {
    let mut network = mesh();
    network.kill(11);
    network.want(1, node(1, REFLECTORS), &choice(REFLECTORS, &[]));
    network.advance(Duration::from_secs(1));
    assert_eq!(network.leaving(1).len(), 3);
    network.want(1, node(1, &[2, 11]), &choice(&[2, 11], &[4]));
    assert_eq!(network.leaving(1), [address(3), address(12)]);
    network.want(1, node(1, MESH), &choice(MESH, &[]));
    assert_eq!(network.leaving(1), [address(11), address(12)]);
}

#[test]
fn leaving_peer_has_the_current_policy() {
    let mut network = mesh();
    network.kill(11);
    network.want(1, node(1, REFLECTORS), &choice(REFLECTORS, &[]));
    network.advance(Duration::from_secs(1));
    assert_eq!(network.leaving(1).len(), 3);
    let routes_of_1 = |network: &Network| network.holders_of(1);
    assert_eq!(routes_of_1(&network), [1, 2, 3, 4]);
    // Node 1's routes are no longer advertised to node 2, but the session is kept all the same.
    network.forgive(1);
    let mut today = choice(REFLECTORS, &[]);
    let mut two = peer(1, 2, Role::Internal);
    two.export = Policy::RejectAll;
    today.former.insert(address(2), two);
    network.want(1, node(1, REFLECTORS), &today);
    network.advance(Duration::from_secs(1));
    assert_eq!(network.leaving(1).len(), 3);
    assert_eq!(network.sessions(1), [2, 3, 4, 12]);
    assert_eq!(routes_of_1(&network), [1, 3, 4]);
}

#[test]
fn a_session_that_ends_by_itself_is_not_waited_for() {
    let mut network = mesh();
    network.kill(11);
    network.want(1, node(1, REFLECTORS), &choice(REFLECTORS, &[]));
    network.forgive(3);
    network.kill(3);
    network.advance(Duration::from_secs(1));
    assert_eq!(network.leaving(1), [address(2), address(4)]);
}

/// The session has ended by itself, but the peer may be restarting (RFC 4724 §4.2).
#[test]
fn leaving_peer_is_kept_until_its_stale_routes_expire() {
    let graceful = |number, with: &[u8]| {
        let mut config = node(number, with);
        for peer in &mut config.peers {
            peer.session.graceful_restart = Some(GracefulRestartConfig::new(30));
        }
        config
    };
    let mut network = Network::default();
    for number in [1, 2] {
        network.add(number, graceful(number, &[1, 2]));
        network.announce(number);
    }
    network.want(1, graceful(1, &[2]), &choice(&[2], &[]));
    network.advance(Duration::from_secs(20));
    assert_eq!(network.sessions(1), [2]);
    network.want(1, graceful(1, &[11]), &choice(&[11], &[]));
    network.kill(2);
    network.advance(Duration::from_secs(25));
    assert_eq!(network.sessions(1), [0_u8; 0]);
    assert_eq!(network.leaving(1), [address(2)]);
    assert_eq!(network.holders_of(2), [1], "its route is stale");
    network.forgive(2);
    network.advance(Duration::from_secs(10));
    assert!(network.leaving(1).is_empty());
}

/// The peer's route no longer depends on the session, in three situations.
#[test]
fn unneeded_peer_is_removed_after_its_settle_time() {
    let at = |time: Duration| Instant::ZERO + time;
    let second = Duration::from_secs(1);
    let settle = MAKE_BEFORE_BREAK_SETTLE;
    for (doubted, selects, time) in [
        (false, false, settle),
        (true, false, settle * 2),            // Routes arrive all the time.
        (false, true, MAKE_BEFORE_BREAK_MAX), // The peer ends the session itself.
    ] {
        let mut make_before_break = MakeBeforeBreak::default();
        make_before_break.want(Instant::ZERO, &node(1, &[2]), &choice(&[2], &[]));
        make_before_break.want(Instant::ZERO, &node(1, &[11]), &choice(&[11], &[]));
        let leaving = make_before_break.leaving.get_mut(&address(2));
        let leaving = leaving.expect("is leaving");
        (leaving.doubted, leaving.selects) = (doubted, selects);
        leaving.free_since = Some(Instant::ZERO);
        let early = make_before_break.take_free(at(time - second), true);
        assert!(early.is_empty(), "{doubted} {selects}: {early:?}");
        let gone = make_before_break.take_free(at(time), true);
        assert_eq!(gone, [address(2)], "{doubted} {selects}");
    }
}

/// A node's configuration as a reflector for clients, with its other peers.
fn reflecting(number: u8, clients: &[u8], others: &[u8]) -> SpeakerConfig {
    let clients = clients.iter().map(|them| peer(number, *them, Role::Client));
    let others = others
        .iter()
        .map(|them| peer(number, *them, Role::Internal));
    config(number, clients.chain(others).collect(), vec![])
}

/// Nodes 1 to 4 have selected node 11; no node has selected 12.
fn selected() -> Network {
    let mut network = Network::default();
    let all: Vec<u8> = NODES.collect();
    let of_11 = reflecting(11, &all, &[]);
    network.add(11, of_11.clone());
    network.add(12, config(12, vec![], vec![]));
    for number in NODES {
        network.add(number, node(number, &[11]));
    }
    network.want(11, of_11, &selecting(&all, &[]));
    for number in NODES {
        network.want(number, node(number, &[11]), &choice(&[11], &[]));
        network.announce(number);
    }
    network.advance(Duration::from_secs(20));
    assert_eq!(network.lost(), [0_u8; 0]);
    network
}

/// A choice with the peers that selected this node, and the peers that this node has.
fn selecting(by: &[u8], with: &[u8]) -> Chosen {
    Chosen {
        selecting: by.iter().copied().map(address).collect(),
        ..choice(&[by, with].concat(), &[])
    }
}

// Promise: as bgp-daemon change_from_mesh_to_reflectors_and_back_loses_no_route
/// A label moves from one reflector to another, and the nodes receive it at different times. The
/// old reflector wants no peer, and still reflects for the peers that are left.
#[test]
fn the_peers_of_a_label_move_with_it_and_no_route_is_lost() {
    let all: Vec<u8> = NODES.collect();
    for (others, last) in [(vec![], 11), (vec![12], 12)] {
        let mut network = selected();
        let old = |network: &mut Network| {
            network.want(11, reflecting(11, &[], &others), &choice(&others, &[]));
        };
        let new = |network: &mut Network| {
            let reflects = match others.is_empty() {
                true => all.clone(),
                false => [all.as_slice(), &[11]].concat(),
            };
            network.want(
                12,
                reflecting(12, &reflects, &[]),
                &selecting(&reflects, &[]),
            );
        };
        if last == 11 {
            new(&mut network);
        } else {
            old(&mut network);
        }
        network.advance(Duration::from_millis(700));
        for number in NODES {
            network.want(number, node(number, &[12]), &choice(&[12], &[]));
            network.advance(Duration::from_millis(700));
        }
        assert_eq!(network.leaving(1), [address(11)]);
        if last == 11 {
            old(&mut network);
        } else {
            new(&mut network);
        }
        network.advance(Duration::from_secs(20));
        for number in NODES {
            assert_eq!(network.sessions(number), [12]);
        }
        assert!(network.leaving(1).is_empty() && network.leaving(11).is_empty());
        assert_eq!(network.sessions(11), others);
    }
}

/// A peer that had selected this node is not kept forever, either.
#[test]
fn selecting_peer_that_stays_is_kept_until_timeout() {
    let mut network = selected();
    network.want(11, reflecting(11, &[], &[]), &choice(&[], &[]));
    network.advance(MAKE_BEFORE_BREAK_MAX - Duration::from_secs(5));
    assert_eq!(network.sessions(11), [1, 2, 3, 4]);
    NODES.for_each(|number| network.forgive_to(number));
    network.advance(Duration::from_secs(10));
    assert_eq!(network.sessions(11), [0_u8; 0]);
}

/// A changed role of the node does not stop the reflection for them.
#[test]
fn former_reflector_reflects_for_remaining_clients() {
    let mut network = selected();
    let mut today = choice(&[], &[]);
    for number in NODES {
        let plain = peer(11, number, Role::Internal);
        today.former.insert(address(number), plain);
    }
    network.want(11, reflecting(11, &[], &[]), &today);
    network.advance(Duration::from_secs(20));
    assert_eq!(network.lost(), [0_u8; 0]);
    assert_eq!(network.sessions(11), [1, 2, 3, 4]);
}

#[test]
fn equal_peers_do_not_restart_the_needed_peers_check() {
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let mut make_before_break = MakeBeforeBreak::default();
    make_before_break.want(at(0), &node(1, MESH), &choice(MESH, &[]));
    make_before_break.want(at(1), &node(1, REFLECTORS), &choice(REFLECTORS, &[]));
    assert_eq!(make_before_break.poll_timeout(), Some(at(1)));
    make_before_break.needed_peers.set_under_way();
    let mut other = node(1, REFLECTORS);
    other.peers[0].port = 1179;
    make_before_break.want(at(2), &other, &choice(REFLECTORS, &[]));
    assert!(
        make_before_break.needed_peers.is_under_way(),
        "the same peers come and go"
    );
    assert_eq!(make_before_break.poll_timeout(), Some(at(1)));
    make_before_break.want(at(3), &other, &choice(REFLECTORS, &[4]));
    assert!(
        !make_before_break.needed_peers.is_under_way(),
        "one fewer goes"
    );
    make_before_break.needed_peers.set_under_way();
    make_before_break.want(at(4), &node(1, &[11]), &choice(&[11], &[4]));
    assert!(
        !make_before_break.needed_peers.is_under_way(),
        "an awaited peer is removed"
    );
}
