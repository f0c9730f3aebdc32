//! Streams of octets between machines, as TCP gives them: in order or not at all, in pieces of any
//! size, late, and bounded; they break with a word, or without one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bgp_proto::{HEADER_OCTETS, MessageKind};
use bgp_speaker::bgp_fsm::Conn;
use bgp_speaker::rib::PeerId;
use bytes::{Buf, Bytes, BytesMut};

use crate::agenda::{Agenda, At, Event};
use crate::chance::Chance;
use crate::limits::{RETRANSMIT, RETRANSMIT_MAX};
use crate::plants::WireTap;

/// How the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Least and greatest delay of a segment, in microseconds.
    pub delay_us: (u64, u64),
    /// So many of a thousand segments are lost, and sent again later.
    pub loss: u64,
    /// Octets of one direction of a stream that may be on their way or unread.
    pub buffer_octets: usize,
    /// Octets of the longest segment.
    pub segment_octets: usize,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            delay_us: (50, 500),
            loss: 0,
            buffer_octets: 64 << 10,
            segment_octets: 1448,
        }
    }
}

/// What a side of a stream is to its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Its owner does not know yet that it is open.
    Pending,
    /// The connection of a session.
    Open(PeerId, Conn),
    /// Closed in good order: what arrives is not read any more.
    Closed,
    /// The machine knows nothing of it: what arrives is answered by a reset.
    Dead,
}

/// How a stream has ended for the one who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    Octets(usize),
    Fin,
    Reset,
}

/// One side of a stream, and what is on its way to it.
#[derive(Debug)]
struct Side {
    machine: At,
    place: Place,
    flight: VecDeque<Item>,
    /// The octets of `flight`.
    octets: BytesMut,
    /// Arrived and not read.
    arrived: BytesMut,
    ended: bool,
    last_due: u64,
    /// Waits of the head of `flight` while the way is cut.
    tries: u32,
    /// A message that has not passed the tap whole.
    partial: BytesMut,
    said: Said,
    /// The other side has more to write than there was room for.
    writer_waits: bool,
}

/// What was said to one side of a stream.
#[derive(Debug, Default)]
struct Said {
    partial: BytesMut,
    /// The bodies of UPDATEs.
    updates: Vec<Bytes>,
}

impl Said {
    fn hear(&mut self, octets: &[u8]) {
        self.partial.extend_from_slice(octets);
        while let Some(length) = message_octets(&self.partial)
            && self.partial.len() >= length
        {
            let message = self.partial.split_to(length).freeze();
            if message.get(18) == Some(&MessageKind::Update.0) {
                self.updates.push(message.slice(HEADER_OCTETS..));
            }
        }
    }
}

/// The network.
#[derive(Default)]
pub struct Net {
    streams: BTreeMap<u32, [Side; 2]>,
    ends: BTreeMap<(At, PeerId, Conn), (u32, usize)>,
    dialing: BTreeMap<(At, PeerId), u64>,
    serial: u64,
    /// Pairs of machines between which nothing passes.
    cuts: BTreeSet<(At, At)>,
    /// How it is now.
    pub weather: Weather,
    pub(crate) tap: Option<Box<dyn WireTap>>,
    pub(crate) names: Vec<String>,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net")
            .field("streams", &self.streams.len())
            .field("weather", &self.weather)
            .finish_non_exhaustive()
    }
}

/// What the network needs to let something happen later.
pub(crate) struct Sky<'a> {
    pub(crate) now: u64,
    pub(crate) agenda: &'a mut Agenda,
    pub(crate) chance: &'a mut Chance,
}

impl Net {
    /// Cuts or heals the way between two machines; streams that use it learn nothing of it.
    pub fn cut(&mut self, one: usize, other: usize, cut: bool) {
        for pair in [(one, other), (other, one)] {
            match cut {
                true => self.cuts.insert(pair),
                false => self.cuts.remove(&pair),
            };
        }
    }

    /// The name of a machine.
    pub(crate) fn name(&self, at: At) -> &str {
        self.names.get(at).map_or("?", String::as_str)
    }

    /// Heals every way.
    pub fn heal(&mut self) {
        self.cuts.clear();
    }

    /// Whether nothing passes between two machines.
    #[must_use]
    pub fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cuts.contains(&(one, other))
    }

    /// How long something takes now; what is lost is sent again.
    pub(crate) fn delay(&self, chance: &mut Chance) -> u64 {
        let (least, most) = self.weather.delay_us;
        let mut delay = chance.within(least..=most.max(least)) * 1000 + chance.below(1000) as u64;
        let mut tries = 0;
        while chance.strikes(self.weather.loss.min(900)) {
            delay += nanos(retransmit(tries));
            tries += 1;
        }
        delay
    }

    pub(crate) fn dial(&mut self, machine: At, peer: PeerId) -> u64 {
        self.serial += 1;
        self.dialing.insert((machine, peer), self.serial);
        self.serial
    }

    pub(crate) fn dialled(&mut self, machine: At, peer: PeerId, token: u64) -> bool {
        let ours = self.dialing.get(&(machine, peer)) == Some(&token);
        if ours {
            self.dialing.remove(&(machine, peer));
        }
        ours
    }

    pub(crate) fn stop_dialing(&mut self, machine: At, peer: PeerId) {
        self.dialing.remove(&(machine, peer));
    }

    /// A new stream; side 0 is the one who dialled and does not know yet.
    pub(crate) fn open(&mut self, from: At, to: At, acceptor: Option<(PeerId, Conn)>) -> u32 {
        self.serial += 1;
        let id = u32::try_from(self.serial).unwrap_or(u32::MAX);
        let side = |machine, place| Side {
            machine,
            place,
            flight: VecDeque::new(),
            octets: BytesMut::new(),
            arrived: BytesMut::new(),
            ended: false,
            last_due: 0,
            tries: 0,
            partial: BytesMut::new(),
            said: Said::default(),
            writer_waits: false,
        };
        let theirs = acceptor.map_or(Place::Closed, |(peer, conn)| Place::Open(peer, conn));
        if let Some((peer, conn)) = acceptor {
            let before = self.ends.insert((to, peer, conn), (id, 1));
            debug_assert!(before.is_none(), "a transport takes the place of another");
        }
        self.streams
            .insert(id, [side(from, Place::Pending), side(to, theirs)]);
        id
    }

    /// The one who dialled knows now.
    pub(crate) fn opened(&mut self, stream: u32, machine: At, peer: PeerId) {
        if let Some([side, _]) = self.streams.get_mut(&stream) {
            side.place = Place::Open(peer, Conn::Outbound);
            let before = self
                .ends
                .insert((machine, peer, Conn::Outbound), (stream, 0));
            debug_assert!(before.is_none(), "a transport takes the place of another");
        }
    }

    /// The held connection of a peer becomes its inbound one.
    pub(crate) fn promote(&mut self, machine: At, peer: PeerId) {
        let Some((stream, side)) = self.ends.remove(&(machine, peer, Conn::Held)) else {
            return;
        };
        let end = (machine, peer, Conn::Inbound);
        let before = self.ends.insert(end, (stream, side));
        debug_assert!(before.is_none(), "a transport takes the place of another");
        if let Some(own) = self.streams.get_mut(&stream).and_then(|s| s.get_mut(side)) {
            own.place = Place::Open(peer, Conn::Inbound);
        }
    }

    /// Whether the other end of a connection would acknowledge what is sent now.
    pub(crate) fn answers(&self, machine: At, peer: PeerId, conn: Conn) -> bool {
        let end = self.ends.get(&(machine, peer, conn));
        let other = end.and_then(|(stream, side)| self.streams.get(stream)?.get(1 - *side));
        other.is_some_and(|other| {
            let ways = [(machine, other.machine), (other.machine, machine)];
            other.place != Place::Dead && !ways.iter().any(|way| self.cuts.contains(way))
        })
    }

    /// The one who dialled has lost interest.
    pub(crate) fn abandon(&mut self, sky: &mut Sky<'_>, stream: u32) {
        if let Some([side, _]) = self.streams.get_mut(&stream) {
            side.place = Place::Dead;
            self.send(sky, stream, 1, Item::Reset);
        }
    }

    /// The bodies of all UPDATEs that were said to a connection, as they were when they were said.
    pub(crate) fn updates_to(&self, machine: At, peer: PeerId, conn: Conn) -> &[Bytes] {
        let end = self.ends.get(&(machine, peer, conn));
        let side = end.and_then(|(stream, side)| self.streams.get(stream)?.get(*side));
        side.map_or(&[], |side| &side.said.updates)
    }

    /// The connections of a machine.
    pub(crate) fn ends_of(&self, machine: At) -> Vec<(PeerId, Conn)> {
        let of = self.ends.keys().filter(|(at, ..)| *at == machine);
        of.map(|(_, peer, conn)| (*peer, *conn)).collect()
    }

    /// The connections of a machine on which something has arrived.
    pub(crate) fn unread_of(&self, machine: At) -> Vec<(PeerId, Conn)> {
        let mut ends = self.ends_of(machine);
        ends.retain(|(peer, conn)| {
            let end = self.ends.get(&(machine, *peer, *conn));
            let side = end.and_then(|(stream, side)| self.streams.get(stream)?.get(*side));
            side.is_some_and(|side| !side.arrived.is_empty())
        });
        ends
    }

    /// Whether the connection is (still) this stream.
    pub(crate) fn stream_of(&self, machine: At, peer: PeerId, conn: Conn) -> Option<u32> {
        Some(self.ends.get(&(machine, peer, conn))?.0)
    }

    /// How much a connection would take now. If that is nothing, the writer is woken later.
    pub(crate) fn room(&mut self, machine: At, peer: PeerId, conn: Conn) -> usize {
        let buffer = self.weather.buffer_octets;
        let Some((stream, side)) = self.ends.get(&(machine, peer, conn)).copied() else {
            return 0;
        };
        let Some(to) = self
            .streams
            .get_mut(&stream)
            .and_then(|s| s.get_mut(1 - side))
        else {
            return 0;
        };
        let room = buffer.saturating_sub(to.octets.len() + to.arrived.len());
        to.writer_waits = room == 0;
        room
    }

    /// Takes octets from a connection; they are cut into segments.
    pub(crate) fn write(
        &mut self,
        sky: &mut Sky<'_>,
        (machine, peer, conn): (At, PeerId, Conn),
        octets: &[u8],
    ) {
        if let Some((stream, side)) = self.ends.get(&(machine, peer, conn)).copied() {
            self.put(sky, stream, 1 - side, octets);
        }
    }

    /// Octets on their way to a side.
    pub(crate) fn put(&mut self, sky: &mut Sky<'_>, stream: u32, to: usize, octets: &[u8]) {
        if let Some(side) = self.streams.get_mut(&stream).and_then(|s| s.get_mut(to)) {
            side.said.hear(octets);
        }
        let tapped = self.tapped(stream, to, octets);
        let mut rest = tapped.as_deref().unwrap_or(octets);
        while !rest.is_empty() {
            let longest = self.weather.segment_octets.min(rest.len()) as u64;
            let length = sky.chance.within(1..=longest) as usize;
            let (segment, after) = rest.split_at(length.min(rest.len()));
            if let Some(side) = self.streams.get_mut(&stream).and_then(|s| s.get_mut(to)) {
                side.octets.extend_from_slice(segment);
            }
            self.send(sky, stream, to, Item::Octets(segment.len()));
            rest = after;
        }
    }

    /// What the tap leaves of it; none without a tap.
    fn tapped(&mut self, stream: u32, to: usize, octets: &[u8]) -> Option<Vec<u8>> {
        let tap = self.tap.as_mut()?;
        let [one, other] = self.streams.get_mut(&stream)?;
        let (from, side) = if to == 0 { (other, one) } else { (one, other) };
        let name = |at: At| self.names.get(at).map_or("?", String::as_str);
        side.partial.extend_from_slice(octets);
        let mut passed = Vec::new();
        while let Some(length) = message_octets(&side.partial)
            && side.partial.len() >= length
        {
            let mut message = side.partial.split_to(length).to_vec();
            if tap.message(name(from.machine), name(side.machine), &mut message) {
                passed.extend_from_slice(&message);
            }
        }
        Some(passed)
    }

    fn send(&mut self, sky: &mut Sky<'_>, stream: u32, to: usize, item: Item) {
        let delay = self.delay(sky.chance);
        let Some(side) = self.streams.get_mut(&stream).and_then(|s| s.get_mut(to)) else {
            return;
        };
        side.flight.push_back(item);
        side.last_due = side.last_due.max(sky.now + delay);
        sky.agenda
            .push(side.last_due, Event::Arrive { stream, side: to });
    }

    /// The next item reaches its side; returns the machine that has something to read.
    pub(crate) fn arrive(&mut self, sky: &mut Sky<'_>, stream: u32, side: usize) -> Option<At> {
        let [one, other] = self.streams.get_mut(&stream)?;
        let (to, from) = if side == 0 {
            (one, other)
        } else {
            (other, one)
        };
        if self.cuts.contains(&(from.machine, to.machine)) {
            if to.flight.front() == Some(&Item::Reset) {
                to.flight.pop_front(); // nobody sends a reset twice
                return None;
            }
            let again = sky.now + nanos(retransmit(to.tries));
            to.tries = (to.tries + 1).min(8);
            sky.agenda.push(again, Event::Arrive { stream, side });
            return None;
        }
        to.tries = 0;
        let item = to.flight.pop_front()?;
        match (item, to.place) {
            (Item::Octets(length), Place::Pending | Place::Open(..)) => {
                let segment = to.octets.split_to(length.min(to.octets.len()));
                to.arrived.extend_from_slice(&segment);
            }
            (Item::Octets(length), place) => {
                to.octets.advance(length.min(to.octets.len()));
                if place == Place::Dead && from.place != Place::Dead {
                    self.send(sky, stream, 1 - side, Item::Reset);
                }
                return None;
            }
            (Item::Fin | Item::Reset, _) => to.ended = true,
        }
        let at = to.machine;
        self.forget_if_over(stream);
        Some(at)
    }

    /// What there is to read on a connection, and whether it is over then. The machine that writes
    /// is returned if it waits for room.
    pub(crate) fn read(
        &mut self,
        machine: At,
        peer: PeerId,
        conn: Conn,
    ) -> Option<(BytesMut, bool, Option<At>)> {
        let (stream, side) = self.ends.get(&(machine, peer, conn)).copied()?;
        let [one, other] = self.streams.get_mut(&stream)?;
        let (to, from) = if side == 0 {
            (one, other)
        } else {
            (other, one)
        };
        if to.arrived.is_empty() && !to.ended {
            return None;
        }
        let waits = std::mem::take(&mut to.writer_waits).then_some(from.machine);
        Some((to.arrived.split(), to.ended, waits))
    }

    /// A connection is given up by its machine, after some last words.
    pub(crate) fn close(
        &mut self,
        sky: &mut Sky<'_>,
        (machine, peer, conn): (At, PeerId, Conn),
        words: &[u8],
    ) {
        let Some((stream, side)) = self.ends.remove(&(machine, peer, conn)) else {
            return;
        };
        self.put(sky, stream, 1 - side, words);
        self.finish(sky, stream, side);
    }

    /// No more is sent from this side.
    pub(crate) fn finish(&mut self, sky: &mut Sky<'_>, stream: u32, side: usize) {
        if let Some(own) = self.streams.get_mut(&stream).and_then(|s| s.get_mut(side)) {
            own.place = Place::Closed;
        }
        self.send(sky, stream, 1 - side, Item::Fin);
        self.forget_if_over(stream);
    }

    /// All connections of a machine are lost with their program. Unless it happens silently, the
    /// other sides are told.
    pub(crate) fn crash(&mut self, sky: &mut Sky<'_>, machine: At, silent: bool) {
        self.dialing.retain(|(at, _), _| *at != machine);
        for (peer, conn) in self.ends_of(machine) {
            self.reset(sky, machine, peer, conn, silent);
        }
    }

    /// One connection is lost to its machine; the other side is told unless silent.
    fn reset(&mut self, sky: &mut Sky<'_>, at: At, peer: PeerId, conn: Conn, silent: bool) {
        let Some((stream, side)) = self.ends.remove(&(at, peer, conn)) else {
            return;
        };
        if let Some(own) = self.streams.get_mut(&stream).and_then(|s| s.get_mut(side)) {
            own.place = Place::Dead;
        }
        if !silent {
            self.send(sky, stream, 1 - side, Item::Reset);
        }
    }

    /// Something on the way resets a stream: both sides are told. Returns their machines.
    pub(crate) fn break_one(&mut self, sky: &mut Sky<'_>) -> Option<(At, At)> {
        let streams: Vec<u32> = self.streams.keys().copied().collect();
        let stream = *sky.chance.pick(&streams)?;
        let [one, other] = self.streams.get(&stream)?;
        let machines = (one.machine, other.machine);
        self.send(sky, stream, 0, Item::Reset);
        self.send(sky, stream, 1, Item::Reset);
        Some(machines)
    }

    fn forget_if_over(&mut self, stream: u32) {
        let gone = |side: &Side| {
            matches!(side.place, Place::Closed | Place::Dead) && side.flight.is_empty()
        };
        if self
            .streams
            .get(&stream)
            .is_some_and(|s| s.iter().all(gone))
        {
            self.streams.remove(&stream);
        }
    }
}

/// The length of the message that begins here, once its header is there (RFC 4271 §4.1).
fn message_octets(octets: &[u8]) -> Option<usize> {
    let length = octets.get(16..18)?;
    let length = length
        .iter()
        .fold(0, |sum, octet| sum << 8 | usize::from(*octet));
    Some(length.max(19))
}

fn retransmit(tries: u32) -> Duration {
    let factor = 1_u32.checked_shl(tries).unwrap_or(u32::MAX);
    RETRANSMIT
        .checked_mul(factor)
        .map_or(RETRANSMIT_MAX, |wait| wait.min(RETRANSMIT_MAX))
}

/// A length of time in nanoseconds.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
