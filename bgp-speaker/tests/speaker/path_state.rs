//! Failures of the path to a peer that BFD reports (RFC 5882 §4, RFC 9384).

use std::net::IpAddr;
use std::time::Duration;

use bgp_fsm::GracefulRestartConfig;
use bgp_proto::notification::cease;
use bgp_proto::{AttrCode, Family, GracefulRestart, Notification};
use bgp_speaker::limits::{FAILED_PEER_KEPT, PATH_DAMPING, PATH_DIAL_INTERVAL};
use bgp_speaker::{
    Bfd, BfdGraceful, Event, Input, Output, PathConsequence, PathState, PeerConfig, RangeConfig,
    Restart, SpeakerConfig,
};
use rib::{NextHops, PeerId, Reach, Role};
use testkit::fixture::{address, graceful_open, neighbor, open, speaker_config};
use testkit::{EndOfRib, Received, Update};

use super::wire::Wire;

const OWN: &str = "10.65.2.0/26";
const OF_ANOTHER: &str = "10.65.9.0/26";

/// A speaker with the neighbor 10.0.0.2, which has BFD and graceful restart.
fn config(role: Role, edit: impl FnOnce(&mut PeerConfig)) -> SpeakerConfig {
    let mut peer = neighbor(1, 2, role);
    peer.session.passive = true;
    peer.session.graceful_restart = Some(GracefulRestartConfig::default());
    peer.bfd = Some(Bfd::default());
    edit(&mut peer);
    speaker_config(1).with_peer(peer)
}

/// The neighbor is established, and has sent a route by way of itself and one of another host.
fn up(
    role: Role,
    graceful: impl FnOnce(&mut GracefulRestart),
    edit: impl FnOnce(&mut PeerConfig),
) -> (Wire, PeerId) {
    let mut wire = Wire::new(config(role, edit));
    let peer = wire.connect(2, &graceful_open(2, graceful));
    announce(&mut wire, peer);
    (wire, peer)
}

/// Returns the configuration of a speaker that forwards packets: it resolves next hops.
fn forwards(mut config: SpeakerConfig) -> SpeakerConfig {
    config.next_hops = NextHops::Track;
    config
}

/// Does the same as [`up`] for an internal neighbor of a speaker that forwards packets.
fn forwarding(
    graceful: impl FnOnce(&mut GracefulRestart),
    edit: impl FnOnce(&mut PeerConfig),
) -> (Wire, PeerId) {
    let mut wire = Wire::new(forwards(config(Role::Internal, edit)));
    let peer = wire.connect(2, &graceful_open(2, graceful));
    announce(&mut wire, peer);
    (wire, peer)
}

/// Another peer sends a route by way of 10.0.0.2.
fn announce_own(wire: &mut Wire, peer: PeerId) {
    let net: bgp_proto::Ipv4Prefix = OWN.parse().expect("a prefix");
    wire.send(peer, Update::via(address(2)).announcing(net));
    resolve(wire);
    assert_eq!(wire.prefixes(), [OWN]);
}

/// Returns a route of a host as a reflector sends it (RFC 4456 §8).
fn reflected(host: usize) -> Update {
    let host = address(host);
    Update::via(host).with(0x80, AttrCode::OriginatorId, &host.octets())
}

/// Reports the next hops as reachable, as the kernel's routes would.
fn resolve(wire: &mut Wire) {
    let now = wire.now();
    for via in [2, 9] {
        let (next_hop, reach) = (address(via).into(), Reach::Cost(0));
        let resolved = Input::Resolved { next_hop, reach };
        wire.speaker_mut().handle(now, resolved);
    }
    wire.settle();
}

fn announce(wire: &mut Wire, peer: PeerId) {
    let net = |net: &str| -> bgp_proto::Ipv4Prefix { net.parse().expect("a prefix") };
    wire.send(peer, Update::via(address(2)).announcing(net(OWN)));
    wire.send(peer, reflected(9).announcing(net(OF_ANOTHER)));
    resolve(wire);
    assert_eq!(wire.prefixes(), [OWN, OF_ANOTHER]);
}

fn path_now(wire: &mut Wire, remote: IpAddr, state: PathState) {
    let now = wire.now();
    wire.speaker_mut().handle(now, Input::Path(remote, state));
}

fn path_at(wire: &mut Wire, remote: IpAddr, state: PathState) {
    path_now(wire, remote, state);
    wire.settle();
}

fn path(wire: &mut Wire, peer: PeerId, state: PathState) {
    let config = wire.speaker().peer_config(peer);
    let remote = config.expect("a peer").remote;
    path_at(wire, remote, state);
}

fn fail(wire: &mut Wire, peer: PeerId, control_plane_independent: bool) -> PathConsequence {
    let config = wire.speaker().peer_config(peer);
    let remote = config.expect("a peer").remote;
    fail_at(wire, remote, control_plane_independent)
}

fn fail_at(wire: &mut Wire, remote: IpAddr, control_plane_independent: bool) -> PathConsequence {
    wire.take_events();
    path_at(
        wire,
        remote,
        PathState::Failed {
            control_plane_independent,
        },
    );
    let events = wire.take_events();
    let consequence = events.iter().find_map(|event| match event {
        Event::PathFailed { consequence, .. } => Some(*consequence),
        _ => None,
    });
    consequence.expect("an event")
}

fn notification(wire: &mut Wire, peer: PeerId) -> Notification {
    let received = wire.received(peer);
    let found = received.into_iter().find_map(|received| match received {
        Received::Notification(notification) => Some(notification),
        _ => None,
    });
    found.expect("a NOTIFICATION")
}

/// A speaker that forwards packets has restarted. Its neighbors may have kept its routes.
fn restarted() -> (Wire, PeerId) {
    let mut other = neighbor(1, 3, Role::Internal);
    other.session.passive = true;
    other.session.graceful_restart = Some(GracefulRestartConfig::default());
    let config = forwards(config(Role::Client, |_| {}).with_peer(other));
    let wire = Wire::prepared(config, |speaker| {
        speaker.restarted(Restart::new(Duration::from_secs(90)));
    });
    let mut peers = wire.speaker().peers();
    let peer = peers.find(|view| view.config.remote == address(2));
    let peer = peer.expect("a neighbor").id;
    drop(peers);
    (wire, peer)
}

fn awaits(wire: &Wire, number: usize) -> bool {
    wire.speaker()
        .awaited()
        .contains(&Some(address(number).into()))
}

// Promise (BGP): A restarted BGP daemon does not wait for a neighbor that BFD has found dead, and keeps no
// former routes through it.
#[test]
fn neighbor_that_failed_before_the_restart_is_not_awaited() {
    let (mut wire, peer) = restarted();
    assert!(awaits(&wire, 2) && awaits(&wire, 3));
    // Its own restart explains the failure.
    assert_eq!(fail(&mut wire, peer, false), PathConsequence::Restart);
    assert!(awaits(&wire, 2));
    assert_eq!(fail(&mut wire, peer, true), PathConsequence::FormerRemoved);
    assert!(!awaits(&wire, 2) && awaits(&wire, 3));
    // It is awaited again once it is there.
    wire.connect(2, &graceful_open(2, IGNORE));
    assert!(awaits(&wire, 2));
    wire.pass(90, &[]);
    assert!(wire.speaker().awaited().is_empty());
}

const IGNORE: fn(&mut GracefulRestart) = |_| {};

// Promise (BGP): If BFD finds the path to a neighbor failed, the session ends with Cease/BFD Down, in a Hard
// Reset where both sides support it, and routes through the neighbor are removed at once.
#[test]
fn failed_path_of_a_client_removes_its_routes_at_once() {
    for with_n_bit in [true, false] {
        let n_bit = |graceful: &mut GracefulRestart| graceful.notification = with_n_bit;
        for independent in [true, false] {
            let (mut wire, peer) = up(Role::Client, n_bit, |_| {});
            path(&mut wire, peer, PathState::Alive);
            let consequence = fail(&mut wire, peer, independent);
            assert_eq!(consequence, PathConsequence::SessionClosed);
            let sent = notification(&mut wire, peer);
            let reason = match with_n_bit {
                true => sent.hard_reset_reason().expect("a Hard Reset"),
                false => sent,
            };
            assert_eq!(reason, Notification::cease(cease::BFD_DOWN));
            assert!(wire.prefixes().is_empty(), "no graceful restart");
        }
    }
}

#[test]
fn failed_reflector_leaves_routes_of_other_hosts_stale() {
    let n_bit = |graceful: &mut GracefulRestart| graceful.notification = true;
    let (mut wire, peer) = forwarding(n_bit, |_| {});
    let consequence = fail(&mut wire, peer, true);
    assert_eq!(consequence, PathConsequence::SessionClosedNextHopFailed);
    // A Hard Reset would make the neighbor remove the routes of this speaker.
    let sent = notification(&mut wire, peer);
    assert_eq!(sent, Notification::cease(cease::BFD_DOWN));
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);
    wire.pass(60, &[]);
    assert!(wire.prefixes().is_empty(), "the restart time is over");
    let back = wire.connect(2, &graceful_open(2, IGNORE));
    announce(&mut wire, back);
}

#[test]
fn path_that_works_again_does_not_revive_stale_routes() {
    let (mut wire, peer) = forwarding(IGNORE, |_| {});
    fail(&mut wire, peer, true);
    path(&mut wire, peer, PathState::Alive);
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);
    let back = wire.connect(2, &graceful_open(2, IGNORE));
    announce(&mut wire, back);
}

#[test]
fn failed_host_is_no_next_hop_of_other_peers_routes() {
    let mut other = neighbor(1, 3, Role::Internal);
    other.session.passive = true;
    let config = forwards(config(Role::Internal, |_| {}).with_peer(other));
    let mut wire = Wire::new(config);
    let peer = wire.connect(2, &open(2));
    let other = wire.connect(3, &open(3));
    announce_own(&mut wire, other);
    fail(&mut wire, peer, true);
    assert!(wire.prefixes().is_empty());
    // Without stale routes, the path decides as soon as it works again.
    path(&mut wire, peer, PathState::Alive);
    assert_eq!(wire.prefixes(), [OWN]);
    fail(&mut wire, peer, true);
    wire.connect(2, &open(2));
    assert_eq!(wire.prefixes(), [OWN], "a session proves that it is there");
}

// Promise (BGP): A neighbor without an independent control plane that closes its connection before its BFD
// session fails restarts: its routes are retained.
#[test]
fn closed_connection_before_the_failure_is_a_restart() {
    let (mut wire, peer) = up(Role::Client, IGNORE, |_| {});
    wire.lose(peer);
    assert_eq!(fail(&mut wire, peer, false), PathConsequence::Restart);
    assert_eq!(wire.prefixes(), [OWN, OF_ANOTHER]);
    assert_eq!(fail(&mut wire, peer, true), PathConsequence::StaleRemoved);
    assert!(wire.prefixes().is_empty());
    assert_eq!(fail(&mut wire, peer, true), PathConsequence::None);
}

#[test]
fn lost_connection_with_a_working_path_keeps_stale_routes() {
    let (mut wire, peer) = up(Role::Client, IGNORE, |_| {});
    path(&mut wire, peer, PathState::Alive);
    wire.lose(peer);
    wire.pass(59, &[]);
    assert_eq!(wire.prefixes(), [OWN, OF_ANOTHER]);
    wire.pass(1, &[]);
    assert!(wire.prefixes().is_empty());
}

#[test]
fn disabled_session_of_bfd_has_no_effect() {
    let (mut wire, peer) = up(Role::Client, IGNORE, |_| {});
    for state in [PathState::Alive, PathState::Unknown] {
        path(&mut wire, peer, state);
    }
    assert!(wire.is_open(peer));
    assert_eq!(wire.prefixes(), [OWN, OF_ANOTHER]);
}

#[test]
fn bfd_graceful_overrides_the_rule_of_the_c_bit() {
    let always = |peer: &mut PeerConfig| peer.bfd_graceful = BfdGraceful::Always;
    for with_n_bit in [true, false] {
        let n_bit = |graceful: &mut GracefulRestart| graceful.notification = with_n_bit;
        let (mut wire, peer) = up(Role::Client, n_bit, always);
        let consequence = fail(&mut wire, peer, true);
        assert_eq!(consequence, PathConsequence::SessionClosedForRestart);
        let sent = notification(&mut wire, peer);
        assert_eq!(sent, Notification::cease(cease::BFD_DOWN));
        assert_eq!(wire.prefixes(), [OWN, OF_ANOTHER]);
        assert_eq!(fail(&mut wire, peer, true), PathConsequence::Restart);
        wire.pass(60, &[]);
        assert!(wire.prefixes().is_empty());
    }
    let never = |peer: &mut PeerConfig| peer.bfd_graceful = BfdGraceful::Never;
    let (mut wire, peer) = up(Role::Client, IGNORE, never);
    wire.lose(peer);
    assert_eq!(fail(&mut wire, peer, false), PathConsequence::StaleRemoved);
    assert!(wire.prefixes().is_empty());
}

#[test]
fn removed_peer_restores_its_address_as_next_hop() {
    let (mut wire, peer) = forwarding(IGNORE, |_| {});
    fail(&mut wire, peer, true);
    let mut other = neighbor(1, 3, Role::Internal);
    other.session.passive = true;
    wire.reconfigure(forwards(speaker_config(1).with_peer(other)))
        .expect("applied");
    wire.settle();
    let other = wire.connect(3, &open(3));
    announce_own(&mut wire, other);
}

/// A reflector that cannot reach a host is not on the way of packets to it.
#[test]
fn failed_path_of_a_reflector_excludes_no_routes_of_others() {
    for role in [Role::Client, Role::Internal] {
        let mut other = neighbor(1, 3, Role::Internal);
        other.session.passive = true;
        let mut wire = Wire::new(config(role, |_| {}).with_peer(other));
        let peer = wire.connect(2, &open(2));
        let other = wire.connect(3, &open(3));
        announce_own(&mut wire, other);
        let consequence = fail(&mut wire, peer, true);
        assert_eq!(consequence, PathConsequence::SessionClosed);
        assert_eq!(wire.prefixes(), [OWN]);
    }
    let (mut wire, peer) = up(Role::Internal, IGNORE, |_| {});
    wire.lose(peer);
    assert_eq!(fail(&mut wire, peer, true), PathConsequence::StaleRetained);
    // The neighbor originates the other one.
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);
}

/// Returns a speaker with two reflectors, 10.0.0.2 and 10.0.0.3, which have sent the same route of 10.0.0.9.
fn with_two_reflectors() -> (Wire, PeerId, PeerId) {
    let mut other = neighbor(1, 3, Role::Internal);
    other.session.passive = true;
    other.session.graceful_restart = Some(GracefulRestartConfig::default());
    let config = config(Role::Internal, |_| {}).with_peer(other);
    let mut wire = Wire::new(forwards(config));
    let peers = [2, 3].map(|number| wire.connect(number, &graceful_open(number, IGNORE)));
    for peer in peers {
        wire.send(peer, reflected(9).announcing(of_another()));
    }
    resolve(&mut wire);
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);
    let [one, other] = peers;
    (wire, one, other)
}

fn of_another() -> bgp_proto::Ipv4Prefix {
    OF_ANOTHER.parse().expect("a prefix")
}

// Promise (BGP): A stale route is not used once another neighbor has withdrawn the route of the same origin.
#[test]
fn stale_route_that_another_reflector_withdraws_is_not_used() {
    let withdrawal = || Update::default().withdrawing(of_another());
    let (mut wire, one, other) = with_two_reflectors();
    wire.lose(one);
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);
    wire.send(other, withdrawal());
    wire.settle();
    assert!(wire.prefixes().is_empty());
    wire.send(other, reflected(9).announcing(of_another()));
    wire.settle();
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);

    // The withdrawal arrives before the session ends.
    let (mut wire, one, other) = with_two_reflectors();
    wire.send(other, withdrawal());
    wire.settle();
    assert_eq!(wire.prefixes(), [OF_ANOTHER], "the other one still has it");
    wire.lose(one);
    assert!(wire.prefixes().is_empty());
    let one = wire.connect(2, &graceful_open(2, IGNORE));
    wire.send(one, reflected(9).announcing(of_another()));
    wire.settle();
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);
}

#[test]
fn reflector_that_sends_messages_after_a_withdrawal_is_trusted() {
    let (mut wire, one, other) = with_two_reflectors();
    wire.send(other, Update::default().withdrawing(of_another()));
    // It restarts long after the withdrawal, which concerned the path of the other reflector.
    wire.pass(40, &[one, other]);
    wire.lose(one);
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);
    // In its next session, only an announcement ends the doubt.
    wire.send(other, reflected(9).announcing(of_another()));
    wire.send(other, Update::default().withdrawing(of_another()));
    assert!(wire.prefixes().is_empty());
    let one = wire.connect(2, &graceful_open(2, IGNORE));
    wire.pass(40, &[one, other]);
    assert!(wire.prefixes().is_empty());
    wire.send(one, reflected(9).announcing(of_another()));
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);
}

#[test]
fn lost_reflectors_leave_routes_that_no_one_withdraws() {
    let (mut wire, one, other) = with_two_reflectors();
    fail(&mut wire, one, true);
    fail(&mut wire, other, true);
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);
}

/// A host and a reflector lose power together: the other reflector does not retain the routes of the host that
/// the failed one has reflected.
#[test]
fn stale_route_of_a_failed_host_is_not_reflected() {
    let mut other = neighbor(1, 3, Role::Internal);
    other.session.passive = true;
    other.session.graceful_restart = Some(GracefulRestartConfig::default());
    for is_host_first in [true, false] {
        let config = config(Role::Client, |_| {}).with_peer(other.clone());
        let mut wire = Wire::new(config);
        let host = wire.connect(2, &graceful_open(2, IGNORE));
        let reflector = wire.connect(3, &graceful_open(3, IGNORE));
        let own: bgp_proto::Ipv4Prefix = OWN.parse().expect("a prefix");
        wire.send(host, Update::via(address(2)).announcing(own));
        wire.send(reflector, reflected(2).announcing(own));
        wire.send(reflector, reflected(9).announcing(of_another()));
        wire.settle();
        let mut order = [host, reflector];
        if !is_host_first {
            order.reverse();
        }
        for peer in order {
            fail(&mut wire, peer, true);
        }
        assert_eq!(wire.prefixes(), [OF_ANOTHER]);
    }
}

#[test]
fn failed_host_with_stale_routes_is_no_next_hop() {
    let (mut wire, peer) = forwarding(IGNORE, |_| {});
    wire.lose(peer);
    assert_eq!(fail(&mut wire, peer, true), PathConsequence::NextHopFailed);
    assert_eq!(wire.prefixes(), [OF_ANOTHER]);
}

#[test]
fn bfd_graceful_never_removes_all_routes_of_an_internal_peer() {
    let never = |peer: &mut PeerConfig| peer.bfd_graceful = BfdGraceful::Never;
    let n_bit = |graceful: &mut GracefulRestart| graceful.notification = true;
    let (mut wire, peer) = forwarding(n_bit, never);
    assert_eq!(fail(&mut wire, peer, false), PathConsequence::SessionClosed);
    let reason = notification(&mut wire, peer);
    let reason = reason.hard_reset_reason().expect("a Hard Reset");
    assert_eq!(reason, Notification::cease(cease::BFD_DOWN));
    assert!(wire.prefixes().is_empty());

    let (mut wire, peer) = forwarding(n_bit, never);
    wire.lose(peer);
    assert_eq!(fail(&mut wire, peer, false), PathConsequence::StaleRemoved);
    assert!(wire.prefixes().is_empty());
}

/// Dynamic neighbors of the former process have no peer before they connect, but BFD finds a dead one.
#[test]
fn dynamic_neighbor_that_failed_before_the_restart_is_removed() {
    let mut template = neighbor(1, 2, Role::Internal);
    template.session.graceful_restart = Some(GracefulRestartConfig::default());
    let prefix = "10.0.0.0/29".parse().expect("a prefix");
    let config = speaker_config(1).with_range(RangeConfig::new(prefix, 3, template));
    let former = [2, 3].map(|number| IpAddr::from(address(number)));
    let mut wire = Wire::prepared(forwards(config), |speaker| {
        let restart = Restart::new(Duration::from_secs(90)).with_dynamic(former.into());
        speaker.restarted(restart);
    });
    let monitored = |wire: &Wire| -> Vec<IpAddr> {
        let former = wire.speaker().former_dynamic();
        former.map(|config| config.remote).collect()
    };
    assert_eq!(monitored(&wire), former);
    // Neither a path that works nor an address without a former session makes a peer.
    path_at(&mut wire, former[0], PathState::Alive);
    let failed = PathState::Failed {
        control_plane_independent: true,
    };
    path_at(&mut wire, address(4).into(), failed);
    assert_eq!(wire.speaker().peers().count(), 0);
    // Its own restart explains the failure.
    assert_eq!(
        fail_at(&mut wire, former[0], false),
        PathConsequence::Restart
    );
    assert!(awaits(&wire, 2) && wire.peer(2).is_none());
    let consequence = fail_at(&mut wire, former[0], true);
    assert_eq!(consequence, PathConsequence::FormerRemoved);
    assert!(!awaits(&wire, 2) && awaits(&wire, 3));
    assert_eq!(monitored(&wire), former[1..]);
    // Paths of others through it are excluded until it has a session.
    let other = wire.connect(3, &graceful_open(3, IGNORE));
    let net: bgp_proto::Ipv4Prefix = OWN.parse().expect("a prefix");
    wire.send(other, Update::via(address(2)).announcing(net));
    wire.send(other, EndOfRib(Family::IPV4_UNICAST));
    resolve(&mut wire);
    assert!(wire.prefixes().is_empty());
    let failed = wire.peer(2).expect("kept for its next hop");
    assert_eq!(wire.connect(2, &graceful_open(2, IGNORE)), failed);
    assert_eq!(wire.prefixes(), [OWN]);
}

#[test]
fn former_dynamic_neighbor_that_stays_away_is_removed() {
    let template = neighbor(1, 2, Role::External);
    let prefix = "10.0.0.0/29".parse().expect("a prefix");
    let config = speaker_config(1).with_range(RangeConfig::new(prefix, 1, template));
    let former = [2, 3].map(|number| IpAddr::from(address(number)));
    let mut wire = Wire::prepared(forwards(config), |speaker| {
        let restart = Restart::new(FAILED_PEER_KEPT * 2).with_dynamic(former.into());
        speaker.restarted(restart.with_own_routes(true));
    });
    let consequence = fail_at(&mut wire, former[0], true);
    assert_eq!(consequence, PathConsequence::FormerRemoved);
    assert!(wire.peer(2).is_some());
    // The range is full.
    let failed = PathState::Failed {
        control_plane_independent: true,
    };
    path_at(&mut wire, former[1], failed);
    assert!(wire.peer(3).is_none());
    wire.network.advance(FAILED_PEER_KEPT);
    wire.settle();
    assert!(wire.peer(2).is_none());
}

/// A peer of a range keeps its address excluded without a session, like a configured peer, but not forever.
#[test]
fn failed_dynamic_peer_keeps_its_next_hop_excluded() {
    let failed = || {
        let mut template = neighbor(1, 2, Role::Internal);
        template.session.passive = true;
        let prefix = "10.0.0.2/32".parse().expect("a prefix");
        let mut other = neighbor(1, 3, Role::Internal);
        other.session.passive = true;
        let config = speaker_config(1).with_peer(other);
        let range = RangeConfig::new(prefix, 1, template);
        let mut wire = Wire::new(forwards(config.with_range(range)));
        let peer = wire.connect(2, &open(2));
        let other = wire.connect(3, &open(3));
        announce_own(&mut wire, other);
        let consequence = fail(&mut wire, peer, true);
        assert_eq!(consequence, PathConsequence::SessionClosed);
        assert!(wire.prefixes().is_empty());
        assert_eq!(wire.peer(2), Some(peer));
        (wire, peer, other)
    };
    let (mut wire, peer, _) = failed();
    path(&mut wire, peer, PathState::Alive);
    assert_eq!(wire.prefixes(), [OWN]);
    assert_eq!(wire.peer(2), None);

    let (mut wire, _, other) = failed();
    wire.pass(FAILED_PEER_KEPT.as_secs(), &[other]);
    assert_eq!(wire.prefixes(), [OWN]);
    assert_eq!(wire.peer(2), None);
}

/// Returns whether the speaker requests a connection to 10.0.0.2 now.
fn dials(wire: &mut Wire) -> bool {
    let mut found = false;
    while let Some(output) = wire.speaker_mut().poll_output() {
        found |= matches!(output, Output::Dial { .. });
    }
    found
}

// Promise (BGP): When BFD finds the path of a neighbor without a session up, BGP opens a connection at once,
// past its timers, and at most once in five seconds.
#[test]
fn path_that_is_up_opens_a_connection_at_once() {
    let mut wire = Wire::new(config(Role::Internal, |peer| peer.session.passive = false));
    let remote = address(2).into();
    dials(&mut wire);
    path_now(&mut wire, remote, PathState::Alive);
    assert!(dials(&mut wire), "before the timer");
    path_now(&mut wire, remote, PathState::Alive);
    path_now(&mut wire, remote, PathState::Unknown);
    path_now(&mut wire, remote, PathState::Alive);
    assert!(!dials(&mut wire), "the next one is not due");
    let now = wire.now() + PATH_DIAL_INTERVAL;
    assert!(
        wire.speaker_mut()
            .poll_timeout()
            .is_some_and(|at| at <= now)
    );
    wire.speaker_mut().handle(now, Input::Timeout);
    assert!(dials(&mut wire), "it is deferred, not lost");
}

#[test]
fn path_that_fails_again_holds_the_session_down() {
    let (mut wire, peer) = up(Role::Client, |_| (), |_| ());
    fail(&mut wire, peer, true);
    path(&mut wire, peer, PathState::Alive);
    assert_eq!(wire.connect(2, &graceful_open(2, |_| ())), peer);
    path(&mut wire, peer, PathState::Alive);
    fail(&mut wire, peer, true);
    path(&mut wire, peer, PathState::Alive);
    assert!(wire.dial(2).is_err(), "held after the second failure");
    wire.network.advance(PATH_DAMPING);
    assert_eq!(wire.connect(2, &graceful_open(2, |_| ())), peer);
}
