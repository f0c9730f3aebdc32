//! A peer that is set or removed alone has the effect of a whole new configuration.

use bgp_fsm::State;
use bgp_proto::{ClusterId, Family};
use bgp_speaker::{PeerConfig, SpeakerConfig};
use proptest::prelude::*;
use rib::{NextHopMode, Policy, Role};
use testkit::Update;
use testkit::fixture::{address, clients, graceful_open, neighbor, open, prefix, speaker_config};

use super::wire::Wire;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Configures a peer in one of several ways.
    Set(usize, u8),
    Remove(usize),
    Connect(usize),
    ConnectGraceful(usize),
    Lose(usize),
    /// Announces a route of the peer.
    Announce(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let number = 2..6_usize;
    prop_oneof![
        4 => (number.clone(), 0..8_u8).prop_map(|(number, how)| Op::Set(number, how)),
        2 => number.clone().prop_map(Op::Remove),
        2 => number.clone().prop_map(Op::Connect),
        1 => number.clone().prop_map(Op::ConnectGraceful),
        1 => number.clone().prop_map(Op::Lose),
        3 => number.prop_map(Op::Announce),
    ]
}

fn peer(number: usize, how: u8) -> PeerConfig {
    let mut peer = neighbor(1, number, Role::Client);
    peer.session.passive = true;
    match how {
        1 => peer.export = Policy::RejectAll,
        2 => peer.import = Policy::RejectAll,
        3 => peer.role = Role::Internal,
        4 => peer.cluster_id = Some(ClusterId([10, 9, 9, 9].into())),
        5 => peer.next_hop = NextHopMode::Own,
        6 => peer.password = Some("other".into()),
        7 => peer.session.families = Default::default(),
        _ => {}
    }
    peer
}

fn route(number: usize) -> String {
    format!("10.65.0.{number}/32")
}

/// Returns what an operator sees of each peer and of each route.
fn seen(wire: &Wire) -> Vec<String> {
    let peers = wire.speaker().peers();
    let mut seen: Vec<String> = peers
        .map(|peer| {
            let state = peer.session.state();
            format!("{} {state:?} {} {:?}", peer.id.0, peer.dynamic, peer.config)
        })
        .collect();
    seen.extend((2..6).map(|number| {
        let (speaker, net) = (wire.speaker(), route(number));
        let found = speaker.rib().lookup(Family::IPV4_UNICAST, prefix(&net));
        let sent = speaker.sent_paths(Family::IPV4_UNICAST, prefix(&net));
        format!("{found:?} {:?}", sent.collect::<Vec<_>>())
    }));
    seen.sort();
    seen
}

fn configured(config: &SpeakerConfig) -> Vec<String> {
    let peers = config.peers.iter();
    let mut peers: Vec<String> = peers.map(|peer| format!("{peer:?}")).collect();
    peers.sort();
    peers
}

/// Applies the change of one peer, alone or as a whole configuration; returns its effects.
fn change(wire: &mut Wire, op: Op, alone: bool) -> String {
    let now = wire.now();
    let mut config = wire.speaker().config().clone();
    let done = match op {
        Op::Set(number, how) if alone => Some(wire.speaker_mut().set_peer(now, peer(number, how))),
        Op::Remove(number) if alone => wire.speaker_mut().remove_peer(now, address(number).into()),
        Op::Set(number, how) => {
            let new = peer(number, how);
            config.peers.retain(|old| old.remote != new.remote);
            Some(wire.reconfigure(config.with_peer(new)).expect("taken"))
        }
        Op::Remove(number) => {
            let before = config.peers.len();
            config.peers.retain(|old| old.remote != address(number));
            let found = config.peers.len() < before;
            found.then(|| wire.reconfigure(config).expect("taken"))
        }
        Op::Connect(number) => {
            wire.try_connect(number, &open(number));
            None
        }
        Op::ConnectGraceful(number) => {
            wire.try_connect(number, &graceful_open(number, |_| {}));
            None
        }
        Op::Announce(number) => {
            let peer = wire.peer(number);
            if let Some(peer) = peer.filter(|peer| wire.state(*peer) == State::Established) {
                wire.send(peer, Update::reach([route(number)]));
            }
            None
        }
        Op::Lose(number) => {
            if let Some(peer) = wire.peer(number).filter(|peer| wire.is_open(*peer)) {
                wire.lose(peer);
            }
            None
        }
    };
    wire.settle();
    format!("{done:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn peer_changed_alone_is_as_in_a_whole_configuration(ops in prop::collection::vec(op(), 1..30)) {
        let config = || speaker_config(1).with_range(clients(1, 10));
        let (mut alone, mut whole) = (Wire::new(config()), Wire::new(config()));
        for op in ops {
            let (one, all) = (change(&mut alone, op, true), change(&mut whole, op, false));
            prop_assert_eq!(one, all, "{:?}", op);
            prop_assert_eq!(seen(&alone), seen(&whole), "{:?}", op);
            let (one, all) = (alone.take_events(), whole.take_events());
            prop_assert_eq!(format!("{one:?}"), format!("{all:?}"), "{:?}", op);
            let (one, all) = (alone.speaker().config(), whole.speaker().config());
            prop_assert_eq!(configured(one), configured(all));
        }
    }
}
