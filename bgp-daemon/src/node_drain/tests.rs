use std::time::Duration;

use bgp_io::bgp_proto::{Attributes, Community, Family};
use bgp_io::bgp_speaker::{Input, Output};
use testkit::fixture::prefix;

use super::*;
use crate::make_before_break::tests::{address, node};

const SECOND: Duration = Duration::from_secs(1);
const MESH: &[u8] = &[1, 2, 3];

/// A service range, and the block of node 1.
const SERVICE: &str = "10.96.0.0/12";
const BLOCK: &str = "10.65.0.0/26";

/// A node as its daemon's loop drives it.
struct Node {
    speaker: Speaker,
    wanted: SpeakerConfig,
    drain: NodeDrain,
}

impl Node {
    fn new(number: u8, drain: NodeDrain) -> Self {
        let wanted = node(number, MESH);
        let config = drain.effective(&wanted);
        let config = config.unwrap_or_else(|| wanted.clone());
        Self {
            speaker: Speaker::new(config, number.into()),
            wanted,
            drain,
        }
    }

    fn apply(&mut self, now: Instant) {
        let config = self.drain.effective(&self.wanted);
        let config = config.unwrap_or_else(|| self.wanted.clone());
        let done = self.speaker.reconfigure(now, config).expect("taken");
        assert!(done.reset.is_empty(), "{done:?}");
    }
}

impl testkit::Node for Node {
    fn speaker(&self) -> Option<&Speaker> {
        Some(&self.speaker)
    }

    fn speaker_mut(&mut self) -> Option<&mut Speaker> {
        Some(&mut self.speaker)
    }

    fn output(&mut self, _: Output) {}

    fn poll_timeout(&self) -> Option<Instant> {
        let timers = [self.speaker.poll_timeout(), self.drain.poll_timeout()];
        timers.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.speaker.poll_timeout().is_some_and(|at| at <= now) {
            self.speaker.handle(now, Input::Timeout);
        }
        if self.drain.look(now, &self.speaker) {
            self.apply(now);
        }
    }
}

struct Network(testkit::Network<Node>);

impl Network {
    /// Three nodes in a mesh. All advertise a service, node 1 also its block.
    fn mesh(drain: NodeDrain) -> Self {
        let mut network = Self(testkit::Network::new(0));
        let mut drain = Some(drain);
        for number in MESH {
            let drain = drain.take().unwrap_or_else(|| NodeDrain::new(None));
            let node = Node::new(*number, drain);
            let number = usize::from(*number);
            network.0.add(number, address(number as u8), node);
            let now = network.0.now();
            network.0.speaker_mut(number).start(now);
            network.0.announce(number, SERVICE);
        }
        network.0.announce(1, BLOCK);
        network.0.advance(SECOND * 20);
        network
    }

    fn change(&mut self, change: impl FnOnce(&mut NodeDrain, Instant) -> bool) {
        let now = self.0.now();
        let node = self.0.node_mut(1);
        if change(&mut node.drain, now) {
            node.apply(now);
        }
        self.0.settle();
    }

    /// Returns the stage of node 1 and the stages of its report.
    fn stage(&self) -> Option<DrainStage> {
        self.0.node(1).drain.stage_of()
    }

    /// Returns whether node 2 has this route of node 1 as the least preferred one.
    fn is_last_choice(&self, net: &str) -> bool {
        let speaker = self.0.speaker(2);
        let mut peers = speaker.peers();
        let from = peers.find(|peer| peer.config.remote == address(1));
        let from = from.expect("a session").id;
        let view = speaker.rib().lookup(Family::IPV4_UNICAST, prefix(net));
        let paths = view.map(|view| view.paths).unwrap_or_default();
        let path = paths.into_iter().find(|path| path.peer == from);
        let attributes: Attributes = path.expect("a path").received;
        let has = |community| attributes.communities.contains(&community);
        let marked = has(Community::GRACEFUL_SHUTDOWN);
        assert_eq!(marked, attributes.local_pref == Some(0), "{attributes:?}");
        marked
    }

    fn events(&mut self) -> Vec<&'static str> {
        let drain = &mut self.0.node_mut(1).drain;
        let events = std::iter::from_fn(|| drain.poll_event());
        events.map(|event| event.kind().name).collect()
    }
}

fn duties(since: Option<&str>) -> Duties {
    let mut duties = Duties::default();
    duties.blocks.insert(BLOCK.parse().expect("a prefix"));
    duties.drain = since.map(str::to_owned);
    duties
}

// Promise (Daemons): A drained node advertises first the routes of services, then all routes as
// the least preferred ones. No session is closed, and no route withdrawn.
#[test]
fn services_are_drained_before_workloads_and_sessions_stay() {
    let mut network = Network::mesh(NodeDrain::new(None));
    network.0.node_mut(1).drain.started();
    let assign = |drain: &mut NodeDrain, now| drain.assign(now, &duties(None));
    network.change(assign);
    assert_eq!(network.stage(), None);
    assert!(!network.is_last_choice(SERVICE));
    network.change(|drain, now| drain.assign(now, &duties(Some("noon"))));
    assert_eq!(network.stage(), Some(DrainStage::Services));
    assert!(network.is_last_choice(SERVICE));
    assert!(!network.is_last_choice(BLOCK));
    network.0.advance(NODE_DRAIN_SETTLE - SECOND / 10);
    assert_eq!(network.stage(), Some(DrainStage::Services));
    assert!(!network.is_last_choice(BLOCK));
    network.0.advance(SECOND);
    assert_eq!(network.stage(), Some(DrainStage::All));
    assert!(network.is_last_choice(SERVICE) && network.is_last_choice(BLOCK));
    network.0.advance(NODE_DRAIN_SETTLE + SECOND);
    let report = network.0.node(1).drain.report().expect("a report");
    assert_eq!(report.stage, DrainStage::Drained);
    assert_eq!((report.since.as_str(), report.behind), ("noon", 0));
    assert_eq!(network.0.established(1).len(), 2);
    assert_eq!(network.events(), ["node.drain_started", "node.drained"]);

    network.change(|drain, now| drain.assign(now, &duties(None)));
    assert!(!network.is_last_choice(SERVICE) && !network.is_last_choice(BLOCK));
    assert_eq!(network.0.node(1).drain.report(), None);
    assert_eq!(network.0.node(1).drain.figures(), None);
    assert_eq!(network.events(), ["node.drain_ended"]);
}

// Promise: as bgp-daemon services_are_drained_before_workloads_and_sessions_stay
#[test]
fn restarted_node_advertises_all_as_the_last_choice_at_once() {
    let mut network = Network::mesh(NodeDrain::new(Some("noon".to_owned())));
    network.0.node_mut(1).drain.started();
    assert!(network.is_last_choice(SERVICE) && network.is_last_choice(BLOCK));
    assert_eq!(network.stage(), Some(DrainStage::Drained));
    let drain = &network.0.node(1).drain;
    assert_eq!(drain.report(), None, "the datastore has no request");
    let figures = drain.figures().expect("it is drained");
    assert_eq!(figures.source, "control socket");
    assert_eq!((figures.neighbors, figures.behind), (2, 0));
}

#[test]
fn drain_lasts_until_both_requests_have_ended() {
    let mut network = Network::mesh(NodeDrain::new(None));
    network.0.node_mut(1).drain.started();
    network.change(|drain, now| drain.request(now, Some("one".to_owned())));
    network.0.advance(SECOND * 20);
    assert_eq!(network.stage(), Some(DrainStage::Drained));
    network.change(|drain, now| drain.assign(now, &duties(Some("two"))));
    assert_eq!(network.stage(), Some(DrainStage::Drained));
    let report = network.0.node(1).drain.report().expect("a report");
    assert_eq!(report.since, "two");
    network.change(|drain, now| drain.request(now, None));
    assert!(network.is_last_choice(BLOCK));
    network.change(|drain, now| drain.assign(now, &duties(None)));
    assert!(!network.is_last_choice(BLOCK));
}

#[test]
fn neighbor_that_does_not_read_delays_a_stage_up_to_a_limit() {
    let mut network = Network::mesh(NodeDrain::new(None));
    network.0.node_mut(1).drain.started();
    network.0.stall(3, true);
    for at in 0..20_000 {
        let net = format!("10.66.{}.{}/32", at / 256, at % 256);
        network.0.announce(1, &net);
    }
    network.0.settle();
    network.change(|drain, now| drain.request(now, Some("one".to_owned())));
    network.0.advance(NODE_DRAIN_STAGE_MAX - SECOND);
    assert_eq!(network.stage(), Some(DrainStage::Services));
    network.0.advance(SECOND * 2);
    assert_eq!(network.stage(), Some(DrainStage::All));
    network.0.advance(NODE_DRAIN_STAGE_MAX);
    assert_eq!(network.stage(), Some(DrainStage::Drained));
    let figures = network.0.node(1).drain.figures().expect("it is drained");
    assert_eq!((figures.neighbors, figures.behind), (2, 1));
    assert!(network.is_last_choice(BLOCK));
}

#[test]
fn neighbors_are_counted_after_the_node_is_drained() {
    let mut network = Network::mesh(NodeDrain::new(None));
    network.0.node_mut(1).drain.started();
    network.0.stall(3, true);
    for at in 0..20_000 {
        let net = format!("10.66.{}.{}/32", at / 256, at % 256);
        network.0.announce(1, &net);
    }
    network.0.settle();
    network.change(|drain, now| drain.assign(now, &duties(Some("noon"))));
    network.0.advance(NODE_DRAIN_STAGE_MAX * 2 + SECOND * 2);
    let figures = |network: &Network| {
        let figures = network.0.node(1).drain.figures().expect("it is drained");
        (figures.neighbors, figures.behind)
    };
    let report = network.0.node(1).drain.report();
    let drained = report.as_ref().expect("a report");
    assert_eq!((drained.stage, drained.behind), (DrainStage::Drained, 1));
    assert_eq!(figures(&network), (2, 1));
    network.0.stall(3, false);
    network.0.advance(NODE_DRAINED_LOOK_EVERY * 2);
    assert_eq!(figures(&network), (2, 0));
    network.0.remove(3);
    network.0.advance(NODE_DRAINED_LOOK_EVERY * 2);
    assert_eq!(figures(&network), (1, 0));
    let later = network.0.node(1).drain.report();
    assert_eq!(later, report, "the stored report does not change");
}
