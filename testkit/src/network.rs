//! An in-memory network of speakers in virtual time.

mod link;
mod look;
mod node;
mod scripted;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bgp_speaker::bgp_fsm::limits::PROBE_UNANSWERED_MIN;
use bgp_speaker::bgp_fsm::{self, Conn, Instant, Probed};
use bgp_speaker::bgp_proto::Attributes;
use bgp_speaker::rib::{Budget, Progress};
use bgp_speaker::{Input, Output, Speaker, SpeakerConfig};
use bytes::Bytes;

use crate::limits::{FILL_OCTETS, STEPS_MAX, TURN_PREFIXES, TURNS_MAX};
use crate::received::Inbox;
use streams::{Dial, Due, End, Owner, SideId, Streams};

pub use link::Link;
pub use node::{Host, Node};
pub use scripted::Scripted;

/// Speakers, the streams between them, and a clock that jumps from event to event.
///
/// Speakers have numbers, which the test chooses, and addresses. They connect to each other, and
/// scripted peers connect to them ([`dial`](Self::dial)). The same calls with the same seed give
/// the same run.
///
/// Nothing happens between calls: [`settle`](Self::settle) processes all events that take no time,
/// [`advance`](Self::advance) lets time pass. Changes of a speaker by a test take effect with the
/// next of these calls.
#[derive(Debug)]
pub struct Network<N = Host> {
    now: Instant,
    seed: u64,
    nodes: BTreeMap<usize, N>,
    /// The address of each speaker, also of a removed one.
    places: BTreeMap<usize, IpAddr>,
    addresses: BTreeMap<IpAddr, usize>,
    streams: Streams,
    inboxes: BTreeMap<Scripted, Inbox>,
    stalled: BTreeSet<usize>,
    /// Speakers that may have something to do.
    dirty: BTreeSet<usize>,
    /// Steps since time moved last.
    idle_steps: usize,
}

impl<N: Node> Network<N> {
    /// Returns a network without speakers at the origin of time.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            idle_steps: 0,
            now: Instant::ZERO,
            seed,
            nodes: BTreeMap::new(),
            places: BTreeMap::new(),
            addresses: BTreeMap::new(),
            streams: Streams::new(seed),
            inboxes: BTreeMap::new(),
            stalled: BTreeSet::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Returns the time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Adds a program at a place; an earlier one there is removed as by [`remove`](Self::remove).
    ///
    /// # Panics
    /// If another speaker has the address.
    pub fn add(&mut self, number: usize, address: IpAddr, node: N) {
        self.remove(number);
        self.places.insert(number, address);
        self.add_address(number, address);
        self.nodes.insert(number, node);
        self.dirty.insert(number);
    }

    /// Gives a speaker one more address.
    ///
    /// # Panics
    /// If another speaker has the address.
    pub fn add_address(&mut self, number: usize, address: IpAddr) {
        let former = self.addresses.insert(address, number);
        assert!(
            former.is_none_or(|former| former == number),
            "{address} is taken"
        );
    }

    /// Removes a program as the kernel does when it is killed: its connections are closed.
    pub fn remove(&mut self, number: usize) -> Option<N> {
        let node = self.nodes.remove(&number)?;
        self.disconnect(number);
        Some(node)
    }

    /// Closes all connections of a program, without its speaker's knowledge.
    pub fn disconnect(&mut self, number: usize) {
        for end in self.streams.of(number) {
            self.close(end);
        }
    }

    /// Stops delivery on the streams between two addresses, and leaves connects between them
    /// unanswered. Neither side is notified: the hold timer ends the session.
    pub fn cut(&mut self, one: IpAddr, other: IpAddr) {
        self.streams.cut(one, other);
    }

    /// Ends a cut: everything sent during the cut arrives.
    pub fn mend(&mut self, one: IpAddr, other: IpAddr) {
        self.streams.mend(one, other);
    }

    /// Sets the link between two addresses.
    pub fn set_link(&mut self, one: IpAddr, other: IpAddr, link: Link) {
        self.streams.set_link(one, other, link);
    }

    /// Sets the link between all addresses without a link of their own.
    pub const fn set_links(&mut self, link: Link) {
        self.streams.link = link;
    }

    /// Keeps a speaker from reading, or lets it read again.
    pub fn stall(&mut self, number: usize, stalled: bool) {
        match stalled {
            true => self.stalled.insert(number),
            false => self.stalled.remove(&number),
        };
        self.dirty.insert(number);
    }

    /// Returns the program at a place.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&N> {
        self.nodes.get(&number)
    }

    /// Returns the program at a place.
    ///
    /// # Panics
    /// If it does not exist.
    #[must_use]
    pub fn node(&self, number: usize) -> &N {
        let node = self.nodes.get(&number);
        node.unwrap_or_else(|| panic!("there is no speaker {number}"))
    }

    /// Returns the program at a place to change it.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn node_mut(&mut self, number: usize) -> &mut N {
        self.dirty.insert(number);
        let node = self.nodes.get_mut(&number);
        node.unwrap_or_else(|| panic!("there is no speaker {number}"))
    }

    /// Returns the numbers of all programs.
    #[must_use]
    pub fn numbers(&self) -> Vec<usize> {
        self.nodes.keys().copied().collect()
    }

    /// Returns the programs with their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, &N)> {
        self.nodes.iter().map(|(number, node)| (*number, node))
    }

    /// Returns a speaker.
    ///
    /// # Panics
    /// If it does not exist.
    #[must_use]
    pub fn speaker(&self, number: usize) -> &Speaker {
        let speaker = self.node(number).speaker();
        speaker.unwrap_or_else(|| panic!("program {number} has no speaker"))
    }

    /// Returns a speaker to change it.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn speaker_mut(&mut self, number: usize) -> &mut Speaker {
        let speaker = self.node_mut(number).speaker_mut();
        speaker.unwrap_or_else(|| panic!("program {number} has no speaker"))
    }

    /// Originates an IPv4 or IPv6 route at a speaker, with default attributes.
    ///
    /// # Panics
    /// If `net` is no prefix, or there is no such speaker.
    pub fn announce(&mut self, number: usize, net: &str) {
        self.local(number, net, Some(Attributes::default()));
    }

    /// Withdraws a route that a speaker has originated.
    ///
    /// # Panics
    /// If `net` is no prefix, or there is no such speaker.
    pub fn withdraw(&mut self, number: usize, net: &str) {
        self.local(number, net, None);
    }

    fn local(&mut self, number: usize, net: &str, attributes: Option<Attributes>) {
        let (now, net) = (self.now, crate::fixture::prefix(net));
        let input = Input::Local {
            family: look::family(net),
            net,
            attributes,
            interface: None,
        };
        self.speaker_mut(number).handle(now, input);
    }

    /// Processes all events that take no time.
    ///
    /// # Panics
    /// If there is no end to it, or a speaker has octets to write without listing the connection.
    pub fn settle(&mut self) {
        let is_quiet = self.dirty.is_empty();
        if is_quiet && self.streams.poll_timeout().is_none_or(|at| at > self.now) {
            return;
        }
        for _ in 0..TURNS_MAX {
            if let Some(due) = self.streams.poll(self.now) {
                self.happen(due);
            } else if let Some(number) = self.dirty.pop_first() {
                self.turn(number);
            } else {
                return self.check();
            }
        }
        panic!("the network does not come to rest at {}", self.now);
    }

    /// Lets time pass, event by event.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        while self.step(end) {}
        self.now = end;
    }

    /// Lets time pass until the next event, unless that is after `end`; whether there was one.
    ///
    /// # Panics
    ///
    /// A timer of a speaker stays due however often it is handled.
    pub fn step(&mut self, end: Instant) -> bool {
        self.settle();
        let timers = self.nodes.values().filter_map(Node::poll_timeout);
        let next = timers.chain(self.streams.poll_timeout()).min();
        let Some(next) = next.filter(|next| *next <= end) else {
            return false;
        };
        self.idle_steps = if next > self.now {
            0
        } else {
            self.idle_steps + 1
        };
        self.now = self.now.max(next);
        let now = self.now;
        assert!(
            self.idle_steps < STEPS_MAX,
            "a timer that was handled at {now} is still due"
        );
        for (number, node) in &mut self.nodes {
            if node.poll_timeout().is_some_and(|at| at <= now) {
                node.handle_timeout(now);
                self.dirty.insert(*number);
            }
        }
        self.settle();
        true
    }

    /// A connection with octets to write that its speaker has not listed would wait forever.
    fn check(&self) {
        let waits = |(number, peer, conn): &End| {
            let speaker = self.nodes.get(number).and_then(Node::speaker);
            speaker.is_some_and(|speaker| speaker.wants_write(*peer, *conn))
        };
        let forgotten = |end: &End| waits(end) && !self.streams.is_full(*end);
        let forgotten = self.streams.all().find(forgotten);
        assert_eq!(forgotten, None, "octets to write that are not listed");
    }

    fn speaker_at(&mut self, number: usize) -> Option<&mut Speaker> {
        self.nodes.get_mut(&number)?.speaker_mut()
    }

    fn session(&mut self, (number, peer, _): End, input: bgp_fsm::Input) {
        let now = self.now;
        if let Some(speaker) = self.speaker_at(number) {
            speaker.handle(now, Input::Session(peer, input));
        }
        self.dirty.insert(number);
        self.outputs(number);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Dial(dial) if self.streams.reaches(self.now, dial) => {
                let stream = self.accept(dial);
                self.streams.answer(self.now, dial, stream);
            }
            Due::Dial(_) => {}
            Due::Dialed(dial, stream) => self.dialed(dial, stream),
            Due::Arrive(side) => {
                self.streams.arrive(self.now, side);
                self.wake(side);
            }
        }
    }

    /// The speaker that is dialed takes the connection, or not.
    fn accept(&mut self, dial: Dial) -> Option<u64> {
        let to = self.addresses.get(&dial.remote.ip()).copied()?;
        let (local, remote) = (dial.remote, dial.local);
        let now = self.now;
        let accepted = self.speaker_at(to)?.accept(now, local, remote);
        // It may close an older connection to make room.
        self.outputs(to);
        let (peer, conn) = accepted.ok()?;
        let end = (to, peer, conn);
        let sides = [(Owner::Dialer, remote), (Owner::Session(end), local)];
        let stream = self.streams.open(sides);
        self.opened(end, local, remote);
        Some(stream)
    }

    fn opened(&mut self, end: End, local: SocketAddr, remote: SocketAddr) {
        let opened = bgp_fsm::Input::Opened {
            conn: end.2,
            local,
            remote,
        };
        self.session(end, opened);
    }

    fn dialed(&mut self, dial: Dial, stream: Option<u64>) {
        let end = (dial.from, dial.peer, Conn::Outbound);
        match (self.streams.dialed(dial, stream), stream) {
            (true, Some(_)) => self.opened(end, dial.local, dial.remote),
            (true, None) => self.session(end, bgp_fsm::Input::Failed(Conn::Outbound)),
            (false, Some(stream)) => self.end((stream, 0)),
            (false, None) => {}
        }
    }

    /// Processes the events of one speaker that take no time.
    fn turn(&mut self, number: usize) {
        self.read(number);
        self.outputs(number);
        let now = self.now;
        let Some(speaker) = self.speaker_at(number) else {
            return;
        };
        if speaker.run(now, Budget(TURN_PREFIXES)) == Progress::More {
            self.dirty.insert(number);
        }
        self.outputs(number);
        self.write_all(number);
        self.outputs(number);
    }

    fn read(&mut self, number: usize) {
        if self.stalled.contains(&number) {
            return;
        }
        for end in self.streams.of(number) {
            while let Some(input) = self.next_input(end) {
                self.session(end, input);
            }
            if let Some(side) = self.streams.at(end)
                && self.streams.has_ended(side)
            {
                self.streams.forget(side.0);
                self.session(end, bgp_fsm::Input::Closed(end.2));
            }
            if let Some(writer) = self.streams.woken(end) {
                self.write_blocked(end);
                self.dirty.insert(writer);
            }
        }
    }

    fn next_input(&mut self, end: End) -> Option<bgp_fsm::Input> {
        let (number, peer, conn) = end;
        let speaker = self.speaker_at(number)?;
        if !speaker.reads(peer, conn) {
            return None;
        }
        let octets_max = speaker.octets_max(peer, conn);
        self.streams.read(end, octets_max)
    }

    fn outputs(&mut self, number: usize) {
        while let Some(node) = self.nodes.get_mut(&number)
            && let Some(output) = node.speaker_mut().and_then(Speaker::poll_output)
        {
            match output {
                Output::Dial {
                    peer,
                    remote,
                    local,
                    ..
                } => {
                    let own = self.places.get(&number).copied();
                    let local = local.or(own).unwrap_or_else(|| remote.ip());
                    self.streams.dial(self.now, (number, peer), local, remote);
                }
                Output::Close { peer, conn } => {
                    let end = (number, peer, conn);
                    self.write(end, true);
                    if conn == Conn::Outbound {
                        self.streams.stop_dialing(number, peer);
                    }
                    self.close(end);
                }
                Output::Promote(peer) => {
                    self.streams.promote(number, peer);
                    let end = (number, peer, Conn::Inbound);
                    self.session(end, bgp_fsm::Input::Promoted);
                }
                Output::Probe { peer, conn, .. } => self.probe((number, peer, conn)),
                other => node.output(other),
            }
        }
    }

    /// Answers a probe as the kernel of a speaker would.
    fn probe(&mut self, end: End) {
        let probed = match self.streams.answers(end) {
            true => Probed::Answered,
            false => Probed::Silent {
                unanswered: PROBE_UNANSWERED_MIN,
                sent: 1,
            },
        };
        self.session(end, bgp_fsm::Input::Probed(probed));
    }

    fn close(&mut self, end: End) {
        if let Some(side) = self.streams.at(end) {
            self.end(side);
        }
    }

    fn end(&mut self, from: SideId) {
        self.streams.close(self.now, from);
        self.wake((from.0, 1 - from.1));
    }

    /// Wakes the reader of a side to read the octets that have arrived.
    fn wake(&mut self, side: SideId) {
        match self.streams.owner(side) {
            Some(Owner::Session((number, ..))) => {
                self.dirty.insert(number);
            }
            Some(Owner::Scripted) => self.receive(Scripted(side.0)),
            Some(Owner::Dialer | Owner::Closed) | None => {}
        }
    }

    fn write_all(&mut self, number: usize) {
        while let Some(peer) = self.speaker_at(number).and_then(Speaker::poll_writable) {
            self.dirty.insert(number);
            for conn in Conn::PLACES {
                self.write((number, peer, conn), false);
            }
        }
    }

    /// Continues a write to a connection that was full.
    fn write_blocked(&mut self, reader: End) {
        let side = self.streams.at(reader);
        let writer = side.and_then(|(stream, side)| self.streams.owner((stream, 1 - side)));
        if let Some(Owner::Session(end)) = writer {
            self.write(end, false);
        }
    }

    /// Writes as many octets as there is capacity for; with `last` all of them.
    fn write(&mut self, end: End, last: bool) {
        while let Some(side) = self.streams.at(end) {
            let room = match last {
                true => usize::MAX,
                false => self.streams.room(side),
            };
            if room == 0 || self.write_some(end, room.min(FILL_OCTETS)) == 0 {
                return;
            }
        }
    }

    /// Writes once, at most so many octets; returns how many.
    fn write_some(&mut self, end: End, octets_max: usize) -> usize {
        let (number, peer, conn) = end;
        let (Some(side), Some(speaker)) = (self.streams.at(end), self.speaker_at(number)) else {
            return 0;
        };
        let mut slices: Vec<Bytes> = Vec::new();
        speaker.fill(peer, conn, &mut slices, octets_max);
        let mut taken = 0;
        for slice in slices {
            let part = slice.slice(..slice.len().min(octets_max - taken));
            taken += part.len();
            self.streams.write(self.now, side, part);
        }
        if taken > 0 {
            if let Some(speaker) = self.speaker_at(number) {
                speaker.sent(peer, conn, taken);
            }
            self.dirty.insert(number);
            self.wake((side.0, 1 - side.1));
        }
        taken
    }
}

impl Network {
    /// Starts a speaker at a place.
    ///
    /// # Panics
    /// If another speaker has the address.
    pub fn start(&mut self, number: usize, address: IpAddr, config: SpeakerConfig) {
        self.start_with(number, address, config, |_| {});
    }

    /// Starts a speaker at a place after `prepare` has changed it.
    ///
    /// # Panics
    /// If another speaker has the address.
    pub fn start_with(
        &mut self,
        number: usize,
        address: IpAddr,
        config: SpeakerConfig,
        prepare: impl FnOnce(&mut Speaker),
    ) {
        let seed = self.seed.wrapping_add(number as u64);
        let mut host = Host::new(config, seed);
        prepare(&mut host.speaker);
        host.speaker.start(self.now);
        self.add(number, address, host);
    }
}
