use std::net::IpAddr;
use std::time::Duration;

use bgp_io::bgp_fsm::GracefulRestartConfig;
use bgp_io::bgp_speaker::{Output, SpeakerConfig};
use testkit::Keepalive;
use testkit::fixture::{graceful_open, open};

use super::*;
use crate::make_before_break::tests::{address, node, reflector};

const SECOND: Duration = Duration::from_secs(1);
const RESTART_TIME: Duration = Duration::from_secs(60);

struct Node {
    speaker: Speaker,
    end_of_ribs: EndOfRibs,
    events: Vec<Event>,
}

impl testkit::Node for Node {
    fn speaker(&self) -> Option<&Speaker> {
        Some(&self.speaker)
    }

    fn speaker_mut(&mut self) -> Option<&mut Speaker> {
        Some(&mut self.speaker)
    }

    fn output(&mut self, output: Output) {
        if let Output::Event(event) = output {
            self.events.push(event);
        }
    }
}

/// Lets time pass for all speakers, and each second for the readiness of node 1.
fn advance(network: &mut testkit::Network<Node>, time: Duration) {
    let end = network.now() + time;
    while network.now() < end {
        network.advance(SECOND.min(end.saturating_duration_since(network.now())));
        let now = network.now();
        let node = network.node_mut(1);
        for event in std::mem::take(&mut node.events) {
            node.end_of_ribs.observe(now, &node.speaker, &event);
        }
    }
}

fn add(network: &mut testkit::Network<Node>, number: u8, config: SpeakerConfig) {
    add_as(network, number, config, false);
}

fn add_as(network: &mut testkit::Network<Node>, number: u8, config: SpeakerConfig, reflects: bool) {
    let mut speaker = Speaker::new(config, number.into());
    speaker.start(network.now());
    let node = Node {
        speaker,
        end_of_ribs: EndOfRibs::new(reflects),
        events: Vec::new(),
    };
    network.add(number.into(), address(number), node);
}

/// A node with graceful restart.
fn graceful(number: u8, with: &[u8]) -> SpeakerConfig {
    let mut config = node(number, with);
    for peer in &mut config.peers {
        let time_s = RESTART_TIME.as_secs() as u16;
        peer.session.graceful_restart = Some(GracefulRestartConfig::new(time_s));
    }
    config
}

/// Why node 1 is not ready.
fn missing(network: &testkit::Network<Node>) -> Option<String> {
    let Node {
        speaker,
        end_of_ribs,
        ..
    } = network.node(1);
    let criterion = end_of_ribs.criterion(network.now(), speaker);
    assert_eq!(criterion.name, "end-of-rib");
    criterion.missing
}

// Promise (Daemons): A node is ready only when its neighbors have sent all their routes.
#[test]
fn node_is_ready_when_all_neighbors_have_sent_their_routes() {
    let mut network = testkit::Network::new(0);
    add(&mut network, 1, node(1, &[2, 3]));
    advance(&mut network, SECOND);
    let why = missing(&network).expect("no session is up");
    assert_eq!(
        why,
        "2 of 2 neighbors have not sent all their routes: n2, n3"
    );
    add(&mut network, 2, node(2, &[1]));
    advance(&mut network, SECOND * 30);
    let why = missing(&network).expect("one session is up");
    assert_eq!(why, "1 of 2 neighbors have not sent all their routes: n3");
    add(&mut network, 3, node(3, &[1]));
    advance(&mut network, SECOND * 60);
    assert_eq!(missing(&network), None);

    // A single lost neighbor changes nothing, and the last one does.
    network.remove(3);
    advance(&mut network, SECOND * 200);
    assert_eq!(missing(&network), None);
    network.remove(2);
    advance(&mut network, SECOND * 200);
    let why = missing(&network).expect("no session is up");
    assert!(why.starts_with("2 of 2 neighbors"), "{why}");
}

#[test]
fn neighbor_that_never_connects_is_awaited_for_a_limited_time() {
    let mut network = testkit::Network::new(0);
    add(&mut network, 1, node(1, &[2, 3]));
    add(&mut network, 2, node(2, &[1]));
    advance(&mut network, READY_WAIT - SECOND);
    let why = missing(&network).expect("one neighbor is missing");
    assert!(why.ends_with(": n3"), "{why}");
    advance(&mut network, SECOND);
    assert_eq!(missing(&network), None);
}

/// The neighbor sends no End-of-RIB marker (RFC 4724 §2).
#[test]
fn neighbor_without_graceful_restart_counts_without_markers() {
    let mut network = testkit::Network::new(0);
    add(&mut network, 1, node(1, &[2]));
    let dialed = network.dial(address(2), address(1)).expect("accepted");
    network.send(dialed, open(2));
    network.send(dialed, Keepalive);
    advance(&mut network, SECOND * 5);
    assert_eq!(network.established(1), [address(2)]);
    let why = missing(&network).expect("it has sent no marker");
    assert!(why.ends_with(": n2"), "{why}");
    advance(&mut network, READY_WITHOUT_END_OF_RIB);
    assert!(network.now() < Instant::ZERO + READY_WAIT);
    assert_eq!(missing(&network), None);
}

#[test]
fn neighbor_with_graceful_restart_has_to_send_markers() {
    let mut network = testkit::Network::new(0);
    add(&mut network, 1, graceful(1, &[2]));
    let dialed = network.dial(address(2), address(1)).expect("accepted");
    network.send(dialed, graceful_open(2, |_| {}));
    network.send(dialed, Keepalive);
    advance(&mut network, SECOND * 5 + READY_WITHOUT_END_OF_RIB);
    assert_eq!(network.established(1), [address(2)]);
    assert!(missing(&network).is_some());
}

#[test]
fn restarting_neighbor_counts_while_its_routes_are_retained() {
    let mut network = testkit::Network::new(0);
    for (number, other) in [(1, 2), (2, 1)] {
        add(&mut network, number, graceful(number, &[other]));
    }
    network.announce(2, "10.65.0.0/26");
    advance(&mut network, SECOND * 30);
    assert_eq!(missing(&network), None);
    network.remove(2);
    advance(&mut network, RESTART_TIME - SECOND);
    assert_eq!(network.established(1), [] as [IpAddr; 0]);
    assert_eq!(missing(&network), None);
    advance(&mut network, SECOND * 2);
    let why = missing(&network).expect("its routes are removed");
    assert!(why.starts_with("1 of 1 neighbors"), "{why}");
}

#[test]
fn reflector_without_neighbors_waits_for_a_client() {
    let network = || {
        let mut network = testkit::Network::new(0);
        let mut config = node(1, &[]);
        config.ranges = reflector(11).ranges;
        add_as(&mut network, 1, config, true);
        advance(&mut network, SECOND);
        let why = missing(&network).expect("it has no session");
        assert_eq!(
            why,
            "no client and no other reflector has an established session"
        );
        network
    };
    let mut used = network();
    let mut client = node(2, &[1]);
    for peer in &mut client.peers {
        peer.session.passive = false;
    }
    add(&mut used, 2, client);
    advance(&mut used, SECOND * 30);
    assert_eq!(used.established(1), [address(2)]);
    assert_eq!(missing(&used), None);

    let mut unused = network();
    advance(&mut unused, READY_WAIT - SECOND * 2);
    assert!(missing(&unused).is_some());
    advance(&mut unused, SECOND);
    assert_eq!(missing(&unused), None);
}

#[test]
fn node_without_neighbors_is_ready() {
    let mut network = testkit::Network::new(0);
    add(&mut network, 1, node(1, &[]));
    advance(&mut network, SECOND);
    assert_eq!(missing(&network), None);
}

#[test]
fn report_has_met_and_missing_criteria() {
    let why = "2 kernel routes are pending".to_owned();
    let report = report(vec![
        Criterion::new("end-of-rib", None),
        Criterion::new("kernel-routes", Some(why)),
    ]);
    assert_eq!(report.met, ["end-of-rib"]);
    assert_eq!(
        report.missing,
        ["kernel-routes: 2 kernel routes are pending"]
    );
}
