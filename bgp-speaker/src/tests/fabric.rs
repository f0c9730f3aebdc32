//! A network of speakers: streams that deliver in order, a clock that jumps to the next timer.

use alloc::{collections::BTreeMap, format, string::String, vec, vec::Vec};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use bgp_fsm::{Conn, Instant, State};
use bgp_proto::{AsPath, Asn, Attributes, Family, Ipv4Prefix, Net, Origin, RouterId, next_frame};
use bytes::BytesMut;
use rib::{Budget, PeerId, Progress, Role};

use crate::{Event, Input, Output, PeerConfig, RangeConfig, Speaker, SpeakerConfig};

/// One end of a stream.
type End = (usize, PeerId, Conn);

/// Speakers by number; number `n` has the address 10.0.0.n.
pub(super) struct Fabric {
    pub(super) now: Instant,
    pub(super) speakers: BTreeMap<usize, Speaker>,
    /// Each open end: the other end and the octets on their way to this one.
    ends: BTreeMap<End, (End, BytesMut)>,
    pub(super) events: Vec<(usize, Event)>,
    /// Speakers that do not read.
    pub(super) stalled: Vec<usize>,
}

pub(super) fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(number).expect("a small fabric"))
}

pub(super) fn prefix(text: &str) -> Net<'static> {
    let (addr, len) = text.split_once('/').expect("a prefix");
    let addr = addr.parse().expect("an address");
    Net::V4(Ipv4Prefix::new(addr, len.parse().expect("a length")).expect("a prefix"))
}

/// A speaker of AS 64512 without peers.
pub(super) fn speaker_config(number: usize) -> SpeakerConfig {
    SpeakerConfig::new(Asn(64512), RouterId(address(number)))
}

/// A neighbour of speaker `us` in the same AS.
pub(super) fn neighbor(us: usize, them: usize, role: Role) -> PeerConfig {
    PeerConfig {
        name: format!("n{them}"),
        ..speaker_config(us).neighbor(address(them).into(), role)
    }
}

/// A range on speaker `us` that makes clients of whoever dials from 10.0.0.0/24.
pub(super) fn clients(us: usize, limit: u16) -> RangeConfig {
    RangeConfig {
        name: String::from("nodes"),
        prefix: "10.0.0.0/24".parse().expect("a prefix"),
        limit,
        awaited: true,
        template: neighbor(us, 0, Role::Client),
    }
}

impl Fabric {
    pub(super) fn new(configs: Vec<(usize, SpeakerConfig)>) -> Self {
        let speakers = configs
            .into_iter()
            .map(|(n, config)| (n, Speaker::new(config, n as u64)))
            .collect();
        let mut fabric = Self {
            now: Instant(0),
            speakers,
            ends: BTreeMap::new(),
            events: vec![],
            stalled: vec![],
        };
        let now = fabric.now;
        for speaker in fabric.speakers.values_mut() {
            speaker.start(now);
        }
        fabric
    }

    pub(super) fn speaker(&mut self, number: usize) -> &mut Speaker {
        self.speakers
            .get_mut(&number)
            .expect("a speaker of the fabric")
    }

    /// Announces a prefix of a speaker's own.
    pub(super) fn announce(&mut self, number: usize, net: &str) {
        let attributes = Attributes {
            origin: Origin::Igp,
            as_path: AsPath::default(),
            ..Attributes::default()
        };
        self.local(number, net, Some(attributes));
    }

    pub(super) fn withdraw(&mut self, number: usize, net: &str) {
        self.local(number, net, None);
    }

    fn local(&mut self, number: usize, net: &str, attributes: Option<Attributes>) {
        let (now, net) = (self.now, prefix(net));
        let family = Family::IPV4_UNICAST;
        self.speaker(number).handle(
            now,
            Input::Local {
                family,
                net,
                attributes,
                interface: None,
            },
        );
    }

    /// The speaker disappears without a word; the others' connections to it break.
    pub(super) fn kill(&mut self, number: usize) {
        self.speakers.remove(&number);
        let gone: Vec<End> = self
            .ends
            .keys()
            .filter(|end| end.0 == number)
            .copied()
            .collect();
        for end in gone {
            self.cut(end);
        }
    }

    /// Both ends of a stream are told that it is gone, as far as they live.
    fn cut(&mut self, end: End) {
        let Some((other, _)) = self.ends.remove(&end) else {
            return;
        };
        self.ends.remove(&other);
        for (number, peer, conn) in [end, other] {
            self.session(number, peer, bgp_fsm::Input::Closed(conn));
        }
    }

    fn session(&mut self, number: usize, peer: PeerId, input: bgp_fsm::Input) {
        let now = self.now;
        if let Some(speaker) = self.speakers.get_mut(&number) {
            speaker.handle(now, Input::Session(peer, input));
        }
    }

    /// Lets everything happen that needs no time.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut busy = false;
            for number in self.speakers.keys().copied().collect::<Vec<_>>() {
                busy |= self.outputs(number);
                busy |= self.transmit(number);
                let now = self.now;
                busy |= self.speaker(number).run(now, Budget(1000)) == Progress::More;
                busy |= self.transmit(number);
            }
            busy |= self.deliver();
            if !busy {
                return;
            }
        }
        panic!("the fabric does not come to rest");
    }

    /// Lets `time` pass, timer by timer.
    pub(super) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        loop {
            let next = self
                .speakers
                .values()
                .filter_map(Speaker::poll_timeout)
                .min();
            let Some(next) = next.filter(|&next| next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            let now = self.now;
            for speaker in self.speakers.values_mut() {
                if speaker.poll_timeout().is_some_and(|at| at <= now) {
                    speaker.handle(now, Input::Timeout);
                }
            }
            self.settle();
        }
        self.now = end;
    }

    fn outputs(&mut self, number: usize) -> bool {
        let mut busy = false;
        while let Some(output) = self.speaker(number).poll_output() {
            busy = true;
            match output {
                Output::Dial { peer, remote, .. } => self.dial(number, peer, remote),
                Output::Close { peer, conn } => {
                    self.write(number, peer, conn);
                    self.deliver();
                    self.close((number, peer, conn));
                }
                Output::Event(event) => self.events.push((number, event)),
                Output::Promote(peer) => self.promote(number, peer),
                // No transport of this fabric dies without a word.
                Output::Probe { peer, .. } => {
                    let answered = bgp_fsm::Input::Probed(bgp_fsm::Probed::Answered);
                    self.session(number, peer, answered);
                }
                Output::Gone(_) | Output::Track(_) | Output::Secure { .. } => {}
            }
        }
        busy
    }

    /// One end closes its stream; what it wrote has been delivered.
    fn close(&mut self, end: End) {
        if let Some((other, _)) = self.ends.remove(&end) {
            self.ends.remove(&other);
            self.session(other.0, other.1, bgp_fsm::Input::Closed(other.2));
        }
    }

    fn promote(&mut self, number: usize, peer: PeerId) {
        let (held, inbound) = ((number, peer, Conn::Held), (number, peer, Conn::Inbound));
        if let Some((other, pipe)) = self.ends.remove(&held) {
            if let Some((end, _)) = self.ends.get_mut(&other) {
                *end = inbound;
            }
            self.ends.insert(inbound, (other, pipe));
        }
        self.session(number, peer, bgp_fsm::Input::Promoted);
    }

    fn dial(&mut self, from: usize, peer: PeerId, remote: SocketAddr) {
        let to = self
            .speakers
            .keys()
            .copied()
            .find(|&n| IpAddr::V4(address(n)) == remote.ip());
        let local = SocketAddr::new(IpAddr::V4(address(from)), 40_000);
        let now = self.now;
        let accepted = to.and_then(|to| {
            let accepted = self.speaker(to).accept(now, remote, local).ok()?;
            Some((to, accepted))
        });
        let Some((to, accepted)) = accepted else {
            self.session(from, peer, bgp_fsm::Input::Failed(Conn::Outbound));
            return;
        };
        self.outputs(to);
        let (accepted, place) = accepted;
        let (ours, theirs) = ((from, peer, Conn::Outbound), (to, accepted, place));
        self.ends.insert(ours, (theirs, BytesMut::new()));
        self.ends.insert(theirs, (ours, BytesMut::new()));
        let opened = |conn, local, remote| bgp_fsm::Input::Opened {
            conn,
            local,
            remote,
        };
        self.session(from, peer, opened(Conn::Outbound, local, remote));
        self.session(to, accepted, opened(place, remote, local));
    }

    fn transmit(&mut self, number: usize) -> bool {
        let mut busy = false;
        while let Some(peer) = self.speaker(number).poll_writable() {
            for conn in Conn::ALL {
                busy |= self.write(number, peer, conn);
            }
        }
        busy
    }

    /// Moves what one end has to write onto its stream; a stalled reader's stream holds 64 KiB.
    fn write(&mut self, number: usize, peer: PeerId, conn: Conn) -> bool {
        let mut busy = false;
        while let Some(&(other, _)) = self.ends.get(&(number, peer, conn)) {
            let Some((_, pipe)) = self.ends.get_mut(&other) else {
                break;
            };
            let room = (64_usize << 10).saturating_sub(pipe.len());
            let mut slices = vec![];
            let speaker = self
                .speakers
                .get_mut(&number)
                .expect("a speaker of the fabric");
            speaker.fill(peer, conn, &mut slices, room.min(16 << 10));
            let mut taken = 0;
            for slice in &slices {
                let part = slice.len().min(room - taken);
                pipe.extend_from_slice(&slice[..part]);
                taken += part;
            }
            if taken == 0 {
                break;
            }
            busy = true;
            speaker.sent(peer, conn, taken);
        }
        busy
    }

    fn deliver(&mut self) -> bool {
        let mut busy = false;
        for end in self.ends.keys().copied().collect::<Vec<_>>() {
            let (number, peer, conn) = end;
            if self.stalled.contains(&number) {
                continue;
            }
            while self.speaker(number).reads(peer, conn)
                && let Some((_, pipe)) = self.ends.get_mut(&end)
            {
                let Ok(Some(frame)) = next_frame(pipe, 4096) else {
                    break;
                };
                busy = true;
                self.session(number, peer, bgp_fsm::Input::Received { conn, frame });
            }
            // The writer may go on.
            if let Some(&(other, _)) = self.ends.get(&end) {
                busy |= self.write(other.0, other.1, other.2);
            }
        }
        busy
    }

    /// How many sessions of a speaker are up.
    pub(super) fn established(&mut self, number: usize) -> usize {
        let peers = self.speaker(number).peers();
        peers
            .filter(|peer| peer.session.state() == State::Established)
            .count()
    }

    /// The best IPv4 routes of a speaker: prefix and next hop as received.
    pub(super) fn routes(&mut self, number: usize) -> Vec<(String, String)> {
        let speaker = self.speaker(number);
        let mut routes = vec![];
        for view in speaker.rib().prefixes(Family::IPV4_UNICAST) {
            if let Some(best) = view.best() {
                let attributes = &best.received;
                let next_hop = format!("{:?}", attributes.next_hop);
                let net = view
                    .net
                    .prefix()
                    .map(|prefix| format!("{prefix}"))
                    .unwrap_or_default();
                routes.push((net, next_hop));
            }
        }
        routes.sort();
        routes
    }

    /// The prefixes a speaker has a best route for.
    pub(super) fn prefixes(&mut self, number: usize) -> Vec<String> {
        self.routes(number)
            .into_iter()
            .map(|(net, _)| net)
            .collect()
    }
}
