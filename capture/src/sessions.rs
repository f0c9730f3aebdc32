//! The TCP connections of a capture.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bgp_proto::{HEADER_OCTETS, MessageKind, Open};
use bytes::Bytes;

use crate::encoding::Encoding;
use crate::file::Packet;
use crate::headers::{self, Segment};
use crate::limits::{DIRECTIONS_MAX, WAITING_OCTETS_MAX};
use crate::stream::{Piece, Stream};

/// A part of one direction of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// The part.
    pub content: Content,
}

/// The content of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// A whole message with its header.
    Message {
        /// The octets.
        octets: Bytes,
        /// How it is encoded.
        encoding: Encoding,
    },
    /// The octets of an invalid header, or of a message without its end.
    Malformed(Bytes),
    /// So many octets are missing in the capture.
    Lost(u32),
    /// So many captured octets belong to no whole message.
    Skipped(u64),
}

/// Sender and receiver.
type Ends = (SocketAddr, SocketAddr);

/// One direction of a connection.
#[derive(Debug, Default)]
struct Direction {
    stream: Stream,
    /// The OPEN of the sender.
    open: Option<Open>,
    /// When it last had a segment.
    used: u64,
}

/// The connections with one TCP port. See [`crate::limits`] for what is kept of them.
#[derive(Debug)]
pub struct Sessions {
    port: u16,
    directions: BTreeMap<Ends, Direction>,
    /// Octets that wait for missing segments.
    waiting_octets: usize,
    /// Counts segments.
    now: u64,
}

impl Sessions {
    /// Follows connections from or to this TCP port; 179 is that of BGP.
    #[must_use]
    pub const fn new(port: u16) -> Self {
        Self {
            port,
            directions: BTreeMap::new(),
            waiting_octets: 0,
            now: 0,
        }
    }

    /// Returns what a packet completes. A packet without a TCP segment of the port has no effect.
    pub fn push(&mut self, packet: &Packet) -> Vec<Item> {
        let mut items = Vec::new();
        if let Some(segment) = headers::segment(packet.link, &packet.octets)
            && [segment.from.port(), segment.to.port()].contains(&self.port)
            && (segment.syn || !segment.payload.is_empty())
        {
            self.segment(&segment, &mut items);
        }
        items
    }

    /// Returns what is left at the end of the capture.
    #[must_use]
    pub fn finish(mut self) -> Vec<Item> {
        let mut items = Vec::new();
        let all: Vec<_> = self.directions.keys().copied().collect();
        for ends in all {
            self.end(ends, &mut items);
        }
        items
    }

    fn segment(&mut self, segment: &Segment<'_>, items: &mut Vec<Item>) {
        let ends = (segment.from, segment.to);
        // A SYN takes one sequence number (RFC 9293 §3.4).
        let sequence = segment.sequence.wrapping_add(u32::from(segment.syn));
        let known = self.directions.get(&ends);
        let begins = segment.syn && !known.is_some_and(|one| one.stream.is_at(sequence));
        if begins {
            self.end(ends, items);
            self.directions.remove(&ends);
        }
        self.make_room(ends, items);
        self.now += 1;
        let direction = self.directions.entry(ends).or_default();
        direction.used = self.now;
        let stream = &mut direction.stream;
        self.waiting_octets -= stream.waiting_octets();
        let mut pieces = Vec::new();
        if begins {
            *stream = Stream::beginning(sequence);
        }
        if !segment.payload.is_empty() {
            stream.data(sequence, segment.payload, &mut pieces);
        }
        while self.waiting_octets + stream.waiting_octets() > WAITING_OCTETS_MAX
            && stream.waiting_octets() > 0
        {
            stream.give_up(&mut pieces);
        }
        self.waiting_octets += stream.waiting_octets();
        self.report(ends, pieces, items);
    }

    /// Ends the direction without a segment for longest if there is no room for another one.
    fn make_room(&mut self, ends: Ends, items: &mut Vec<Item>) {
        if self.directions.len() < DIRECTIONS_MAX || self.directions.contains_key(&ends) {
            return;
        }
        let oldest = self.directions.iter().min_by_key(|(_, one)| one.used);
        if let Some(oldest) = oldest.map(|(ends, _)| *ends) {
            self.end(oldest, items);
            self.directions.remove(&oldest);
        }
    }

    /// Reads what waits in a direction. Its OPEN stays, for the other direction.
    fn end(&mut self, ends: Ends, items: &mut Vec<Item>) {
        let mut pieces = Vec::new();
        if let Some(direction) = self.directions.get_mut(&ends) {
            self.waiting_octets -= direction.stream.waiting_octets();
            direction.stream.finish(&mut pieces);
        }
        self.report(ends, pieces, items);
    }

    fn report(&mut self, ends: Ends, pieces: Vec<Piece>, items: &mut Vec<Item>) {
        let (from, to) = ends;
        for piece in pieces {
            let content = match piece {
                Piece::Message(octets) => self.message(ends, octets),
                Piece::Malformed(octets) => Content::Malformed(octets),
                Piece::Lost(octets) => Content::Lost(octets),
                Piece::Skipped(octets) => Content::Skipped(octets),
            };
            items.push(Item { from, to, content });
        }
    }

    fn message(&mut self, (from, to): Ends, octets: Bytes) -> Content {
        if let Some(open) = open(&octets)
            && let Some(direction) = self.directions.get_mut(&(from, to))
        {
            direction.open = Some(open);
        }
        let open_of = |ends| self.directions.get(&ends).and_then(|one| one.open.as_ref());
        let encoding = Encoding::new(open_of((from, to)), open_of((to, from)));
        Content::Message { octets, encoding }
    }
}

/// Returns the OPEN, if the octets are one.
fn open(octets: &Bytes) -> Option<Open> {
    let kind = octets.get(HEADER_OCTETS - 1)?;
    let is_open = MessageKind(*kind) == MessageKind::Open;
    is_open.then(|| Open::parse(octets.get(HEADER_OCTETS..)?).ok())?
}
