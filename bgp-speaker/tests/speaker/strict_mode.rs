//! The strict mode of BFD (draft-ietf-idr-bgp-bfd-strict-mode), with a scripted peer.

use std::net::IpAddr;
use std::time::Duration;

use bgp_fsm::{Conn, GracefulRestartConfig, SessionConfig, State};
use bgp_proto::notification::cease;
use bgp_proto::{Capability, Family, HEADER_OCTETS, Notification, Open};
use bgp_speaker::{Bfd, Input, PathState, SpeakerConfig};
use rib::{PeerId, Role};
use testkit::fixture::{address, graceful_open, neighbor, open, speaker_config};
use testkit::{EndOfRib, Keepalive, Network, Received, Update};

use super::wire::Wire;

/// The default of the wait, in seconds.
const HANDSHAKE_S: u64 = 15;

/// Returns the configuration of a speaker with a neighbor in strict mode.
fn config(us: usize, them: usize, edit: impl FnOnce(&mut SessionConfig)) -> SpeakerConfig {
    let mut peer = neighbor(us, them, Role::Internal);
    peer.session.bfd_strict = true;
    edit(&mut peer.session);
    peer.bfd = Some(Bfd::default());
    speaker_config(us).with_peer(peer)
}

fn passive(edit: impl FnOnce(&mut SessionConfig)) -> SpeakerConfig {
    config(1, 2, |session| {
        session.passive = true;
        edit(session);
    })
}

fn wire(edit: impl FnOnce(&mut SessionConfig)) -> Wire {
    Wire::new(passive(edit))
}

fn strict_open() -> Open {
    let mut open = open(2);
    open.capabilities.push(Capability::BfdStrictMode);
    open
}

fn path(wire: &mut Wire, state: PathState) {
    let (now, remote) = (wire.now(), IpAddr::from(address(2)));
    wire.speaker_mut().handle(now, Input::Path(remote, state));
    wire.settle();
}

/// Connects and sends an OPEN with the capability.
fn dial(wire: &mut Wire) -> PeerId {
    let peer = wire.dial(2).expect("admitted");
    wire.send(peer, strict_open());
    peer
}

fn awaits(wire: &Wire, peer: PeerId) -> bool {
    let view = wire.speaker().peer(peer).expect("configured");
    view.session.awaits_path()
}

/// Returns whether a KEEPALIVE was received since the last call.
fn has_keepalive(wire: &mut Wire, peer: PeerId) -> bool {
    wire.sizes(peer).contains(&HEADER_OCTETS)
}

fn notifications(wire: &mut Wire, peer: PeerId) -> Vec<Notification> {
    let received = wire.received(peer).into_iter();
    let found = received.filter_map(|part| match part {
        Received::Notification(notification) => Some(notification),
        _ => None,
    });
    found.collect()
}

const FAILED: PathState = PathState::Failed {
    control_plane_independent: true,
};

// Promise (BGP): With bfd_strict at both ends, a session is established only when BFD is up.
#[test]
fn strict_session_waits_for_the_path() {
    for delay_s in [0, 5] {
        let mut wire = wire(|session| session.open_delay_s = delay_s);
        let peer = dial(&mut wire);
        // The path is up at the other end first.
        wire.send(peer, Keepalive);
        assert_eq!(wire.state(peer), State::OpenConfirm);
        assert!(awaits(&wire, peer) && !has_keepalive(&mut wire, peer));
        wire.network.advance(Duration::from_secs(HANDSHAKE_S - 5));
        assert!(awaits(&wire, peer), "a delay of {delay_s}");
        path(&mut wire, PathState::Alive);
        assert_eq!(wire.state(peer), State::Established);
        assert!(!awaits(&wire, peer) && has_keepalive(&mut wire, peer));
        // The hold time counts from now on.
        wire.pass(89, &[]);
        assert_eq!(wire.state(peer), State::Established);
        wire.pass(1, &[]);
        assert_ne!(wire.state(peer), State::Established);
    }
}

#[test]
fn strict_session_with_its_path_up_waits_for_the_peer() {
    let mut wire = wire(|_| {});
    let peer = dial(&mut wire);
    path(&mut wire, PathState::Alive);
    assert_eq!(wire.state(peer), State::OpenConfirm);
    assert!(!awaits(&wire, peer) && has_keepalive(&mut wire, peer));
    wire.send(peer, Keepalive);
    assert_eq!(wire.state(peer), State::Established);
    // A path that was up before the connection delays nothing.
    wire.lose(peer);
    wire.network.advance(Duration::from_secs(1));
    wire.connect(2, &strict_open());
}

#[test]
fn strict_session_without_the_path_ends_in_time() {
    let mut wire = wire(|_| {});
    let peer = dial(&mut wire);
    wire.send(peer, Keepalive);
    // BFD is disabled, or cambric-bfd is away.
    path(&mut wire, PathState::Unknown);
    wire.network.advance(Duration::from_secs(HANDSHAKE_S - 1));
    assert!(awaits(&wire, peer));
    wire.network.advance(Duration::from_secs(1));
    assert!(!awaits(&wire, peer) && wire.state(peer) < State::OpenSent);
    let sent = notifications(&mut wire, peer);
    assert_eq!(sent, [Notification::cease(cease::BFD_DOWN)]);
    // The path that comes up later does not revive it.
    path(&mut wire, PathState::Alive);
    assert!(wire.state(peer) < State::OpenSent);
    wire.network.advance(Duration::from_secs(1));
    wire.connect(2, &strict_open());
}

#[test]
fn path_that_fails_before_strict_session_is_established_ends_it() {
    for is_up_first in [true, false] {
        let mut wire = wire(|_| {});
        if is_up_first {
            path(&mut wire, PathState::Alive);
        }
        let peer = dial(&mut wire);
        assert_eq!(wire.state(peer), State::OpenConfirm);
        assert_eq!(awaits(&wire, peer), !is_up_first);
        path(&mut wire, FAILED);
        let sent = notifications(&mut wire, peer);
        assert_eq!(sent, [Notification::cease(cease::BFD_DOWN)]);
        assert!(wire.state(peer) < State::OpenSent);
    }
}

#[test]
fn path_that_is_disabled_after_the_wait_ends_no_strict_session() {
    let mut wire = wire(|_| {});
    path(&mut wire, PathState::Alive);
    let peer = dial(&mut wire);
    path(&mut wire, PathState::Unknown);
    assert_eq!(wire.state(peer), State::OpenConfirm);
    wire.send(peer, Keepalive);
    assert_eq!(wire.state(peer), State::Established);
}

#[test]
fn unknown_path_ends_no_established_strict_session() {
    let mut wire = wire(|_| {});
    path(&mut wire, PathState::Alive);
    let peer = wire.connect(2, &strict_open());
    // cambric-bfd is away, or the neighbor has disabled BFD.
    path(&mut wire, PathState::Unknown);
    assert_eq!(wire.state(peer), State::Established);
}

#[test]
fn session_is_strict_only_if_both_ends_are() {
    let mut one_sided = wire(|_| {});
    one_sided.connect(2, &open(2));

    let mut plain = wire(|session| session.bfd_strict = false);
    let peer = dial(&mut plain);
    plain.send(peer, Keepalive);
    assert_eq!(plain.state(peer), State::Established);
    let offered = plain.received(peer).into_iter().any(|part| match part {
        Received::Open(open) => open.capabilities.contains(&Capability::BfdStrictMode),
        _ => false,
    });
    assert!(!offered);
}

#[test]
fn messages_during_the_wait_are_unexpected() {
    let mut wire = wire(|_| {});
    let peer = dial(&mut wire);
    wire.send(peer, strict_open());
    assert!(wire.state(peer) < State::OpenSent);
    assert_eq!(notifications(&mut wire, peer).len(), 1);
}

/// Reports the state of the path between the speakers 1 and 2 to one of them.
fn report(network: &mut Network, at: usize, state: PathState) {
    let (now, remote) = (network.now(), IpAddr::from(address(3 - at)));
    let speaker = network.speaker_mut(at);
    speaker.handle(now, Input::Path(remote, state));
    network.settle();
}

#[test]
fn strict_sessions_wait_at_either_side_and_after_a_collision() {
    // Which of the two dials.
    for dials in [[true, true], [true, false], [false, true]] {
        let mut network = Network::new(6);
        for us in [1, 2] {
            let config = config(us, 3 - us, |session| session.passive = !dials[us - 1]);
            network.start(us, address(us).into(), config);
        }
        network.settle();
        network.advance(Duration::from_secs(5));
        let state = |network: &Network, at| {
            let mut peers = network.speaker(at).peers();
            let session = peers.next().expect("a peer").session;
            (session.state(), session.awaits_path())
        };
        for at in [1, 2] {
            assert_eq!(state(&network, at), (State::OpenConfirm, true), "{dials:?}");
        }
        report(&mut network, 1, PathState::Alive);
        network.advance(Duration::from_secs(1));
        assert_eq!(state(&network, 1), (State::OpenConfirm, false));
        assert_eq!(state(&network, 2), (State::OpenConfirm, true));
        report(&mut network, 2, PathState::Alive);
        network.advance(Duration::from_secs(1));
        for at in [1, 2] {
            assert_eq!(state(&network, at), (State::Established, false));
            let peer = network.speaker(at).peers().next().expect("a peer");
            let stats = peer.session.stats();
            assert_eq!((stats.established, stats.flaps, stats.failures), (1, 0, 0));
            // RFC 4271 §6.8: the connection of the higher identifier stays.
            let dialed = dials[at - 1] && (at == 2 || !dials[1]);
            let conn = if dialed {
                Conn::Outbound
            } else {
                Conn::Inbound
            };
            assert_eq!(peer.session.established(), Some(conn), "{dials:?}");
        }
    }
}

#[test]
fn stale_routes_stay_while_a_strict_session_waits() {
    let mut open = graceful_open(2, |_| {});
    open.capabilities.push(Capability::BfdStrictMode);
    for fails in [false, true] {
        let mut wire = wire(|session| {
            session.graceful_restart = Some(GracefulRestartConfig::default());
        });
        path(&mut wire, PathState::Alive);
        let peer = wire.connect(2, &open);
        wire.send(peer, Update::reach(["10.65.2.0/26"]));
        wire.send(peer, EndOfRib(Family::IPV4_UNICAST));
        // The neighbor restarts, with its process of BFD.
        wire.lose(peer);
        path(&mut wire, PathState::Unknown);
        wire.network.advance(Duration::from_secs(1));
        wire.dial(2).expect("admitted");
        wire.send(peer, &open);
        assert!(awaits(&wire, peer));
        assert_eq!(wire.prefixes(), ["10.65.2.0/26"], "stale");
        if fails {
            path(&mut wire, FAILED);
            assert!(wire.prefixes().is_empty());
            continue;
        }
        path(&mut wire, PathState::Alive);
        wire.send(peer, Keepalive);
        assert_eq!(wire.state(peer), State::Established);
        assert_eq!(wire.prefixes(), ["10.65.2.0/26"], "stale");
        wire.send(peer, EndOfRib(Family::IPV4_UNICAST));
        assert!(wire.prefixes().is_empty());
    }
}

#[test]
fn changed_strict_mode_applies_to_the_next_session() {
    let mut wire = wire(|session| session.bfd_strict = false);
    let peer = wire.connect(2, &strict_open());
    wire.reconfigure(passive(|_| {})).expect("taken");
    wire.settle();
    assert_eq!(wire.state(peer), State::Established);
    wire.lose(peer);
    wire.network.advance(Duration::from_secs(1));
    dial(&mut wire);
    assert!(awaits(&wire, peer));
    // Without the mode, an attempt begins again, and nothing is awaited.
    let plain = passive(|session| session.bfd_strict = false);
    wire.reconfigure(plain).expect("taken");
    wire.settle();
    assert!(wire.state(peer) < State::OpenSent);
    wire.connect(2, &strict_open());
}
