//! Streams between the ends of a network: in order, delayed, and bounded; and the agenda of later
//! events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bgp_proto::next_frame;
use bgp_speaker::bgp_fsm::{self, Conn, Instant};
use bgp_speaker::rib::PeerId;
use bytes::{Bytes, BytesMut};

use super::link::{Chance, Link};
use crate::limits::{RETRANSMIT, STREAM_OCTETS};

/// A connection of a speaker: the speaker's number, and the session's connection.
pub(super) type End = (usize, PeerId, Conn);

/// A side of a stream.
pub(super) type SideId = (u64, usize);

/// The reader of a side of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Session(End),
    /// The connecting speaker, until it is notified that the stream is open.
    Dialer,
    /// It is closed: octets that arrive are not read.
    Closed,
    Scripted,
}

/// One side of a stream, and the octets in flight to it.
#[derive(Debug)]
pub(super) struct Side {
    owner: Owner,
    address: SocketAddr,
    flight: VecDeque<Item>,
    /// When the last item of `flight` arrives.
    last_due: Instant,
    /// Octets of `flight`.
    underway: usize,
    arrived: BytesMut,
    ended: bool,
    /// The other side has more to write than there was room for.
    writer_waits: bool,
}

#[derive(Debug)]
enum Item {
    Octets(Bytes),
    End,
}

/// Something that happens at an instant of the agenda.
#[derive(Debug)]
pub(super) enum Due {
    /// A dial reaches its destination.
    Dial(Dial),
    /// Notifies the connecting speaker that its stream is open, or (without one) that its connect
    /// failed.
    Dialed(Dial, Option<u64>),
    /// The head of a side's flight arrives.
    Arrive(SideId),
}

/// A dial of a speaker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dial {
    pub(super) from: usize,
    pub(super) peer: PeerId,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    token: u64,
}

#[derive(Debug)]
pub(super) struct Streams {
    streams: BTreeMap<u64, [Side; 2]>,
    ends: BTreeMap<End, SideId>,
    dialing: BTreeMap<(usize, PeerId), u64>,
    agenda: BTreeMap<(Instant, u64), Due>,
    serial: u64,
    pub(super) link: Link,
    links: BTreeMap<(IpAddr, IpAddr), Link>,
    cuts: BTreeSet<(IpAddr, IpAddr)>,
    chance: Chance,
}

impl Streams {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            streams: BTreeMap::new(),
            ends: BTreeMap::new(),
            dialing: BTreeMap::new(),
            agenda: BTreeMap::new(),
            serial: 0,
            link: Link::default(),
            links: BTreeMap::new(),
            cuts: BTreeSet::new(),
            chance: Chance::new(seed),
        }
    }

    pub(super) fn set_link(&mut self, one: IpAddr, other: IpAddr, link: Link) {
        self.links.insert((one, other), link);
        self.links.insert((other, one), link);
    }

    pub(super) fn cut(&mut self, one: IpAddr, other: IpAddr) {
        self.cuts.extend([(one, other), (other, one)]);
    }

    pub(super) fn mend(&mut self, one: IpAddr, other: IpAddr) {
        self.cuts.remove(&(one, other));
        self.cuts.remove(&(other, one));
    }

    fn is_cut(&self, from: SocketAddr, to: SocketAddr) -> bool {
        self.cuts.contains(&(from.ip(), to.ip()))
    }

    /// Returns the delay of a segment that is sent now; a lost segment is sent again.
    fn delay(&mut self, from: SocketAddr, to: SocketAddr) -> Duration {
        let link = self.links.get(&(from.ip(), to.ip())).unwrap_or(&self.link);
        link.delay(&mut self.chance)
    }

    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn later(&mut self, at: Instant, due: Due) {
        let serial = self.serial();
        self.agenda.insert((at, serial), due);
    }

    /// Returns the time of the next entry of the agenda.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.agenda.keys().next().map(|(at, _)| *at)
    }

    /// Returns the next due entry of the agenda.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Due> {
        let next = self.agenda.first_entry()?;
        (next.key().0 <= now).then(|| next.remove())
    }

    /// Connects a speaker from one of its addresses.
    pub(super) fn dial(
        &mut self,
        now: Instant,
        (from, peer): (usize, PeerId),
        local: IpAddr,
        remote: SocketAddr,
    ) {
        let token = self.serial();
        self.dialing.insert((from, peer), token);
        let local = SocketAddr::new(local, ephemeral(token));
        let dial = Dial {
            from,
            peer,
            local,
            remote,
            token,
        };
        let at = now + self.delay(local, remote);
        self.later(at, Due::Dial(dial));
    }

    /// Whether a dial that has reached its destination is answered now; across a cut link it is
    /// tried again later.
    pub(super) fn reaches(&mut self, now: Instant, dial: Dial) -> bool {
        let is_current = self.is_current(dial);
        let is_cut = self.is_cut(dial.local, dial.remote);
        if is_current && is_cut {
            self.later(now + RETRANSMIT, Due::Dial(dial));
        }
        is_current && !is_cut
    }

    fn is_current(&self, dial: Dial) -> bool {
        self.dialing.get(&(dial.from, dial.peer)) == Some(&dial.token)
    }

    /// Schedules the notification of the connecting speaker.
    pub(super) fn answer(&mut self, now: Instant, dial: Dial, stream: Option<u64>) {
        let at = now + self.delay(dial.remote, dial.local);
        self.later(at, Due::Dialed(dial, stream));
    }

    /// Notifies the connecting speaker of its stream; returns `false` if it no longer waits for it.
    pub(super) fn dialed(&mut self, dial: Dial, stream: Option<u64>) -> bool {
        let is_current = self.is_current(dial);
        if is_current {
            self.dialing.remove(&(dial.from, dial.peer));
        }
        let Some(stream) = stream else {
            return is_current;
        };
        let Some([side, _]) = self.streams.get_mut(&stream) else {
            return false;
        };
        if is_current {
            let end = (dial.from, dial.peer, Conn::Outbound);
            side.owner = Owner::Session(end);
            self.ends.insert(end, (stream, 0));
        }
        is_current
    }

    pub(super) fn stop_dialing(&mut self, from: usize, peer: PeerId) {
        self.dialing.remove(&(from, peer));
    }

    /// Opens a stream between two owners; side 0 is the connecting one.
    pub(super) fn open(&mut self, sides: [(Owner, SocketAddr); 2]) -> u64 {
        let id = self.serial();
        for (number, (owner, _)) in sides.iter().enumerate() {
            if let Owner::Session(end) = owner {
                let former = self.ends.insert(*end, (id, number));
                assert_eq!(former, None, "a connection takes the place of another one");
            }
        }
        let side = |(owner, address)| Side {
            owner,
            address,
            flight: VecDeque::new(),
            last_due: Instant::ZERO,
            underway: 0,
            arrived: BytesMut::new(),
            ended: false,
            writer_waits: false,
        };
        self.streams.insert(id, sides.map(side));
        id
    }

    /// The held connection of a session becomes its inbound one.
    pub(super) fn promote(&mut self, number: usize, peer: PeerId) {
        let end = (number, peer, Conn::Inbound);
        if let Some(place) = self.ends.remove(&(number, peer, Conn::Held)) {
            self.ends.insert(end, place);
            if let Some(side) = self.side(place) {
                side.owner = Owner::Session(end);
            }
        }
    }

    fn side(&mut self, (stream, side): SideId) -> Option<&mut Side> {
        self.streams.get_mut(&stream)?.get_mut(side)
    }

    fn ends(&self, (stream, side): SideId) -> Option<[&Side; 2]> {
        let sides = self.streams.get(&stream)?;
        Some([sides.get(1 - side)?, sides.get(side)?])
    }

    pub(super) fn owner(&self, side: SideId) -> Option<Owner> {
        Some(self.ends(side)?[1].owner)
    }

    pub(super) fn at(&self, end: End) -> Option<SideId> {
        self.ends.get(&end).copied()
    }

    /// The connections of a speaker.
    pub(super) fn of(&self, number: usize) -> Vec<End> {
        let least = (number, PeerId(0), Conn::Outbound);
        let ends = self.ends.range(least..);
        let ends = ends.map(|(end, _)| *end);
        ends.take_while(|end| end.0 == number).collect()
    }

    /// All connections of speakers.
    pub(super) fn all(&self) -> impl Iterator<Item = End> + '_ {
        self.ends.keys().copied()
    }

    /// Returns whether the other end of a connection would acknowledge octets that are sent now.
    pub(super) fn answers(&self, end: End) -> bool {
        let sides = self.at(end).and_then(|side| self.ends(side));
        sides.is_some_and(|[other, own]| !self.is_cut(own.address, other.address))
    }

    /// Returns how many octets the writer of the other side may write now. Zero is recorded.
    pub(super) fn room(&mut self, from: SideId) -> usize {
        let Some(to) = self.side((from.0, 1 - from.1)) else {
            return 0;
        };
        if to.owner == Owner::Scripted {
            return usize::MAX;
        }
        let room = STREAM_OCTETS.saturating_sub(to.underway + to.arrived.len());
        to.writer_waits = room == 0;
        room
    }

    /// Returns whether the writer of a connection waits for its reader.
    pub(super) fn is_full(&self, end: End) -> bool {
        let sides = self.at(end).and_then(|side| self.ends(side));
        sides.is_some_and(|[other, _]| other.writer_waits)
    }

    /// Sends octets from a side to the other one.
    pub(super) fn write(&mut self, now: Instant, from: SideId, octets: Bytes) {
        self.send(now, from, Item::Octets(octets));
    }

    /// Closes a stream from one side: octets that were written before still arrive.
    pub(super) fn close(&mut self, now: Instant, from: SideId) {
        if let Some(Owner::Session(end)) = self.owner(from) {
            self.ends.remove(&end);
        }
        if let Some(side) = self.side(from) {
            side.owner = Owner::Closed;
        }
        self.send(now, from, Item::End);
        self.forget_if_over(from.0);
    }

    fn forget_if_over(&mut self, stream: u64) {
        let is_over = |side: &Side| side.owner == Owner::Closed;
        if self
            .streams
            .get(&stream)
            .is_some_and(|sides| sides.iter().all(is_over))
        {
            self.streams.remove(&stream);
        }
    }

    fn send(&mut self, now: Instant, from: SideId, item: Item) {
        let Some([own, other]) = self.ends((from.0, 1 - from.1)) else {
            return;
        };
        let (own, other) = (own.address, other.address);
        let (delay, is_cut) = (self.delay(own, other), self.is_cut(own, other));
        let to = (from.0, 1 - from.1);
        let Some(side) = self.side(to) else { return };
        if delay.is_zero() && !is_cut && side.flight.is_empty() {
            return side.take(item);
        }
        if let Item::Octets(octets) = &item {
            side.underway += octets.len();
        }
        side.flight.push_back(item);
        side.last_due = side.last_due.max(now + delay);
        let at = side.last_due;
        self.later(at, Due::Arrive(to));
    }

    /// The head of a side's flight arrives, or is sent again if the link is cut.
    pub(super) fn arrive(&mut self, now: Instant, at: SideId) {
        let Some([from, to]) = self.ends(at) else {
            return;
        };
        if self.is_cut(from.address, to.address) {
            return self.later(now + RETRANSMIT, Due::Arrive(at));
        }
        if let Some(side) = self.side(at)
            && let Some(item) = side.flight.pop_front()
        {
            if let Item::Octets(octets) = &item {
                side.underway -= octets.len();
            }
            side.take(item);
        }
    }

    /// The next message on a connection, or its fault.
    pub(super) fn read(&mut self, end: End, octets_max: usize) -> Option<bgp_fsm::Input> {
        let (conn, at) = (end.2, self.at(end)?);
        let arrived = &mut self.side(at)?.arrived;
        match next_frame(arrived, octets_max) {
            Ok(frame) => Some(bgp_fsm::Input::Received {
                conn,
                frame: frame?,
            }),
            Err(notification) => {
                arrived.clear();
                Some(bgp_fsm::Input::FrameError { conn, notification })
            }
        }
    }

    /// All octets that have arrived at a side.
    pub(super) fn drain(&mut self, at: SideId) -> BytesMut {
        let side = self.side(at);
        side.map_or_else(BytesMut::new, |side| side.arrived.split())
    }

    /// Returns whether the other side has closed the stream, and nothing more arrives.
    pub(super) fn has_ended(&self, at: SideId) -> bool {
        self.ends(at).is_some_and(|[_, own]| own.ended)
    }

    /// Removes a stream; octets in flight are lost.
    pub(super) fn forget(&mut self, stream: u64) {
        for side in self.streams.remove(&stream).into_iter().flatten() {
            if let Owner::Session(end) = side.owner
                && self.ends.get(&end).is_some_and(|(of, _)| *of == stream)
            {
                self.ends.remove(&end);
            }
        }
    }

    /// The writer of a connection that waited for room, if there is some by now.
    pub(super) fn woken(&mut self, end: End) -> Option<usize> {
        let at = self.at(end)?;
        let side = self.side(at)?;
        let has_room = side.underway + side.arrived.len() < STREAM_OCTETS;
        if !(side.writer_waits && has_room) {
            return None;
        }
        side.writer_waits = false;
        match self.owner((at.0, 1 - at.1))? {
            Owner::Session((number, ..)) => Some(number),
            _ => None,
        }
    }
}

impl Side {
    fn take(&mut self, item: Item) {
        match item {
            Item::Octets(_) if self.owner == Owner::Closed => {}
            Item::Octets(octets) => self.arrived.extend_from_slice(&octets),
            Item::End => self.ended = true,
        }
    }
}

/// The port that a connection is dialed from.
fn ephemeral(serial: u64) -> u16 {
    32_768 + u16::try_from(serial % 28_000).unwrap_or(0)
}
