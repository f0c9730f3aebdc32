//! Speakers between which octets arrive at once, each with its handover, as the daemon drives it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bgp_io::bgp_fsm::{self, Conn, State};
use bgp_io::bgp_proto::{Attributes, Community, Ipv4Prefix, Net, Notification, next_frame};
use bgp_io::bgp_speaker::{Input, Output};
use bgp_io::rib::{Budget, Edit, Outcome, Rules, Term, Then};
use bytes::BytesMut;
use calico_model::ReflectorState;

use super::*;
use crate::drain::{Drain, FAREWELL};

type End = (u8, PeerId, Conn);

#[derive(Default)]
pub(crate) struct Network {
    now: Instant,
    nodes: BTreeMap<u8, Node>,
    /// Each open end: the other end, and the octets on their way to this one.
    ends: BTreeMap<End, (End, BytesMut)>,
    /// Nodes that announce a route: everybody has it, all the time.
    announced: BTreeSet<u8>,
    /// Nodes that may lack routes.
    forgiven: BTreeSet<u8>,
    pub(crate) checks: usize,
}

struct Node {
    speaker: Speaker,
    wanted: SpeakerConfig,
    handover: Handover,
    drain: Drain,
}

impl Network {
    pub(crate) fn add(&mut self, number: u8, config: SpeakerConfig) {
        let mut speaker = Speaker::new(config.clone(), number.into());
        speaker.start(self.now);
        let node = Node {
            speaker,
            wanted: config,
            handover: Handover::default(),
            drain: Drain::default(),
        };
        self.nodes.insert(number, node);
    }

    pub(crate) fn want(&mut self, number: u8, wanted: SpeakerConfig, choice: &Chosen) {
        let now = self.now;
        let node = self.node(number);
        node.handover.want(now, &wanted, choice);
        node.wanted = wanted;
        self.reconfigure(number);
    }

    /// A reflector is to be drained; the others have these cluster ids.
    pub(crate) fn drain(&mut self, number: u8, others: &[(u8, Ipv4Addr)]) {
        let now = self.now;
        let others = others.iter().map(|(at, id)| (address(*at), *id));
        let node = self.node(number);
        node.drain.want(now, true, &others.collect());
        for peer in &mut node.wanted.peers {
            peer.export = farewell();
        }
        for range in &mut node.wanted.ranges {
            range.template.export = farewell();
        }
        self.reconfigure(number);
    }

    pub(crate) fn is_drained(&self, number: u8) -> bool {
        self.nodes[&number].drain.state() == ReflectorState::Drained
    }

    pub(crate) fn announce(&mut self, number: u8) {
        let now = self.now;
        let input = Input::Local {
            family: Family::IPV4_UNICAST,
            net: net(number),
            attributes: Some(Attributes::default()),
            interface: None,
        };
        self.node(number).speaker.handle(now, input);
        self.announced.insert(number);
    }

    /// Nobody need have this node's route.
    pub(crate) fn forgive(&mut self, number: u8) {
        self.announced.remove(&number);
    }

    /// This node need not have anybody's route.
    pub(crate) fn forgive_to(&mut self, number: u8) {
        self.forgiven.insert(number);
    }

    /// Somebody configures a node anew by hand.
    pub(crate) fn rewire(&mut self, number: u8, wanted: SpeakerConfig) {
        self.node(number).wanted = wanted;
        self.reconfigure(number);
    }

    pub(crate) fn kill(&mut self, number: u8) {
        self.nodes.remove(&number);
        let of = self.ends.keys().filter(|end| end.0 == number);
        for end in of.copied().collect::<Vec<_>>() {
            self.close(end);
        }
    }

    pub(crate) fn leaving(&self, number: u8) -> Vec<IpAddr> {
        self.nodes[&number].handover.leaving().collect()
    }

    /// The numbers of those with whom a node has sessions up.
    pub(crate) fn sessions(&self, number: u8) -> Vec<u8> {
        let peers = self.nodes[&number].speaker.peers();
        let up = peers.filter(|peer| peer.session.state() == State::Established);
        let mut numbers: Vec<u8> = up.map(|peer| last_octet(peer.config.remote)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Nodes that lack a route.
    pub(crate) fn lost(&self) -> Vec<u8> {
        let nodes = self
            .nodes
            .iter()
            .filter(|(number, _)| NODES.contains(number) && !self.forgiven.contains(number));
        let lacks = |node: &Node, number: u8| {
            let view = node.speaker.rib().lookup(Family::IPV4_UNICAST, net(number));
            view.is_none_or(|view| view.best().is_none())
        };
        let lost = nodes.filter(|(_, node)| self.announced.iter().any(|of| lacks(node, *of)));
        lost.map(|(number, _)| *number).collect()
    }

    /// Nodes that have the route of one.
    pub(crate) fn holders_of(&self, number: u8) -> Vec<u8> {
        let has = |node: &Node| {
            let view = node.speaker.rib().lookup(Family::IPV4_UNICAST, net(number));
            view.is_some_and(|view| view.best().is_some())
        };
        let nodes = self.nodes.iter().filter(|(at, _)| NODES.contains(at));
        let holders = nodes.filter(|(_, node)| has(node));
        holders.map(|(at, _)| *at).collect()
    }

    /// Lets time pass, timer by timer. Once all have all routes, none is ever lost.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        let whole = self.checks > 0 || self.lost().is_empty();
        loop {
            self.settle();
            if whole {
                assert_eq!(self.lost(), [0_u8; 0], "routes are lost at {:?}", self.now);
                self.checks += 1;
            }
            let next = self.nodes.values().filter_map(Node::timeout).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            for number in self.numbers() {
                self.turn(number);
            }
        }
        self.now = end;
    }

    fn turn(&mut self, number: u8) {
        let now = self.now;
        let node = self.node(number);
        if node.speaker.poll_timeout().is_some_and(|at| at <= now) {
            node.speaker.handle(now, Input::Timeout);
        }
        let mut gone = Vec::new();
        loop {
            let (some, progress) = node.handover.look(now, &node.speaker);
            gone.extend(some);
            if progress == Progress::Done {
                break;
            }
        }
        let drained = loop {
            let (drained, progress) = node.drain.look(now, &node.speaker);
            if progress == Progress::Done {
                break drained;
            }
        };
        if drained {
            let why = Notification::administrative_shutdown(FAREWELL);
            node.speaker.stop_all(now, &why);
        }
        if drained || !gone.is_empty() {
            self.reconfigure(number);
        }
    }

    fn reconfigure(&mut self, number: u8) {
        let now = self.now;
        let node = self.node(number);
        let config = node.handover.effective(node.wanted.clone());
        let config = node.drain.effective(config);
        let done = node.speaker.reconfigure(now, config).expect("taken");
        assert!(done.reset.is_empty(), "{done:?}");
        self.settle();
    }

    fn node(&mut self, number: u8) -> &mut Node {
        self.nodes.get_mut(&number).expect("it is there")
    }

    fn numbers(&self) -> Vec<u8> {
        self.nodes.keys().copied().collect()
    }

    /// Lets everything happen that needs no time.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut busy = false;
            for number in self.numbers() {
                busy |= self.outputs(number);
                let now = self.now;
                busy |= self.node(number).speaker.run(now, Budget(1000)) == Progress::More;
                while let Some(peer) = self.node(number).speaker.poll_writable() {
                    for conn in Conn::ALL {
                        busy |= self.write((number, peer, conn));
                    }
                }
            }
            busy |= self.deliver();
            if !busy {
                return;
            }
        }
        panic!("the network does not come to rest");
    }

    fn outputs(&mut self, number: u8) -> bool {
        let mut busy = false;
        while let Some(output) = self.node(number).speaker.poll_output() {
            busy = true;
            match output {
                Output::Dial { peer, remote, .. } => self.dial(number, peer, remote),
                Output::Close { peer, conn } => {
                    self.write((number, peer, conn));
                    self.deliver();
                    self.close((number, peer, conn));
                }
                Output::Event(event) => self.node(number).handover.hear(&event),
                Output::Promote(peer) => self.promote(number, peer),
                // No transport of this network dies without a word.
                Output::Probe { peer, .. } => {
                    let answered = bgp_fsm::Input::Probed(bgp_fsm::Probed::Answered);
                    self.session((number, peer, Conn::Held), answered);
                }
                Output::Gone(_) | Output::Track(_) | Output::Secure { .. } => {}
            }
        }
        busy
    }

    fn session(&mut self, (number, peer, _): End, input: bgp_fsm::Input) {
        let now = self.now;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.speaker.handle(now, Input::Session(peer, input));
        }
    }

    fn close(&mut self, end: End) {
        if let Some((other, _)) = self.ends.remove(&end) {
            self.ends.remove(&other);
            self.session(other, bgp_fsm::Input::Closed(other.2));
        }
    }

    fn promote(&mut self, number: u8, peer: PeerId) {
        let (held, inbound) = ((number, peer, Conn::Held), (number, peer, Conn::Inbound));
        if let Some((other, buffer)) = self.ends.remove(&held) {
            if let Some((end, _)) = self.ends.get_mut(&other) {
                *end = inbound;
            }
            self.ends.insert(inbound, (other, buffer));
        }
        self.session(inbound, bgp_fsm::Input::Promoted);
    }

    fn dial(&mut self, from: u8, peer: PeerId, remote: SocketAddr) {
        let now = self.now;
        let to = last_octet(remote.ip());
        let local = SocketAddr::new(address(from), 40_000);
        let ours = (from, peer, Conn::Outbound);
        let accepted = self.nodes.get_mut(&to);
        let accepted = accepted.and_then(|to| to.speaker.accept(now, remote, local).ok());
        let Some((accepted, place)) = accepted else {
            return self.session(ours, bgp_fsm::Input::Failed(Conn::Outbound));
        };
        self.outputs(to);
        let theirs = (to, accepted, place);
        self.ends.insert(ours, (theirs, BytesMut::new()));
        self.ends.insert(theirs, (ours, BytesMut::new()));
        for (end, local, remote) in [(ours, local, remote), (theirs, remote, local)] {
            let conn = end.2;
            self.session(
                end,
                bgp_fsm::Input::Opened {
                    conn,
                    local,
                    remote,
                },
            );
        }
    }

    /// Writes until nothing comes: the speaker does not name this peer again for what is left.
    fn write(&mut self, (number, peer, conn): End) -> bool {
        let Some((other, _)) = self.ends.get(&(number, peer, conn)).cloned() else {
            return false;
        };
        let mut wrote = false;
        loop {
            let mut slices = Vec::new();
            let speaker = &mut self.nodes.get_mut(&number).expect("it is there").speaker;
            speaker.fill(peer, conn, &mut slices, usize::MAX);
            let octets = slices.concat();
            if octets.is_empty() {
                return wrote;
            }
            wrote = true;
            speaker.sent(peer, conn, octets.len());
            if let Some((_, pipe)) = self.ends.get_mut(&other) {
                pipe.extend_from_slice(&octets);
            }
        }
    }

    fn deliver(&mut self) -> bool {
        let mut busy = false;
        for end in self.ends.keys().copied().collect::<Vec<_>>() {
            while self.node(end.0).speaker.reads(end.1, end.2)
                && let Some((_, pipe)) = self.ends.get_mut(&end)
            {
                let Ok(Some(frame)) = next_frame(pipe, 4096) else {
                    break;
                };
                busy = true;
                let conn = end.2;
                self.session(end, bgp_fsm::Input::Received { conn, frame });
            }
        }
        busy
    }
}

impl Node {
    fn timeout(&self) -> Option<Instant> {
        let timers = [
            self.speaker.poll_timeout(),
            self.handover.poll_timeout(),
            self.drain.poll_timeout(),
        ];
        timers.into_iter().flatten().min()
    }
}

/// Every route as the last choice.
fn farewell() -> Policy {
    let term = Term {
        name: "farewell".into(),
        when: Vec::new(),
        edit: vec![
            Edit::AddCommunity(Community::GRACEFUL_SHUTDOWN),
            Edit::SetLocalPref(0),
        ],
        then: Then::Next,
    };
    Policy::from(Rules {
        name: "farewell".into(),
        terms: vec![term],
        otherwise: Outcome::Accept,
    })
}

/// The route of a node's own.
fn net(number: u8) -> Net<'static> {
    let first = Ipv4Addr::new(10, 65, number, 0);
    Net::V4(Ipv4Prefix::new(first, 26).expect("a prefix"))
}

fn last_octet(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => 0,
    }
}
