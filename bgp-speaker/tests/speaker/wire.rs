//! One speaker, at 10.0.0.1, and scripted peers: the one at 10.0.0.n is identified by its session.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use bgp_fsm::{Instant, State};
use bgp_proto::{AttrCode, ClusterId, Family, HEADER_OCTETS, MessageKind, Open, UpdateView};
use bgp_speaker::{Event, NeedsRestart, Reconfigured, Refusal, Speaker, SpeakerConfig};
use rib::PeerId;
use testkit::fixture::address;
use testkit::{Encode, Keepalive, Network, Received, Scripted, Update};

const SPEAKER: usize = 1;
/// The KEEPALIVE interval of a live peer.
const BEAT: Duration = Duration::from_secs(20);

pub(super) struct Wire {
    pub(super) network: Network,
    /// The last connection of each session.
    peers: BTreeMap<PeerId, Scripted>,
}

fn at(number: usize) -> IpAddr {
    address(number).into()
}

impl Wire {
    pub(super) fn new(config: SpeakerConfig) -> Self {
        Self::prepared(config, |_| {})
    }

    /// Makes a speaker that is changed before its start.
    pub(super) fn prepared(config: SpeakerConfig, prepare: impl FnOnce(&mut Speaker)) -> Self {
        let mut network = Network::new(6);
        network.start_with(SPEAKER, at(SPEAKER), config, prepare);
        network.settle();
        Self {
            network,
            peers: BTreeMap::new(),
        }
    }

    pub(super) fn speaker(&self) -> &Speaker {
        self.network.speaker(SPEAKER)
    }

    pub(super) fn speaker_mut(&mut self) -> &mut Speaker {
        self.network.speaker_mut(SPEAKER)
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.network.node(SPEAKER).events
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.network.node_mut(SPEAKER).events)
    }

    pub(super) fn now(&self) -> Instant {
        self.network.now()
    }

    pub(super) fn reconfigure(
        &mut self,
        config: SpeakerConfig,
    ) -> Result<Reconfigured, NeedsRestart> {
        let now = self.now();
        self.speaker_mut().reconfigure(now, config)
    }

    /// Dials from the peer and sends its OPEN; the session is established.
    pub(super) fn connect(&mut self, number: usize, open: &Open) -> PeerId {
        self.greet(number, open).0
    }

    /// Does the same, and returns the messages that the peer receives after the OPEN.
    pub(super) fn greet(&mut self, number: usize, open: &Open) -> (PeerId, Vec<Received>) {
        let peer = self.dial(number).expect("admitted");
        self.send(peer, open);
        self.send(peer, Keepalive);
        assert_eq!(self.state(peer), State::Established);
        let mut received = self.received(peer);
        assert!(matches!(received.remove(0), Received::Open(_)));
        (peer, received)
    }

    /// Dials from the peer and sends the messages that establish the session, if it is accepted.
    pub(super) fn try_connect(&mut self, number: usize, open: &Open) {
        let Ok(peer) = self.dial(number) else { return };
        self.send(peer, open);
        if self.is_open(peer) {
            self.send(peer, Keepalive);
        }
    }

    /// Returns the session with 10.0.0.`number`, if there is one.
    pub(super) fn peer(&self, number: usize) -> Option<PeerId> {
        let mut peers = self.speaker().peers();
        let found = peers.find(|view| view.config.remote == at(number));
        found.map(|view| view.id)
    }

    /// Returns whether the peer has a connection.
    pub(super) fn is_open(&self, peer: PeerId) -> bool {
        self.state(peer) >= State::OpenSent
    }

    pub(super) fn dial(&mut self, number: usize) -> Result<PeerId, Refusal> {
        let scripted = self.network.dial(at(number), at(SPEAKER))?;
        let (_, peer, _) = self.network.end_of(scripted).expect("a connection");
        self.peers.insert(peer, scripted);
        Ok(peer)
    }

    pub(super) fn state(&self, peer: PeerId) -> State {
        let view = self.speaker().peer(peer);
        view.map_or(State::Idle, |view| view.session.state())
    }

    /// Closes the peer's connection.
    pub(super) fn lose(&mut self, peer: PeerId) {
        self.network.close_scripted(self.peers[&peer]);
    }

    pub(super) fn send(&mut self, peer: PeerId, message: impl Encode) {
        self.network.send(self.peers[&peer], message);
    }

    /// Sends a message without running the speaker.
    pub(super) fn send_only(&mut self, peer: PeerId, message: impl Encode) {
        self.network.send_only(self.peers[&peer], message);
    }

    /// Returns the messages that the peer has received since the last call.
    pub(super) fn received(&mut self, peer: PeerId) -> Vec<Received> {
        let received = self.network.received(self.peers[&peer]);
        assert_well_formed(&received);
        received
    }

    /// Does the same without octets that have not been written yet.
    pub(super) fn received_so_far(&mut self, peer: PeerId) -> Vec<Received> {
        let received = self.network.received_so_far(self.peers[&peer]);
        assert_well_formed(&received);
        received
    }

    /// Returns the lengths of the messages that the peer has received since the last call.
    pub(super) fn sizes(&mut self, peer: PeerId) -> Vec<usize> {
        let frames = self.network.frames(self.peers[&peer]).into_iter();
        frames
            .map(|frame| HEADER_OCTETS + frame.body.len())
            .collect()
    }

    /// Returns the CLUSTER_LISTs of the UPDATEs that the peer has received since the last call.
    pub(super) fn cluster_lists(&mut self, peer: PeerId) -> Vec<Vec<ClusterId>> {
        let frames = self.network.frames(self.peers[&peer]).into_iter();
        let list = |body: &[u8]| {
            let params = testkit::params();
            let (view, _) = UpdateView::parse(body, &params).expect("an UPDATE");
            let list = view
                .raw_attributes()
                .find(|raw| raw.code == AttrCode::ClusterList)?;
            let (ids, _) = list.value.as_chunks::<4>();
            Some(ids.iter().map(|id| ClusterId::from(*id)).collect())
        };
        let updates = frames.filter(|frame| frame.kind == MessageKind::Update);
        updates.filter_map(|frame| list(&frame.body)).collect()
    }

    /// Lets time pass. The peers in `alive` send KEEPALIVEs.
    pub(super) fn pass(&mut self, seconds: u64, alive: &[PeerId]) {
        let until = self.now() + Duration::from_secs(seconds);
        while self.now() + BEAT <= until {
            self.network.advance(BEAT);
            for &peer in alive {
                self.send(peer, Keepalive);
            }
        }
        self.network.advance(until - self.now());
    }

    /// Returns the prefixes with a best IPv4 route.
    pub(super) fn prefixes(&mut self) -> Vec<String> {
        self.settle();
        self.network.loc_rib(SPEAKER, Family::IPV4_UNICAST)
    }

    /// Performs everything that needs no time.
    pub(super) fn settle(&mut self) {
        self.network.settle();
    }

    /// Lets the peer's socket accept at most so many octets.
    pub(super) fn take_some(&mut self, peer: PeerId, octets_max: usize) {
        self.network.take_some(self.peers[&peer], octets_max);
    }
}

/// Returns 250 routes: 10.70.`third`.0/32 to 10.70.`third`.249/32.
pub(super) fn block(third: u8) -> Update {
    let nets: Vec<String> = (0..250).map(|n| format!("10.70.{third}.{n}/32")).collect();
    Update::reach(nets)
}

fn assert_well_formed(received: &[Received]) {
    let malformed = received
        .iter()
        .find(|part| matches!(part, Received::Malformed(_)));
    assert_eq!(malformed, None);
}
