//! Changes of the speaker's identity: its AS, its BGP Identifier.

use std::time::Duration;

use bgp_fsm::{GracefulRestartConfig, State};
use bgp_proto::notification::{cease, code};
use bgp_proto::{Asn, Capability, Family, Open, RouterId};
use bgp_speaker::{PeerConfig, SpeakerConfig};
use rib::Role;
use testkit::fixture::{address, clients, graceful_open, neighbor, open, prefix, speaker_config};
use testkit::{EndOfRib, Network, Received, Update};

use super::network;
use super::wire::Wire;

const V4: Family = Family::IPV4_UNICAST;
const OTHER: Asn = Asn(64_999);

/// Returns a configuration with peers 2 and 3 by address, and a range for others; both sides may
/// retain routes.
fn config(asn: Asn, id: usize) -> SpeakerConfig {
    let mut config = speaker_config(1);
    config.local_asn = asn;
    config.router_id = RouterId(address(id));
    let ours = |peer: &mut PeerConfig| {
        peer.session.local_asn = asn;
        peer.session.local_id = RouterId(address(id));
        peer.session.passive = true;
        peer.session.graceful_restart = Some(GracefulRestartConfig::default());
    };
    for number in [2, 3] {
        let mut peer = neighbor(1, number, Role::Client);
        ours(&mut peer);
        config.peers.push(peer);
    }
    let mut range = clients(1, 10);
    ours(&mut range.template);
    config.ranges.push(range);
    config
}

fn of_as(mut open: Open, asn: Asn) -> Open {
    open.asn = asn;
    open.capabilities
        .retain(|capability| !matches!(capability, Capability::FourOctetAsn(_)));
    open.capabilities.push(Capability::FourOctetAsn(asn));
    open
}

fn become_another(wire: &mut Wire, new: SpeakerConfig) -> Vec<String> {
    let done = wire.reconfigure(new).expect("taken");
    wire.settle();
    assert!(done.added.is_empty() && done.removed.is_empty(), "{done:?}");
    done.reset
}

#[test]
fn sessions_reset_for_a_new_router_id_keep_routes() {
    let mut wire = Wire::new(config(Asn(64_512), 1));
    let two = wire.connect(2, &open(2)); // It does not retain routes.
    let graceful = |number| graceful_open(number, |_| {});
    let three = wire.connect(3, &graceful(3));
    let four = wire.connect(4, &graceful(4));
    wire.send(two, Update::reach(["10.65.0.2/32"]));
    wire.send(three, Update::reach(["10.65.0.3/32", "10.65.0.33/32"]));
    wire.send(four, Update::reach(["10.65.0.4/32"]));
    wire.received(two);
    wire.received(three);
    assert_eq!(
        become_another(&mut wire, config(OTHER, 1)),
        ["nodes-10.0.0.4", "n2", "n3"]
    );
    for peer in [two, three, four] {
        assert!(wire.state(peer) < State::Established);
    }
    let kept = ["10.65.0.3/32", "10.65.0.33/32", "10.65.0.4/32"];
    assert_eq!(wire.prefixes(), kept);
    let [.., Received::Notification(why)] = &wire.received(two)[..] else {
        panic!("a NOTIFICATION");
    };
    let changed = (code::CEASE, cease::OTHER_CONFIGURATION_CHANGE);
    assert_eq!((why.code, why.subcode), changed);
    let received = wire.received(three);
    assert_eq!(
        received,
        [],
        "a NOTIFICATION would remove the routes: RFC 4724 §4.2"
    );

    // A peer without the new configuration is rejected, and no state is lost by that.
    wire.try_connect(3, &graceful(3));
    assert_eq!(wire.prefixes(), kept);
    let three = wire.dial(3).expect("let in");
    let [Received::Open(open)] = &wire.received(three)[..] else {
        panic!("its OPEN");
    };
    assert!(open.capabilities.contains(&Capability::FourOctetAsn(OTHER)));
    wire.lose(three);
    let three = wire.connect(3, &of_as(graceful(3), OTHER));
    wire.connect(4, &of_as(graceful(4), OTHER));
    assert_eq!(wire.prefixes(), kept);
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    wire.send(three, EndOfRib(V4));
    assert_eq!(wire.prefixes(), ["10.65.0.3/32", "10.65.0.4/32"]);
}

#[test]
fn absent_peer_is_forgotten_in_time() {
    let mut wire = Wire::new(config(Asn(64_512), 1));
    let three = wire.connect(3, &graceful_open(3, |_| {}));
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    become_another(&mut wire, config(OTHER, 1));
    assert_eq!(wire.prefixes(), ["10.65.0.3/32"]);
    wire.pass(61, &[]);
    assert!(wire.prefixes().is_empty());
}

#[test]
fn changed_identifier_is_sent_and_later_changes_apply() {
    let mut wire = Wire::new(config(Asn(64_512), 1));
    let three = wire.connect(3, &graceful_open(3, |_| {}));
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    let seven = config(Asn(64_512), 7);
    assert_eq!(become_another(&mut wire, seven.clone()), ["n3"]);
    wire.received(three);
    let three = wire.dial(3).expect("let in");
    let [Received::Open(open)] = &wire.received(three)[..] else {
        panic!("its OPEN");
    };
    assert_eq!(open.id, RouterId(address(7)));
    wire.lose(three);
    let three = wire.connect(3, &graceful_open(3, |_| {}));
    assert_eq!(wire.prefixes(), ["10.65.0.3/32"]);
    assert_eq!(wire.speaker().config().cluster_id().0, address(7));

    // The next reload is an ordinary one.
    let mut more = seven;
    let mut five = neighbor(1, 5, Role::Client);
    five.session.local_id = RouterId(address(7));
    five.session.passive = true;
    more.peers.push(five);
    let done = wire.reconfigure(more).expect("taken");
    wire.settle();
    assert_eq!((done.added, done.reset), (vec!["n5".into()], vec![]));
    assert_eq!(wire.state(three), State::Established);
}

/// Returns a node of a full mesh.
fn node(number: usize, asn: Asn, all: &[usize]) -> SpeakerConfig {
    let mut config = speaker_config(number);
    config.local_asn = asn;
    for &other in all.iter().filter(|other| **other != number) {
        let mut peer = neighbor(number, other, Role::Internal);
        peer.session.local_asn = asn;
        peer.session.passive = number < other;
        peer.session.graceful_restart =
            Some(GracefulRestartConfig::default().with_forwarding(peer.session.families));
        config.peers.push(peer);
    }
    config
}

fn net(number: usize) -> String {
    format!("10.65.{number}.0/26")
}

// Promise (BGP): A fabric that changes its AS node by node loses no route.
#[test]
fn a_mesh_takes_another_as_node_by_node_and_loses_no_route() {
    let was = Asn(64_512);
    let all = [1, 2, 3];
    let nodes = all.map(|number| (number, node(number, was, &all)));
    let mut fabric = network(nodes.into());
    for number in all {
        fabric.announce(number, &net(number));
    }
    fabric.advance(Duration::from_secs(20));
    let whole = |fabric: &Network, asn: Asn| {
        for number in all {
            let rib = fabric.speaker(number).rib();
            for other in all {
                let name = net(other);
                let view = rib.lookup(V4, prefix(&name));
                let best = view.is_some_and(|view| view.best().is_some());
                assert!(best, "{number} has lost {name} on the way to AS {asn}");
            }
        }
    };
    for asn in [OTHER, was] {
        for number in all {
            let now = fabric.now();
            let new = node(number, asn, &all);
            fabric
                .speaker_mut(number)
                .reconfigure(now, new)
                .expect("taken");
            for _ in 0..14 {
                whole(&fabric, asn);
                fabric.advance(Duration::from_millis(50));
            }
        }
        for _ in 0..600 {
            whole(&fabric, asn);
            fabric.advance(Duration::from_millis(50));
        }
        for number in all {
            assert_eq!(fabric.established(number).len(), 2);
        }
        // All are fresh by now: no speaker waits for the end of a restart.
        let mut speakers = all.iter().map(|number| fabric.speaker(*number));
        assert!(speakers.all(|speaker| speaker.peers().all(|peer| peer.stale_until.is_none())));
    }

    // A peer that connects now is an ordinary one.
    let more = [1, 2, 3, 4];
    let now = fabric.now();
    fabric.start(4, address(4).into(), node(4, was, &more));
    for number in all {
        let done = fabric
            .speaker_mut(number)
            .reconfigure(now, node(number, was, &more));
        let done = done.expect("taken");
        assert_eq!((done.added.len(), done.reset.len()), (1, 0));
    }
    fabric.advance(Duration::from_secs(20));
    assert_eq!(fabric.established(4).len(), 3);
}

/// A neighbor may have a local AS of its own: then the change does not concern it.
#[test]
fn a_session_of_another_local_as_stays() {
    let apart = |asn| {
        let mut config = config(asn, 1);
        config.peers[1].session.local_asn = Asn(64_512);
        config
    };
    let mut wire = Wire::new(apart(Asn(64_512)));
    wire.connect(2, &open(2));
    let three = wire.connect(3, &open(3));
    assert_eq!(become_another(&mut wire, apart(OTHER)), ["n2"]);
    assert_eq!(wire.state(three), State::Established);
}

/// The peer is the same, and its routes are retained, for any negotiated result.
#[test]
fn renegotiated_session_keeps_routes() {
    let mut wire = Wire::new(config(Asn(64_512), 1));
    let willing = || {
        let mut open = graceful_open(3, |_| {});
        open.capabilities.push(Capability::ExtendedMessage);
        open
    };
    let three = wire.connect(3, &willing());
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    let mut longer = config(Asn(64_512), 1);
    longer.peers[1].session.extended_messages = true;
    assert_eq!(become_another(&mut wire, longer.clone()), ["n3"]);
    assert_eq!(wire.prefixes(), ["10.65.0.3/32"]);
    let three = wire.connect(3, &willing());
    assert_eq!(wire.prefixes(), ["10.65.0.3/32"]);
    wire.send(three, EndOfRib(V4));
    assert!(wire.prefixes().is_empty());

    // A peer in another AS is another peer, and a family that is not negotiated has no routes.
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    let mut fewer = longer.clone();
    fewer.peers[1].session.families = Family::IPV6_UNICAST.into();
    assert_eq!(become_another(&mut wire, fewer), ["n3"]);
    assert!(wire.prefixes().is_empty());
    become_another(&mut wire, longer.clone());
    let three = wire.connect(3, &willing());
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    longer.peers[1].session.peer_asn = bgp_fsm::PeerAs::Exactly(OTHER);
    assert_eq!(become_another(&mut wire, longer), ["n3"]);
    assert!(wire.prefixes().is_empty());
}

#[test]
fn stopped_peer_is_not_started_again() {
    let mut wire = Wire::new(config(Asn(64_512), 1));
    let three = wire.connect(3, &open(3));
    let now = wire.now();
    let done = wire.reconfigure(config(OTHER, 1));
    assert_eq!(done.expect("taken").reset, ["n3"]);
    let why = bgp_proto::Notification::administrative_shutdown("enough");
    wire.speaker_mut().stop_all(now, &why);
    wire.settle();
    assert_eq!(wire.state(three), State::Idle);
    assert!(wire.dial(3).is_err(), "it is down");
}
