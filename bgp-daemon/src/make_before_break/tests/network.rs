//! Speakers between which octets arrive at once, each with its handover, as the daemon drives it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use bgp_io::bgp_proto::{Community, Family, Notification};
use bgp_io::bgp_speaker::{Input, Output};
use bgp_io::rib::{Edit, Outcome, Rules, Term, Then};
use calico_model::ReflectorState;
use testkit::fixture::prefix;

use super::*;
use crate::drain::{Drain, FAREWELL};

pub(crate) struct Network {
    nodes: testkit::Network<Node>,
    /// Nodes that announce a route: all nodes must have it, all the time.
    announced: BTreeSet<u8>,
    /// Nodes that may lack routes.
    forgiven: BTreeSet<u8>,
    pub(crate) checks: usize,
}

struct Node {
    speaker: Speaker,
    wanted: SpeakerConfig,
    make_before_break: MakeBeforeBreak,
    drain: Drain,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            nodes: testkit::Network::new(0),
            announced: BTreeSet::new(),
            forgiven: BTreeSet::new(),
            checks: 0,
        }
    }
}

impl Network {
    pub(crate) fn add(&mut self, number: u8, config: SpeakerConfig) {
        let mut speaker = Speaker::new(config.clone(), number.into());
        speaker.start(self.nodes.now());
        let node = Node {
            speaker,
            wanted: config,
            make_before_break: MakeBeforeBreak::default(),
            drain: Drain::default(),
        };
        self.nodes.add(number.into(), address(number), node);
    }

    pub(crate) fn want(&mut self, number: u8, wanted: SpeakerConfig, choice: &Chosen) {
        self.change(number, |node, now| {
            node.make_before_break.want(now, &wanted, choice);
            node.wanted = wanted;
        });
    }

    /// Requests the drain of a reflector; the others have these cluster IDs.
    pub(crate) fn drain(&mut self, number: u8, others: &[(u8, Ipv4Addr)]) {
        let others = others.iter().map(|(at, id)| (address(*at), *id));
        self.change(number, |node, now| {
            node.drain.want(now, true, &others.collect());
            for peer in &mut node.wanted.peers {
                peer.export = farewell();
            }
            for range in &mut node.wanted.ranges {
                range.template.export = farewell();
            }
        });
    }

    pub(crate) fn is_drained(&self, number: u8) -> bool {
        self.node(number).drain.state() == ReflectorState::Drained
    }

    pub(crate) fn announce(&mut self, number: u8) {
        self.nodes.announce(number.into(), &net(number));
        self.announced.insert(number);
    }

    /// Announces so many routes that the other nodes need not have.
    pub(crate) fn announce_many(&mut self, number: u8, count: usize) {
        for at in 0..count {
            let net = format!("10.66.{}.{}/32", at / 256, at % 256);
            self.nodes.announce(number.into(), &net);
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.nodes.now()
    }

    pub(crate) fn speaker(&self, number: u8) -> &Speaker {
        &self.node(number).speaker
    }

    /// Allows all nodes to lack this node's route.
    pub(crate) fn forgive(&mut self, number: u8) {
        self.announced.remove(&number);
    }

    /// Allows this node to lack all routes.
    pub(crate) fn forgive_to(&mut self, number: u8) {
        self.forgiven.insert(number);
    }

    /// Changes the static configuration of a node.
    pub(crate) fn rewire(&mut self, number: u8, wanted: SpeakerConfig) {
        self.change(number, |node, _| node.wanted = wanted);
    }

    pub(crate) fn kill(&mut self, number: u8) {
        self.nodes.remove(number.into());
        self.nodes.settle();
    }

    pub(crate) fn leaving(&self, number: u8) -> Vec<IpAddr> {
        self.node(number).make_before_break.leaving().collect()
    }

    /// The numbers of the nodes with which a node has established sessions.
    pub(crate) fn sessions(&self, number: u8) -> Vec<u8> {
        let up = self.nodes.established(number.into()).into_iter();
        up.map(last_octet).collect()
    }

    /// Nodes that lack a route.
    pub(crate) fn lost(&self) -> Vec<u8> {
        let nodes = NODES.filter(|number| !self.forgiven.contains(number));
        let lacks = |at: u8, of: u8| self.has(at, of) == Some(false);
        let lost = nodes.filter(|at| self.announced.iter().any(|of| lacks(*at, *of)));
        lost.collect()
    }

    /// Nodes that have a node's route.
    pub(crate) fn holders_of(&self, number: u8) -> Vec<u8> {
        NODES
            .filter(|at| self.has(*at, number) == Some(true))
            .collect()
    }

    /// Whether a node, if it runs, has the route of another one.
    fn has(&self, at: u8, of: u8) -> Option<bool> {
        let rib = self.nodes.get(at.into())?.speaker.rib();
        let view = rib.lookup(Family::IPV4_UNICAST, prefix(&net(of)));
        Some(view.is_some_and(|view| view.best().is_some()))
    }

    /// Lets time pass, timer by timer. After all have all routes, none may be lost.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.nodes.now() + time;
        let whole = self.checks > 0 || self.lost().is_empty();
        self.nodes.settle();
        loop {
            if whole {
                let now = self.nodes.now();
                assert_eq!(self.lost(), [0_u8; 0], "routes are lost at {now:?}");
                self.checks += 1;
            }
            if !self.nodes.step(end) {
                break;
            }
        }
        self.nodes.advance(end - self.nodes.now());
    }

    /// Changes a node, and applies the resulting configuration to its speaker.
    fn change(&mut self, number: u8, change: impl FnOnce(&mut Node, Instant)) {
        let now = self.nodes.now();
        let node = self.nodes.node_mut(number.into());
        change(node, now);
        node.reconfigure(now);
        self.nodes.settle();
    }

    fn node(&self, number: u8) -> &Node {
        self.nodes.node(number.into())
    }
}

impl Node {
    fn reconfigure(&mut self, now: Instant) {
        let config = self.make_before_break.effective(self.wanted.clone());
        let config = self.drain.effective(config);
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

    fn output(&mut self, output: Output) {
        if let Output::Event(event) = output {
            self.make_before_break.observe(&event);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timers = [
            self.speaker.poll_timeout(),
            self.make_before_break.poll_timeout(),
            self.drain.poll_timeout(),
        ];
        timers.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.speaker.poll_timeout().is_some_and(|at| at <= now) {
            self.speaker.handle(now, Input::Timeout);
        }
        let mut gone = Vec::new();
        loop {
            let (some, progress) = self.make_before_break.look(now, &self.speaker);
            gone.extend(some);
            if progress == Progress::Done {
                break;
            }
        }
        let drained = loop {
            let (drained, progress) = self.drain.look(now, &self.speaker);
            if progress == Progress::Done {
                break drained;
            }
        };
        if drained {
            let why = Notification::administrative_shutdown(FAREWELL);
            self.speaker.stop_all(now, &why);
        }
        if drained || !gone.is_empty() {
            self.reconfigure(now);
        }
    }
}

/// A policy that makes every route the last choice.
fn farewell() -> Policy {
    let term = Term::new(
        "farewell",
        Vec::new(),
        vec![
            Edit::AddCommunity(Community::GRACEFUL_SHUTDOWN),
            Edit::SetLocalPref(0),
        ],
        Then::Next,
    );
    Policy::from(Rules::new("farewell", vec![term], Outcome::Accept))
}

/// A node's own route.
fn net(number: u8) -> String {
    format!("10.65.{number}.0/26")
}

fn last_octet(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => 0,
    }
}
