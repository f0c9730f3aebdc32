//! The strict mode of BFD (draft-ietf-idr-bgp-bfd-strict-mode), with a scripted peer.

use std::net::IpAddr;
use std::time::Duration;

use bgp_fsm::State;
use bgp_proto::notification::cease;
use bgp_proto::{Capability, HEADER_OCTETS, Notification, Open};
use bgp_speaker::{Bfd, Input, PathState};
use rib::{PeerId, Role};
use testkit::fixture::{address, neighbor, open, speaker_config};
use testkit::{Keepalive, Received};

use super::wire::Wire;

/// The default of the wait, in seconds.
const HANDSHAKE_S: u64 = 15;

fn wire(edit: impl FnOnce(&mut bgp_fsm::SessionConfig)) -> Wire {
    let mut peer = neighbor(1, 2, Role::Internal);
    peer.session.passive = true;
    peer.session.bfd_strict = true;
    edit(&mut peer.session);
    peer.bfd = Some(Bfd::default());
    Wire::new(speaker_config(1).with_peer(peer))
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
