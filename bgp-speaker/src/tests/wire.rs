//! One speaker and peers made of messages, in virtual time: the peer at 10.0.0.n dials and then
//! says what the test makes it say.

use alloc::{collections::BTreeMap, format, string::String, vec, vec::Vec};
use core::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use bgp_fsm::{Conn, Instant, State};
use bgp_proto::{
    AsPath, Asn, Attributes, Capability, ClusterId, Community, EncodeParams, Family, FamilySet,
    GracefulRestart, HEADER_OCTETS, MESSAGE_OCTETS_MAX_EXTENDED, MessageKind, NextHop, Nlri,
    Notification, Open, Origin, RouteRefresh, RouterId, SessionParams, UpdateView, UpdateWriter,
    next_frame,
};
use bytes::BytesMut;
use rib::{Budget, PeerId, Progress};

use super::fabric::{address, prefix};
use crate::{Event, Input, Output, Speaker, SpeakerConfig};

/// What a peer says.
#[derive(Clone, Debug)]
pub(super) enum Say {
    Keepalive,
    Reach(&'static [&'static str]),
    /// The same, after these clusters.
    ReachVia(&'static [&'static str], Vec<ClusterId>),
    /// A route by this AS_PATH and this next hop.
    Route(&'static str, Vec<Asn>, Ipv4Addr),
    /// Routes with some 5,000 octets of attributes.
    Heavy(&'static [&'static str]),
    /// 250 routes: 10.70.n.0/32 to 10.70.n.249/32.
    Block(u8),
    Unreach(&'static [&'static str]),
    EndOfRib(Family),
    Refresh(RouteRefresh),
    Notification(Notification),
    /// A message of any type and body.
    Raw(u8, &'static [u8]),
}

/// What a peer hears, KEEPALIVEs left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Open(Open),
    Reach(Vec<String>),
    Unreach(Vec<String>),
    EndOfRib(Family),
    Refresh(RouteRefresh),
    Notification(Notification),
}

pub(super) struct Wire {
    pub(super) speaker: Speaker,
    pub(super) now: Instant,
    pub(super) events: Vec<Event>,
    /// What peers have not read yet.
    inboxes: BTreeMap<PeerId, BytesMut>,
}

/// The OPEN of the peer at 10.0.0.`number`, in our AS.
pub(super) fn open(number: usize) -> Open {
    Open {
        asn: Asn(64512),
        hold_time: 90,
        id: RouterId(address(number)),
        capabilities: vec![
            Capability::MultiProtocol(Family::IPV4_UNICAST),
            Capability::MultiProtocol(Family::IPV6_UNICAST),
            Capability::RouteRefresh,
            Capability::EnhancedRouteRefresh,
            Capability::FourOctetAsn(Asn(64512)),
        ],
    }
}

/// The same with graceful restart in IPv4 unicast for 60 seconds.
pub(super) fn graceful_open(number: usize, edit: impl FnOnce(&mut GracefulRestart)) -> Open {
    let mut open = open(number);
    let mut graceful = GracefulRestart {
        time_s: 60,
        families: vec![(Family::IPV4_UNICAST, true)],
        ..GracefulRestart::default()
    };
    edit(&mut graceful);
    open.capabilities
        .push(Capability::GracefulRestart(graceful));
    open
}

impl Wire {
    pub(super) fn new(config: SpeakerConfig) -> Self {
        Self::prepared(config, |_| {})
    }

    /// A speaker that is told something before it starts.
    pub(super) fn prepared(config: SpeakerConfig, prepare: impl FnOnce(&mut Speaker)) -> Self {
        let mut speaker = Speaker::new(config, 7);
        prepare(&mut speaker);
        let mut wire = Self {
            speaker,
            now: Instant::from_secs(1_000),
            events: vec![],
            inboxes: BTreeMap::new(),
        };
        wire.speaker.start(wire.now);
        wire.settle();
        wire
    }

    /// The peer dials and sends its OPEN; the session comes up.
    pub(super) fn connect(&mut self, number: usize, open: &Open) -> PeerId {
        self.greet(number, open).0
    }

    /// The same, with what the peer hears.
    pub(super) fn greet(&mut self, number: usize, open: &Open) -> (PeerId, Vec<Heard>) {
        let peer = self.dial(number).expect("admitted");
        self.say_octets(peer, |out| open.encode(out));
        self.say(peer, Say::Keepalive);
        assert_eq!(self.state(peer), State::Established);
        let mut heard = self.hear(peer);
        assert!(matches!(heard.remove(0), Heard::Open(_)));
        (peer, heard)
    }

    /// The peer dials and says what would bring the session up, if it is let.
    pub(super) fn try_connect(&mut self, number: usize, open: &Open) {
        let Ok(peer) = self.dial(number) else { return };
        self.say_octets(peer, |out| open.encode(out));
        if self.is_open(peer) {
            self.say(peer, Say::Keepalive);
        }
    }

    /// The peer at 10.0.0.`number`, if it is known.
    pub(super) fn peer(&self, number: usize) -> Option<PeerId> {
        let mut peers = self.speaker.peers();
        let found = peers.find(|view| view.config.remote == IpAddr::V4(address(number)));
        found.map(|view| view.id)
    }

    /// Whether the peer has a connection.
    pub(super) fn is_open(&self, peer: PeerId) -> bool {
        self.state(peer) >= State::OpenSent
    }

    /// The peer dials.
    pub(super) fn dial(&mut self, number: usize) -> Result<PeerId, crate::Refusal> {
        let (peer, conn) = self.accept(number)?;
        self.settle();
        self.inboxes.remove(&peer);
        let [local, remote] = ends(number);
        let opened = bgp_fsm::Input::Opened {
            conn,
            local,
            remote,
        };
        self.session(peer, opened);
        Ok(peer)
    }

    /// A connection comes; nobody reads anything yet.
    pub(super) fn accept(&mut self, number: usize) -> Result<(PeerId, Conn), crate::Refusal> {
        let [local, remote] = ends(number);
        self.speaker.accept(self.now, local, remote)
    }

    pub(super) fn state(&self, peer: PeerId) -> State {
        let view = self.speaker.peers().find(|view| view.id == peer);
        view.map_or(State::Idle, |view| view.session.state())
    }

    pub(super) fn session(&mut self, peer: PeerId, input: bgp_fsm::Input) {
        self.speaker.handle(self.now, Input::Session(peer, input));
        self.settle();
    }

    /// The peer's connection breaks.
    pub(super) fn lose(&mut self, peer: PeerId) {
        self.session(peer, bgp_fsm::Input::Closed(Conn::Inbound));
    }

    pub(super) fn say(&mut self, peer: PeerId, say: Say) {
        self.say_octets(peer, |out| encode(&say, out));
    }

    /// The peer sends its OPEN.
    pub(super) fn say_open(&mut self, peer: PeerId, open: &Open) {
        self.say_octets(peer, |out| open.encode(out));
    }

    /// The same, and nothing else happens.
    pub(super) fn say_only(&mut self, peer: PeerId, say: &Say) {
        let mut octets = BytesMut::new();
        encode(say, &mut octets);
        let frame = next_frame(&mut octets, 4096).expect("a message");
        let received = bgp_fsm::Input::Received {
            conn: Conn::Inbound,
            frame: frame.expect("a whole message"),
        };
        self.speaker
            .handle(self.now, Input::Session(peer, received));
    }

    fn say_octets(&mut self, peer: PeerId, encode: impl FnOnce(&mut BytesMut)) {
        let mut octets = BytesMut::new();
        encode(&mut octets);
        let octets_max = self.speaker.octets_max(peer, Conn::Inbound);
        let input = match next_frame(&mut octets, octets_max) {
            Ok(frame) => bgp_fsm::Input::Received {
                conn: Conn::Inbound,
                frame: frame.expect("a whole message"),
            },
            Err(notification) => bgp_fsm::Input::FrameError {
                conn: Conn::Inbound,
                notification,
            },
        };
        self.session(peer, input);
    }

    /// What the peer has been sent since it last asked.
    pub(super) fn hear(&mut self, peer: PeerId) -> Vec<Heard> {
        self.settle();
        self.hear_now(peer)
    }

    /// What has come to the peer already.
    pub(super) fn hear_now(&mut self, peer: PeerId) -> Vec<Heard> {
        let octets = self.inboxes.entry(peer).or_default();
        let mut heard = vec![];
        while let Some(frame) = next_frame(octets, MESSAGE_OCTETS_MAX_EXTENDED).expect("messages") {
            let notification = || Notification::parse(&frame.body).expect("a NOTIFICATION");
            match frame.kind {
                MessageKind::Open => {
                    heard.push(Heard::Open(Open::parse(&frame.body).expect("an OPEN")))
                }
                MessageKind::Notification => heard.push(Heard::Notification(notification())),
                MessageKind::RouteRefresh => heard.push(Heard::Refresh(
                    RouteRefresh::parse(&frame.body).expect("a ROUTE-REFRESH"),
                )),
                MessageKind::Update => decode(&frame.body, &mut heard),
                _ => {}
            }
        }
        heard
    }

    /// How long the messages are that the peer has been sent since it last asked.
    pub(super) fn hear_sizes(&mut self, peer: PeerId) -> Vec<usize> {
        self.settle();
        let octets = self.inboxes.entry(peer).or_default();
        let mut sizes = vec![];
        while let Some(frame) = next_frame(octets, MESSAGE_OCTETS_MAX_EXTENDED).expect("messages") {
            sizes.push(HEADER_OCTETS + frame.body.len());
        }
        sizes
    }

    /// The cluster lists of what the peer has been sent since it last asked.
    pub(super) fn hear_clusters(&mut self, peer: PeerId) -> Vec<Vec<ClusterId>> {
        self.settle();
        let octets = self.inboxes.entry(peer).or_default();
        let mut lists = vec![];
        while let Some(frame) = next_frame(octets, MESSAGE_OCTETS_MAX_EXTENDED).expect("messages") {
            if frame.kind != MessageKind::Update {
                continue;
            }
            let (view, _) = UpdateView::parse(&frame.body, &their_params()).expect("an UPDATE");
            let list = view.raw_attributes().find(|raw| raw.code.0 == 10);
            lists.extend(list.map(|raw| {
                let (ids, _) = raw.value.as_chunks::<4>();
                ids.iter().map(|id| ClusterId::from(*id)).collect()
            }));
        }
        lists
    }

    /// Time passes. The peers named send KEEPALIVEs.
    pub(super) fn pass(&mut self, seconds: u64, alive: &[PeerId]) {
        let until = self.now + Duration::from_secs(seconds);
        let mut beat = self.now + Duration::from_secs(20);
        loop {
            let timer = self.speaker.poll_timeout().unwrap_or(until);
            let next = timer.min(beat).max(self.now);
            if next > until {
                break;
            }
            self.now = next;
            if next == beat {
                beat += Duration::from_secs(20);
                for &peer in alive {
                    self.say(peer, Say::Keepalive);
                }
            }
            self.speaker.handle(self.now, Input::Timeout);
            self.settle();
            if next == until {
                break;
            }
        }
        self.now = until;
    }

    /// The best IPv4 routes.
    pub(super) fn prefixes(&mut self) -> Vec<String> {
        self.settle();
        let views = self.speaker.rib().prefixes(Family::IPV4_UNICAST);
        let best = views.filter(|view| view.best().is_some());
        let mut nets: Vec<String> = best
            .filter_map(|view| Some(format!("{}", view.net.prefix()?)))
            .collect();
        nets.sort();
        nets
    }

    /// The speaker does everything that needs no time; peers read all.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            while let Some(output) = self.speaker.poll_output() {
                match output {
                    Output::Event(event) => self.events.push(event),
                    Output::Close { peer, conn } => self.write(peer, conn),
                    Output::Promote(peer) => {
                        let promoted = bgp_fsm::Input::Promoted;
                        self.speaker
                            .handle(self.now, Input::Session(peer, promoted));
                    }
                    _ => {}
                }
            }
            let mut busy = self.speaker.run(self.now, Budget(100)) == Progress::More;
            while let Some(peer) = self.speaker.poll_writable() {
                busy = true;
                self.write(peer, Conn::Inbound);
            }
            if !busy {
                return;
            }
        }
        panic!("the speaker does not come to rest");
    }

    /// The peer's socket takes up to so many octets.
    pub(super) fn write_some(&mut self, peer: PeerId, octets_max: usize) {
        let mut slices = vec![];
        self.speaker
            .fill(peer, Conn::Inbound, &mut slices, octets_max);
        let octets = slices.concat();
        let taken = octets.get(..octets_max).unwrap_or(&octets);
        self.speaker.sent(peer, Conn::Inbound, taken.len());
        let inbox = self.inboxes.entry(peer).or_default();
        inbox.extend_from_slice(taken);
    }

    fn write(&mut self, peer: PeerId, conn: Conn) {
        loop {
            let mut slices = vec![];
            self.speaker.fill(peer, conn, &mut slices, 64 << 10);
            let octets = slices.concat();
            if octets.is_empty() {
                return;
            }
            self.speaker.sent(peer, conn, octets.len());
            let inbox = self.inboxes.entry(peer).or_default();
            inbox.extend_from_slice(&octets);
        }
    }
}

/// Our end of a peer's connection, and its own.
fn ends(number: usize) -> [SocketAddr; 2] {
    [(address(1), 179), (address(number), 40_000)].map(SocketAddr::from)
}

const PARAMS: EncodeParams = EncodeParams {
    as4: true,
    add_path: false,
    octets_max: MESSAGE_OCTETS_MAX_EXTENDED,
};

fn encode(say: &Say, out: &mut BytesMut) {
    let family = Family::IPV4_UNICAST;
    match say {
        Say::Keepalive => UpdateWriter::keepalive(out),
        Say::EndOfRib(family) => UpdateWriter::end_of_rib(out, *family),
        Say::Refresh(refresh) => refresh.encode(out),
        Say::Notification(notification) => notification.encode(out),
        Say::Raw(kind, body) => {
            out.extend_from_slice(&[0xff; 16]);
            let octets = u16::try_from(19 + body.len()).expect("a short body");
            out.extend_from_slice(&octets.to_be_bytes());
            out.extend_from_slice(&[*kind]);
            out.extend_from_slice(body);
        }
        Say::Reach(nets) => reach(out, nets, attributes()),
        Say::ReachVia(nets, clusters) => {
            let cluster_list = clusters.clone();
            let reflected = Attributes {
                cluster_list,
                ..attributes()
            };
            reach(out, nets, reflected);
        }
        Say::Route(net, asns, next_hop) => {
            let external = Attributes {
                as_path: AsPath::sequence(asns),
                ..attributes()
            };
            reach_by(out, &[net], external, NextHop::V4(*next_hop));
        }
        Say::Heavy(nets) => {
            let communities = (0..1_200).map(Community).collect();
            let heavy = Attributes {
                communities,
                ..attributes()
            };
            reach(out, nets, heavy);
        }
        Say::Block(third) => {
            let nets: Vec<String> = (0..250).map(|n| format!("10.70.{third}.{n}/32")).collect();
            let nets: Vec<&str> = nets.iter().map(String::as_str).collect();
            reach(out, &nets, attributes());
        }
        Say::Unreach(nets) => push(UpdateWriter::unreach(out, family, &PARAMS), nets),
    }
}

fn attributes() -> Attributes {
    Attributes {
        origin: Origin::Igp,
        as_path: AsPath::default(),
        local_pref: Some(100),
        ..Attributes::default()
    }
}

fn reach(out: &mut BytesMut, nets: &[&str], attributes: Attributes) {
    reach_by(out, nets, attributes, NextHop::V4(address(99)));
}

fn reach_by(out: &mut BytesMut, nets: &[&str], attributes: Attributes, next_hop: NextHop) {
    let mut block = vec![];
    attributes.encode(true, &mut block);
    push(
        UpdateWriter::reach(out, Family::IPV4_UNICAST, &block, &next_hop, &PARAMS),
        nets,
    );
}

fn push(mut writer: UpdateWriter<'_>, nets: &[&str]) {
    for net in nets {
        writer.push(&Nlri::new(prefix(net))).expect("it fits");
    }
    writer.finish();
}

/// What a peer reads our messages by.
fn their_params() -> SessionParams {
    SessionParams {
        as4: true,
        families: FamilySet::all(),
        extended_receive: true,
        ..SessionParams::default()
    }
}

fn decode(body: &[u8], heard: &mut Vec<Heard>) {
    let (view, faults) = UpdateView::parse(body, &their_params()).expect("an UPDATE");
    assert!(faults.is_empty(), "{faults:?}");
    if let Some(family) = view.end_of_rib() {
        return heard.push(Heard::EndOfRib(family));
    }
    let names = |nets: bgp_proto::NlriIter<'_>| -> Vec<String> {
        let nets = nets.filter_map(|nlri| Some(format!("{}", nlri.ok()?.net.prefix()?)));
        nets.collect()
    };
    for batch in view.batches() {
        heard.extend(
            Some(names(batch.unreach))
                .filter(|n| !n.is_empty())
                .map(Heard::Unreach),
        );
        heard.extend(
            Some(names(batch.reach))
                .filter(|n| !n.is_empty())
                .map(Heard::Reach),
        );
    }
}
