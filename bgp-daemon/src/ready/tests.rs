use std::time::Duration;

use bgp_io::bgp_speaker::{Output, SpeakerConfig};

use super::*;
use crate::make_before_break::tests::{address, node};

const SECOND: Duration = Duration::from_secs(1);

struct Node {
    speaker: Speaker,
    end_of_ribs: EndOfRibs,
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
            self.end_of_ribs.observe(&self.speaker, &event);
        }
    }
}

fn add(network: &mut testkit::Network<Node>, number: u8, config: SpeakerConfig) {
    let mut speaker = Speaker::new(config, number.into());
    speaker.start(network.now());
    let node = Node {
        speaker,
        end_of_ribs: EndOfRibs::default(),
    };
    network.add(number.into(), address(number), node);
}

/// Why node 1 is not ready.
fn missing(network: &testkit::Network<Node>) -> Option<String> {
    let Node {
        speaker,
        end_of_ribs,
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
    network.advance(SECOND);
    let why = missing(&network).expect("no session is up");
    assert_eq!(
        why,
        "2 of 2 neighbors have not sent all their routes: n2, n3"
    );
    add(&mut network, 2, node(2, &[1]));
    network.advance(SECOND * 30);
    let why = missing(&network).expect("one session is up");
    assert_eq!(why, "1 of 2 neighbors have not sent all their routes: n3");
    add(&mut network, 3, node(3, &[1]));
    network.advance(SECOND * 60);
    assert_eq!(missing(&network), None);

    // A single lost neighbor changes nothing, and the last one does.
    network.remove(3);
    network.advance(SECOND * 200);
    assert_eq!(missing(&network), None);
    network.remove(2);
    network.advance(SECOND * 200);
    let why = missing(&network).expect("no session is up");
    assert!(why.starts_with("2 of 2 neighbors"), "{why}");
}

#[test]
fn neighbor_that_never_connects_is_awaited_for_a_limited_time() {
    let mut network = testkit::Network::new(0);
    add(&mut network, 1, node(1, &[2, 3]));
    add(&mut network, 2, node(2, &[1]));
    network.advance(READY_WAIT - SECOND);
    let why = missing(&network).expect("one neighbor is missing");
    assert!(why.ends_with(": n3"), "{why}");
    network.advance(SECOND);
    assert_eq!(missing(&network), None);
}

#[test]
fn node_without_neighbors_is_ready() {
    let mut network = testkit::Network::new(0);
    add(&mut network, 1, node(1, &[]));
    network.advance(SECOND);
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
