//! Streams of octets between machines, with the properties of TCP: in order or not at all, in
//! segments of any size, delayed, and bounded; they end with a reset or silently.

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
use crate::time::nanos;

/// The state of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Least and greatest delay of a segment, in microseconds.
    pub delay_us: (u64, u64),
    /// Probability of a lost segment in thousandths; it is retransmitted later.
    pub loss: u64,
    /// Octets of one direction of a stream that may be in flight or unread.
    pub buffer_octets: usize,
    /// The longest segment in octets.
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

/// The state of a side of a stream at its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The machine has not yet received the event that it is open.
    Pending,
    /// The connection of a session.
    Open(PeerId, Conn),
    /// Closed in order: arriving octets are not read.
    Closed,
    /// Unknown to the machine: arriving segments are answered with a reset.
    Dead,
}

/// An item in flight to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    Octets(usize),
    Fin,
    Reset,
}

/// One side of a stream, and the items in flight to it.
#[derive(Debug)]
struct Side {
    machine: At,
    place: Place,
    flight: VecDeque<Item>,
    /// The octets of `flight`.
    octets: BytesMut,
    /// Octets that have arrived and are unread.
    arrived: BytesMut,
    ended: bool,
    last_due: u64,
    /// Retransmissions of the first item of `flight` while the path is cut.
    tries: u32,
    /// A message that the tap has not received completely.
    partial: BytesMut,
    messages: Messages,
    /// The other side has more octets to write than there was room for.
    writer_waits: bool,
}

/// The messages sent to one side of a stream.
#[derive(Debug, Default)]
struct Messages {
    partial: BytesMut,
    /// The bodies of UPDATEs.
    updates: Vec<Bytes>,
}

impl Messages {
    fn record(&mut self, octets: &[u8]) {
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
    /// Pairs of machines without connectivity.
    cuts: BTreeSet<(At, At)>,
    /// Losses of packets from one machine to another, in thousandths.
    lossy: BTreeMap<(At, At), u64>,
    /// The current conditions.
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

/// The parts that the network needs to schedule events.
pub(crate) struct Sky<'a> {
    pub(crate) now: u64,
    pub(crate) agenda: &'a mut Agenda,
    pub(crate) chance: &'a mut Chance,
}

impl Net {
    /// Cuts or restores the path between two machines; their streams get no notice of it.
    pub fn cut(&mut self, one: usize, other: usize, cut: bool) {
        for pair in [(one, other), (other, one)] {
            match cut {
                true => self.cuts.insert(pair),
                false => self.cuts.remove(&pair),
            };
        }
    }

    /// Cuts or restores the path from one machine to another, and not the way back.
    pub fn cut_one_way(&mut self, from: usize, to: usize, cut: bool) {
        match cut {
            true => self.cuts.insert((from, to)),
            false => self.cuts.remove(&(from, to)),
        };
    }

    /// Sets the losses of packets of BFD between two machines, in thousandths. Streams repeat lost segments
    /// by the losses of the weather only.
    pub fn lose(&mut self, one: usize, other: usize, per_mille: u64) {
        for pair in [(one, other), (other, one)] {
            self.lossy.insert(pair, per_mille);
        }
    }

    /// Returns the delay of a packet of BFD; `None` if it is lost.
    pub(crate) fn packet(&self, chance: &mut Chance, from: At, to: At) -> Option<u64> {
        let path = self.lossy.get(&(from, to)).copied().unwrap_or_default();
        if self.is_cut(from, to) || chance.strikes(path) || chance.strikes(self.weather.loss) {
            return None;
        }
        let (least, most) = self.weather.delay_us;
        Some(chance.within(least..=most.max(least)) * 1000)
    }

    /// Returns the name of a machine.
    pub(crate) fn name(&self, at: At) -> &str {
        self.names.get(at).map_or("?", String::as_str)
    }

    /// Restores every path.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.lossy.clear();
    }

    /// Returns whether two machines have no connectivity.
    #[must_use]
    pub fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cuts.contains(&(one, other))
    }

    /// Returns a delay under the current conditions, including retransmissions.
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

    pub(crate) fn dialed(&mut self, machine: At, peer: PeerId, token: u64) -> bool {
        let ours = self.dialing.get(&(machine, peer)) == Some(&token);
        if ours {
            self.dialing.remove(&(machine, peer));
        }
        ours
    }

    pub(crate) fn stop_dialing(&mut self, machine: At, peer: PeerId) {
        self.dialing.remove(&(machine, peer));
    }

    /// Opens a stream; side 0 is the dialing one, which has no event of it yet.
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
            messages: Messages::default(),
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

    /// Reports the open stream to the dialing side.
    pub(crate) fn opened(&mut self, stream: u32, machine: At, peer: PeerId) {
        if let Some([side, _]) = self.streams.get_mut(&stream) {
            side.place = Place::Open(peer, Conn::Outbound);
            let before = self
                .ends
                .insert((machine, peer, Conn::Outbound), (stream, 0));
            debug_assert!(before.is_none(), "a transport takes the place of another");
        }
    }

    /// Makes the held connection of a peer its inbound one.
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

    /// Returns whether the other end of a connection would acknowledge a segment now.
    pub(crate) fn answers(&self, machine: At, peer: PeerId, conn: Conn) -> bool {
        let end = self.ends.get(&(machine, peer, conn));
        let other = end.and_then(|(stream, side)| self.streams.get(stream)?.get(1 - *side));
        other.is_some_and(|other| {
            let ways = [(machine, other.machine), (other.machine, machine)];
            other.place != Place::Dead && !ways.iter().any(|way| self.cuts.contains(way))
        })
    }

    /// Abandons a stream on the dialing side.
    pub(crate) fn abandon(&mut self, sky: &mut Sky<'_>, stream: u32) {
        if let Some([side, _]) = self.streams.get_mut(&stream) {
            side.place = Place::Dead;
            self.send(sky, stream, 1, Item::Reset);
        }
    }

    /// Returns the bodies of all UPDATEs sent to a connection, as sent.
    pub(crate) fn updates_to(&self, machine: At, peer: PeerId, conn: Conn) -> &[Bytes] {
        let end = self.ends.get(&(machine, peer, conn));
        let side = end.and_then(|(stream, side)| self.streams.get(stream)?.get(*side));
        side.map_or(&[], |side| &side.messages.updates)
    }

    /// Returns the connections of a machine.
    pub(crate) fn ends_of(&self, machine: At) -> Vec<(PeerId, Conn)> {
        let of = self.ends.keys().filter(|(at, ..)| *at == machine);
        of.map(|(_, peer, conn)| (*peer, *conn)).collect()
    }

    /// Returns the connections of a machine with unread octets.
    pub(crate) fn unread_of(&self, machine: At) -> Vec<(PeerId, Conn)> {
        let mut ends = self.ends_of(machine);
        ends.retain(|(peer, conn)| {
            let end = self.ends.get(&(machine, *peer, *conn));
            let side = end.and_then(|(stream, side)| self.streams.get(stream)?.get(*side));
            side.is_some_and(|side| !side.arrived.is_empty())
        });
        ends
    }

    /// Returns the stream of a connection, if it still exists.
    pub(crate) fn stream_of(&self, machine: At, peer: PeerId, conn: Conn) -> Option<u32> {
        Some(self.ends.get(&(machine, peer, conn))?.0)
    }

    /// Returns how many octets a connection accepts now. If there is no room, the writer is woken
    /// later.
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

    /// Takes octets from a connection and splits them into segments.
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

    /// Puts octets into flight to a side.
    pub(crate) fn put(&mut self, sky: &mut Sky<'_>, stream: u32, to: usize, octets: &[u8]) {
        if let Some(side) = self.streams.get_mut(&stream).and_then(|s| s.get_mut(to)) {
            side.messages.record(octets);
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

    /// Returns the octets as the tap leaves them; `None` without a tap.
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

    /// Delivers the next item to its side; returns the machine that can read it.
    pub(crate) fn arrive(&mut self, sky: &mut Sky<'_>, stream: u32, side: usize) -> Option<At> {
        let [one, other] = self.streams.get_mut(&stream)?;
        let (to, from) = if side == 0 {
            (one, other)
        } else {
            (other, one)
        };
        if self.cuts.contains(&(from.machine, to.machine)) {
            if to.flight.front() == Some(&Item::Reset) {
                to.flight.pop_front(); // a second reset is never sent
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

    /// Returns the received octets of a connection, and whether it has ended after them. Returns
    /// the writing machine if it waits for room.
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

    /// Closes a connection on its machine, after remaining octets.
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

    /// Ends the writing direction of this side.
    pub(crate) fn finish(&mut self, sky: &mut Sky<'_>, stream: u32, side: usize) {
        if let Some(own) = self.streams.get_mut(&stream).and_then(|s| s.get_mut(side)) {
            own.place = Place::Closed;
        }
        self.send(sky, stream, 1 - side, Item::Fin);
        self.forget_if_over(stream);
    }

    /// Closes all connections of a machine whose program has ended. Unless it is `silent`, the
    /// other sides receive a reset.
    pub(crate) fn crash(&mut self, sky: &mut Sky<'_>, machine: At, silent: bool) {
        self.dialing.retain(|(at, _), _| *at != machine);
        for (peer, conn) in self.ends_of(machine) {
            self.reset(sky, machine, peer, conn, silent);
        }
    }

    /// Closes one connection of a machine; the other side receives a reset unless it is silent.
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

    /// Resets a random stream on both sides. Returns their machines.
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

/// Returns the length of the message that begins here, once its header is complete (RFC 4271 §4.1).
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
